"""A training that was killed goes on from its checkpoint: bit by bit the same, with no more disk than a few answers."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from sfumato.errors import VerificationFailed
from sfumato.privacy import Budget, Descent, GaussianSum, Ledger, PrivateImages, SeededNoise, descend
from sfumato.privacy.gradients import training

from privacy.gradients.models import cross_entropy, small_cnn
from toys import toy

PLAIN = Descent(l2_bound=1.0, rate=0.5)
ROUNDS = 40


class Killed(Exception):
    """In place of a signal."""


def train(
    folder: Path,
    descent: Descent,
    *,
    dies_at: int | None = None,
    model: nn.Module | None = None,
    answers: list[int] | None = None,
    companion: Follower | None = None,
) -> nn.Module:
    """One process's part of a run whose ledger and answers are in a folder; `answers` gets how many are on disk."""

    def losses(step: int) -> Callable[..., torch.Tensor]:
        if step == dies_at:
            raise Killed
        if answers is not None:
            answers.append(len(list((folder / "tape").glob("*.npz"))))
        return cross_entropy

    folder.mkdir(exist_ok=True)
    ledger = Ledger(Budget(math.inf, 1e-5), folder / "ledger.jsonl")
    private = PrivateImages.seal(toy(40, side=8), ledger, folder=folder, noise=SeededNoise(0))
    model = model or small_cnn()
    try:
        mechanism = GaussianSum(rounds=ROUNDS, noise_multiplier=0.3, sampling=0.5)
        descend(private.open(mechanism, purpose="training"), model, losses, descent, what="test", companion=companion)
    finally:
        private.close()
        ledger.close()
    return model


class Follower:
    """A companion whose number follows the model's first weight, and which pulls that weight towards itself."""

    def __init__(self) -> None:
        self.number = torch.zeros(())

    def loss(self, model: nn.Module) -> torch.Tensor:
        return (next(model.parameters()).flatten()[0] - self.number).square()

    def step(self, model: nn.Module, step: int) -> None:
        self.number = 0.9 * self.number + next(model.parameters()).detach().flatten()[0] + step

    def state(self) -> dict[str, torch.Tensor]:
        return {"number": self.number}

    def restore(self, state: dict[str, torch.Tensor]) -> None:
        self.number = state["number"]


@pytest.mark.parametrize(
    "descent",
    [PLAIN, replace(PLAIN, optimizer="adam", rate=0.01), replace(PLAIN, ascent=0.1), replace(PLAIN, momentum=0.0)],
    ids=["momentum", "adam", "dp-sat", "plain"],
)
def test_a_killed_training_ends_with_the_same_weights(
    descent: Descent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:  # all answers stay on the tape, for the others to find
        patched.setattr(training, "CHECKPOINT_ROUNDS", ROUNDS + 1)
        patched.setattr("sfumato.privacy.private.Query.checkpoint", lambda query, state: None)
        whole = train(tmp_path / "whole", descent)
    for dies_at in (0, 15, 16, 17, 33):
        folder = tmp_path / f"{dies_at}"
        shutil.copytree(tmp_path / "whole", folder)
        with pytest.raises(Killed):
            train(folder, descent, dies_at=dies_at)
        resumed = train(folder, descent)
        for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
            assert torch.equal(one, other)


def test_a_companion_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Follower()
    with monkeypatch.context() as patched:  # all answers stay on the tape, for the others to find
        patched.setattr("sfumato.privacy.private.Query.checkpoint", lambda query, state: None)
        model = train(tmp_path / "whole", PLAIN, companion=whole)
    shutil.copytree(tmp_path / "whole", tmp_path / "run")
    with pytest.raises(Killed):
        train(tmp_path / "run", PLAIN, dies_at=20, companion=Follower())
    resumed = Follower()
    again = train(tmp_path / "run", PLAIN, companion=resumed)
    assert torch.equal(resumed.number, whole.number)
    for one, other in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_gradient_on_public_images_is_added_to_the_noisy_one(tmp_path: Path) -> None:
    alone, beside = (train(tmp_path / f"{c is None}", PLAIN, companion=c) for c in (None, Follower()))
    assert not torch.equal(next(alone.parameters()), next(beside.parameters()))


def test_disk_use_does_not_grow_with_the_rounds(tmp_path: Path) -> None:
    answers: list[int] = []
    train(tmp_path / "run", PLAIN, answers=answers)
    assert answers == [step % training.CHECKPOINT_ROUNDS for step in range(ROUNDS)]
    assert [path.name for path in (tmp_path / "run" / "tape").iterdir()] == ["0000.checkpoint"]


def test_a_finished_training_is_not_trained_again(tmp_path: Path) -> None:
    first = train(tmp_path / "run", PLAIN)
    again = train(tmp_path / "run", PLAIN, dies_at=0)  # no round is asked for, so it does not die
    for one, other in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        train(tmp_path / "run", PLAIN, dies_at=20)
    other = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    with pytest.raises(VerificationFailed, match="another model"):
        train(tmp_path / "run", PLAIN, model=other)


def test_a_damaged_checkpoint_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        train(tmp_path / "run", PLAIN, dies_at=20)
    checkpoint = tmp_path / "run" / "tape" / "0000.checkpoint"
    contents = bytearray(checkpoint.read_bytes())
    contents[len(contents) // 2] ^= 1
    checkpoint.write_bytes(contents)
    ledger = (tmp_path / "run" / "ledger.jsonl").read_bytes()
    with pytest.raises(VerificationFailed, match="damaged"):
        train(tmp_path / "run", PLAIN)
    assert (tmp_path / "run" / "ledger.jsonl").read_bytes() == ledger

"""What a training promises around the learner: it resumes, counts everything, and its disk use does not grow."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sfumato.contracts import Reading
from sfumato.errors import UsageError
from sfumato.making import model
from sfumato.making.model import TrainingJob, plan_training, train_model
from sfumato.making.release import Job, make_release
from sfumato.privacy import Noise
from sfumato.privacy.gradients import training
from sfumato.release import read_model, verify
from sfumato.values import Classifier

from commands import tiny

ANSWER = 4 * 26_010  # bytes of a noisy gradient of the network for 28 x 28 pixels, more than for 8 x 8


def job(folder: Path, *, rounds: int = 40, epsilon: float = 1.0) -> TrainingJob:
    """Rounds of a fifth of 90 records; every sixteen of them are replaced by a checkpoint."""
    settings = {"arch": "cnn", "techniques": "none", "batch": "18", "epochs": str(rounds / 5)}
    reading = Reading(classes=("a", "b", "c"))
    return TrainingJob(str(tiny(folder)), "dp-sgd", epsilon, reading=reading, settings=tuple(settings.items()))


class Killed(BaseException):
    """In place of a signal."""


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """How many rounds are asked before the run is killed, where that is a number; and how many were asked."""
    state: list[int | None] = [None, 0]
    original = training.noisy_gradient

    def noisy_gradient(*given: Any, **named: Any) -> None:
        if state[0] is not None and state[1] == state[0]:
            raise Killed
        state[1] += 1
        original(*given, **named)

    monkeypatch.setattr(training, "noisy_gradient", noisy_gradient)
    return state


def draws(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every draw of noise from now on."""
    drawn: list[bytes] = []
    original = Noise.lattice_gaussian

    def witnessed(self: Noise, count: int, scale: float) -> Any:
        made = original(self, count, scale)
        drawn.append(made.tobytes())
        return made

    monkeypatch.setattr(Noise, "lattice_gaussian", witnessed)
    return drawn


@pytest.mark.parametrize("dies_at", [0, 1, 17, 35])
def test_a_killed_training_resumes_and_counts_what_was_spent(
    dies_at: int, rounds: list[int | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, drawn = job(tmp_path), draws(monkeypatch)
    rounds[0] = dies_at
    with pytest.raises(Killed):
        train_model(asked, tmp_path / "m")
    assert not (tmp_path / "m").exists()
    assert len(drawn) == dies_at
    rounds[:] = [None, 0]
    made = train_model(asked, tmp_path / "m")
    verdict = verify(made)
    assert verdict.ok, verdict.text()
    certificate = json.loads((made / "certificate.json").read_text())
    planned = plan_training(asked)
    assert [m["rounds"] for m in certificate["mechanisms"]] == [40] == [m.rounds for m in planned.mechanisms]
    assert certificate["guarantee"]["epsilon"] == pytest.approx(planned.epsilon)
    assert len(drawn) <= 40, "rounds of a block that was lost stay spent"
    assert len(set(drawn)) == len(drawn), "noise was used twice"
    assert rounds[1] <= 40 - dies_at + dies_at % 16, "only answers since the last checkpoint are taken again"
    assert not [path for path in (tmp_path / "m.lab").rglob("*") if "sealed" in path.name]


def test_a_training_that_was_killed_before_it_was_written_asks_nothing_more(
    rounds: list[int | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[Classifier] = []

    def write_model(out: Path, classifier: Classifier, certificate: object) -> Path:
        trained.append(classifier)
        raise Killed

    asked = job(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(model, "write_model", write_model)
        with pytest.raises(Killed):
            train_model(asked, tmp_path / "m")
    assert rounds[1] == 40
    made = train_model(asked, tmp_path / "m")
    assert rounds[1] == 40
    assert verify(made).ok
    state = trained[0].network.state_dict()
    for name, tensor in read_model(made).classifier.network.state_dict().items():
        assert torch.equal(tensor, state[name])


def test_another_job_in_the_same_folder_is_refused(rounds: list[int | None], tmp_path: Path) -> None:
    asked = job(tmp_path)
    rounds[0] = 3
    with pytest.raises(Killed):
        train_model(asked, tmp_path / "m")
    before = {p: p.read_bytes() for p in (tmp_path / "m.lab").rglob("*") if p.is_file()}
    others = (
        replace(asked, epsilon=2.0),
        replace(asked, learner="fixed-features", settings=()),
        replace(asked, settings=(*asked.settings, ("seed", "1"))),
        replace(asked, settings=(*asked.settings, ("momentum", "0.5"))),
    )
    for other in others:
        with pytest.raises(UsageError, match="Expected the same job"):
            train_model(other, tmp_path / "m")
    release = Job(asked.data, "dp-merf", 1.0, reading=asked.reading, settings=(("steps", "3"),))
    with pytest.raises(UsageError, match="Expected the same job"):
        make_release(release, tmp_path / "m")
    assert {p: p.read_bytes() for p in (tmp_path / "m.lab").rglob("*") if p.is_file()} == before


def test_disk_use_does_not_grow_with_the_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, sizes = training.noisy_gradient, {40: [0], 120: [0]}
    for count, seen in sizes.items():
        (tmp_path / f"{count}").mkdir()
        tape = tmp_path / f"{count}" / "m.lab" / "tape"

        def noisy_gradient(*given: Any, tape: Path = tape, seen: list[int] = seen, **named: Any) -> None:
            original(*given, **named)
            seen.append(sum(path.stat().st_size for path in tape.iterdir()))

        monkeypatch.setattr(training, "noisy_gradient", noisy_gradient)
        train_model(job(tmp_path / f"{count}", rounds=count, epsilon=math.inf), tmp_path / f"{count}" / "m")
        assert len(seen) == count + 1
        seen.append(sum(path.stat().st_size for path in tape.iterdir()))
    answer = sizes[40][1]  # the tape after one round
    assert 0 < answer < ANSWER
    assert max(sizes[40]) <= 20 * answer
    assert abs(max(sizes[40]) - max(sizes[120])) <= answer, "while it was trained"
    assert abs(sizes[40][-1] - sizes[120][-1]) <= answer, "at the end"

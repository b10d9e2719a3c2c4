"""Shadow releases: they find the records of a method that copies, and of a private one they find nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from sfumato import contracts, data
from sfumato.contracts import Reading
from sfumato.errors import NotApplicable
from sfumato.judging.shadow import likelihood_ratios, shadow_lira
from sfumato.making.release import Job, make_release
from sfumato.privacy import GaussianSum
from sfumato.release import read_release
from sfumato.statistics.roc import area
from sfumato.values import Images, Reference

SETTINGS = (("steps", "20"), ("frequencies", "100"))


def test_likelihood_ratios_find_who_was_in() -> None:
    draw = torch.Generator().manual_seed(0)
    inside = torch.stack([torch.randperm(16, generator=draw) < 8 for _ in range(400)], dim=1)
    usual = 3 * torch.randn(400, generator=draw, dtype=torch.float64)
    noise = torch.randn(16, 400, generator=draw, dtype=torch.float64)
    target = usual + torch.randn(400, generator=draw, dtype=torch.float64)
    target[:200] += 2
    scores = likelihood_ratios(target, usual + noise + 2 * inside, inside)
    assert area(scores[:200], scores[200:])[0] > 0.88  # at best Phi(sqrt 2) = 0.92
    assert abs(area(target[:200], target[200:])[0] - 0.5) < 0.25
    assert likelihood_ratios(target, usual + noise, inside).abs().mean() < 1


@dataclass(frozen=True)
class Copyist(contracts.Synthesizer):
    """Releases its records, or nearly: every image is the mean of the few that fall into its drawer."""

    drawers: int = 600

    @classmethod
    def for_task(cls, spec: object, budget: object) -> Copyist:
        return cls()

    def plan(self, spec: object) -> list[object]:
        return []

    def seconds(self, spec: object) -> float:
        return 1.0

    def fit(self, private, public):
        (mechanism,) = private.ledger.calibrate(GaussianSum(rounds=1, sampling=1.0))
        key = torch.randn(64, generator=torch.Generator().manual_seed(0))

        def contribution(image: Tensor, label: Tensor) -> Tensor:
            drawer = (1e3 * (image.flatten() * key).sum()).long() % self.drawers
            row = torch.cat([image.flatten(), image.new_ones(1)]) / 9
            return (torch.nn.functional.one_hot(drawer, self.drawers).float()[:, None] * row).flatten()

        sums = private.open(mechanism, purpose="drawers")(contribution, l2_bound=1.0).reshape(self.drawers, 65)
        pictures = (sums[:, :64] / sums[:, 64:].clamp(min=1e-3)).clamp(0, 1).mul(255).round().to(torch.uint8)
        pictures, classes = pictures.reshape(-1, 1, 8, 8), private.spec.classes
        return lambda labels: Images(pictures[torch.arange(len(labels)) % self.drawers], labels, classes)


def test_shadows_of_a_private_release_say_nothing(tmp_path: Path) -> None:
    private = make_release(Job("digits", "dp-merf", 1.0, settings=SETTINGS), tmp_path / "r")
    real = Reference(train=data.load("digits"), test=data.load("digits", Reading(split="test")))
    found = shadow_lira(read_release(private), real, shadows=4, candidates=100)
    assert found.members.shape == found.others.shape == (100,)
    value, error = area(found.members, found.others)
    assert abs(value - 0.5) < 4 * error
    assert "for the lab alone" in found.details["limit"]
    with pytest.raises(NotApplicable, match="shadows in 3 s"):
        shadow_lira(read_release(private), real, seconds=3)
    with pytest.raises(NotApplicable, match="test split"):
        shadow_lira(read_release(private), replace(real, test=None))
    changed = read_release(private)
    changed.certificate["method"]["hyperparameters"]["novelty"] = 3
    with pytest.raises(NotApplicable, match="that this version knows"):
        shadow_lira(changed, real)


def test_shadows_find_the_records_of_a_copyist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 400 records in 600 drawers about half lie alone, and are released as they are."""
    train, test = data.load("digits"), data.load("digits", Reading(split="test"))
    few = Images(train.pixels[:400], train.labels[:400], train.classes)
    arrays = {"x_train": few.pixels[:, 0], "y_train": few.labels, "x_test": test.pixels[:, 0], "y_test": test.labels}
    np.savez(tmp_path / "few.npz", **{name: value.numpy() for name, value in arrays.items()})
    usual = contracts.find
    monkeypatch.setattr(contracts, "find", lambda kind, name: Copyist if kind == "methods" else usual(kind, name))
    job = Job(str(tmp_path / "few.npz"), "copyist", math.inf, reading=Reading(classes=train.classes))
    release = read_release(make_release(replace(job, count=600), tmp_path / "r"))
    found = shadow_lira(release, Reference(train=few, test=test), shadows=6, candidates=150)
    assert area(found.members, found.others)[0] > 0.75

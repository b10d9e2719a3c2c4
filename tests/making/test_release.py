"""What a run promises around the method: settings, public images, balance, and a release that loads elsewhere."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from sfumato import contracts
from sfumato.contracts import Reading
from sfumato.data import load
from sfumato.errors import UsageError
from sfumato.making.release import Job, make_release, plan_release
from sfumato.release import read_release, verify


@pytest.fixture
def job(tmp_path: Path) -> Job:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", x=rng.integers(0, 256, (60, 8, 8), dtype=np.uint8), y=np.arange(60) % 3)
    settings = (("steps", "3"), ("frequencies", "40"))
    return Job(str(tmp_path / "data.npz"), "dp-merf", 1.0, reading=Reading(classes=("a", "b", "c")), settings=settings)


def test_settings_are_typed_and_named(job: Job) -> None:
    assert plan_release(job).task.synthesizer.steps == 3
    for wrong in (("steps", "many"), ("stepz", "3")):
        with pytest.raises(UsageError, match="steps"):
            plan_release(replace(job, settings=(wrong,)))


def test_public_images_are_refused_where_they_are_not_used(job: Job) -> None:
    with pytest.raises(UsageError, match="no use of public"):
        plan_release(replace(job, public="digits"))


def test_public_images_reach_a_method_that_wants_them(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    plain = contracts.find("methods", "dp-merf")

    @dataclass(frozen=True)
    class Curious(plain):
        public_images = "needed"

        def fit(self, private: object, public: object) -> object:
            seen.append(public)
            return super().fit(private, public)

    monkeypatch.setattr(contracts, "find", lambda kind, name: Curious)
    with pytest.raises(UsageError, match="--public"):
        plan_release(job)
    np.savez(tmp_path / "public.npz", x=np.zeros((5, 16, 16, 3), np.uint8), y=np.zeros(5, np.int64))
    made = make_release(replace(job, public=str(tmp_path / "public.npz")), tmp_path / "r")
    assert seen[0].pixels.shape == (5, 1, 8, 8), "public images come in the private data's shape"
    certificate = json.loads((made / "certificate.json").read_text())
    assert certificate["public"]["public_data"] == "public.npz"
    assert any("public images" in text for text in certificate["assumptions"])


def test_classes_are_balanced_and_the_count_is_as_asked(job: Job, tmp_path: Path) -> None:
    release = read_release(make_release(replace(job, count=10), tmp_path / "r"))
    assert np.bincount(release.images.labels.numpy()).tolist() == [4, 3, 3]


def test_class_folders_are_exported_and_verify(job: Job, tmp_path: Path) -> None:
    made = make_release(replace(job, count=6, folders=True), tmp_path / "r")
    assert len(list((made / "images").rglob("*.png"))) == 6
    assert verify(made).ok


def test_a_release_is_data_again(job: Job, tmp_path: Path) -> None:
    made = make_release(replace(job, count=6), tmp_path / "r")
    again = load(made)
    assert again.classes == ("a", "b", "c")
    assert (again.pixels == read_release(made).images.pixels).all()

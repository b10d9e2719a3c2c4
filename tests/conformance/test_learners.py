"""What every learner is held to, the moment its file exists."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from conformance import checking
from conformance.checking import (
    CLASSES,
    SEVERAL,
    SPECS,
    Blind,
    Records,
    expect_charged_as_planned,
    expect_defaults,
    handles,
    leaks,
    neighbours,
    photographs,
    public_images,
    secret,
    shapes,
    written,
)
from sfumato import contracts
from sfumato.contracts import Learner, Reading
from sfumato.errors import SfumatoError
from sfumato.making.model import TrainingJob, plan_training, train_model
from sfumato.making.settings import with_settings
from sfumato.privacy import Budget, Noise, PrivateImages, SeededNoise, Tape
from sfumato.release import read_model, verify
from sfumato.values import Classifier, Spec

LEARNERS = list(contracts.names("learners"))
TOY = Spec(90, 1, 8, 8, CLASSES)


@pytest.fixture(autouse=True)
def few_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few images that are not private are enough to see the boundary."""
    monkeypatch.setattr("sfumato.learners.fixed_features.EXAMPLES", 60)


def quick(name: str) -> tuple[tuple[str, str], ...]:
    """A few rounds are enough, too."""
    known = {f.name for f in fields(contracts.find("learners", name))}
    return tuple((setting, value) for setting, value in (("rounds", "4"), ("epochs", "1")) if setting in known)


def wants_public(name: str) -> bool:
    return learner_of(name).public_images == "needed"


def learner_of(name: str) -> Learner:
    return contracts.find("learners", name).for_task(TOY, Budget(1.0, 1e-5))


def job(tmp_path: Path, name: str, pixels: np.ndarray, labels: np.ndarray, **changed: object) -> TrainingJob:
    settings = {"epsilon": 1.0, "settings": quick(name), **changed}
    if wants_public(name):
        images = public_images(pixels.shape[1]).pixels.numpy().transpose(0, 2, 3, 1)
        np.savez(tmp_path / "public.npz", x=images, y=np.zeros(40, np.int64))
        settings["public"] = str(tmp_path / "public.npz")
    return TrainingJob(written(tmp_path, pixels, labels), name, reading=Reading(classes=CLASSES), **settings)


@pytest.mark.parametrize("name", LEARNERS)
def test_a_trained_model_verifies_costs_what_was_planned_and_reads_back(name: str, tmp_path: Path) -> None:
    asked = job(tmp_path, name, *shapes())
    planned = plan_training(asked)
    made = train_model(asked, tmp_path / "m")
    verdict = verify(made)
    assert verdict.ok, verdict.text()
    certificate = json.loads((made / "certificate.json").read_text())
    assert 0 < certificate["guarantee"]["epsilon"] <= 1.0
    assert certificate["guarantee"]["epsilon"] == pytest.approx(planned.epsilon, rel=1e-6)
    expect_charged_as_planned(certificate, planned.mechanisms)
    read = read_model(made)
    assert read.classes == CLASSES
    assert read.shape == (1, 8, 8)
    logits = read.classifier.network(torch.from_numpy(shapes()[0]).float() / 255)
    assert logits.shape == (90, len(CLASSES))
    assert logits.isfinite().all()


@pytest.mark.parametrize("images", [lambda: shapes(channels=3), photographs], ids=["small", "photographs"])
@pytest.mark.parametrize("name", LEARNERS)
def test_it_takes_colour_images(name: str, images: Callable[[], Records], tmp_path: Path) -> None:
    verdict = verify(train_model(job(tmp_path, name, *images()), tmp_path / "m"))
    assert verdict.ok, verdict.text()


@pytest.mark.parametrize("name", LEARNERS)
def test_it_runs_without_a_budget_and_says_so(name: str, tmp_path: Path) -> None:
    made = train_model(job(tmp_path, name, *shapes(), epsilon=math.inf), tmp_path / "m")
    assert not verify(made).ok
    assert "NOT PRIVATE" in (made / "README.md").read_text()


@pytest.mark.parametrize("name", LEARNERS)
def test_seeded_noise_is_marked_wherever_it_appears(name: str, tmp_path: Path) -> None:
    made = train_model(job(tmp_path, name, *shapes()), tmp_path / "m", noise=SeededNoise(0))
    certificate = json.loads((made / "certificate.json").read_text())
    assert certificate["guarantee"]["level"] == "not-private"
    assert certificate["guarantee"]["epsilon"] is None
    assert "NOT PRIVATE" in certificate["noise"]["source"]
    assert "NOT PRIVATE" in (made / "README.md").read_text()
    verdict = verify(made)
    assert "NOT PRIVATE" in verdict.text()
    assert not verdict.ok


@pytest.mark.parametrize("name", LEARNERS)
def test_a_plan_reads_no_pixel(name: str, tmp_path: Path) -> None:
    pixels, labels = shapes()
    planned = plan_training(job(tmp_path, name, pixels, labels), source=Blind(pixels, labels, CLASSES))
    assert planned.mechanisms
    assert 0 < planned.epsilon <= 1.0
    assert planned.seconds > 0


@pytest.mark.parametrize("name", LEARNERS)
def test_the_classifier_holds_no_handle_and_works_after_close(name: str) -> None:
    learner = with_settings(learner_of(name), dict(quick(name)))
    classifier = checking.fit(learner, public_images() if wants_public(name) else None)
    assert isinstance(classifier, Classifier)
    logits = classifier.network(torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0)))
    assert logits.shape == (2, len(CLASSES))
    assert not classifier.network.training
    assert not handles(classifier)


def replay_problems(name: str, tmp_path: Path, kinds: Sequence[str]) -> list[str]:
    def make(records: Records, out: Path, noise: Noise, tape: Tape) -> Path:
        return train_model(job(tmp_path, name, *records), out, noise=noise, tape=tape)

    return checking.replay_problems(make, tmp_path, kinds)


@pytest.mark.parametrize("name", LEARNERS)
def test_record_and_replay_on_neighbours(name: str, tmp_path: Path) -> None:
    assert replay_problems(name, tmp_path, ("a white outlier", "the only one of its class", SEVERAL)) == []


@pytest.mark.parametrize("name", LEARNERS)
def test_record_and_replay_on_every_neighbour(name: str, tmp_path: Path) -> None:
    assert replay_problems(name, tmp_path, list(neighbours(*shapes()))) == []


@pytest.mark.parametrize("name", LEARNERS)
def test_defaults_come_from_public_facts(name: str) -> None:
    tiny = Spec(1, 1, 8, 8, ("a", "b"))
    expect_defaults(contracts.find("learners", name), (*SPECS, TOY, tiny), (1e-3, 1.0, 10.0, math.inf))


@pytest.mark.parametrize("leak", leaks())
def test_replay_notices_a_leaky_learner(leak: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = contracts.find("learners", contracts.DEFAULT_LEARNER)
    original = learner.fit

    def leaky(self: object, private: PrivateImages, public: object) -> Classifier:
        found = secret(leak, private)
        classifier = original(self, private, public)
        next(classifier.network.parameters()).data.view(-1)[0] = found
        return classifier

    monkeypatch.setattr(learner, "fit", leaky)
    kinds = ("a white outlier", "the last record", "the first record")
    assert replay_problems(contracts.DEFAULT_LEARNER, tmp_path, kinds)


@pytest.mark.parametrize("name", LEARNERS)
def test_data_in_several_processes_gives_the_same_model(name: str, tmp_path: Path) -> None:
    """Up to rounding: the fast path adds in float, in another order where records are in shards."""
    pytest.importorskip("cloudpickle")
    pixels, labels = shapes()
    (tmp_path / "shards").mkdir()
    for part, (start, end) in {"a": (0, 31), "b": (31, 90)}.items():
        images = pixels[start:end].transpose(0, 2, 3, 1)
        np.savez(tmp_path / "shards" / f"{part}.npz", x=images, y=labels[start:end])
    alone = job(tmp_path, name, pixels, labels)
    together = replace(alone, data=str(tmp_path / "shards"), processes=2)
    first, second = (
        train_model(asked, tmp_path / out, noise=SeededNoise(0))
        for asked, out in ((alone, "alone"), (together, "together"))
    )
    assert (first / "certificate.json").read_bytes() == (second / "certificate.json").read_bytes()
    weights = [read_model(folder).classifier.network.state_dict() for folder in (first, second)]
    for parameter, value in weights[0].items():
        torch.testing.assert_close(weights[1][parameter], value, rtol=1e-3, atol=1e-3)


def test_an_unknown_learner_is_a_clear_error() -> None:
    with pytest.raises(SfumatoError, match="fixed-features"):
        contracts.find("learners", "dp-sdg")

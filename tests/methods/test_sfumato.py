"""Sfumato: the image code suits the images, class images match labels, the teacher labels the distillation set."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from sfumato.errors import UsageError
from sfumato.methods.sfumato import PURPOSES, Sfumato
from sfumato.networks.photograph_features import PhotographFeatures
from sfumato.networks.scattering import ScatteringFeatures
from sfumato.privacy import Budget
from sfumato.synthesis.teacher_filtered import TeacherFilteredSampler
from sfumato.values import Images, Spec

from toys import ToySource, digits, digits_known, fitted, fitted_sampler

CLASSES = ("round", "tall", "wide")
SMALL = Sfumato(components=2, component_rounds=2, rounds=60, sampling=0.3, candidates=4)


def objects(count: int = 600, side: int = 20, channels: int = 1, white: bool = False) -> ToySource:
    """Ellipses of three proportions with a shade, on black or white."""
    rng = np.random.default_rng(0)
    yy, xx = np.mgrid[:side, :side] / side - 0.5
    labels = np.arange(count) % 3
    sizes = np.array([[0.3, 0.3], [0.4, 0.15], [0.15, 0.4]])[labels] * rng.uniform(0.9, 1.1, (count, 2))
    inside = (yy / sizes[:, :1, None]) ** 2 + (xx / sizes[:, 1:, None]) ** 2 < 1
    tones = inside * (0.5 + 0.3 * rng.uniform(-1, 1, (count, 1, 1)) * (1 + xx))
    pixels = np.repeat((255 * tones)[:, None], channels, 1).astype(np.uint8)
    return ToySource(255 - pixels if white else pixels, labels, CLASSES)


def fitted_sfumato(
    source: ToySource, epsilon: float = 10.0, method: Sfumato = SMALL, public: Images | None = None
) -> TeacherFilteredSampler:
    sampler = fitted_sampler(method, source, epsilon, public=public)
    assert isinstance(sampler, TeacherFilteredSampler)
    return sampler


def strokes(source: ToySource) -> ToySource:
    source.pixels = np.where(source.pixels > 0, 255, 0).astype(np.uint8)
    return source


@pytest.mark.parametrize(
    ("source", "kind", "inverted"),
    [
        (objects(), "object", False),
        (objects(white=True), "object", True),
        (strokes(objects()), "strokes", False),
        (objects(channels=3), "scene", False),
        (objects(side=12), "scene", False),
    ],
)
def test_the_image_code_suits_the_images(source: ToySource, kind: str, inverted: bool) -> None:
    code = fitted_sfumato(source).sampler.code
    assert (code.kind, code.inverted) == (kind, inverted)


@pytest.mark.parametrize("white", [False, True])
def test_scenes_are_centred_on_their_own_lightness(white: bool) -> None:
    # A long part that all codes share would raise the clipping bound, and with it the noise.
    source = objects(channels=3, white=white)
    assert fitted_sfumato(source).sampler.code.centres[0] == pytest.approx(source.pixels.mean() / 255, abs=0.1)


@pytest.mark.parametrize("white", [False, True])
def test_images_of_a_class_look_like_it(white: bool) -> None:
    source = objects(white=white)
    images = fitted_sfumato(source)(torch.arange(300) % 3)
    real = np.stack([source.pixels[source.labels == c].mean(0) for c in range(3)])
    made = np.stack([images.pixels[images.labels == c].float().mean(0).numpy() for c in range(3)])
    distances = ((made[:, None] - real[None]) ** 2).mean((2, 3, 4))
    assert (distances.argmin(1) == np.arange(3)).all()
    assert distances.diagonal().max() < 30**2


def test_the_teacher_agrees_with_the_labels_and_labels_the_distillation_set() -> None:
    sampler = fitted_sfumato(objects())
    images = sampler(torch.arange(300) % 3)
    assert (sampler.teacher(images.pixels).argmax(1) == images.labels).float().mean() > 0.85
    assert images.logits is None
    assert images.transfer is not None
    assert images.transfer.logits is not None
    torch.testing.assert_close(sampler.teacher(images.transfer.pixels), images.transfer.logits, atol=1e-4, rtol=1e-4)
    assert (images.transfer.labels == images.transfer.logits.argmax(1)).all()
    assert len(images.transfer) == 600


def test_the_distillation_set_has_more_detail_than_class_images() -> None:
    sampler = fitted_sfumato(objects(), method=dataclasses.replace(SMALL, candidates=6, procedural_share=0.0))
    images = sampler(torch.arange(600) % 3)

    def steps(pixels: torch.Tensor) -> float:
        return float(pixels.float().diff(dim=3).abs().mean())

    assert images.transfer is not None
    assert steps(images.transfer.pixels) > 1.17 * steps(images.pixels)


def test_selection_by_the_teacher_makes_labels_more_accurate() -> None:
    few, many = (fitted_sfumato(objects(), 2.0, dataclasses.replace(SMALL, candidates=n)) for n in (1, 6))
    labels = torch.arange(600) % 3
    right = [(s.teacher(s(labels).pixels).argmax(1) == labels).float().mean() for s in (few, many)]
    assert right[1] > right[0]


def test_public_images_are_part_of_the_distillation_set() -> None:
    public = Images(torch.full((5, 1, 20, 20), 77, dtype=torch.uint8), torch.zeros(5).long(), ("x",))
    method = dataclasses.replace(SMALL, transfer_ratio=1, procedural_share=1.0)
    without, given = (
        fitted_sfumato(objects(), 10.0, method, images)(torch.arange(100) % 3) for images in (None, public)
    )
    flat = (given.transfer.pixels == 77).all(3).all(2).all(1)  # type: ignore[union-attr]
    assert flat.sum() == 50  # half of the procedural share
    assert not (without.transfer.pixels == 77).all(3).all(2).any()  # type: ignore[union-attr]
    assert not (given.pixels == 77).all(3).all(2).any()


def test_rare_classes_have_varied_images() -> None:
    source = objects()
    keep = np.concatenate([np.flatnonzero(source.labels != 2), np.flatnonzero(source.labels == 2)[:12]])
    images = fitted_sfumato(ToySource(source.pixels[keep], source.labels[keep], CLASSES))(torch.arange(90) % 3)
    assert images.pixels[images.labels == 2].float().std() > 10


@pytest.mark.parametrize(("epsilon", "least"), [(1.0, 0.5), (10.0, 0.75)])
def test_a_simple_classifier_learns_digits(epsilon: float, least: float) -> None:
    source = digits()[0]
    method = Sfumato.for_task(source.spec, Budget(epsilon, 1e-4))
    assert digits_known(fitted(method, source, epsilon, count=1_000)) > least


def test_few_records_still_train_the_teacher() -> None:
    source, held_out, truth = digits()
    good = Sfumato.for_task(source.spec, Budget(1.0, 1e-4))
    teachers = [
        fitted_sfumato(source, 1.0, m).teacher
        for m in (good, dataclasses.replace(good, rate=100.0, whitening_level=1e6))
    ]
    right = [(t(torch.from_numpy(held_out)).argmax(1) == torch.from_numpy(truth)).float().mean() for t in teachers]
    assert right[0] > max(0.75, right[1])  # long steps follow the noise


def coloured_stripes(count: int, seed: int) -> ToySource:
    """Stripes that rise or lie flat, in random colours at random places: no mean tells the classes apart."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    place = np.mgrid[:16, :16][labels] + rng.uniform(0, 6, (count, 1, 1))
    wave = (np.sin(2 * np.pi * place / 6) > 0)[:, None]
    first, second = rng.uniform(0, 255, (2, count, 3, 1, 1))
    return ToySource(np.where(wave, first, second), labels, ("flat", "rising"))


def test_a_teacher_of_colour_images_learns_patterns_that_no_mean_shows() -> None:
    sampler = fitted_sfumato(coloured_stripes(600, seed=0))
    assert isinstance(sampler.teacher.features.features, PhotographFeatures)
    fresh = coloured_stripes(200, seed=1)
    right = sampler.teacher(torch.from_numpy(fresh.pixels)).argmax(1) == torch.from_numpy(fresh.labels)
    assert right.float().mean() > 0.9


def test_class_images_of_photographs_that_are_not_aligned_are_those_that_the_teacher_takes_for_the_class() -> None:
    sampler = fitted_sfumato(coloured_stripes(600, seed=0))
    assert not sampler.sampled_classes
    labels = torch.arange(40) % 2
    made = sampler(labels)
    assert made.transfer is not None
    assert made.transfer.logits is not None
    there = {pixels.numpy().tobytes() for pixels in made.transfer.pixels}
    assert all(pixels.numpy().tobytes() in there for pixels in made.pixels)
    likely = sampler.teacher(made.pixels).softmax(1)[torch.arange(40), labels]
    assert likely.mean() > made.transfer.logits.softmax(1).mean(0).max()  # likelier than images at random


def test_class_images_of_aligned_photographs_are_sampled_without_procedural_detail() -> None:
    sampler = fitted_sfumato(objects(channels=3))
    assert sampler.sampled_classes
    sample, asked = sampler.sampler, []

    def recorded(labels: torch.Tensor, *, details: int) -> torch.Tensor:
        asked.append(details)
        return sample(labels, details=details)

    sampler.sampler = recorded  # type: ignore[assignment]
    assert len(sampler(torch.arange(30) % 3)) == 30
    assert set(asked) == {0}


def test_features_of_grey_and_of_tiny_images_are_scattering() -> None:
    for source in (objects(60), objects(60, side=6, channels=3)):
        assert isinstance(fitted_sfumato(source).teacher.features.features, ScatteringFeatures)


def test_settings_follow_from_public_facts() -> None:
    spec = Spec(60_000, 1, 28, 28, tuple("0123456789"))
    low, middle, high = (Sfumato.for_task(spec, Budget(e, 1e-5)) for e in (0.2, 1.0, 10.0))
    assert low.components < middle.components < high.components
    assert low.rounds < middle.rounds < high.rounds
    assert low.means_share > middle.means_share > high.means_share
    assert low.rate < middle.rate < high.rate
    assert low.whitening_level > middle.whitening_level
    assert (
        middle.transfer_ratio
        < Sfumato.for_task(dataclasses.replace(spec, count=1_500), Budget(1.0, 1e-5)).transfer_ratio
    )
    colour = Sfumato.for_task(dataclasses.replace(spec, channels=3), Budget(1.0, 1e-5))
    assert colour.mixture_share < middle.mixture_share
    assert PURPOSES["spectrum"] in {m.purpose for m in colour.plan(dataclasses.replace(spec, channels=3))}
    assert PURPOSES["spectrum"] not in {m.purpose for m in middle.plan(spec)}
    assert sum(m.share for m in middle.plan(spec)) == pytest.approx(1.0)
    assert Sfumato.for_task(spec, Budget(math.inf, 1e-5)).rate < 10


@pytest.mark.parametrize(
    "wrong",
    [
        {"mixture_share": 0.0},
        {"mixture_share": 1.0},
        {"components": 0},
        {"candidates": 0},
        {"transfer_ratio": 0},
        {"procedural_share": -0.1},
        {"rate": 0.0},
        {"l2_bound": -1.0},
        {"seed": -1},
    ],
)
def test_impossible_values_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="Expected"):
        Sfumato(**wrong)  # type: ignore[arg-type]

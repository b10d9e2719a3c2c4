"""What every metric of a released classifier is held to, the moment its file exists."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sfumato import contracts
from sfumato.contracts import ClassifierMetric
from sfumato.lab.scores import KINDS
from sfumato.values import Groups, Images, Reference

CLASSES = ("a", "b", "c")
METRICS = contracts.names_of("metrics", ClassifierMetric)


@pytest.fixture(scope="module")
def real() -> Reference:
    """Colour images whose first pixels say the class and the group: all that a metric may ask for."""
    draw = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (300, 3, 4, 4), generator=draw, dtype=torch.uint8)
    labels, groups = torch.arange(300) % 3, torch.arange(300) // 3 % 2
    pixels[:, :, 0, 0], pixels[:, :, 0, 1] = labels[:, None].byte(), groups[:, None].byte()
    images = Images(pixels, labels, CLASSES)
    return Reference(images, images, groups=Groups(("g", "h"), groups, groups))


def right(pixels: Tensor) -> Tensor:
    """Always right, and sure of it."""
    return 20.0 * torch.nn.functional.one_hot(pixels[:, 0, 0, 0].long(), 3)


def unfair(pixels: Tensor) -> Tensor:
    """Right in the first group; of the second it gives three in four the last class, and is sure of it."""
    second = (pixels[:, 0, 0, 1, None] == 1) & (pixels[:, 0, 0, 2, None] < 192)
    return torch.where(second, torch.tensor([0.0, 0.0, 20.0]), right(pixels))


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_prefers_a_right_and_fair_classifier(name: str, real: Reference) -> None:
    metric = contracts.find("metrics", name)()
    best, worst = metric(right, real), metric(unfair, real)
    assert metric.judges in KINDS
    assert best.name == worst.name == name
    assert best.higher_is_better == worst.higher_is_better == metric.higher_is_better
    assert (best.value > worst.value) == metric.higher_is_better
    assert worst.standard_error is not None
    assert worst.standard_error > 0
    assert abs(best.value - worst.value) > 3 * worst.standard_error


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_says_the_same_twice_and_whatever_the_order_of_the_images(name: str, real: Reference) -> None:
    metric = contracts.find("metrics", name)()
    before = torch.get_rng_state()
    first = metric(unfair, real)
    assert torch.get_rng_state().equal(before)
    assert metric(unfair, real) == first
    assert real.test is not None
    assert real.groups is not None
    order = torch.randperm(300, generator=torch.Generator().manual_seed(1))
    images, groups = real.test.rows(order), real.groups.train[order]
    mixed = metric(unfair, Reference(images, images, groups=Groups(("g", "h"), groups, groups)))
    assert mixed.value == pytest.approx(first.value, abs=1e-9)


def test_a_metric_judges_images_or_classifiers() -> None:
    of_images = contracts.names_of("metrics", contracts.Metric)
    assert {"accuracy", "worst-class", "calibration", "classifier-bias", "accuracy-gap"} <= set(METRICS)
    assert set(of_images).isdisjoint(METRICS)
    assert sorted([*of_images, *METRICS]) == sorted(contracts.names("metrics"))

"""The obfuscation metric distinguishes a release that looks like public images from one like private images."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from metrics.digits import noise, reference
from sfumato.errors import NotApplicable, UsageError
from sfumato.metrics.obfuscation import Obfuscation
from sfumato.values import Images, Reference

METRIC = Obfuscation(resamples=50, images_seen=6_000)


@pytest.fixture(scope="module")
def real() -> Reference:
    """The digits, and stripes as public images."""
    draw = torch.Generator().manual_seed(1)
    bright = torch.randint(0, 256, (800, 1, 1, 8), generator=draw, dtype=torch.uint8).expand(800, 1, 8, 8)
    public = Images(bright.contiguous(), torch.zeros(800, dtype=torch.int64), ("0",))
    return replace(reference(), public=public)


def part(images: Images, rows: slice) -> Images:
    return Images(images.pixels[rows], images.labels[rows], images.classes)


def test_untouched_public_images_are_as_far_as_public_images(real: Reference) -> None:
    score = METRIC(part(real.public, slice(0, 400)), replace(real, public=part(real.public, slice(400, 800))))
    assert score.value == pytest.approx(1, abs=0.1)
    assert 0 < score.standard_error < 0.1
    assert score.details["accuracy_against_private"] > 0.9
    assert 0.35 < score.details["accuracy_against_public"] < 0.65


def test_real_images_are_caught(real: Reference) -> None:
    private = replace(real, train=part(real.train, slice(0, None, 2)))
    score = METRIC(part(real.train, slice(1, None, 2)), private)
    assert score.value < 0.7
    assert score.details["accuracy_against_public"] > 0.9
    assert 0.35 < score.details["accuracy_against_private"] < 0.65


def test_without_public_images_there_is_nothing_to_compare_with(real: Reference) -> None:
    with pytest.raises(NotApplicable, match="public images"):
        METRIC(noise(200), replace(real, public=None))


def test_few_images_get_a_distance_and_no_classifier(real: Reference) -> None:
    score = METRIC(noise(3), real)
    assert score.value > 0
    assert score.details["accuracy_against_private"] is None


def test_another_shape_is_refused(real: Reference) -> None:
    large = Images(torch.zeros(4, 1, 9, 9, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64), ("0",))
    with pytest.raises(UsageError, match="shape"):
        METRIC(noise(20), replace(real, public=large))

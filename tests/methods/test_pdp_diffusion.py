"""PDP-Diffusion: public images teach it, their labels too where there are enough, and what it begins with is sound."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sfumato.errors import UsageError
from sfumato.methods.pdp_diffusion import PDPDiffusion
from sfumato.privacy import Budget, Ledger, PrivateImages
from sfumato.values import Images, Spec

from toys import fitted, halves

SMALL = PDPDiffusion(width=8, rounds=2, sampling=0.3, multiplicity=2, sampler_steps=5, steps=5, batch=16)
SPEC = Spec(60, 1, 8, 8, ("left", "right", "all"))


def public(count: int = 60, classes: int = 3) -> Images:
    """Halves, by other brightness than the private ones."""
    source = halves(count)
    names = tuple(f"public {number}" for number in range(classes))
    return Images(torch.from_numpy(source.pixels // 2 + 60), torch.arange(count) % classes, names)


def test_the_plan_is_one_question_of_many_rounds() -> None:
    (gradients,) = SMALL.plan(SPEC)
    assert (gradients.rounds, gradients.sampling, gradients.share) == (2, 0.3, 1.0)


def test_what_is_learnt_of_public_images_stays() -> None:
    """With hardly a budget, images are still as the public ones were."""
    taught = replace(SMALL, steps=150, batch=32, plain_rate=8e-3, plain_averaging=0.9, rate=1e-6, sampler_steps=8)
    images = fitted(taught, halves(60), 1.0, count=90, public=public(150))
    left, right = images.pixels[..., :4].float().mean((1, 2, 3)), images.pixels[..., 4:].float().mean((1, 2, 3))
    assert left[images.labels == 0].mean() > right[images.labels == 0].mean() + 20
    assert right[images.labels == 1].mean() > left[images.labels == 1].mean() + 20


def test_public_labels_are_learnt_where_each_private_class_gets_one() -> None:
    for classes, labelled in ((3, True), (5, True), (2, False)):
        shown = public(classes=classes)
        other = Images(shown.pixels, (shown.labels + 1) % classes, shown.classes)
        networks = [SMALL.publicly_trained(images, SPEC) for images in (shown, other)]
        for network in networks:
            assert (network.classes, network.no_label) == (3, 3)
            assert network.unet.of_class.weight.shape[0] == 4
        weights = [network.unet.stem.weight for network in networks]
        assert torch.equal(*weights) != labelled


def test_labels_beyond_the_private_classes_are_dropped_and_the_weights_of_no_label_go_along() -> None:
    network = SMALL.untrained(replace(SPEC, classes=("a",) * 5))
    rows = network.unet.of_class.weight.detach().clone()
    network.keep_labels(3)
    assert torch.equal(network.unet.of_class.weight, rows[[0, 1, 2, 5]])
    noisy, sigmas = torch.zeros(1, 16, 2, 2), torch.ones(1)
    assert network(noisy, sigmas, torch.tensor([network.no_label])).shape == noisy.shape


@pytest.mark.parametrize("wrong", [None, Images(torch.zeros(3, 3, 8, 8).byte(), torch.zeros(3).long(), ("x",))])
def test_public_images_are_needed_in_the_right_shape_before_anything_is_charged(wrong: Images | None) -> None:
    ledger = Ledger(Budget(1.0, 1e-5))
    private = PrivateImages.seal(halves(60), ledger)
    with pytest.raises(UsageError, match="public"):
        SMALL.fit(private, wrong)
    assert not ledger.charges
    private.close()


def test_the_same_answers_give_the_same_images_whatever_the_global_seed() -> None:
    made = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        made.append(fitted(SMALL, halves(60), 1.0, count=6, public=public()).pixels)
    assert torch.equal(*made)


def test_the_published_settings_can_be_planned() -> None:
    spec = Spec(55_000, 1, 28, 28, tuple("0123456789"))
    published = PDPDiffusion.paper(spec)
    assert (published.steps, published.batch, published.multiplicity) == (200_000, 1_024, 32)
    assert published.seconds(spec) > 10 * PDPDiffusion.for_task(spec, Budget(1.0, 1e-5)).seconds(spec)

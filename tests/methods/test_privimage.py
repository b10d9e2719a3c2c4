"""PrivImage: votes are charged from the one budget, bounded by sqrt(k), and choose public images for each class."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from sfumato.methods.privimage import PrivImage
from sfumato.privacy import Budget, Ledger, PrivateImages, SeededNoise
from sfumato.values import Images, Spec

from toys import fitted, halves

SMALL = PrivImage(width=8, rounds=2, sampling=0.3, multiplicity=2, sampler_steps=5, steps=5, batch=16, clusters=6)


def public(count: int = 60) -> Images:
    """Halves of other brightness, in another order of classes: right, everywhere, left, and dark."""
    pixels = torch.cat([torch.from_numpy(halves(count).pixels // 2 + 60), torch.zeros(20, 1, 8, 8).byte()])
    labels = torch.cat([torch.tensor([2, 0, 1]).repeat(count // 3), torch.full((20,), 3)])
    return Images(pixels, labels, ("right", "all", "left", "dark"))


def unlabelled() -> Images:
    return Images(public().pixels, torch.zeros(80).long(), ("x",))


def test_one_budget_is_shared_by_the_votes_and_the_gradients() -> None:
    votes, gradients = SMALL.plan(Spec(1_000, 1, 8, 8, ("a", "b")))
    assert (votes.rounds, votes.sampling, votes.share) == (1, 1.0, 0.02)
    assert (gradients.rounds, gradients.share) == (2, pytest.approx(0.98))


def test_the_votes_are_charged_as_the_gradients_are() -> None:
    ledger = Ledger(Budget(1.0, 1e-5))
    private = PrivateImages.seal(halves(60), ledger, noise=SeededNoise(0))
    SMALL.fit(private, unlabelled())
    private.close()
    assert [charge.mechanism.rounds for charge in ledger.charges] == [1, 2]
    assert all(charge.mechanism.noise_multiplier > 0 for charge in ledger.charges)


def test_each_class_begins_with_public_images_that_are_like_it() -> None:
    """With hardly a step of private training, images are still as the chosen public ones were."""
    taught = replace(SMALL, steps=120, batch=32, plain_rate=8e-3, plain_averaging=0.9, rate=1e-6, chosen=0.9)
    images = fitted(taught, halves(150), math.inf, count=90, public=public())
    left, right = images.pixels[..., :4].float().mean((1, 2, 3)), images.pixels[..., 4:].float().mean((1, 2, 3))
    assert left[images.labels == 0].mean() > right[images.labels == 0].mean() + 20
    assert right[images.labels == 1].mean() > left[images.labels == 1].mean() + 20


@pytest.mark.parametrize("images", [public(), unlabelled()], ids=["classes", "clusters"])
def test_the_same_answers_give_the_same_images_whatever_the_global_seed(images: Images) -> None:
    made = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        made.append(fitted(SMALL, halves(60), 1.0, count=6, public=images).pixels)
    assert torch.equal(*made)


def test_small_data_gets_more_of_the_budget_for_its_votes() -> None:
    shares = [
        PrivImage.for_task(Spec(count, 1, 28, 28, ("a",) * 10), Budget(1.0, 1e-5)).votes_share
        for count in (1_000, 60_000)
    ]
    assert shares[0] > shares[1] == 0.01
    published = PrivImage.paper(Spec(45_000, 3, 32, 32, ("a",) * 10))
    assert (published.chosen, published.multiplicity, published.steps) == (0.05, 32, 200_000)

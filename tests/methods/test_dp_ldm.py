"""DP-LDM: few layers are trained on the fast path, on latents that were learnt or are fixed; sizes; settings."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from sfumato.errors import UsageError
from sfumato.methods.dp_ldm import DPLDM
from sfumato.networks.unet_parts import train_only
from sfumato.privacy.gradients import fast_path
from sfumato.values import Images, Spec

from toys import ToySource, fitted, halves

SMALL = DPLDM(
    width=8, rounds=2, sampling=0.3, multiplicity=2, sampler_steps=5, steps=5, batch=16, code_width=8, plain_rate=8e-3
)
SPEC = Spec(60, 1, 8, 8, ("left", "right", "all"))
KINDS = ("autoencoder", "blocks")


def public(count: int = 60) -> Images:
    source = halves(count)
    return Images(torch.from_numpy(source.pixels // 2 + 60), torch.arange(count) % 3, ("x", "y", "z"))


@pytest.mark.parametrize("latent", KINDS)
def test_the_fast_path_takes_what_is_trained(latent: str) -> None:
    method = replace(SMALL, latent=latent)
    latents = method.latents(public(), SPEC)
    network = method.untrained(SPEC, latents)
    train_only(network.unet, method.trains)
    loss = method.loss_of_round(SPEC, 0, network.deviation, latents)
    layers = fast_path.record_layers(fast_path.ModelWeights(network), loss, SPEC)
    assert layers is not None
    assert {"unet.of_class", "unet.stem", "unet.middle_attention.query", "unet.middle_in.of_time"} <= set(layers)
    assert "unet.middle_in.first" not in layers


def test_the_variants_have_latents_of_their_own() -> None:
    learnt, fixed = (replace(SMALL, latent=latent).latents(public(), SPEC) for latent in KINDS)
    assert learnt.shape == (4, 2, 2)  # a fourth of the values
    assert fixed.shape == (16, 2, 2)
    assert replace(SMALL, latent="blocks", block=1).latents(public(), SPEC).shape == (1, 8, 8)
    assert replace(SMALL, code=3, block=2).latents(public(), SPEC).shape == (3, 4, 4)


@pytest.mark.parametrize("latent", KINDS)
def test_it_learns_the_classes_without_a_budget(latent: str) -> None:
    """The public classes are the private ones in another order, so that private images must change what is told."""
    method = replace(SMALL, latent=latent, steps=300, batch=32, rounds=60, rate=1e-2, sampling=0.5, averaging=0.8)
    shown = Images(public().pixels, (public().labels + 1) % 3, public().classes)
    images = fitted(replace(method, plain_averaging=0.9), halves(), math.inf, count=90, public=shown)
    left, right = images.pixels[..., :4].float().mean((1, 2, 3)), images.pixels[..., 4:].float().mean((1, 2, 3))
    assert left[images.labels == 0].mean() > right[images.labels == 0].mean() + 20
    assert right[images.labels == 1].mean() > left[images.labels == 1].mean() + 20


@pytest.mark.parametrize("latent", KINDS)
def test_the_same_answers_give_the_same_images_whatever_the_global_seed(latent: str) -> None:
    made = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        method = replace(SMALL, latent=latent)
        made.append(fitted(method, halves(60), 1.0, count=6, public=public()).pixels)
    assert torch.equal(*made)


@pytest.mark.parametrize("shape", [(1, 27, 29), (3, 32, 32)])
def test_it_takes_odd_and_colour_images(shape: tuple[int, int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (30, *shape))
    shown = Images(torch.from_numpy(pixels.astype(np.uint8)), torch.zeros(30).long(), ("x",))
    made = fitted(replace(SMALL, steps=1), ToySource(pixels, np.arange(30) % 3), 1.0, count=6, public=shown)
    assert made.pixels.shape == (6, *shape)


def test_the_published_settings_can_be_planned() -> None:
    spec = Spec(55_000, 1, 28, 28, tuple("0123456789"))
    published = DPLDM.paper(spec)
    assert (published.latent, published.block, published.code, published.multiplicity) == ("autoencoder", 2, 3, 1)
    assert published.plan(spec)[0].rounds == pytest.approx(2_100, rel=0.05)
    with pytest.raises(UsageError):
        replace(SMALL, latent="pixels")

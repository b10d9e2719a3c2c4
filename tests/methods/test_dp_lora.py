"""DP-LoRA: adapters and labels alone are trained, on the fast path; copies of a record are one bounded row."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from sfumato.errors import UsageError
from sfumato.methods.dp_lora import DPLoRA
from sfumato.privacy.gradients import fast_path
from sfumato.synthesis.edm import ClassDenoiser
from sfumato.values import Images, Spec

from privacy.gradients.models import BIG, both, summed
from toys import fitted, halves

SMALL = DPLoRA(
    width=8,
    rounds=2,
    sampling=0.3,
    sampler_steps=5,
    steps=5,
    batch=16,
    code_width=8,
    plain_rate=8e-3,
    rank=2,
    latent="blocks",
)
SPEC = Spec(60, 1, 8, 8, ("left", "right", "all"))


def public(count: int = 60) -> Images:
    source = halves(count)
    return Images(torch.from_numpy(source.pixels // 2 + 60), torch.zeros(count).long(), ("x",))


def adapted(method: DPLoRA) -> ClassDenoiser:
    """With weights that hide nothing: new adapters and an untrained network have layers of zeros."""
    network = method.untrained(SPEC)
    method.adapted(network)
    draw = torch.Generator().manual_seed(2)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.2, generator=draw)
    return network


def test_the_fast_path_takes_adapters_and_labels_and_nothing_else_is_trained() -> None:
    network = adapted(SMALL)
    loss = SMALL.loss_of_round(SPEC, 0, network.deviation)
    layers = fast_path.record_layers(fast_path.ModelWeights(network), loss, SPEC)
    assert layers is not None
    projections = (*network.unet.attention_projections, *network.unet.conditioning_projections)
    expected = {f"unet.{name}.{part}" for name in projections for part in ("down", "up")}
    assert set(layers) == expected | {"unet.of_class"}


def test_adapters_have_the_gradients_of_the_reference() -> None:
    model = adapted(SMALL)
    images, labels = torch.rand(6, *SPEC.shape, generator=torch.Generator().manual_seed(1)), torch.arange(6) % 3
    fast, reference = (
        summed(rows, images, labels, torch.ones(6, dtype=torch.bool), clip=False)
        for rows in both(model, SPEC.shape, SMALL.loss_of_round(SPEC, 0, model.deviation), 1e-3)
    )
    assert float((fast - reference).norm() / reference.norm()) < 1e-4


@pytest.mark.parametrize("copies", [1, 8])
def test_a_record_moves_a_sum_by_one_bound_however_many_copies(copies: int) -> None:
    """In public code the eight copies are bounded one by one, and reach eight bounds."""
    method = replace(SMALL, multiplicity=copies)
    model = adapted(method)
    images, labels = torch.rand(2, *SPEC.shape, generator=torch.Generator().manual_seed(1)), torch.arange(2)
    for rows in both(model, SPEC.shape, method.loss_of_round(SPEC, 0, model.deviation), 1e-6):
        one, two = (summed(rows, images, labels, torch.tensor([True, kept]), clip=True) for kept in (False, True))
        assert 0.99 < float((two - one).norm()) / BIG <= 1


def test_it_learns_the_classes_without_a_budget() -> None:
    """The public classes are the private ones in another order, so that private images must change what is told."""
    method = replace(SMALL, rank=8, multiplicity=4, steps=300, batch=32, rounds=60, rate=1e-2, sampling=0.5)
    shown = Images(public().pixels, (torch.arange(60) + 1) % 3, ("x", "y", "z"))
    images = fitted(replace(method, averaging=0.8, plain_averaging=0.9), halves(), math.inf, count=90, public=shown)
    left, right = images.pixels[..., :4].float().mean((1, 2, 3)), images.pixels[..., 4:].float().mean((1, 2, 3))
    assert left[images.labels == 0].mean() > right[images.labels == 0].mean() + 20
    assert right[images.labels == 1].mean() > left[images.labels == 1].mean() + 20


@pytest.mark.parametrize("latent", ["autoencoder", "blocks"])
def test_the_same_answers_give_the_same_images_whatever_the_global_seed(latent: str) -> None:
    made = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        made.append(fitted(replace(SMALL, latent=latent), halves(60), 1.0, count=6, public=public()).pixels)
    assert torch.equal(*made)


def test_settings_are_the_published_ones_or_are_refused() -> None:
    published = DPLoRA.paper(Spec(45_000, 3, 32, 32, ("a",) * 10))
    assert (published.rank, published.multiplicity, published.latent) == (8, 8, "autoencoder")
    with pytest.raises(UsageError):
        replace(SMALL, trains="attention")
    with pytest.raises(UsageError):
        replace(SMALL, rank=0)

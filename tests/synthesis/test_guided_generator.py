"""A generator in training moves its images as it is told, keeps them apart, and goes on where it was."""

from __future__ import annotations

import torch
from torch import Tensor

from sfumato.networks.generator import ConditionalGenerator, PatchGenerator
from sfumato.networks.refiner import Refiner
from sfumato.synthesis.guided_generator import GuidedGenerator

SHAPE = (1, 8, 8)


def drawn(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def patches() -> PatchGenerator:
    return PatchGenerator(SHAPE, 2, latent=3, hidden=16, codes=4, draw=drawn())


def painted(labels: Tensor, draw: torch.Generator) -> Tensor:
    return (labels[:, None, None, None] / 2 + 0.3 * torch.rand(len(labels), *SHAPE, generator=draw)).clamp(0, 1)


def training(generator: ConditionalGenerator | None = None, *, diversity: float = 0.0) -> GuidedGenerator:
    made = generator or patches()
    return GuidedGenerator(made, 2, rate=0.02, steps=40, averaging=0.9, diversity=diversity, draw=drawn(1))


def follow(guided: GuidedGenerator, steps: int) -> None:
    for _ in range(steps):
        images, labels = guided.images(8)
        guided.follow(images, torch.where(labels == 0, 1.0, -1.0)[:, None, None, None].expand_as(images))


def test_images_move_along_the_directions() -> None:
    guided = training()
    follow(guided, 40)
    images, labels = guided.fakes(40)
    assert images[labels == 0].mean() > images[labels == 1].mean() + 0.5
    assert labels.bincount().tolist() == [20, 20]


def test_the_diversity_term_keeps_images_apart() -> None:
    spreads = []
    for diversity in (0.0, 1.0):
        guided = training(diversity=diversity)
        follow(guided, 40)
        images, labels = guided.fakes(40)
        spreads.append(float(images[labels == 0].std(0).mean()))
    assert spreads[1] > 2 * spreads[0]


def test_it_goes_on_where_it_was_bit_by_bit() -> None:
    whole, first, second = training(), training(), training()
    follow(whole, 12)
    follow(first, 5)
    second.restore({name: value.clone() for name, value in first.state().items()})
    follow(second, 7)
    for one, other in zip(whole.state().values(), second.state().values(), strict=True):
        assert torch.equal(one, other)


def test_a_refiner_begins_with_the_painted_images_and_is_trained_away_from_them() -> None:
    refiner = Refiner(painted, SHAPE, 2, width=4, draw=drawn())
    labels = torch.arange(6) % 2
    inputs = refiner.inputs(labels, drawn(3))
    torch.testing.assert_close(refiner(inputs, labels), inputs[:, :-1], atol=1e-5, rtol=0)
    guided = training(refiner)
    before = guided.fakes(40)[0]
    follow(guided, 40)
    images, labels = guided.fakes(40)
    assert images[labels == 0].mean() > before[labels == 0].mean() + 0.1
    assert images[labels == 1].mean() < before[labels == 1].mean() - 0.1

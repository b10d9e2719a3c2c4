"""Discriminators of an image and its label: sizes, what the label does, and layers that DP-SGD is fast on."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from sfumato.networks.conditional_discriminators import JoinedDiscriminator, ProjectionDiscriminator
from sfumato.privacy import GaussianSum, noisy_gradient

from toys import opened, toy

KINDS = (ProjectionDiscriminator, JoinedDiscriminator)


def drawn(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (1, 27, 29), (3, 32, 32), (3, 64, 64), (3, 5, 40)])
def test_it_takes_every_size_and_sees_the_label(kind: type[nn.Module], shape: tuple[int, int, int]) -> None:
    network = kind(shape, 4, width=4, draw=drawn())
    image = torch.rand(1, *shape, generator=drawn(1)).expand(4, *shape)
    scores = network(image, torch.arange(4))
    assert scores.shape == (4,)
    assert len(scores.unique()) == 4
    at_once = network(image[:2], torch.arange(4).expand(2, 4))  # several labels for each image
    torch.testing.assert_close(at_once, scores.expand(2, 4))
    assert not any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in network.modules())


@pytest.mark.parametrize("kind", KINDS)
def test_its_weights_come_from_the_given_generator(kind: type[nn.Module]) -> None:
    before = torch.get_rng_state()
    one, same, other = (kind((1, 8, 8), 3, width=4, draw=drawn(seed)) for seed in (0, 0, 1))
    assert torch.equal(before, torch.get_rng_state())
    for a, b, c in zip(one.parameters(), same.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        assert not a.any() or not torch.equal(a, c)


@pytest.mark.parametrize("kind", KINDS)
def test_dp_sgd_need_not_make_the_gradient_of_every_record(
    kind: type[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sfumato.privacy.gradients.step.say_once", pytest.fail)
    network = kind((1, 8, 8), 3, width=4, draw=drawn())

    def loss(model: nn.Module, image: Tensor, label: Tensor) -> Tensor:
        scores = model(image[None], torch.arange(3)[None])[0]  # of all labels, as in adversarial training
        return (scores * (1 - 2.0 * (torch.arange(3) == label))).sum()

    source = toy(30, side=8)
    noisy_gradient(opened(source, GaussianSum(noise_multiplier=0.0)), network, loss, l2_bound=1.0)
    images, labels = torch.from_numpy(source.pixels).float() / 255, torch.from_numpy(source.labels)
    signs = 1 - 2.0 * (torch.arange(3) == labels[:, None])
    expected = torch.autograd.grad(
        (network(images, torch.arange(3).expand(30, 3)) * signs).sum() / 30, [*network.parameters()]
    )
    for parameter, gradient in zip(network.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, atol=1e-4, rtol=1e-3)

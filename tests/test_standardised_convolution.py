"""Standardised convolution: its formula, what it is invariant to, and gradients per example."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from sfumato.standardised_convolution import EPSILON, StandardisedConv2d


def layer_and_images(**options: int) -> tuple[StandardisedConv2d, Tensor]:
    """A float64 layer whose gain and bias are not at their initial values, and three inputs for it."""
    torch.manual_seed(0)
    layer = StandardisedConv2d(4, 6, 3, padding=1, **options).double()
    with torch.no_grad():
        layer.gain.copy_(torch.linspace(-1, 2, 6))
        layer.bias.copy_(torch.linspace(0, 1, 6))
    return layer, torch.randn(3, 4, 7, 7).double()


def test_weights_are_as_in_the_formula() -> None:
    layer, images = layer_and_images()
    kernel = layer.kernel(layer.weight, layer.gain)
    for channel in range(6):
        v = layer.weight[channel].flatten()
        centred = v - sum(v) / 36
        variance = sum(centred**2) / 36
        expected = layer.gain[channel] * centred / (variance * 36 + EPSILON) ** 0.5
        torch.testing.assert_close(kernel[channel].flatten(), expected)
    torch.testing.assert_close(layer(images), nn.functional.conv2d(images, kernel, layer.bias, padding=1))


def test_each_channel_is_centred_and_as_long_as_its_gain() -> None:
    layer, _ = layer_and_images()
    kernel = layer.kernel(layer.weight, layer.gain).flatten(1)
    torch.testing.assert_close(kernel.sum(1), torch.zeros(6).double(), atol=1e-12, rtol=0)
    torch.testing.assert_close(kernel.norm(dim=1), layer.gain.abs(), atol=0, rtol=1e-3)


@pytest.mark.parametrize("scale", [0.5, 3.0, 100.0])
def test_outputs_do_not_change_when_the_weights_are_shifted_and_scaled(scale: float) -> None:
    layer, images = layer_and_images()
    before = layer(images)
    with torch.no_grad():
        layer.weight.mul_(scale * torch.arange(1, 7).reshape(-1, 1, 1, 1))
        layer.weight.add_(torch.linspace(-5, 5, 6).reshape(-1, 1, 1, 1))
    torch.testing.assert_close(layer(images), before, rtol=1e-3, atol=1e-3)  # not exactly, because of EPSILON


def test_gradient_is_orthogonal_to_shifts_and_scalings() -> None:
    layer, images = layer_and_images()
    layer(images).square().sum().backward()
    gradient, weight = layer.weight.grad.flatten(1), layer.weight.detach().flatten(1)
    size = gradient.norm(dim=1)
    assert (size[layer.gain != 0] > 0).all()
    assert (gradient.sum(1).abs() <= 1e-10 * size).all()
    assert ((gradient * (weight - weight.mean(1, keepdim=True))).sum(1).abs() <= 1e-3 * size).all()


def test_gain_multiplies_a_channel() -> None:
    layer, images = layer_and_images()
    before = layer(images) - layer.bias.reshape(-1, 1, 1)
    with torch.no_grad():
        layer.gain.mul_(2)
    torch.testing.assert_close(layer(images) - layer.bias.reshape(-1, 1, 1), 2 * before)


def test_initial_outputs_have_unit_variance() -> None:
    torch.manual_seed(0)
    layer = StandardisedConv2d(64, 64, 3)
    assert torch.equal(layer.gain, torch.ones(64))
    assert torch.equal(layer.bias, torch.zeros(64))
    with torch.no_grad():
        assert layer(torch.randn(8, 64, 10, 10)).var().item() == pytest.approx(1, rel=0.05)


def test_equal_weights_give_zero_and_finite_gradients() -> None:
    layer, images = layer_and_images()
    with torch.no_grad():
        layer.weight.fill_(0.3)
    layer(images).sum().backward()
    assert layer.kernel(layer.weight, layer.gain).abs().max() < 1e-10
    assert all(p.grad.isfinite().all() for p in layer.parameters())


def test_stride_groups_and_no_bias() -> None:
    torch.manual_seed(0)
    layer = StandardisedConv2d(4, 6, 3, stride=2, groups=2, bias=False)
    assert layer.bias is None
    assert layer.fan_in == 2 * 9
    images = torch.rand(2, 4, 9, 9)
    torch.testing.assert_close(
        layer(images), nn.functional.conv2d(images, layer.kernel(layer.weight, layer.gain), stride=2, groups=2)
    )


def test_one_weight_per_channel_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 weights"):
        StandardisedConv2d(1, 4, 1)


def test_gradients_under_vmap_are_those_of_single_images() -> None:
    layer, images = layer_and_images()

    def loss(weights: dict[str, Tensor], image: Tensor) -> Tensor:
        return functional_call(layer, weights, (image[None],)).square().sum()

    rows = vmap(grad(loss), in_dims=(None, 0))(dict(layer.named_parameters()), images)
    assert set(rows) == {"weight", "bias", "gain"}
    for index, image in enumerate(images):
        layer.zero_grad()
        layer(image[None]).square().sum().backward()
        for name, parameter in layer.named_parameters():
            torch.testing.assert_close(rows[name][index], parameter.grad, rtol=1e-4, atol=1e-10)


def test_gradients_of_the_kernel_in_use_can_be_carried_to_the_weights_once_for_all_images() -> None:
    """What the fast path of DP-SGD needs: the step from kernel to weights is linear and the same for all images."""
    layer, images = layer_and_images()
    kernel = layer.kernel(layer.weight, layer.gain)
    of_kernel = sum(
        torch.autograd.grad(nn.functional.conv2d(image[None], kernel, padding=1).square().sum(), kernel)[0]
        for image in images
    )
    carried = torch.autograd.grad(kernel, (layer.weight, layer.gain), of_kernel)
    (layer(images) - layer.bias.reshape(-1, 1, 1)).square().sum().backward()
    torch.testing.assert_close(carried, (layer.weight.grad, layer.gain.grad))

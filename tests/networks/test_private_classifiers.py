"""Classifiers for DP-SGD: their published sizes and order of layers, every image size, gradients per example."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from sfumato.networks.classifiers import build
from sfumato.networks.private_classifiers import CLASSIFIERS, Norm, PrivateBlock, PrivateWideResNet
from sfumato.networks.private_cnn import PrivateCNN
from sfumato.standardised_convolution import StandardisedConv2d

ALL = (*CLASSIFIERS, "private-cnn")
QUICK = tuple(arch for arch in ALL if arch != "wrn-40-4-gn")  # more of wrn-16-4-gn
SHAPES = ((1, 28, 28), (3, 32, 32), (3, 64, 64))


def parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def wide_parameters(depth: int, widen: int, channels: int, classes: int) -> int:
    """By hand: a convolution has a bias and a gain per output, a norm a scale and a shift per channel."""
    inputs, total = 16, 9 * channels * 16 + 2 * 16
    for outputs in (16 * widen, 32 * widen, 64 * widen):
        skip = 2 * inputs + inputs * outputs + 2 * outputs
        first = 2 * inputs + 9 * inputs * outputs + 2 * outputs
        other = 2 * outputs + 9 * outputs * outputs + 2 * outputs
        total += skip + first + (2 * (depth - 4) // 6 - 1) * other
        inputs = outputs
    return total + 2 * inputs + inputs * classes + classes


def narrow_resnet_parameters(channels: int, classes: int) -> int:
    """By hand: ResNet18 of widths 16, 32, 64, 128; convolutions without bias, a norm after each."""
    total = 9 * channels * 16 + 2 * 16 + 4 * (9 * 16 * 16 + 2 * 16)
    for inputs, outputs in ((16, 32), (32, 64), (64, 128)):
        shortcut = inputs * outputs + 2 * outputs
        total += shortcut + 9 * inputs * outputs + 2 * outputs + 3 * (9 * outputs * outputs + 2 * outputs)
    return total + 128 * classes + classes


def test_wide_networks_have_the_parameters_of_the_formula() -> None:
    # WRN-16-4, CIFAR-10: 464 in the first convolution, 121,920 and 526,592 and 2,101,760 in the stages, 3,082 after
    assert wide_parameters(16, 4, 3, 10) == 464 + 121_920 + 526_592 + 2_101_760 + 3_082 == 2_753_818
    assert parameters(build("wrn-16-4-gn", 3, 32, 32, 10)) == 2_753_818
    assert parameters(build("wrn-40-4-gn", 3, 32, 32, 10)) == wide_parameters(40, 4, 3, 10) == 8_961_306
    assert parameters(build("wrn-16-1-gn", 3, 32, 32, 10)) == wide_parameters(16, 1, 3, 10) == 176_602
    assert parameters(build("wrn-16-1-gn", 1, 28, 28, 10)) == wide_parameters(16, 1, 1, 10) == 176_314


def test_other_networks_have_the_parameters_of_the_formula() -> None:
    assert parameters(build("resnet18-gn-16", 3, 32, 32, 10)) == narrow_resnet_parameters(3, 10) == 701_466
    grey = 16 * 64 + 16 + 32 * 16 * 16 + 32 + 32 * 16 * 32 + 32 + 32 * 10 + 10
    assert parameters(build("private-cnn", 1, 28, 28, 10)) == grey == 26_010
    pairs = ((3, 32), (32, 32), (32, 64), (64, 64), (64, 128), (128, 128))
    colour = sum(9 * a * b + b for a, b in pairs) + 128 * 16 * 128 + 128 + 128 * 10 + 10
    assert parameters(build("private-cnn", 3, 32, 32, 10)) == colour == 550_570


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("arch", ALL)
def test_every_size_gives_one_output_per_class(arch: str, shape: tuple[int, int, int]) -> None:
    with torch.inference_mode():
        outputs = build(arch, *shape, 7)(torch.rand(2, *shape))
    assert outputs.shape == (2, 7)
    assert outputs.isfinite().all()


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 9, 13), (3, 9, 13), (3, 8, 70), (1, 96, 70), (3, 96, 70)], ids=str)
def test_small_odd_and_large_sides(shape: tuple[int, int, int]) -> None:
    with torch.inference_mode():
        for arch in ("private-cnn", "wrn-16-1-gn", "resnet18-gn-16"):
            assert build(arch, *shape, 4)(torch.rand(1, *shape)).shape == (1, 4)


@pytest.mark.parametrize("arch", ALL)
def test_there_is_no_batch_norm(arch: str) -> None:
    network = build(arch, 3, 32, 32, 10)
    assert not [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    assert not list(network.buffers()), "nothing that is updated by images"


@pytest.mark.parametrize("arch", QUICK)
def test_outputs_depend_on_one_image_alone(arch: str) -> None:
    torch.manual_seed(0)
    network, images = build(arch, 3, 16, 16, 5).double(), torch.rand(3, 3, 16, 16).double()
    with torch.inference_mode():
        alone = torch.cat([network(image[None]) for image in images])
        torch.testing.assert_close(network(images), alone)


@pytest.mark.parametrize("arch", ALL)
def test_every_parameter_gets_a_gradient(arch: str) -> None:
    torch.manual_seed(0)
    network = build(arch, 3, 16, 16, 3)
    nn.functional.cross_entropy(network(torch.rand(4, 3, 16, 16)), torch.arange(4) % 3).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


def per_example_cases() -> dict[str, nn.Module]:
    """Small enough for float64; the last three are the other settings of the switches that DP-SGD allows."""
    torch.manual_seed(0)
    return {
        **{arch: build(arch, 3, 8, 8, 3) for arch in QUICK},
        "plain": PrivateWideResNet(10, 1, 3, 3, weight_standardisation=False),
        "no-norm": PrivateWideResNet(10, 1, 3, 3, norm="none"),
        "neither": PrivateWideResNet(10, 1, 3, 3, norm="none", weight_standardisation=False),
    }


@pytest.mark.parametrize("case", [*QUICK, "plain", "no-norm", "neither"])
def test_gradients_under_vmap_are_those_of_single_images(case: str) -> None:
    network = per_example_cases()[case].double()
    images, labels = torch.rand(2, 3, 8, 8).double(), torch.tensor([0, 2])

    def loss(weights: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(network, weights, (image[None],)), label[None])

    rows = vmap(grad(loss), in_dims=(None, 0, 0))(dict(network.named_parameters()), images, labels)
    for index in range(2):
        network.zero_grad()
        nn.functional.cross_entropy(network(images[index : index + 1]), labels[index : index + 1]).backward()
        for name, parameter in network.named_parameters():
            torch.testing.assert_close(rows[name][index], parameter.grad, rtol=1e-4, atol=1e-12)


def order_of_calls(block: PrivateBlock, maps: Tensor) -> list[str]:
    calls: list[str] = []
    for module in block.modules():
        if not list(module.children()):
            module.register_forward_hook(lambda m, _, __: calls.append(type(m).__name__))
    block(maps)
    return calls


def test_a_block_is_rectifier_norm_convolution_twice_and_its_first_has_a_skip() -> None:
    torch.manual_seed(0)
    first, second = PrivateWideResNet(16, 4, 3, 10).stages[:2]
    unit = ["ReLU", "GroupNorm", "StandardisedConv2d"]
    assert order_of_calls(first, torch.rand(1, 16, 8, 8)) == 3 * unit
    assert order_of_calls(second, torch.rand(1, 64, 8, 8)) == [*unit, *unit, "Identity"]


def test_block_adds_its_branches() -> None:
    torch.manual_seed(0)
    first, second = PrivateWideResNet(16, 1, 3, 10).stages[:2]
    maps = torch.randn(2, 16, 8, 8)
    before = maps.clone()
    torch.testing.assert_close(first(maps), first.second(first.first(maps)) + first.skip(maps))
    torch.testing.assert_close(second(maps), second.second(second.first(maps)) + maps)
    assert torch.equal(maps, before), "the rectifier is not in place"


def test_stages_have_the_published_widths_strides_and_skips() -> None:
    network = PrivateWideResNet(16, 4, 3, 10)
    blocks = [(b.first[2].out_channels, b.first[2].stride[0], len(list(b.skip.parameters()))) for b in network.stages]
    # a projecting skip has the parameters of a norm and of a standardised convolution, 2 + 3
    assert blocks == [(64, 1, 5), (64, 1, 0), (128, 2, 5), (128, 1, 0), (256, 2, 5), (256, 1, 0)]
    assert len(PrivateWideResNet(40, 1, 3, 10).stages) == 18
    assert [type(layer) for layer in network.last] == [nn.ReLU, nn.GroupNorm]
    assert {m.num_groups for m in network.modules() if isinstance(m, nn.GroupNorm)} == {16}


@pytest.mark.parametrize("weight_standardisation", [True, False])
@pytest.mark.parametrize(
    ("norm", "kind"), [("group", nn.GroupNorm), ("batch", nn.BatchNorm2d), ("none", type(None))], ids=str
)
def test_norm_and_standardisation_are_switches(norm: Norm, kind: type, weight_standardisation: bool) -> None:
    torch.manual_seed(0)
    network = PrivateWideResNet(10, 1, 1, 3, norm=norm, weight_standardisation=weight_standardisation)
    norms = [m for m in network.modules() if isinstance(m, nn.GroupNorm | nn.BatchNorm2d)]
    assert len(norms) == (0 if norm == "none" else 3 * 3 + 1)  # three per block with a skip, and the last
    assert {type(m) for m in norms} <= {kind}
    convolutions = {type(m) for m in network.modules() if isinstance(m, nn.Conv2d)}
    assert convolutions == {StandardisedConv2d if weight_standardisation else nn.Conv2d}
    outputs = network(torch.rand(4, 1, 8, 8))
    assert outputs.shape == (4, 3)
    assert 0.01 < outputs.std().item() < 100, "of a usable size from the start"


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="Expected a depth of 6 n"):
        PrivateWideResNet(12, 1, 1, 3)
    with pytest.raises(ValueError, match="Expected the norm"):
        PrivateWideResNet(16, 1, 1, 3, norm="layer")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 8 x 8"):
        PrivateCNN(1, 7, 28, 3)


def test_the_small_network_is_bounded() -> None:
    network = PrivateCNN(1, 28, 28, 10)
    assert len([m for m in network.modules() if isinstance(m, nn.Tanh)]) == 3
    assert not [m for m in network.modules() if isinstance(m, nn.ReLU)]
    with torch.inference_mode():
        assert network.features(1e3 * torch.randn(2, 1, 28, 28)).abs().max() <= 1

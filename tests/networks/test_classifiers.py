"""The classifiers: as large as published, at home at every image size, able to learn; per-example with group norm."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap

from sfumato.errors import UsageError
from sfumato.networks.classifiers import ARCHITECTURES, build
from sfumato.networks.resnet import ResNet

# Exact where the design fixes every layer; MobileNetV2 and ShuffleNetV2 as published, with ten classes.
PARAMETERS = {
    "resnet18": 11_173_962,
    "resnet34": 21_282_122,
    "vgg11": 9_228_362,
    "mobilenet-v2": 2_236_682,
    "shufflenet-v2": 1_263_854,
}
SHAPES = ((1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 64, 64))


@pytest.mark.parametrize("arch", PARAMETERS)
def test_parameters_are_as_published(arch: str) -> None:
    assert sum(p.numel() for p in build(arch, 3, 32, 32, 10).parameters()) == PARAMETERS[arch]


def test_unknown_architecture_is_refused_with_the_right_names() -> None:
    with pytest.raises(UsageError, match=r"small-cnn, scattering, resnet18, .*shufflenet-v2; got 'resnet19'"):
        build("resnet19", 1, 8, 8, 3)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_size_goes_forward_and_backward(arch: str, shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    network = build(arch, *shape, 7)
    images = torch.rand(2, *shape)
    outputs = network(images)
    assert outputs.shape == (2, 7)
    outputs.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


@pytest.mark.parametrize("arch", ["vgg11", "mobilenet-v2", "shufflenet-v2"])
def test_odd_and_large_sides(arch: str) -> None:
    with torch.inference_mode():
        for height, width in ((13, 9), (96, 70)):
            assert build(arch, 1, height, width, 4).eval()(torch.rand(1, 1, height, width)).shape == (1, 4)


@pytest.mark.parametrize("arch", [arch for arch in ARCHITECTURES if arch != "resnet34"])  # more of resnet18
def test_a_few_images_are_learnt(arch: str) -> None:
    torch.manual_seed(0)
    images, labels = torch.rand(12, 1, 8, 8), torch.arange(12) % 3
    network = build(arch, 1, 8, 8, 3)
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)
    losses = []
    for _ in range(60 if arch == "scattering" else 12):  # it begins at zero
        loss = nn.functional.cross_entropy(network(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2, losses


def test_inputs_are_left_alone() -> None:
    images = torch.rand(2, 1, 8, 8)
    before = images.clone()
    for arch in ARCHITECTURES:
        build(arch, 1, 8, 8, 3)(images)
        assert torch.equal(images, before), arch


def test_group_norm_network_is_the_same_under_vmap() -> None:
    torch.manual_seed(0)
    network = ResNet((1, 1, 1, 1), 3, 5, width=8, norm="group")
    assert not [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
    images = torch.rand(4, 3, 16, 16)
    weights = dict(network.named_parameters())
    alone = vmap(lambda image: functional_call(network, weights, (image[None],))[0])(images)
    torch.testing.assert_close(alone, network(images))


def test_group_norm_gradients_are_per_example() -> None:
    torch.manual_seed(0)
    network = ResNet((1, 1, 1, 1), 1, 3, width=8, norm="group").double()
    images, labels = torch.rand(3, 1, 8, 8).double(), torch.tensor([0, 1, 2])
    weights = dict(network.named_parameters())

    def loss(w: dict[str, torch.Tensor], image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(functional_call(network, w, (image[None],)), label[None])

    rows = vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(weights, images, labels)
    nn.functional.cross_entropy(network(images), labels, reduction="sum").backward()
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(rows[name].sum(0), parameter.grad)

"""The classifiers: as large as published, at home at every image size, able to learn; per-example with group norm."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap

from sfumato.errors import UsageError
from sfumato.networks.cifar_resnet import CifarResNet
from sfumato.networks.classifiers import architectures, build
from sfumato.networks.resnet import ResNet, resnet18
from sfumato.networks.wide_resnet import WideResNet

# Exact where the design fixes every layer; MobileNetV2 and ShuffleNetV2 as published, with ten classes.
PARAMETERS = {
    "resnet18": 11_173_962,
    "resnet34": 21_282_122,
    "vgg11": 9_228_362,
    "mobilenet-v2": 2_236_682,
    "shufflenet-v2": 1_263_854,
}
MILLIONS = {  # DPImageBench's classifiers, as published: ten classes, colour
    "resnet110": 1.73,
    "wrn-40-4": 8.95,
    "resnext29-8x64": 34.4,
    "resnet164": 2.61,
    "wrn-28-10": 36.5,
    "resnext28-8x64": 40.6,
    "wrn-40-4-gn": 8.96,  # De et al. (2022)
}
ON_A_CPU = [arch for arch in architectures() if arch not in MILLIONS]
QUICK = ("mlp", "lenet", "small-cnn", "resnet8", "wrn-10-2", "resnext-11")
SHAPES = ((1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 64, 64))


@pytest.mark.parametrize("arch", PARAMETERS)
def test_parameters_are_as_published(arch: str) -> None:
    assert sum(p.numel() for p in build(arch, 3, 32, 32, 10).parameters()) == PARAMETERS[arch]


@pytest.mark.parametrize("arch", MILLIONS)
def test_parameters_are_within_a_hundredth_of_those_published(arch: str) -> None:
    with torch.device("meta"):  # no memory, no initial values
        count = sum(p.numel() for p in build(arch, 3, 32, 32, 10).parameters())
    assert count / 1e6 == pytest.approx(MILLIONS[arch], rel=0.01)


def test_lenet_and_the_perceptron_are_the_classical_ones() -> None:
    assert sum(p.numel() for p in build("lenet", 1, 28, 28, 10).parameters()) == 61_706
    assert sum(p.numel() for p in build("mlp", 1, 28, 28, 10).parameters()) == 785 * 100 + 101 * 10


@pytest.mark.parametrize("arch", ["resnet8", "wrn-10-2", "resnext-11"])
def test_quick_networks_are_members_of_their_family(arch: str) -> None:
    """Where the first convolution needs no stride, the layers are those of the published depth."""
    network = build(arch, 1, 8, 8, 10)
    kernels = [m.kernel_size[0] for m in network.modules() if isinstance(m, nn.Conv2d)]
    depth = {"resnet8": (7, 2), "wrn-10-2": (7, 3), "resnext-11": (4, 9)}  # 3x3, 1x1; the head makes it whole
    assert (kernels.count(3), kernels.count(1)) == depth[arch]
    grouped = {m.groups for m in network.modules() if isinstance(m, nn.Conv2d)}
    assert grouped == ({1, 4} if arch == "resnext-11" else {1})


def test_dropout_is_where_it_was_published() -> None:
    for arch, expected in (("wrn-40-4", {0.3}), ("wrn-28-10", {0.0}), ("resnet110", set())):
        with torch.device("meta"):
            assert {m.p for m in build(arch, 1, 8, 8, 3).modules() if isinstance(m, nn.Dropout)} == expected
    torch.manual_seed(0)
    images, network = torch.rand(4, 1, 8, 8), WideResNet(10, 1, 1, 3, dropout=0.3)
    assert not torch.equal(network(images), network(images)), "chance in training"
    network.eval()
    assert torch.equal(network(images), network(images))


@pytest.mark.parametrize(("network", "depth"), [(CifarResNet, (9,)), (CifarResNet, (2,)), (WideResNet, (12, 2))])
def test_impossible_depths_are_refused(network: type[nn.Module], depth: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="Expected a depth of 6 n"):
        network(*depth, 1, 3)


@pytest.mark.parametrize("arch", QUICK)
@pytest.mark.parametrize("shape", [(1, 128, 128), (3, 9, 13), (3, 96, 70)], ids=str)
def test_quick_networks_take_every_size(arch: str, shape: tuple[int, int, int]) -> None:
    with torch.inference_mode():
        assert build(arch, *shape, 4).eval()(torch.rand(2, *shape)).shape == (2, 4)


@pytest.mark.parametrize("arch", ["resnet110", "wrn-40-4", "resnext29-8x64"])  # the others are more of the same
def test_published_networks_go_forward_and_backward(arch: str) -> None:
    torch.manual_seed(0)
    network = build(arch, 1, 8, 8, 3)
    network(torch.rand(2, 1, 8, 8)).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
    if arch == "resnet110":
        with torch.inference_mode():
            assert network.eval()(torch.rand(1, 1, 128, 128)).shape == (1, 3)


@pytest.mark.parametrize("arch", [*QUICK, "resnet110"])
def test_one_step_changes_every_weight(arch: str) -> None:
    torch.manual_seed(0)
    network = build(arch, 1, 8, 8, 3)
    before = [p.clone() for p in network.parameters()]
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    nn.functional.cross_entropy(network(torch.rand(6, 1, 8, 8)), torch.arange(6) % 3).backward()
    optimizer.step()
    assert not any(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))


def test_unknown_architecture_is_refused_with_the_right_names() -> None:
    with pytest.raises(UsageError, match=r"resnet18, .*small-cnn, .*; got 'resnet19'"):
        build("resnet19", 1, 8, 8, 3)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("arch", ON_A_CPU)
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


@pytest.mark.parametrize("arch", [arch for arch in ON_A_CPU if arch != "resnet34"])  # more of resnet18
def test_a_few_images_are_learnt(arch: str) -> None:
    torch.manual_seed(0)
    images, labels = torch.rand(12, 1, 8, 8), torch.arange(12) % 3
    network = build(arch, 1, 8, 8, 3)
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)
    losses = []
    for _ in range(
        60 if arch in ("scattering", "mlp", "lenet", "private-cnn") else 12
    ):  # the first begins at zero, the others are slow
        loss = nn.functional.cross_entropy(network(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2, losses


def test_inputs_are_left_alone() -> None:
    images = torch.rand(2, 1, 8, 8)
    before = images.clone()
    for arch in ON_A_CPU:
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


def test_a_published_stem_makes_the_map_a_quarter_as_wide() -> None:
    """7x7 with stride two, then a max-pool with stride two, as He et al. (2016) have it for photographs."""
    seen: list[torch.Size] = []
    for stem in ("small", "photographs"):
        network = resnet18(3, 10, width=4, stem=stem)
        network.stages.register_forward_pre_hook(lambda _, maps: seen.append(maps[0].shape))
        assert network(torch.rand(2, 3, 32, 32)).shape == (2, 10)
    assert seen == [(2, 4, 32, 32), (2, 4, 8, 8)]
    published = resnet18(3, 1000, stem="photographs")
    assert sum(parameter.numel() for parameter in published.parameters()) == 11_689_512  # as torchvision counts it

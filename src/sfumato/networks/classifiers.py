"""The classifiers that one can name, each built from a shape and a number of classes."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from sfumato.errors import UsageError
from sfumato.networks.cifar_resnet import CifarResNet, early_stride
from sfumato.networks.lenet import LeNet
from sfumato.networks.mlp import MLP
from sfumato.networks.mobilenet_v2 import MobileNetV2
from sfumato.networks.resnet import resnet18, resnet34
from sfumato.networks.resnext import ResNeXt
from sfumato.networks.scattering import ScatteringClassifier
from sfumato.networks.shufflenet_v2 import ShuffleNetV2
from sfumato.networks.small_cnn import SmallCNN
from sfumato.networks.vgg import VGG11
from sfumato.networks.wide_resnet import WideResNet

Builder = Callable[[int, int, int, int], nn.Module]  # channels, height, width, classes


def _resnet(depth: int, *, quick: bool = False) -> Builder:
    return lambda c, h, w, k: CifarResNet(depth, c, k, stride=early_stride(h, w) if quick else 1)


def _wide(depth: int, widen: int, *, dropout: float = 0.0, quick: bool = False) -> Builder:
    return lambda c, h, w, k: WideResNet(depth, widen, c, k, dropout=dropout, stride=early_stride(h, w) if quick else 1)


def _resnext(blocks: int, *, groups: int, path: int, widen: int, quick: bool = False) -> Builder:
    return lambda c, h, w, k: ResNeXt(
        blocks, c, k, groups=groups, path=path, widen=widen, stride=early_stride(h, w) if quick else 1
    )


ARCHITECTURES: dict[str, Builder] = {
    "small-cnn": SmallCNN,
    "scattering": ScatteringClassifier,
    "resnet18": lambda channels, height, width, classes: resnet18(channels, classes),
    "resnet34": lambda channels, height, width, classes: resnet34(channels, classes),
    "vgg11": VGG11,
    "mobilenet-v2": lambda channels, height, width, classes: MobileNetV2(channels, classes),
    "shufflenet-v2": lambda channels, height, width, classes: ShuffleNetV2(channels, classes),
    # One quick member of each family, for a panel of judges on two cores.
    "mlp": MLP,
    "lenet": LeNet,
    "resnet8": _resnet(8, quick=True),
    "wrn-10-2": _wide(10, 2, quick=True),
    "resnext-11": _resnext(1, groups=4, path=8, widen=4, quick=True),
    # The classifiers of DPImageBench, for a GPU: three for MNIST and the like, three for CIFAR.
    "resnet110": _resnet(110),
    "wrn-40-4": _wide(40, 4, dropout=0.3),
    "resnext29-8x64": _resnext(3, groups=8, path=64, widen=4),
    "resnet164": _resnet(164),
    "wrn-28-10": _wide(28, 10),
    "resnext28-8x64": _resnext(2, groups=8, path=64, widen=10),
}


def build(arch: str, channels: int, height: int, width: int, classes: int) -> nn.Module:
    """A classifier by name, freshly initialised; it takes (b, c, h, w) in [0, 1] and gives (b, classes)."""
    check(arch)
    return ARCHITECTURES[arch](channels, height, width, classes)


def check(arch: str) -> None:
    """Refuse a name that is none of the architectures."""
    if arch not in ARCHITECTURES:
        raise UsageError(f"Expected one of the architectures {', '.join(ARCHITECTURES)}; got {arch!r}.")

"""The classifiers that one can name, each built from a shape and a number of classes."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from sfumato.errors import UsageError
from sfumato.networks.mobilenet_v2 import MobileNetV2
from sfumato.networks.resnet import resnet18, resnet34
from sfumato.networks.scattering import ScatteringClassifier
from sfumato.networks.shufflenet_v2 import ShuffleNetV2
from sfumato.networks.small_cnn import SmallCNN
from sfumato.networks.vgg import VGG11

Builder = Callable[[int, int, int, int], nn.Module]  # channels, height, width, classes

ARCHITECTURES: dict[str, Builder] = {
    "small-cnn": SmallCNN,
    "scattering": ScatteringClassifier,
    "resnet18": lambda channels, height, width, classes: resnet18(channels, classes),
    "resnet34": lambda channels, height, width, classes: resnet34(channels, classes),
    "vgg11": VGG11,
    "mobilenet-v2": lambda channels, height, width, classes: MobileNetV2(channels, classes),
    "shufflenet-v2": lambda channels, height, width, classes: ShuffleNetV2(channels, classes),
}


def build(arch: str, channels: int, height: int, width: int, classes: int) -> nn.Module:
    """A classifier by name, freshly initialised; it takes (b, c, h, w) in [0, 1] and gives (b, classes)."""
    check(arch)
    return ARCHITECTURES[arch](channels, height, width, classes)


def check(arch: str) -> None:
    """Refuse a name that is none of the architectures."""
    if arch not in ARCHITECTURES:
        raise UsageError(f"Expected one of the architectures {', '.join(ARCHITECTURES)}; got {arch!r}.")

"""Residual classifiers for DP-SGD, whose outputs depend on one image alone: De et al. (2022), and a narrow ResNet18."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

from torch import Tensor, nn

from sfumato.networks.cifar_resnet import WIDTHS
from sfumato.networks.models import Shape
from sfumato.networks.resnet import resnet18
from sfumato.standardised_convolution import StandardisedConv2d

Norm = Literal["group", "batch", "none"]
GROUPS = 16
NARROW_WIDTH = 16  # of ResNet18's first stage; a quarter of the published width, for two cores


class PrivateWideResNet(nn.Module):
    """Depth 6 n + 4: three stages of n blocks, every convolution after a rectifier and a norm, in that order.

    A stem of stride 2 halves the resolution of all that follows, for a quarter of the time; De et al. have 1.
    The norm "batch" mixes images and is for training without privacy only; `noisy_gradient` refuses it.
    """

    def __init__(
        self,
        depth: int,
        widen: int,
        channels: int,
        classes: int,
        *,
        norm: Norm = "group",
        weight_standardisation: bool = True,
        stem_stride: int = 1,
    ) -> None:
        super().__init__()
        if depth < 10 or depth % 6 != 4:
            raise ValueError(f"Expected a depth of 6 n + 4, got {depth}.")
        layers = _Layers(norm, weight_standardisation)
        self.stem = layers.convolution(channels, WIDTHS[0], 3, stem_stride)
        blocks: list[nn.Module] = []
        inputs = WIDTHS[0]
        for stage, width in enumerate(WIDTHS):
            for block in range((depth - 4) // 6):
                outputs = width * widen
                stride = 2 if stage and not block else 1
                blocks.append(PrivateBlock(layers, inputs, outputs, stride=stride, project=not block))
                inputs = outputs
        self.stages = nn.Sequential(*blocks)
        self.last = nn.Sequential(nn.ReLU(), layers.norm(inputs))
        self.head = nn.Linear(inputs, classes)
        _start_by_inputs(self.head)

    def forward(self, images: Tensor) -> Tensor:  # (b, c, h, w) in [0, 1] -> (b, k)
        maps = self.last(self.stages(self.stem(2 * images - 1)))
        return cast(Tensor, self.head(maps.mean((2, 3))))


class PrivateBlock(nn.Module):
    """Rectifier, norm, 3x3, twice; the first block of a stage has a rectifier, a norm and a 1x1 around them."""

    def __init__(self, layers: _Layers, inputs: int, outputs: int, *, stride: int, project: bool) -> None:
        super().__init__()
        self.first = layers.unit(inputs, outputs, 3, stride)
        self.second = layers.unit(outputs, outputs, 3)
        # its own norm, not that of `first`, as in the authors' code; also where the shape does not change
        self.skip = layers.unit(inputs, outputs, 1, stride) if project else nn.Identity()

    def forward(self, maps: Tensor) -> Tensor:
        return cast(Tensor, self.second(self.first(maps)) + self.skip(maps))


class _Layers:
    """Makes the layers of a network, with its kind of norm and of convolution."""

    def __init__(self, norm: Norm, weight_standardisation: bool) -> None:
        if norm not in ("group", "batch", "none"):
            raise ValueError(f"Expected the norm group, batch or none, got {norm!r}.")
        self._norm = norm
        self._weight_standardisation = weight_standardisation

    def unit(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
        # the rectifier may not work in place: the input is also added to the block's output
        return nn.Sequential(nn.ReLU(), self.norm(inputs), self.convolution(inputs, outputs, kernel, stride))

    def norm(self, channels: int) -> nn.Module:
        if self._norm == "group":
            return nn.GroupNorm(GROUPS, channels)
        return nn.BatchNorm2d(channels) if self._norm == "batch" else nn.Identity()

    def convolution(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
        if self._weight_standardisation:
            return StandardisedConv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2)
        plain = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2)
        _start_by_inputs(plain)
        return plain


def _start_by_inputs(layer: nn.Conv2d | nn.Linear) -> None:
    """Outputs of unit variance: inputs have it too, because the norm comes after the rectifier."""
    nn.init.normal_(layer.weight, std=layer.weight[0].numel() ** -0.5)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def _wide(depth: int, widen: int) -> Callable[[int, int, int, int], nn.Module]:
    return lambda channels, height, width, classes: PrivateWideResNet(depth, widen, channels, classes)


# two for two cores; two of De et al., for a GPU
CLASSIFIERS = {
    "wrn-16-1-gn": _wide(16, 1),
    "resnet18-gn-16": lambda channels, height, width, classes: resnet18(
        channels, classes, width=NARROW_WIDTH, norm="group"
    ),
    "wrn-16-4-gn": _wide(16, 4),
    "wrn-40-4-gn": _wide(40, 4),
}


def _wide_model(
    shape: Shape,
    classes: int,
    *,
    depth: int,
    widen: int,
    norm: Norm = "group",
    weight_standardisation: bool = True,
    stem_stride: int = 1,
) -> nn.Module:
    return PrivateWideResNet(
        depth,
        widen,
        shape[0],
        classes,
        norm=norm,
        weight_standardisation=weight_standardisation,
        stem_stride=stem_stride,
    )


def _resnet18_model(shape: Shape, classes: int, *, width: int = NARROW_WIDTH) -> nn.Module:
    return resnet18(shape[0], classes, width=width, norm="group")


MODELS = {"wide-resnet": _wide_model, "resnet18": _resnet18_model}

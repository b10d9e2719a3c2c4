"""Residual networks of grouped convolutions: ResNeXt, Xie, Girshick, Dollar, Tu and He (2017), for small images."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn.functional import relu

from sfumato.networks.cifar_resnet import Staged, early_stride, stem


class ResNeXt(Staged):
    """Three stages of bottlenecks, 9 n + 2 layers; `groups` paths of `path` channels, doubled at each stage.

    A stage gives out `path * widen` channels, doubled likewise.
    """

    def __init__(
        self, blocks: int, channels: int, classes: int, *, groups: int, path: int, widen: int, stride: int = 1
    ) -> None:
        first = stem(channels, path, stride)
        stages: list[nn.Module] = []
        inputs = path
        for stage in range(3):
            width = path * 2**stage
            for block in range(blocks):
                step = 2 if stage and not block else 1
                stages.append(Bottleneck(inputs, groups * width, widen * width, groups=groups, stride=step))
                inputs = widen * width
        super().__init__(first, stages, inputs, classes)


class Bottleneck(nn.Module):
    """1x1, grouped 3x3, 1x1 around a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, inner: int, outputs: int, *, groups: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(inputs, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(inplace=True),
            nn.Conv2d(inner, inner, 3, stride=stride, padding=1, groups=groups, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(inplace=True),
            nn.Conv2d(inner, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            narrow = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(narrow, nn.BatchNorm2d(outputs))

    def forward(self, maps: Tensor) -> Tensor:
        return relu(self.path(maps) + self.shortcut(maps))


def _builder(
    blocks: int, *, groups: int, path: int, widen: int, quick: bool = False
) -> Callable[[int, int, int, int], nn.Module]:
    return lambda c, h, w, k: ResNeXt(
        blocks, c, k, groups=groups, path=path, widen=widen, stride=early_stride(h, w) if quick else 1
    )


# one for a panel of judges on two cores; two of DPImageBench, for a GPU
CLASSIFIERS = {
    "resnext-11": _builder(1, groups=4, path=8, widen=4, quick=True),
    "resnext29-8x64": _builder(3, groups=8, path=64, widen=4),
    "resnext28-8x64": _builder(2, groups=8, path=64, widen=10),
}

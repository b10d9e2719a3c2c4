"""DP-MEPF (Harder, Jalali, Sutherland, Park 2023): match one noisy mean of a public network's features of each class.

A generator is trained until its images match first and second moments of perceptual features, which are asked for
once: phi_1 is the vector of an image's features at unit length, phi_2 that of their squares. `features` names the
network: efficientnet-lite0 was trained on ImageNet, which is public; scattering is a fixed wavelet transform, so
its features are not perceptual, but it needs no weights and works on tiny images. Differences from the public code:

- It halves the sensitivity of the second moment "because it is positive". Two positive unit vectors can be sqrt(2)
  apart, so its noise is too small by that factor. Here both moments are one row whose norm is 1.
- It divides by the exact size of each class and adds noise by it, though sizes are private. Here they are asked
  in the same sum.
- It divides features by their norm, which can be zero. Here each layer has an additional constant feature, which
  also preserves the magnitude of the others.
- It reports the training step with the best test accuracy. Here it is the last one.

A metric that uses the same network (`fid[efficientnet-lite0-64]`) is biased in favour of such a release.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.contracts import Sampler, Synthesizer
from sfumato.errors import EnvironmentProblem, UsageError, expect_one_of, expect_within
from sfumato.networks.efficientnet_lite0 import EfficientNetLite0
from sfumato.networks.scattering import COARSE_SIDE, FEATURE_SIDE, ORIENTATIONS, Scattering
from sfumato.privacy import Budget, GaussianSum, PrivateImages
from sfumato.statistics.features import extractor
from sfumato.synthesis.embedding import count_share_for, mean_embedding, squared_mmd, with_count
from sfumato.synthesis.generator_training import (
    GENERATOR_SETTINGS,
    GeneratorSampler,
    GeneratorSettings,
    train_generator,
)
from sfumato.values import Images, Spec

CHUNK = 64  # images at a time: their feature maps fit the processor's cache
GRID = 8  # feature maps are average-pooled to about this width
FEATURES = ("auto", "efficientnet-lite0", "scattering")


@dataclass(frozen=True)
class DPMEPF(Synthesizer):
    """Hyperparameters, all public."""

    free: ClassVar = GENERATOR_SETTINGS | {"seed"}

    features: str = "auto"  # efficientnet-lite0 where it is installed and images have 16 pixels or more
    side: int = 48  # of the input of efficientnet-lite0, in pixels
    rows: int = 5  # stages of its blocks; each gives a layer of features
    second_share: float = 0.3  # of the squared norm of a row, for the second moment
    count_share: float = 0.01  # of a row's squared norm, spent on the size of the class
    steps: int = 300
    batch: int = 200
    learning_rate: float = 5e-3
    latent: int = 6
    hidden: int = 512
    codes: int = 16
    drafts: int = 1  # made of each image; the one most like its class is kept; each needs its features
    seed: int = 0

    def __post_init__(self) -> None:
        expect_one_of(self, features=FEATURES)
        if not 32 <= self.side <= 224 or self.side % 16:
            raise UsageError(f"Expected a side from 32 to 224 that is a multiple of 16, got {self.side}.")
        part = (1e-6, 0.9999)
        expect_within(self, rows=(1, 7), second_share=part, count_share=part, seed=(0, 2**31 - 2))
        GeneratorSettings.of(self)

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        share = count_share_for(spec, budget.epsilon)
        features = available(spec)
        if spec.pixels <= 256:  # small images need fewer features, and should take seconds
            return cls(features, count_share=share, latent=4, hidden=128)
        return cls(features, count_share=share)

    def plan(self, spec: Spec) -> Sequence[GaussianSum]:
        return [
            GaussianSum(purpose="the mean image features of each class and their squares, and how large the class is")
        ]

    def seconds(self, spec: Spec) -> float:
        features = available(spec) if self.features == "auto" else self.features
        side = min(max(spec.height, spec.width), 1.25 * COARSE_SIDE)
        one = 5e-4 * spec.channels * (side / 28) ** 2 if features == "scattering" else 1.5e-3 * (self.side / 64) ** 2
        made = self.steps * max(self.batch, 8 * len(spec.classes))
        return 5 + 0.01 * self.steps + one * (spec.count + 2.5 * made)

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        spec = private.spec
        (mechanism,) = private.ledger.calibrate(*self.plan(spec))
        query = private.open(mechanism, microbatch=CHUNK)
        phi = self._moments(spec)

        def contribution(image: Tensor, label: Tensor) -> Tensor:
            return with_count(phi(image[None])[0], self.count_share)

        # sum_i [phi_1(x_i), phi_2(x_i)] (x) onehot(y_i) + noise: one row for each class.
        sums = query.per_class(contribution, l2_bound=1.0)  # (k, 1 + d)
        target, reliability = mean_embedding(sums, share=self.count_share, noise=mechanism.noise_multiplier or 0.0)

        def distance(images: Tensor) -> Tensor:
            made = torch.cat([phi(chunk) for chunk in torch.split(images.flatten(0, 1), CHUNK)])
            return (reliability * squared_mmd(made.reshape(*images.shape[:2], -1), target)).mean()

        def likeness(images: Tensor, labels: Tensor) -> Tensor:
            made = torch.cat([phi(chunk) for chunk in torch.split(images, CHUNK)])
            return (made * target[labels]).sum(1)

        draw = torch.Generator().manual_seed(self.seed)
        generator = train_generator(spec, GeneratorSettings.of(self), distance, draw=draw, what="dp-mepf")
        return GeneratorSampler(generator, spec.classes, likeness, drafts=self.drafts, seed=self.seed + 1)

    def _moments(self, spec: Spec) -> FeatureMoments:
        features = available(spec) if self.features == "auto" else self.features
        layers = (
            ScatteringLayers(spec)
            if features == "scattering"
            else EfficientNetLayers(spec, side=self.side, rows=self.rows)
        )
        return FeatureMoments(layers, spec, second_share=self.second_share)


def available(spec: Spec) -> str:
    """The features that `auto` selects for images of this size on this machine."""
    if min(spec.height, spec.width) < 16:
        return "scattering"
    try:
        extractor("efficientnet-lite0-64")
    except EnvironmentProblem:
        return "scattering"
    return "efficientnet-lite0"


class FeatureMoments(nn.Module):
    """phi(x) = [sqrt(1 - s) phi_1(x), sqrt(s) phi_2(x)], where phi_1, phi_2 and so phi have unit length.

    Each layer is scaled to the same length, so that none dominates. The pixels are a layer too: the paper's maps have
    full size and hold detail that averages on a coarse grid lose.
    """

    def __init__(self, layers: nn.Module, spec: Spec, *, second_share: float) -> None:
        super().__init__()
        self.layers, self.second_share = layers, second_share
        # The constant feature of a layer is about as long as its features of a public random pattern.
        pattern = torch.rand(16, *spec.shape, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            self.constants = [float(a.norm(dim=1).mean()) for a in (pattern.flatten(1), *layers(pattern))]

    def forward(self, images: Tensor) -> Tensor:  # (b, c, h, w) in [0, 1] -> (b, d)
        first, second = [], []
        for layer, constant in zip([images.flatten(1), *self.layers(images)], self.constants, strict=True):
            values = F.pad(layer / constant, (0, 1), value=1.0)
            first.append(_unit(values))
            second.append(_unit(values.square()))
        weights = math.sqrt((1 - self.second_share) / len(first)), math.sqrt(self.second_share / len(first))
        return torch.cat([weights[0] * part for part in first] + [weights[1] * part for part in second], dim=1)


def _unit(values: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(values, dim=1, keepdim=True)
    return values / length


class EfficientNetLayers(nn.Module):
    """Layers of EfficientNet-Lite0: the outputs of the stages of its blocks, average-pooled to a coarse grid."""

    down: Tensor
    across: Tensor

    def __init__(self, spec: Spec, *, side: int, rows: int) -> None:
        super().__init__()
        # In a list, so that the shared network is not registered as a submodule.
        self.network, self.rows = [cast(EfficientNetLite0, extractor(f"efficientnet-lite0-{side}").network)], rows
        self.register_buffer("down", _resize(spec.height, side))
        self.register_buffer("across", _resize(spec.width, side))

    def forward(self, images: Tensor) -> list[Tensor]:  # (b, c, h, w) -> (b, d) of each layer
        colours = images if images.shape[1] == 3 else images.mean(1, keepdim=True).expand(-1, 3, -1, -1)
        seen = self.down @ colours @ self.across.T  # torch's resize does not run under vmap
        layers = self.network[0].maps(seen, rows=self.rows)
        return [F.avg_pool2d(maps, max(1, maps.shape[-1] // GRID)).flatten(1) for maps in layers]


def _resize(short: int, long: int) -> Tensor:
    """Linear interpolation as a matrix (long, short)."""
    rows = torch.eye(short)[:, None]  # (short, 1, short)
    return F.interpolate(rows, size=long, mode="linear", align_corners=False)[:, 0].T.contiguous()


class ScatteringLayers(nn.Module):
    """Layers of a scattering transform: the smoothed image, then first and second order paths by scale."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        side = max(spec.height, spec.width)
        self.coarser = round(side / COARSE_SIDE) if side > 1.25 * COARSE_SIDE else 1
        scales = max(1, round(math.log2(side / self.coarser / FEATURE_SIDE)))
        self.scattering, self.sizes = Scattering(scales), [1]  # paths of each layer, in the transform's order
        for scale in range(scales):
            self.sizes += [ORIENTATIONS] + [ORIENTATIONS**2] * (scales - 1 - scale)

    def forward(self, images: Tensor) -> list[Tensor]:  # (b, c, h, w) -> (b, d) of each layer
        seen = F.avg_pool2d(images, self.coarser) if self.coarser > 1 else images
        maps = self.scattering(seen).unflatten(1, (images.shape[1], -1))  # (b, c, paths, h', w')
        return [layer.flatten(1) for layer in maps.split(self.sizes, dim=2)]

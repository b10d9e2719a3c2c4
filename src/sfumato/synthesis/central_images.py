"""Central images (DP-FETA, Li et al. 2025): a few noisy, small mean images of each class, which are safe to train on.

Each round asks, for every class, the sum of small versions of its images and how many there are, in one bounded row
of a record. So nothing is divided by a number that only the data knows, and the bound is the same for all data: a
record that vanishes takes one row away. Brightness counts from the middle grey, which halves the row's length.

Means of random subsets of a class, as published, differ by their noise and hardly by what they show. So from the
second round on a class is cut in two halves, along a random direction of coarse shapes through the mean that earlier
answers gave; each half has an image of its own. Noise is taken off by bands of frequencies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from sfumato.networks.cosines import cosines
from sfumato.privacy import GaussianSum, Query
from sfumato.synthesis.embedding import class_sizes, with_count
from sfumato.synthesis.moments import wiener_shrunk
from sfumato.values import Images, Spec

PURPOSE = "small mean images of each class or half of a class, and how many images it has"
SMALLEST, LARGEST = 8, 16  # sides of small versions; between these they have half of the side of the image
COARSE = 4  # waves along each side that directions of cuts are made of
HALF = 0.2  # standard deviation of the share of a class in one of its halves, before its size is known
LEAST_PART = 0.1  # of the size that is expected: estimates of sizes are no smaller


@dataclass(frozen=True)
class CentralQuestion:
    """What is asked for central images; every number is public."""

    rounds: int
    sampling: float
    halves: bool  # from the second round on, classes are cut in two
    count_share: float  # of a row's squared norm, for the number of images
    seed: int

    def mechanism(self, *, share: float) -> GaussianSum:
        return GaussianSum(rounds=self.rounds, sampling=self.sampling, share=share, purpose=PURPOSE)

    def images(self, spec: Spec) -> int:
        """How many central images there are, if no round is lost."""
        return len(spec.classes) * (self.rounds + (self.rounds - 1 if self.halves else 0))

    def ask(self, query: Query) -> Images:
        """All central images, of the size of the private ones."""
        code = _SmallCode(query.spec)
        noise = query.mechanism.noise_multiplier or 0.0
        asked: list[Tensor] = []  # of each round the sums (k, 2, 1 + d): of a whole class, or of its halves
        for number in range(query.rounds):
            asked.append(self._round(query, code, number, asked))
        if not asked:  # a crash can cost all rounds of samples: then nothing is known
            labels = torch.arange(len(query.spec.classes))
            return Images(code.enlarged(torch.zeros(len(labels), len(code.bands))), labels, query.spec.classes)
        sums = torch.stack(asked)
        classes = self._class_sizes(sums, noise)
        sizes, there = self._sizes(sums, classes, noise)
        labels = torch.arange(sums.shape[1])[None, :, None].expand(there.shape)[there]
        scale = 1 / (math.sqrt(1 - self.count_share) * sizes[there])
        small = _denoised(sums[there][:, 1:] * scale[:, None], (noise * scale).square(), code.bands)
        return Images(code.enlarged(small), labels, query.spec.classes)

    def _round(self, query: Query, code: _SmallCode, number: int, before: list[Tensor]) -> Tensor:
        cut = self.halves and bool(before)
        direction = code.direction(torch.Generator().manual_seed((self.seed + 1) * 1_000_003 + number))
        middles = torch.zeros(len(query.spec.classes))
        if cut:
            sums = torch.stack(before)
            sizes = self._class_sizes(sums, query.mechanism.noise_multiplier or 0.0)
            expected = math.sqrt(1 - self.count_share) * self.sampling * len(before) * sizes
            middles = self._of_classes(sums).sum(0)[:, 1:] @ direction / expected

        def row(image: Tensor, label: Tensor) -> Tensor:  # (2, 1 + d)
            small = code.encode(image)
            half = (small @ direction > middles[label]).long() if cut else torch.zeros_like(label)
            return F.one_hot(half, 2)[:, None] * with_count(small, self.count_share)

        return query.per_class(row, l2_bound=1.0).float()

    def _cut(self, sums: Tensor) -> Tensor:
        """Which rounds cut classes in two: (rounds,)."""
        return (torch.arange(len(sums)) > 0) & self.halves

    def _of_classes(self, sums: Tensor) -> Tensor:
        """The sums of whole classes: (rounds, k, 1 + d). Where a class is not cut, its second half is noise alone."""
        return torch.where(self._cut(sums)[:, None, None], sums.sum(2), sums[:, :, 0])

    def _class_sizes(self, sums: Tensor, noise: float) -> Tensor:
        """The number of records of each class, from all rounds: (k,)."""
        draws = len(sums) + int(self._cut(sums).sum())  # of noise, in the sum over rounds
        expected = self.sampling * len(sums)
        counts = self._of_classes(sums)[..., 0].sum(0) / expected
        return class_sizes(counts, share=self.count_share, noise=noise * math.sqrt(draws) / expected)

    def _sizes(self, sums: Tensor, classes: Tensor, noise: float) -> tuple[Tensor, Tensor]:
        """How many records each sum has, and which sums there are: (rounds, k, 2) twice.

        What was expected by the size of the class is corrected by the noisy count as far as it can be believed, given
        how far sizes of samples and of halves vary.
        """
        cut = self._cut(sums)[:, None, None]
        sampled = (self.sampling * classes)[:, None]
        expected = torch.where(cut, 0.5 * sampled, sampled)
        variance = expected * (1 - self.sampling) + torch.where(cut, HALF * sampled, 0.0).square()
        spread = noise / math.sqrt(self.count_share)
        believed = variance / (variance + spread**2 + 1e-12)
        sizes = expected + believed * (sums[..., 0] / math.sqrt(self.count_share) - expected)
        there = cut | (torch.arange(2) == 0)
        # an estimate far below the expected size, or below one record, is noise
        return sizes.maximum(LEAST_PART * expected).clamp(min=1), there.expand(sizes.shape)


class _SmallCode:
    """The cosine coefficients of a small version of an image, as a row of norm up to 1; and back."""

    def __init__(self, spec: Spec) -> None:
        self.size = (spec.height, spec.width)
        shrink = min(0.5, LARGEST / max(self.size))
        self.small = _small(spec.height, shrink), _small(spec.width, shrink)
        self.channels = cosines(spec.channels, spec.channels)  # brightness apart from differences of colours
        self.down, self.across = (cosines(side, side) for side in self.small)
        self.longest = 0.5 * math.sqrt(spec.channels * math.prod(self.small))  # of all images less the middle grey
        i, j = torch.meshgrid(*(torch.arange(side) for side in self.small), indexing="ij")
        fall = (i.square() + j.square()).float().sqrt()
        self.bands = torch.cat([fall.round().long().flatten() + 1_000 * c for c in range(spec.channels)])
        coarse = ((i < COARSE) & (j < COARSE)) / (1 + fall)
        self._coarse = coarse.flatten().repeat(spec.channels)

    def encode(self, image: Tensor) -> Tensor:  # (c, h, w) in [0, 1] -> (d,)
        small = F.adaptive_avg_pool2d(image[None], self.small)[0] - 0.5
        mixed = torch.einsum("kc,chw->khw", self.channels, small)
        return (self.down @ mixed @ self.across.T).flatten() / self.longest

    def enlarged(self, rows: Tensor) -> Tensor:  # (n, d) -> uint8 (n, c, h, w)
        waves = rows.reshape(len(rows), len(self.channels), *self.small) * self.longest
        small = torch.einsum("kc,nkhw->nchw", self.channels, self.down.T @ waves @ self.across) + 0.5
        large = F.interpolate(small, size=self.size, mode="bicubic", align_corners=False)
        return large.clamp(0, 1).mul(255).round().to(torch.uint8)

    def direction(self, draw: torch.Generator) -> Tensor:
        """A random combination of coarse waves: (d,)."""
        return torch.randn(self._coarse.shape, generator=draw) * self._coarse


def _small(side: int, shrink: float) -> int:
    return max(min(side, SMALLEST), math.ceil(shrink * side))


def _denoised(rows: Tensor, variances: Tensor, bands: Tensor) -> Tensor:
    """Rows (n, d) with noise of these variances (n,), shrunk in bands of frequencies: their mean, then deviations."""
    weights = 1 / variances.clamp(min=1e-12)
    weights = weights / weights.sum()
    mean = wiener_shrunk((weights @ rows)[None], bands, (weights.square() @ variances)[None])
    return mean + wiener_shrunk(rows - mean, bands, variances)

"""A mixture of Gaussians for each class, from charged sums: what images of the default method are painted from.

Images are seen through a compact public basis (the image code). Asked are, in turn: tones (which code suits), lengths
(clipping bounds), the mean of all classes, class means and sizes, principal axes of variation, class covariances along
these, and components by Lloyd's algorithm. What is sampled from the mixtures afterwards is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from sfumato.privacy import Budget, GaussianSum, PrivateImages, Query
from sfumato.synthesis import moments
from sfumato.synthesis.embedding import class_sizes, with_count
from sfumato.synthesis.image_code import ImageCode, Kind
from sfumato.synthesis.mixture_sampler import MixtureSampler
from sfumato.values import Spec

PURPOSES = {
    "tones": "how dark or bright pixels are, over all images",
    "lengths": "how long the image codes are, to set clipping bounds",
    "common mean": "the mean image code of all classes together",
    "class means": "the mean image code of each class, and how large the class is",
    "pooled covariance": "how images vary around the mean of their class, over all classes",
    "class covariances": "how the images of each class vary",
    "components": "typical variants of the images within each class",
}
# How the budget of the mixtures is divided.
BASIS_SHARES = {"tones": 0.01, "lengths": 0.03}
COMMON_MEAN_SHARE = 0.1  # of the share of the means; all classes contribute to this one
VARIATION_SHARES = {"pooled covariance": 0.48, "class covariances": 0.17, "components": 0.35}  # of the remainder
TONE_EDGES = (0.05, 0.1, 0.75, 0.9, 0.95)  # of the bins black, dark, medium, bright, light, white
TONE_CENTRES = torch.tensor([0.02, 0.07, 0.4, 0.8, 0.93, 0.98])  # typical brightness in each bin
LENGTH_EDGES = 2.0 ** (torch.arange(-32, 1) / 4)  # of the histogram of lengths, relative to the largest possible one
CLASS_COUNT_SHARE = 0.02  # of a row's squared norm, spent on the size of its class
COMPONENT_COUNT_SHARE = 0.08  # of a row's squared norm, spent on the size of its mixture component

_Row = Callable[[Tensor, Tensor], Tensor]  # an image code and its label to a row


@dataclass(frozen=True)
class ClassMixtureQuestions:
    """What is asked for the mixtures, and how they are fitted; every number is public."""

    means_share: float  # of the mixtures' budget
    axes: int  # principal axes of variation, at most
    components: int  # of the mixture of each class
    component_rounds: int  # of Lloyd's algorithm
    seed: int

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget, *, seed: int = 0) -> Self:
        # The signal-to-noise ratio of a class grows as epsilon times its number of records. A mixture component should
        # hold five times the noise of its own count, and means get a larger share where there is more noise.
        class_signal = min(budget.epsilon, 100.0) * spec.count / len(spec.classes)
        return cls(
            means_share=round(min(0.8, max(0.05, 0.15 * math.sqrt(6_000 / class_signal))), 3),
            axes=48,
            components=round(min(24.0, max(1.0, class_signal / 500))),
            component_rounds=4,
            seed=seed,
        )

    def plan(self, share: float, *, beside: float = 0.0) -> list[GaussianSum]:
        """The questions, which together have this share of a budget, less the part `beside` for another question."""
        means = {
            "common mean": COMMON_MEAN_SHARE * self.means_share,
            "class means": (1 - COMMON_MEAN_SHARE) * self.means_share,
        }
        remainder = 1 - sum(BASIS_SHARES.values()) - beside - self.means_share
        variation = {name: remainder * part for name, part in VARIATION_SHARES.items()}
        rounds = {"lengths": 3, "components": self.component_rounds}
        return [
            GaussianSum(rounds=rounds.get(name, 1), share=share * part, purpose=PURPOSES[name])
            for name, part in {**BASIS_SHARES, **means, **variation}.items()
        ]

    def fit(self, private: PrivateImages, calibrated: Sequence[GaussianSum], code: ImageCode) -> MixtureSampler:
        """The mixtures, ready to be sampled from; the calibrated questions may be among others."""
        questions = {asked.purpose: asked for asked in calibrated}
        codes = private.mapped(lambda image: code.encode(image)[None, None])
        lengths = codes.open(questions[PURPOSES["lengths"]])
        longest = math.sqrt(math.prod(code.shape[1:]) * len(code.centres))  # no image code is longer

        bound = _length_quantile(lengths, lambda z, label: z.flatten(), longest, quantile=0.9)
        common = common_mean(codes.open(questions[PURPOSES["common mean"]]), bound, code.bands)

        bound = _length_quantile(lengths, lambda z, label: z.flatten() - common, longest, quantile=0.9)
        deviations, sizes = class_deviations(codes.open(questions[PURPOSES["class means"]]), common, bound, code.bands)
        means = common + deviations

        def residual(z: Tensor, label: Tensor) -> Tensor:
            return (z.flatten() - means[label])[code.coarse]

        bound = _length_quantile(lengths, residual, longest, quantile=0.7)

        def clipped_residual(z: Tensor, label: Tensor) -> Tensor:
            return moments.clipped(residual(z, label), bound)

        axes, pooled = self._pooled_axes(codes.open(questions[PURPOSES["pooled covariance"]]), clipped_residual, bound)

        def projected(z: Tensor, label: Tensor) -> Tensor:  # coordinates along the pooled axes, of norm at most 1
            return clipped_residual(z, label) @ axes / bound

        class_variances, rotations = _class_axes(
            codes.open(questions[PURPOSES["class covariances"]]), projected, bound, pooled, sizes
        )

        def coordinates(z: Tensor, label: Tensor) -> Tensor:  # along the axes of its own class
            return bound * projected(z, label) @ rotations[label]

        mixtures = self._fit_components(
            codes.open(questions[PURPOSES["components"]]), coordinates, bound, class_variances, sizes
        )
        class_axes = torch.stack([axes @ rotation for rotation in rotations])
        fitted = moments.ClassMixtures(means, code.coarse, class_axes, mixtures)
        return MixtureSampler(code, fitted, torch.Generator().manual_seed(self.seed + 1))

    def _pooled_axes(self, query: Query, residual: _Row, bound: float) -> tuple[Tensor, Tensor]:
        """Principal axes (d, r) of the residuals of all classes, and the variances (r,) along them."""

        def second_moments(z: Tensor, label: Tensor) -> Tensor:
            return moments.packed(residual(z, label) / bound)

        scale = bound**2  # back to the units of image codes
        total = query(second_moments, l2_bound=1.0).float()
        covariance = moments.unpacked(total * scale / query.spec.count)
        deviation = noise_of(query) * scale / query.spec.count / math.sqrt(2)
        return moments.denoised_spectrum(covariance, deviation=deviation, most=self.axes)

    def _fit_components(
        self, query: Query, coordinates: _Row, bound: float, variances: Tensor, sizes: Tensor
    ) -> list[moments.GaussianMixture]:
        """Lloyd's algorithm with noisy sums, in all classes at once."""
        classes = range(len(variances))
        draw = torch.Generator().manual_seed(self.seed)
        centres = torch.stack([moments.initial_centres(self.components, v, draw) for v in variances])  # (k, m, r)
        counts = (sizes / self.components)[:, None].expand(len(variances), self.components)
        least_count = 0.05 * float(sizes.min()) / self.components
        deviation = noise_of(query) * bound / math.sqrt(1 - COMPONENT_COUNT_SHARE)
        for _ in range(query.rounds):

            def assigned(z: Tensor, label: Tensor, centres: Tensor = centres) -> Tensor:  # (m, 1 + r)
                point = coordinates(z, label)
                component = moments.nearest_component(point, centres[label], variances[label])
                row = with_count(point / bound, COMPONENT_COUNT_SHARE)
                return F.one_hot(component, self.components)[:, None] * row

            sums = query.per_class(assigned, l2_bound=1.0).float()  # (k, m, 1 + r)
            counts = (sums[..., 0] / math.sqrt(COMPONENT_COUNT_SHARE)).clamp(min=least_count)
            totals = sums[..., 1:] * bound / math.sqrt(1 - COMPONENT_COUNT_SHARE)
            centres = torch.stack([moments.updated_centres(totals[c], counts[c], deviation=deviation) for c in classes])
        return [moments.mixture_of(centres[c], counts[c], variances[c]) for c in classes]


def choose_code(private: PrivateImages, calibrated: Sequence[GaussianSum]) -> ImageCode:
    """The image code that suits the data, from a noisy histogram of pixel brightness."""
    spec, edges = private.spec, torch.tensor(TONE_EDGES)
    (mechanism,) = (asked for asked in calibrated if asked.purpose == PURPOSES["tones"])

    def histogram(image: Tensor, label: Tensor) -> Tensor:  # fractions that add up to 1, so their norm is at most 1
        bins = torch.bucketize(image.mean(0).flatten(), edges)
        return F.one_hot(bins, len(TONE_EDGES) + 1).float().mean(0)

    fractions = private.open(mechanism)(histogram, l2_bound=1.0) / spec.count
    black, dark, medium, bright, light, white = fractions.tolist()
    plain_ground = max(black, white) >= 0.3
    if spec.channels > 1 or not plain_ground or min(spec.height, spec.width) < 16:
        lightness = float(fractions.float() @ TONE_CENTRES / fractions.sum().clamp(min=0.5))
        return ImageCode("scene", spec.shape, lightness=min(1.0, max(0.0, lightness)))
    inverted = white > black
    ink = black + dark if inverted else bright + light + white
    kind: Kind = "strokes" if ink > medium else "object"
    return ImageCode(kind, spec.shape, inverted=inverted)


def _length_quantile(query: Query, row: _Row, longest: float, *, quantile: float) -> float:
    """About this quantile of the lengths of the rows, from a noisy histogram."""
    edges = longest * LENGTH_EDGES

    def bin_of(z: Tensor, label: Tensor) -> Tensor:
        return torch.bucketize(torch.linalg.vector_norm(row(z, label)), edges)

    counts = query.histogram(bin_of, bins=len(edges) + 1).clamp(min=0)
    significant = counts * (counts > 3 * noise_of(query))  # otherwise the noise of empty bins can exceed a few records
    if significant.any():
        counts = significant
    reached = (counts.cumsum(0) >= quantile * counts.sum()).nonzero()
    return float(edges[min(int(reached[0]), len(edges) - 1)])


def common_mean(query: Query, bound: float, bands: Tensor) -> Tensor:
    """The mean of all image codes (d,)."""
    total = query(lambda z, label: moments.clipped(z.flatten(), bound) / bound, l2_bound=1.0).float()
    scale = bound / query.spec.count
    variance = torch.tensor([noise_of(query) * scale]).square()
    return moments.wiener_shrunk(total[None] * scale, bands, variance)[0]


def class_deviations(query: Query, common: Tensor, bound: float, bands: Tensor) -> tuple[Tensor, Tensor]:
    """Deviations of the class means from the common mean (k, d), and class sizes (k,).

    Image codes are longer than their deviations from the common mean, so asking for these needs less noise.
    """

    def counted_deviation(z: Tensor, label: Tensor) -> Tensor:
        return with_count(moments.clipped(z.flatten() - common, bound) / bound, CLASS_COUNT_SHARE)

    sums = query.per_class(counted_deviation, l2_bound=1.0).float()  # (k, 1 + d)
    sizes = class_sizes(sums[:, 0], share=CLASS_COUNT_SHARE, noise=noise_of(query))
    scale = bound / math.sqrt(1 - CLASS_COUNT_SHARE) / sizes
    variances = (noise_of(query) * scale).square()
    return moments.wiener_shrunk(sums[:, 1:] * scale[:, None], bands, variances), sizes


def _class_axes(query: Query, projected: _Row, bound: float, pooled: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Variances (k, r) of each class along its own axes, and the rotations (k, r, r) from pooled axes to these."""
    scale = bound**2
    sums = query.per_class(lambda z, label: moments.packed(projected(z, label)), l2_bound=1.0)
    covariances = moments.unpacked(sums.float() * (scale / sizes)[:, None])
    deviations = noise_of(query) * scale / sizes / math.sqrt(2)
    found = [
        moments.class_covariance(covariance, pooled, deviation=float(deviation))
        for covariance, deviation in zip(covariances, deviations, strict=True)
    ]
    return torch.stack([values for values, _ in found]), torch.stack([rotation for _, rotation in found])


def noise_of(query: Query) -> float:
    """The noise multiplier that was calibrated for a question; 0 without a budget."""
    return query.mechanism.noise_multiplier or 0.0

"""Sfumato (this project, 2026): noisy moments paint each class, a private teacher chooses and labels, students learn.

Two things are bought. A third of the budget buys sums: means and second moments of the images in a compact public
basis, from which a mixture of Gaussians paints images of each class. The rest buys a linear teacher on fixed
scattering features by DP-SGD. All else is free: of several painted candidates for an image of a class the teacher
chooses, so that image and label agree; and it gives its logits to pictures of many other kinds, painted and invented,
from which a student learns what the teacher knows. The first are the release's images, the second its transfer set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from sfumato.contracts import Sampler, Synthesizer
from sfumato.errors import expect_within
from sfumato.networks.scattering import EvenFeatures, LinearHead, ScatteringFeatures, Teacher
from sfumato.privacy import Budget, Descent, GaussianSum, PrivateImages, Query, descend
from sfumato.progress import track
from sfumato.synthesis import moments
from sfumato.synthesis.dead_leaves import dead_leaves
from sfumato.synthesis.embedding import class_sizes, counted
from sfumato.synthesis.image_code import ImageCode, Kind
from sfumato.synthesis.painter import Painter, quantised
from sfumato.values import Images, Spec

FACTS = {"tones": 0.01, "lengths": 0.03}  # of the painting's share
MIDDLE = 0.1  # of what means get: all classes tell it together
VARIATION = {"moments": 0.48, "own moments": 0.17, "cells": 0.35}  # of what means leave of it
TONES = (0.05, 0.1, 0.75, 0.9, 0.95)  # between these a pixel is ground, dark, middling, bright, ground
MIDDLES = torch.tensor([0.02, 0.07, 0.4, 0.8, 0.93, 0.98])  # about the tones between them
LENGTHS = 2.0 ** (torch.arange(-32, 1) / 4)  # of codes, as parts of the longest there can be
COUNT_SHARE, CELL_SHARE = 0.02, 0.08  # of a row's squared norm, spent on the size of a class or a cell
EXAMPLES = 2_000  # painted images that show where features vary
CHUNK = 500  # images that are made and labelled at a time


@dataclass(frozen=True)
class Sfumato(Synthesizer):
    """Hyperparameters, all public."""

    public_images: ClassVar[Literal["welcome"]] = "welcome"
    free: ClassVar[frozenset[str]] = frozenset({"candidates", "lessons", "invented"})

    painting_share: float = 0.3  # of the budget; the rest is the teacher's
    means_share: float = 0.15  # of the painting's share
    axes: int = 48  # of variation, at most
    cells: int = 12  # of each class
    cell_rounds: int = 4
    rounds: int = 800  # of the teacher
    sampling: float = 0.03
    rate: float = 100.0
    l2_bound: float = 0.1  # of the teacher's gradients
    level: float = 0.03  # to which strong directions of its features are brought down, a part of the strongest
    candidates: int = 6  # for every image of a class, from which the teacher chooses
    lessons: int = 2  # images for transfer, for every image of a class
    invented: float = 0.25  # part of those that nobody painted
    seed: int = 0

    def __post_init__(self) -> None:
        expect_within(
            self,
            painting_share=(0.001, 0.999),
            means_share=(0.001, 0.9),
            axes=(1, 10_000),
            cells=(1, 10_000),
            cell_rounds=(1, 1_000),
            rounds=(1, 1_000_000),
            sampling=(1e-9, 1),
            rate=(1e-9, 1e9),
            l2_bound=(1e-9, 1e9),
            level=(1e-6, 1e6),
            candidates=(1, 1_000),
            lessons=(1, 1_000),
            invented=(0, 1),
            seed=(0, 2**31 - 2),
        )

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        # What a class can tell goes as epsilon times its records. A cell should hold five times the noise of its
        # own size, means come before variety, and more rounds and longer steps pay when there is less noise.
        told = min(budget.epsilon, 100.0) * spec.count
        each = told / len(spec.classes)
        # About 2,000 records a round keep the noise of sampling below that of privacy. Long steps, and steps along
        # faint directions, follow the noise where there is much. Without a bound gradients are ten times as long.
        rate = 2.0 if math.isinf(budget.epsilon) else min(200.0, 100 * math.sqrt(told / 60_000))
        return cls(
            painting_share=round(min(0.6, max(0.3, 0.3 * (2_000 / each) ** 0.25)), 3),
            means_share=round(min(0.8, max(0.05, 0.15 * math.sqrt(6_000 / each))), 3),
            cells=round(min(24.0, max(1.0, each / 500))),
            rounds=round(min(1_000.0, max(50.0, 800 * (told / 60_000) ** 0.7))),
            sampling=min(0.5, max(0.03, 2_000 / max(spec.count, 1))),
            rate=round(rate, 1),
            level=round(min(1.0, max(0.03, 0.03 * (60_000 / told) ** 0.75)), 3),
            lessons=round(min(20.0, max(2.0, 20_000 / max(spec.count, 1)))),  # a student needs many, and they are free
        )

    def _shares(self) -> dict[str, float]:
        """What each question gets of the painting's share."""
        left = 1 - sum(FACTS.values()) - self.means_share
        means = {"middle": MIDDLE * self.means_share, "means": (1 - MIDDLE) * self.means_share}
        return {**FACTS, **means, **{name: left * share for name, share in VARIATION.items()}}

    def plan(self, spec: Spec) -> Sequence[GaussianSum]:
        rounds = {"lengths": 3, "cells": self.cell_rounds}
        painting = [
            GaussianSum(rounds=rounds.get(name, 1), share=self.painting_share * share)
            for name, share in self._shares().items()
        ]
        return [*painting, GaussianSum(rounds=self.rounds, sampling=self.sampling, share=1 - self.painting_share)]

    def seconds(self, spec: Spec) -> float:
        image = 4.5e-4 * spec.pixels / 784  # a pass of one image through the teacher's features, on two cores
        seen = self.rounds * self.sampling * spec.count
        made = max(self.candidates, self.lessons) + self.lessons * self.invented
        return 10 + 0.01 * self.rounds + 1e-5 * seen + spec.count * image * (1.5 + made)

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        spec = private.spec
        *painting, teaching = private.ledger.calibrate(*self.plan(spec))
        asked = dict(zip(self._shares(), painting, strict=True))
        code = self._code(private, asked["tones"])
        paints = self._paints(private.mapped(lambda image: code.encode(image)[None, None]), asked, code)
        painter = Painter(code, paints, torch.Generator().manual_seed(self.seed + 1))
        teacher = self._teacher(private, teaching, painter)
        pixels = None if public is None or not len(public) else public.pixels
        return Atelier(self, spec, painter, teacher, pixels)

    def _code(self, private: PrivateImages, mechanism: GaussianSum) -> ImageCode:
        """The basis that suits the images, from how many of their pixels are dark, bright or between."""
        spec, edges = private.spec, torch.tensor(TONES)

        def tones(image: Tensor, label: Tensor) -> Tensor:  # parts of one, so their norm is at most 1
            bins = torch.bucketize(image.mean(0).flatten(), edges)
            return F.one_hot(bins, len(TONES) + 1).float().mean(0)

        answer = private.open(mechanism, purpose="tones")(tones, l2_bound=1.0) / spec.count
        black, dark, middling, bright, light, white = answer.tolist()
        if spec.channels > 1 or max(black, white) < 0.3 or min(spec.height, spec.width) < 16:
            lightness = float(answer.float() @ MIDDLES / answer.sum().clamp(min=0.5))
            return ImageCode("scene", spec.shape, lightness=min(1.0, max(0.0, lightness)))
        ink = black + dark if white > black else bright + light + white
        kind: Kind = "strokes" if ink > middling else "object"
        return ImageCode(kind, spec.shape, inverted=white > black)

    def _paints(self, coded: PrivateImages, asked: dict[str, GaussianSum], code: ImageCode) -> moments.Mixture:
        """Means, axes and cells of every class, each from one charged sum."""
        spec, k = coded.spec, len(coded.spec.classes)
        noise = {name: mechanism.noise_multiplier or 0.0 for name, mechanism in asked.items()}
        lengths = coded.open(asked["lengths"], purpose="lengths")
        longest = math.sqrt(math.prod(code.shape[1:]) * len(code.centres))
        reach = _radius(lengths, lambda z, label: z.flatten(), longest, part=0.9)
        middle = _middle(coded.open(asked["middle"], purpose="middle"), reach, code.bands)
        apart = _radius(lengths, lambda z, label: z.flatten() - middle, longest, part=0.9)
        ways, sizes = _means(coded.open(asked["means"], purpose="means"), middle, apart, code.bands)
        means = middle + ways

        def away(z: Tensor, label: Tensor) -> Tensor:
            return (z.flatten() - means[label])[code.coarse]

        spread = _radius(lengths, away, longest, part=0.7)
        unit = spread**2  # what an entry of 1 in a moment of shortened residuals stands for

        def second(z: Tensor, label: Tensor) -> Tensor:
            return moments.packed(moments.shortened(away(z, label), spread) / spread)

        pooled = coded.open(asked["moments"], purpose="moments")(second, l2_bound=1.0).float()
        matrix = moments.unpacked(pooled * unit / spec.count)
        deviation = noise["moments"] * unit / spec.count / math.sqrt(2)
        axes, variances = moments.spectrum(matrix, deviation=deviation, most=self.axes)  # (d, r), (r,)

        def along(z: Tensor, label: Tensor) -> Tensor:
            return moments.shortened(away(z, label), spread) @ axes / spread

        own = coded.open(asked["own moments"], purpose="own moments").per_class(
            lambda z, label: moments.packed(along(z, label)), l2_bound=1.0
        )
        matrices = moments.unpacked(own.float() * (unit / sizes)[:, None])
        deviations = noise["own moments"] * unit / sizes / math.sqrt(2)
        found = [moments.class_covariance(matrices[c], variances, deviation=float(deviations[c])) for c in range(k)]
        turned, varied = torch.stack([f[1] for f in found]), torch.stack([f[0] for f in found])  # (k, r, r), (k, r)
        query = coded.open(asked["cells"], purpose="cells")
        cells = self._cells(query, lambda z, label: spread * along(z, label) @ turned[label], varied, sizes, spread)
        return moments.Mixture(means, code.coarse, torch.stack([axes @ t for t in turned]), cells)

    def _cells(
        self, query: Query, position: _Position, variances: Tensor, sizes: Tensor, spread: float
    ) -> list[moments.Cells]:
        """Lloyd's algorithm with noisy sums, in every class at once."""
        k, draw, noise = len(variances), torch.Generator().manual_seed(self.seed), query.mechanism.noise_multiplier or 0
        centres = torch.stack([moments.first_centres(self.cells, v, draw) for v in variances])  # (k, m, r)
        held = (sizes / self.cells)[:, None].expand(k, self.cells)
        for _ in range(query.rounds):
            now = centres

            def placed(z: Tensor, label: Tensor, now: Tensor = now) -> Tensor:  # (m, 1 + r)
                point = position(z, label)
                cell = F.one_hot(moments.nearest_cell(point, now[label], variances[label]), self.cells)
                return cell[:, None] * counted(point / spread, CELL_SHARE)

            sums = query.per_class(placed, l2_bound=1.0).float()  # (k, m, 1 + r)
            held = (sums[..., 0] / math.sqrt(CELL_SHARE)).clamp(min=0.05 * float(sizes.min()) / self.cells)
            deviation = noise * spread / math.sqrt(1 - CELL_SHARE)
            totals = sums[..., 1:] * spread / math.sqrt(1 - CELL_SHARE)
            centres = torch.stack([moments.moved_centres(totals[c], held[c], deviation=deviation) for c in range(k)])
        return [moments.cells_of(centres[c], held[c], variances[c]) for c in range(k)]

    def _teacher(self, private: PrivateImages, mechanism: GaussianSum, painter: Painter) -> Teacher:
        """DP-SGD on a linear head (Tramer and Boneh 2021): its features are fixed, so they are computed once.

        What features have in common, and where they vary most, is seen on painted images, which is free.
        """
        spec = private.spec
        labels = torch.arange(EXAMPLES) % len(spec.classes)
        examples = torch.cat([painter(part, details=2 - n % 3) for n, part in enumerate(torch.split(labels, CHUNK))])
        features = EvenFeatures(ScatteringFeatures(*spec.shape), examples, level=self.level)
        sealed = private.mapped(lambda image: features(image[None])[0])
        head = LinearHead(math.prod(features.shape), len(spec.classes))
        descent = Descent(self.l2_bound, self.rate)
        descend(sealed.open(mechanism, purpose="teacher"), head, _cross_entropy, descent, what="teacher")
        return Teacher(features, head)


_Position = Callable[[Tensor, Tensor], Tensor]  # of one code and its label: a row


def _radius(query: Query, row: _Position, longest: float, *, part: float) -> float:
    """A length that about this part of the rows keeps to, from a noisy histogram of lengths."""
    edges = longest * LENGTHS

    def bin_of(z: Tensor, label: Tensor) -> Tensor:
        return torch.bucketize(torch.linalg.vector_norm(row(z, label)), edges)

    counts = query.histogram(bin_of, bins=len(edges) + 1).clamp(min=0)
    sure = counts * (counts > 3 * (query.mechanism.noise_multiplier or 0.0))  # few records would drown in empty bins
    counts = sure if sure.any() else counts
    reached = (counts.cumsum(0) >= part * counts.sum()).nonzero()
    return float(edges[min(int(reached[0]), len(edges) - 1)])


def _middle(query: Query, reach: float, bands: Tensor) -> Tensor:
    """The mean of all codes (d,)."""
    scale = reach / query.spec.count
    total = query(lambda z, label: moments.shortened(z.flatten(), reach) / reach, l2_bound=1.0).float()
    variance = torch.tensor([(query.mechanism.noise_multiplier or 0.0) * scale]).square()
    return moments.shrunken(total[None] * scale, bands, variance)[0]


def _means(query: Query, middle: Tensor, apart: float, bands: Tensor) -> tuple[Tensor, Tensor]:
    """How far the means of every class are from the middle (k, d), and how many records each has.

    What classes have in common would be the longest part of a code, and noise would be as large for it.
    """
    sums = query.per_class(
        lambda z, label: counted(moments.shortened(z.flatten() - middle, apart) / apart, COUNT_SHARE), l2_bound=1.0
    ).float()  # (k, 1 + d)
    noise = query.mechanism.noise_multiplier or 0.0
    sizes = class_sizes(sums[:, 0], share=COUNT_SHARE, noise=noise)
    scale = apart / math.sqrt(1 - COUNT_SHARE) / sizes
    return moments.shrunken(sums[:, 1:] * scale[:, None], bands, (noise * scale).square()), sizes


def _cross_entropy(model: Callable[..., Tensor], features: Tensor, label: Tensor) -> Tensor:
    return F.cross_entropy(model(features[None]), label[None])


class Atelier:
    """The sampler: has candidates painted, lets the teacher choose, and has it label what students learn from."""

    def __init__(self, method: Sfumato, spec: Spec, painter: Painter, teacher: Teacher, public: Tensor | None) -> None:
        self.method, self.spec, self.painter = method, spec, painter
        self.teacher, self.public, self.draw = teacher, public, painter.draw

    @torch.no_grad()
    def __call__(self, labels: Tensor) -> Images:
        parts = torch.split(labels, CHUNK)
        made = [self._part(part) for part in track(parts, what="images", total=len(parts))]
        chosen, seen, logits = (torch.cat([m[i] for m in made]) for i in range(3))
        transfer = Images(seen, logits.argmax(1), self.spec.classes, logits)
        return Images(chosen, labels, self.spec.classes, transfer=transfer)

    def _part(self, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """For these labels images, and for each some with logits for transfer: the first, which have most detail."""
        everyone, method = torch.arange(len(labels)), self.method
        tries = max(method.candidates, method.lessons)
        drafts = [self.painter(labels, details=2 - 3 * n // method.candidates % 3) for n in range(tries)]
        candidates = torch.stack(drafts)
        logits = self._labelled(candidates.flatten(0, 1)).reshape(tries, len(labels), -1)
        fitting = logits[: method.candidates].softmax(2)[:, everyone, labels]  # (m, n)
        best = torch.multinomial(fitting.T + 1e-6, 1, generator=self.draw)[:, 0]
        rows = torch.arange(method.lessons * len(labels))
        painted = rows[torch.rand(len(rows), generator=self.draw) >= method.invented]
        lesson = (painted // len(labels), painted % len(labels))
        invented = self._invented(len(rows) - len(painted))
        seen, known = torch.cat([candidates[lesson], invented]), torch.cat([logits[lesson], self._labelled(invented)])
        return candidates[best, everyone], seen, known

    def _invented(self, count: int) -> Tensor:
        """Pictures of nothing, and public images where there are some."""
        if self.public is None:
            return quantised(dead_leaves(count, self.spec.shape, self.draw))
        shown = self.public[torch.randint(len(self.public), (count // 2,), generator=self.draw)]
        return torch.cat([quantised(dead_leaves(count - len(shown), self.spec.shape, self.draw)), shown])

    def _labelled(self, pixels: Tensor) -> Tensor:
        if not len(pixels):
            return torch.zeros(0, len(self.spec.classes))
        return torch.cat([self.teacher(part) for part in torch.split(pixels, CHUNK)])

"""Private Evolution (Lin, Gopi, Kulkarni, Nori, Yekhanin 2024): private images vote for the candidates they resemble.

A population of candidates per class comes from a source that has seen no private image. In each round every private
image votes for the candidate of its class that is nearest in a public feature space, the votes are counted with
noise, and the candidates with many votes are replaced by variations of them. Nothing is trained.

The published code logs the exact counts and a private FID, and takes the set of classes from the data; here the
classes are public, only noisy counts are used, and the threshold follows from their noise. Its result is the last
population; here the last noisy counts are weights, so that any number of images can be drawn. The features are those of
scattering, or with `network` those of a public network, as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
from torch import Generator, Tensor, nn

from sfumato.contracts import Sampler, Synthesizer
from sfumato.errors import UsageError, expect_one_of, expect_within
from sfumato.networks.public_network import NO_NETWORK, certified_name, public_features
from sfumato.networks.scattering import ScatteringFeatures
from sfumato.privacy import Budget, GaussianSum, PrivateImages
from sfumato.progress import track
from sfumato.synthesis.candidates import SOURCES, CandidateSource, candidate_source
from sfumato.values import Images, Spec

CHUNK = 1_000  # images made or embedded at a time
SCORES = 2**24  # distances held at a time, so that memory does not grow with classes and candidates
COARSE = 7  # side of the coarse copy of the pixels in the feature space
PIXELS = 5.0  # its weight relative to scattering features of unit length
MOST = 10_000  # candidates of all classes, by default
DISTANCES = 5e9  # computed in a round, by default


@dataclass(frozen=True)
class PrivateEvolution(Synthesizer):
    """Hyperparameters, all public.

    In Python, `fit` also takes `first`, any sampler, whose images are then the first population; its questions to
    private data must have been charged. It also takes `source`, any `CandidateSource`.
    """

    public_images: ClassVar[Literal["unused", "welcome", "needed"]] = "welcome"

    steps: int = 10  # the paper's T
    population: int = 500  # candidates of each class, the paper's N_syn / C
    source: str = "auto"
    weights: str = ""  # the folder of a diffusers pipeline
    lookahead: int = 0  # variations whose mean features represent a candidate (8 in the paper); 0: its own features
    threshold: float = 2.0  # the paper's H, in standard deviations of a count's noise
    kept: float = 0.2  # part of the next population that is kept unchanged
    first_degree: float = 0.6  # of variation
    last_degree: float = 0.1
    dimensions: int = 256  # of the feature space
    network: str = NO_NETWORK  # whose features are used: a public network, efficientnet-lite0 or the path of a file
    seed: int = 0

    def __post_init__(self) -> None:
        expect_one_of(self, source=SOURCES)
        most = 100_000
        expect_within(self, steps=(1, most), population=(2, most), lookahead=(0, most), dimensions=(1, most))
        if self.threshold < 0 or not 0 <= self.kept < 1:
            raise UsageError(f"Expected threshold >= 0 and kept in [0, 1), got {self.threshold}, {self.kept}.")
        if not 0 <= self.last_degree <= self.first_degree <= 1 or not 0 <= self.seed < 2**31:
            raise UsageError("Expected 0 <= last_degree <= first_degree <= 1 and a seed below 2^31.")

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        each = spec.count / len(spec.classes)
        # T rounds need a noise of about 4 sqrt(T) / epsilon. Where a class has fewer than twenty times as many votes,
        # fewer rounds are better.
        steps = int(max(3, min(cls.steps, (each * budget.epsilon / (20 * 4)) ** 2)))
        noise = 4 * math.sqrt(steps) / budget.epsilon
        # Votes concentrate on few candidates. On digits a population of six times class size / noise did best; one in
        # which an even share of the votes is three standard deviations, a fifteenth of that, did far worse.
        most = min(MOST, int(DISTANCES / max(spec.count, 1))) // len(spec.classes)
        wanted = 6 * each / noise if noise else math.inf
        return cls(steps=steps, population=int(max(20, min(wanted, 1_000, most))))

    def plan(self, spec: Spec) -> Sequence[GaussianSum]:
        return [
            GaussianSum(rounds=self.steps, purpose="votes of private images for the synthetic image most like them")
        ]

    def public_network(self) -> str | None:
        return None if self.network == NO_NETWORK else certified_name(self.network)

    def seconds(self, spec: Spec) -> float:
        bins = self.population * len(spec.classes)
        feature = 3e-4 * spec.pixels / 784 if self.network == NO_NETWORK else 5e-3  # of one image
        made = self.steps * bins * (1 + self.lookahead)
        votes = self.steps * spec.count * bins * (self.dimensions + COARSE**2 * spec.channels) / 3e10
        return 5 + (spec.count + made) * feature + votes + (made + spec.count) * feature

    def fit(
        self,
        private: PrivateImages,
        public: Images | None,
        *,
        first: Sampler | None = None,
        source: CandidateSource | None = None,
    ) -> Sampler:
        spec, k = private.spec, len(private.spec.classes)
        draw = Generator().manual_seed(self.seed)
        # A network that cannot be used is refused here, before anything is charged.
        embed = embedding(spec, self.dimensions, draw, network=self.network)
        (mechanism,) = private.ledger.calibrate(*self.plan(spec))
        source = source or candidate_source(self.source, public, self.weights)
        sealed = private.mapped(lambda image: embed(image[None])[0, :, None, None])
        query = sealed.open(mechanism, microbatch=max(16, min(4096, SCORES // (k * self.population))))
        noise = mechanism.noise_multiplier or 0.0
        images = self._first_population(spec, source, first, draw)  # (k, N, c, h, w)
        weights = torch.ones(images.shape[:2])
        for step in track(range(query.rounds), what="private evolution", total=query.rounds):
            if step:
                images = self._next_population(images, weights, source, self._degree(step), draw)
            table = self._candidate_features(images, source, self._degree(step), embed, draw)
            votes = query.histogram(nearest_candidate(table), bins=k * self.population)
            weights = vote_weights(votes.reshape(k, -1), threshold=self.threshold * noise)
        return PopulationSampler(source, images, weights, spec.classes, degree=self.last_degree, seed=self.seed + 1)

    def _degree(self, step: int) -> float:
        """The degree of variation falls linearly over the rounds."""
        done = step / max(self.steps - 1, 1)
        return self.first_degree + (self.last_degree - self.first_degree) * done

    def _first_population(self, spec: Spec, source: CandidateSource, first: Sampler | None, draw: Generator) -> Tensor:
        k, labels = len(spec.classes), torch.arange(len(spec.classes)).repeat_interleave(self.population)
        images = source.random(len(labels), spec, draw) if first is None else first(labels).unit()
        return images.reshape(k, self.population, *spec.shape)

    def _next_population(
        self, images: Tensor, weights: Tensor, source: CandidateSource, degree: float, draw: Generator
    ) -> Tensor:
        """Candidates with most weight, unchanged, and variations of candidates drawn by their weight."""
        stay = int(self.kept * self.population)
        made = []
        for mine, weight in zip(images, weights, strict=True):
            best = weight.argsort(descending=True, stable=True)[:stay]
            best = best[weight[best] > 0]
            parents = mine[systematic_resample(weight, self.population - len(best), draw)]
            made.append(torch.cat([mine[best], source.vary(parents, degree, draw)]))
        return torch.stack(made)

    def _candidate_features(
        self, images: Tensor, source: CandidateSource, degree: float, embed: Callable[[Tensor], Tensor], draw: Generator
    ) -> Tensor:
        """The features of each candidate, (k, N, d)."""
        flat = images.flatten(0, 1)
        if not self.lookahead:
            return embedded(flat, embed).reshape(*images.shape[:2], -1)
        seen = [embedded(source.vary(flat, degree, draw), embed) for _ in range(self.lookahead)]
        return torch.stack(seen).mean(0).reshape(*images.shape[:2], -1)


def embedding(spec: Spec, dimensions: int, draw: Generator, *, network: str = NO_NETWORK) -> Callable[[Tensor], Tensor]:
    """A fixed public map (b, c, h, w) -> (b, d): features, projected at random to fewer dimensions.

    To features of scattering a coarse copy of the pixels is appended, because a modulus does not distinguish black on
    white from white on black; a public network does.
    """
    features = ScatteringFeatures(*spec.shape) if network == NO_NETWORK else public_features(network, spec.shape)
    project = torch.randn(math.prod(features.shape), dimensions, generator=draw) / math.sqrt(dimensions)
    coarse = nn.AdaptiveAvgPool2d((min(COARSE, spec.height), min(COARSE, spec.width)))

    def embed(images: Tensor) -> Tensor:
        projected: Tensor = features(images).flatten(1) @ project
        if network != NO_NETWORK:
            return projected
        pixels = coarse(images).flatten(1)
        return torch.cat([projected, PIXELS / math.sqrt(pixels.shape[1]) * pixels], dim=1)

    return embed


def embedded(images: Tensor, embed: Callable[[Tensor], Tensor]) -> Tensor:
    with torch.no_grad():
        return torch.cat([embed(part) for part in torch.split(images, CHUNK)])


def nearest_candidate(table: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """The vote of one record: the index of the nearest candidate of its class, among all k * N."""
    k, each, _ = table.shape
    flat = table.flatten(0, 1)
    lengths = flat.square().sum(1) / 2

    def vote(features: Tensor, label: Tensor) -> Tensor:
        # |f - c|^2 / 2 up to a constant. All classes at once is one matrix product under vmap; a table gathered
        # for each record would be many times its size.
        distances = (lengths - flat @ features.flatten()).reshape(k, each)
        return label * each + distances[label].argmin()

    return vote


def vote_weights(votes: Tensor, *, threshold: float) -> Tensor:
    """Weights of the candidates of each class, (k, N): votes above the threshold H; the rest is mostly noise."""
    # Where no candidate is above it, half of the largest count is the threshold.
    cut = votes.amax(1, keepdim=True).div(2).clamp(max=threshold)
    worth = (votes - cut).clamp(min=0)
    worth[worth.sum(1) <= 0] = 1  # only noise: all candidates of this class are equal
    return worth / worth.sum(1, keepdim=True)


def systematic_resample(weights: Tensor, count: int, draw: Generator) -> Tensor:
    """Indices drawn by weight with one random offset for all (systematic resampling, of low variance)."""
    places = (torch.arange(count) + torch.rand(1, generator=draw, dtype=torch.float64)) / max(count, 1)
    until = weights.double().cumsum(0)
    return torch.searchsorted(until / until[-1], places, right=True)


class PopulationSampler:
    """The sampler: slight variations of the last candidates, drawn by their noisy votes."""

    def __init__(
        self,
        source: CandidateSource,
        images: Tensor,
        weights: Tensor,
        classes: tuple[str, ...],
        *,
        degree: float,
        seed: int,
    ) -> None:
        self.source, self.images, self.weights, self.classes = source, images, weights, classes
        self.degree, self._draw = degree, Generator().manual_seed(seed)

    def __call__(self, labels: Tensor) -> Images:
        pixels = torch.zeros(len(labels), *self.images.shape[2:], dtype=torch.uint8)
        for number in range(len(self.classes)):
            rows = (labels == number).nonzero().flatten()
            chosen = systematic_resample(self.weights[number], len(rows), self._draw)
            chosen = chosen[torch.randperm(len(rows), generator=self._draw)]
            for part, parents in zip(torch.split(rows, CHUNK), torch.split(chosen, CHUNK), strict=True):
                made = self.source.vary(self.images[number, parents], self.degree, self._draw)
                pixels[part] = made.mul(255).round().to(torch.uint8)
        return Images(pixels, labels, self.classes)

"""DP-Sinkhorn (Cao, Bie, Vahdat, Fidler, Kreis 2021): generated images are moved by entropic optimal transport.

The paper trains a generator by a Sinkhorn divergence between generated and real images, and adds noise to its gradient
at the generated images. What has to be watched: the transport plan of a batch depends on all its records, so one record
moves the gradient at every generated image. A bound for each image does not hold for that; only the gradient of all of
them as one vector can be clipped, and one record can move it by twice the clipping bound. So does the public code (it
also holds a version that clips image by image, for another loss, which nothing calls). But there the number of
generated images is the number of records that Poisson sampling has drawn, so the length of a noisy gradient tells that
number.

Here the semi-dual form is used (Genevay, Cuturi, Peyre, Bach 2016). The generated points x_i and their potentials v_i
come from earlier noisy answers, so that a record y knows its own part of the plan from itself and from public things,

    p_i = softmax_i((v_i - c(x_i, y)) / epsilon),   c(x, y) = |x - y|^2 / 2 in low cosine frequencies,

over the points of its class. Its row, p and p_i (y - x_i) for all i, is bounded as one vector, and a round is one
Gaussian sum, whose reach is one bound and not two. The number of points is public. From the noisy sums: the gradient
of the transport cost at each point, shrunk by what is noise in it, and the step of the potentials, which makes each
point stand for equally many records. The other term of the divergence, between generated images, has no noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

import torch
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from sfumato.contracts import Sampler, Synthesizer
from sfumato.errors import expect_one_of, expect_within
from sfumato.networks.cosines import radial_bands
from sfumato.networks.generator import ConditionalGenerator
from sfumato.networks.low_frequencies import LowFrequencies
from sfumato.networks.refiner import Paint
from sfumato.privacy import Budget, GaussianSum, PrivateImages
from sfumato.progress import track
from sfumato.synthesis import moments
from sfumato.synthesis.embedding import class_sizes
from sfumato.synthesis.generator_start import GeneratorStart
from sfumato.synthesis.generator_training import GeneratorSampler
from sfumato.synthesis.guided_generator import GuidedGenerator
from sfumato.values import Images, Spec

MICROBATCH = 1_024
CHUNK = 500  # images made at a time
LEAST_HELD = 0.2  # of an even share of the records, in the step of a point
SPREAD = 0.03  # of the first points where nothing is painted, relative to the clipping bound
AVERAGING = 0.99  # of the generator's weights


@dataclass(frozen=True)
class DPSinkhorn(GeneratorStart, Synthesizer):
    """Hyperparameters, all public: these and those of `GeneratorStart`; a network is there for one canvas alone."""

    free: ClassVar = frozenset({"drafts"})

    rounds: int = 10  # the questions; each is one sum over all records
    points: int = 50  # generated points of each class
    frequencies: int = 8  # along a side; distances are measured in these
    temperature: float = 1e-3  # the paper's epsilon of the transport, times the number of pixels
    reach: float = 0.2  # longest displacement, times the square root of the number of pixels; longer ones are clipped
    count_share: float = 0.1  # of a row's squared norm, spent on how much of a record each point gets
    potential_rate: float = 0.05  # of the potentials' steps, times the square of the longest displacement
    fresh: int = 20  # generated images for each point, for the term between generated images
    mixture_share: float = 0.3
    components: int = 12
    canvas: str = "pixels"  # what is moved: the images themselves, or a "generator" of them
    steps: int = 20  # of the generator in each round
    batch: int = 250
    learning_rate: float = 5e-3
    latent: int = 6
    hidden: int = 512
    drafts: int = 1  # made of each image; the one nearest to a point is kept

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_one_of(self, canvas=("generator", "pixels"))
        most = 1_000_000
        expect_within(
            self,
            rounds=(1, most),
            points=(1, most),
            frequencies=(1, 1_000),
            temperature=(1e-9, 1e3),
            reach=(1e-6, 1e3),
            count_share=(1e-6, 0.9999),
            potential_rate=(0, 100),
            fresh=(1, 100_000),
            steps=(1, most),
            batch=(2, most),
            learning_rate=(1e-9, 100),
            drafts=(1, 1_000),
        )

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        class_signal = min(budget.epsilon, 100.0) * spec.count / len(spec.classes)
        return cls(points=round(min(100.0, max(4.0, class_signal / 320))), **cls.for_mixtures(spec, budget))

    def plan(self, spec: Spec) -> Sequence[GaussianSum]:
        moves = GaussianSum(
            rounds=self.rounds,
            share=self.share_left,
            purpose="how images of each class have to move to be like the private ones, and how large the class is",
        )
        return [*self.start_questions(), moves]

    def seconds(self, spec: Spec) -> float:
        values = self.points * spec.channels * min(self.frequencies, spec.height) * min(self.frequencies, spec.width)
        return 20 + self.rounds * (spec.count * values / 5e7 + self.steps * self.batch * spec.pixels / 1e7)

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        spec = private.spec
        *asked_first, mechanism = private.ledger.calibrate(*self.plan(spec))
        draw = Generator().manual_seed(self.seed)
        code = LowFrequencies(spec.shape, self.frequencies)
        paint = self.paint(private, asked_first) if self.painted else None
        canvas = self._canvas(spec, paint, code, draw)
        query = private.mapped(lambda image: code.encode(image)[None, None]).open(mechanism, microbatch=MICROBATCH)
        transport = Transport(self, spec, mechanism.noise_multiplier or 0.0)
        points = canvas.points()
        for _ in track(range(query.rounds), what="dp-sinkhorn", total=query.rounds):
            points = points.reshape(len(spec.classes), self.points, -1)
            sums = query.per_class(transport.row(points), l2_bound=1.0).float()  # (k, m, 1 + d)
            canvas.follow((points + transport.directions(points, sums, canvas.further(self.fresh))).flatten(0, 1))
            points = canvas.points()
        return self._sampler(spec, canvas, points, code)

    def _canvas(self, spec: Spec, paint: Paint | None, code: LowFrequencies, draw: Generator) -> Canvas:
        k = len(spec.classes)
        labels = torch.arange(k).repeat_interleave(self.points)
        if self.canvas == "pixels":
            spread = SPREAD * self.reach * math.sqrt(spec.pixels / code.length)
            return MovedImages(
                paint or random_images(code, k, self.points, spread=spread, draw=draw),
                labels,
                code,
                epsilon=self.temperature * spec.pixels,
                only_points=paint is None,
                draw=draw,
            )
        return Network(self, self.generator_of(spec, paint, draw), labels, code, draw)

    def _sampler(self, spec: Spec, canvas: Canvas, points: Tensor, code: LowFrequencies) -> Sampler:
        table = points.reshape(len(spec.classes), self.points, -1)

        def likeness(images: Tensor, labels: Tensor) -> Tensor:
            return -(code.encode(images)[:, None] - table[labels]).square().sum(2).amin(1)

        return GeneratorSampler(canvas.generator(), spec.classes, likeness, drafts=self.drafts, seed=self.seed + 1)


class Transport:
    """The potentials of all points, what is asked of a record, and what follows from the noisy sums."""

    def __init__(self, method: DPSinkhorn, spec: Spec, noise: float) -> None:
        self.epsilon = method.temperature * spec.pixels
        self.bound = method.reach * math.sqrt(spec.pixels)
        self.potentials = torch.zeros(len(spec.classes), method.points)
        self._share, self._rate = method.count_share, method.potential_rate
        self._noise = noise
        sides = [min(method.frequencies, side) for side in (spec.height, spec.width)]
        bands = radial_bands(max(sides))[: sides[0], : sides[1]].flatten()
        self._bands = bands.repeat(spec.channels)

    def row(self, points: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        """What a record contributes, (m, 1 + d), of norm at most 1: its part of the plan, and where it pulls."""
        potentials = self.potentials

        def contribution(code: Tensor, label: Tensor) -> Tensor:
            away = code.flatten() - points[label]  # (m, d)
            squares = (away * away).sum(1)
            plan = ((potentials[label] - squares / 2) / self.epsilon).softmax(0)
            length = (plan.square() * squares).sum().sqrt()  # of the pulls p_i (y - x_i) together
            shorter = math.sqrt(1 - self._share) / length.clamp(min=self.bound)
            return torch.cat([math.sqrt(self._share) * plan[:, None], (shorter * plan)[:, None] * away], dim=1)

        return contribution

    def directions(self, points: Tensor, sums: Tensor, generated: Tensor | None) -> Tensor:
        """Where the points (k, m, d) should move, from noisy sums (k, m, 1 + d); the potentials make their step."""
        k, m, d = points.shape
        sizes = class_sizes(sums[..., 0].sum(1), share=self._share, noise=self._noise * math.sqrt(m))
        each = sizes / m  # records that a point should stand for
        held = sums[..., 0] / math.sqrt(self._share) / each[:, None]
        # The gradient of the semi-dual objective in x is -mean p (y - x), here times m.
        scale = self.bound / math.sqrt(1 - self._share) / each[:, None]  # (k, 1)
        pulls, most = sums[..., 1:] * scale[:, :, None], held
        if generated is not None:
            generated_pulls, generated_held = self.generated_pulls(points, generated)
            pulls, most = pulls - generated_pulls, torch.maximum(held, generated_held)
        # Not that long a step: a point that holds several times its share would go as many times beyond the
        # barycentre of its records, and one that holds little would hardly move.
        steps = 1 / most.clamp(min=LEAST_HELD)  # (k, m)
        variances = (self._noise * scale * steps).square().flatten()
        moves = moments.wiener_shrunk((steps[:, :, None] * pulls).reshape(k * m, d), self._bands, variances)
        # That in v is 1/m - mean p.
        self.potentials = self.potentials + self._rate * self.bound**2 * (1 - held).clamp(min=-1, max=1)
        return moves.reshape(k, m, d)

    def generated_pulls(self, points: Tensor, generated: Tensor) -> tuple[Tensor, Tensor]:
        """The same pulls from generated images (k, n, d), and how many shares of these each point holds (k, m).

        They use the same potentials. So where generated images are distributed as the records, nothing moves, whatever
        the potentials are; with potentials of their own, points would move until both had converged.
        """
        cost = torch.cdist(generated, points).square() / 2  # (k, n, m)
        plan = ((self.potentials[:, None] - cost) / self.epsilon).softmax(2)
        plan = plan * points.shape[1] / generated.shape[1]
        held = plan.sum(1)
        return plan.mT @ generated - held[:, :, None] * points, held


class Canvas(Protocol):
    """What makes the images of the points, and moves them."""

    def points(self) -> Tensor:
        """The points (k m, d) of the images as they are now."""

    def further(self, each: int) -> Tensor | None:
        """So many further images for each point as they are now, (k, m each, d); None where there are only the points.

        Then the term between generated images is left out: at a low temperature each point is its own barycentre.
        """

    def follow(self, targets: Tensor) -> None:
        """Move the images so that their points come near these (k m, d)."""

    def generator(self) -> ConditionalGenerator:
        """What further images are made by."""


def random_images(code: LowFrequencies, classes: int, each: int, *, spread: float, draw: Generator) -> Paint:
    """What is moved where nothing is painted: random low frequencies around grey, so many of each class, in turn."""
    noise = spread * torch.randn(classes * each, code.length, generator=draw)
    images = (0.5 + code.directions(noise)).clamp(0, 1)

    def paint(labels: Tensor, draw: Generator) -> Tensor:
        before = one_hot(labels, classes).cumsum(0).gather(1, labels[:, None])[:, 0] - 1
        turn = before + torch.randint(each, (), generator=draw)
        return images[labels * each + turn % each]

    return paint


class MovedImages(ConditionalGenerator):
    """Images without a network: further ones are moved as the points were that they began near to.

    This is the map of the entropic plan between a further image and where the points began.
    """

    def __init__(
        self,
        paint: Paint,
        labels: Tensor,
        code: LowFrequencies,
        *,
        epsilon: float,
        only_points: bool,  # further images are the points themselves
        draw: Generator,
    ) -> None:
        super().__init__()
        self._paint, self._code, self._labels, self._epsilon, self._draw = paint, code, labels, epsilon, draw
        self._only_points = only_points
        self._starts = code.encode(paint(labels, draw)).reshape(int(labels[-1]) + 1, -1, code.length)  # (k, m, d)
        self._moves = torch.zeros_like(self._starts)
        self._further: tuple[Tensor, Tensor] | None = None

    def points(self) -> Tensor:
        return (self._starts + self._moves).flatten(0, 1)

    def further(self, each: int) -> Tensor | None:
        if self._only_points:
            return None
        if self._further is None:  # always the same, so that they are painted once
            labels = self._labels.repeat_interleave(each)
            parts = torch.split(labels, CHUNK)
            codes = torch.cat([self._code.encode(self._paint(part, self._draw)) for part in parts])
            codes = codes.reshape(len(self._starts), -1, self._code.length)
            self._further = codes, self._plan(codes, self._starts)
        codes, plan = self._further
        return codes + plan @ self._moves

    def follow(self, targets: Tensor) -> None:
        self._moves = targets.reshape(self._starts.shape) - self._starts

    def generator(self) -> ConditionalGenerator:
        self._further = None
        return self

    def inputs(self, labels: Tensor, draw: Generator) -> Tensor:
        return self._paint(labels, draw)

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        plan = self._plan(self._code.encode(inputs)[:, None], self._starts[labels])  # (b, 1, m)
        return (inputs + self._code.directions((plan @ self._moves[labels])[:, 0])).clamp(0, 1)

    def _plan(self, codes: Tensor, starts: Tensor) -> Tensor:  # (..., n, d), (..., m, d) -> (..., n, m)
        apart = torch.cdist(codes, starts)
        if self._only_points:  # an image is one of the points, and goes where that one went
            return one_hot(apart.argmin(-1), apart.shape[-1]).to(apart.dtype)
        return (-apart.square() / 2 / self._epsilon).softmax(-1)


class Network:
    """A generator, whose images at fixed inputs are the points; further images are those of other inputs."""

    def __init__(
        self, method: DPSinkhorn, network: ConditionalGenerator, labels: Tensor, code: LowFrequencies, draw: Generator
    ) -> None:
        self._network, self._labels, self._code, self._draw = network, labels, code, draw
        self._inputs = network.inputs(labels, draw)
        self._steps, self._batch = method.steps, min(method.batch, len(labels))
        self._guided = GuidedGenerator(
            network,
            int(labels[-1]) + 1,
            rate=method.learning_rate,
            steps=method.rounds * method.steps,
            averaging=AVERAGING,
            diversity=0.0,
            draw=draw,
        )

    def points(self) -> Tensor:
        return self._made(self._inputs, self._labels)

    def further(self, each: int) -> Tensor:
        labels = self._labels.repeat_interleave(each)
        points = self._made(self._network.inputs(labels, self._draw), labels)
        return points.reshape(int(labels[-1]) + 1, -1, points.shape[1])

    @torch.no_grad()
    def _made(self, inputs: Tensor, labels: Tensor) -> Tensor:
        self._network.eval()
        parts = zip(torch.split(inputs, CHUNK), torch.split(labels, CHUNK), strict=True)
        points = torch.cat([self._code.encode(self._network(*part)) for part in parts])
        self._network.train()
        return points

    def follow(self, targets: Tensor) -> None:
        for _ in range(self._steps):
            drawn = torch.randperm(len(self._labels), generator=self._draw)[: self._batch]
            images = self._network(self._inputs[drawn], self._labels[drawn])
            apart = self._code.encode(images) - targets[drawn]
            self._guided.descend(images, apart.square().sum(1).mean() / 2)

    def generator(self) -> ConditionalGenerator:
        made: ConditionalGenerator = self._guided.average.eval()
        return made

"""Training of a generator until its images match noisy statistics; post-processing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from sfumato.errors import expect_within
from sfumato.networks.generator import ConditionalGenerator, PatchGenerator
from sfumato.progress import track
from sfumato.values import Images, Spec

CHUNK = 250  # images sampled at a time
MULTIPLICATIONS = 2.5e10  # per second, about, on two laptop cores
Distance = Callable[[Tensor], Tensor]  # images (k, b, c, h, w) in [0, 1] of all classes to a loss
Likeness = Callable[[Tensor, Tensor], Tensor]  # images (b, c, h, w) in [0, 1] and labels (b,) to scores (b,)


@dataclass(frozen=True)
class GeneratorSettings:
    """How a generator is built and trained: public, and without influence on the questions asked of private data."""

    steps: int
    batch: int
    learning_rate: float
    latent: int
    hidden: int
    codes: int
    drafts: int

    def __post_init__(self) -> None:
        most = 1_000_000
        expect_within(
            self,
            steps=(1, most),
            batch=(1, most),
            learning_rate=(1e-9, 100),
            latent=(1, most),
            hidden=(1, most),
            codes=(1, most),
            drafts=(1, 1_000),
        )

    @classmethod
    def of(cls, method: Any) -> Self:
        """The settings of a method: a dataclass that has fields of the same names."""
        known = asdict(method)
        return cls(**{field.name: known[field.name] for field in fields(cls)})

    def seconds(self, spec: Spec, *, distance: float) -> float:
        """Estimated training time; `distance` is the number of multiplications for the distance of one image."""
        area = (spec.height // 4 + 1) * (spec.width // 4 + 1)
        generator = self.hidden * (self.hidden + self.codes * area)
        return 0.005 * self.steps + self.steps * self.batch * (2 * distance + 3 * generator) / MULTIPLICATIONS

    def rate(self, step: int) -> float:
        """Factor of the learning rate: a short warm-up, then a cosine to zero."""
        return min(1.0, (step + 1) / 20) * (1 + math.cos(math.pi * step / self.steps)) / 2


GENERATOR_SETTINGS = frozenset(field.name for field in fields(GeneratorSettings))


def train_generator(
    spec: Spec, settings: GeneratorSettings, distance: Distance, *, draw: torch.Generator, what: str
) -> PatchGenerator:
    """A generator trained to minimise the distance."""
    k = len(spec.classes)
    generator = PatchGenerator(
        spec.shape, k, latent=settings.latent, hidden=settings.hidden, codes=settings.codes, draw=draw
    )
    _train(generator, settings, distance, classes=k, draw=draw, what=what)
    return generator.eval()


def train_pixels(
    spec: Spec, settings: GeneratorSettings, distance: Distance, *, draw: torch.Generator, what: str
) -> PixelTable:
    """The same without a generator: the pixels of a fixed set of images are trained."""
    k = len(spec.classes)
    table = PixelTable(spec.shape, k, each=max(8, settings.batch // k), draw=draw)
    _train(table, settings, distance, classes=k, draw=draw, what=what)
    return table.eval()


def _train(
    generator: ConditionalGenerator,
    settings: GeneratorSettings,
    distance: Distance,
    *,
    classes: int,
    draw: torch.Generator,
    what: str,
) -> None:
    optimizer = torch.optim.Adam(generator.parameters(), lr=settings.learning_rate, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, settings.rate)
    labels = torch.arange(classes).repeat_interleave(max(8, settings.batch // classes))
    for _ in track(range(settings.steps), what=what, total=settings.steps):
        images = generator(generator.inputs(labels, draw), labels)
        loss = distance(images.reshape(classes, -1, *images.shape[1:]))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()


class PixelTable(ConditionalGenerator):
    """`each` images of each class, as parameters: used in turn during training, then selected by the latent."""

    latent = 1

    def __init__(self, shape: tuple[int, int, int], classes: int, *, each: int, draw: torch.Generator) -> None:
        super().__init__()
        self.classes, self.each = classes, each
        self.logits = nn.Parameter(0.5 * torch.randn(classes, each, *shape, generator=draw))

    def inputs(self, labels: Tensor, draw: torch.Generator) -> Tensor:
        return torch.randn(len(labels), self.latent, generator=draw)

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:  # (b, 1), (b,) -> (b, c, h, w) in [0, 1]
        turns = _turns(labels, self.classes) if self.training else (self.each * torch.special.ndtr(inputs[:, 0])).long()
        return cast(Tensor, self.logits)[labels, turns % self.each].sigmoid()


def _turns(labels: Tensor, classes: int) -> Tensor:
    """How often the label of each entry occurs before it in the list."""
    seen = nn.functional.one_hot(labels, classes).cumsum(0)
    return seen.gather(1, labels[:, None])[:, 0] - 1


class GeneratorSampler:
    """The sampler: several drafts of each image, of which the one most like its class is kept.

    A distance between means is hardly affected if one image in twenty is broken, because such an image adds almost
    nothing to the mean of the features. But its own features are far from the released mean of its class.
    """

    def __init__(
        self,
        generator: ConditionalGenerator,
        classes: tuple[str, ...],
        likeness: Likeness,
        *,
        drafts: int,
        seed: int,
    ) -> None:
        self._generator, self._classes, self.likeness = generator, classes, likeness
        self._drafts, self._draw = drafts, torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def __call__(self, labels: Tensor) -> Images:
        chunks = torch.split(labels, CHUNK)
        made = [self._chosen(chunk) for chunk in track(chunks, what="images", total=len(chunks))]
        return Images(torch.cat(made), labels, self._classes)

    def _chosen(self, labels: Tensor) -> Tensor:
        drafts = torch.stack([self._draft(labels) for _ in range(self._drafts)])
        best = torch.zeros_like(labels)
        if self._drafts > 1:
            best = torch.stack([self.likeness(draft, labels) for draft in drafts]).argmax(0)
        return drafts[best, torch.arange(len(labels))].mul(255).round().to(torch.uint8)

    def _draft(self, labels: Tensor) -> Tensor:
        return cast(Tensor, self._generator(self._generator.inputs(labels, self._draw), labels))

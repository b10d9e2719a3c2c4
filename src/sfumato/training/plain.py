"""Training of a classifier without privacy, on images in the clear: what training by DP-SGD is compared with.

Each technique of `learners/dp_sgd.py` is a switch here too: a batch size that was chosen (obs), group norm in place of
batch norm (gn), weight standardisation (ws), augmentation multiplicity (am), parameter averaging (pa), and
sharpness-aware training (sat: Foret et al. 2021). What comes out depends on its training images without any bound, so
it is lab material and is never released.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from sfumato.errors import DataError, expect_one_of, expect_within
from sfumato.networks.models import build_model
from sfumato.progress import track
from sfumato.training.augmentation import random_versions
from sfumato.training.student import batches, predict, split_off, unit, update_average
from sfumato.training.techniques import WIDE, switched_on
from sfumato.values import Classifier, Images

UNIT_BATCH = 128  # the batch that a learning rate is stated for
CHECKPOINTS = 8  # calls of a callback during training

Callback = Callable[[float, nn.Module], None]  # fraction of training done, and the network in eval mode


@dataclass(frozen=True)
class PlainTraining:
    """Settings of a training without privacy: stochastic gradient descent, its rate falling to 0 as a cosine."""

    arch: str = "wrn-10-1-fast"
    techniques: str = "none"
    epochs: float = 20.0
    batch: int = 128
    chosen_batch: int = 64  # the same with obs, see `choose_batch`
    multiplicity: int = 4  # versions of an image in a batch, with am
    averaging: float = 0.999  # the share of the averaged weights that stays at each step, with pa
    ascent: float = 0.05  # how far sat goes uphill (Foret et al. 2021, rho)
    rate: float = 0.1  # learning rate of a batch of 128; it is proportional to the batch
    momentum: float = 0.9
    weight_decay: float = 5e-4
    seed: int = 0

    def __post_init__(self) -> None:
        expect_one_of(self, arch=WIDE)
        expect_within(
            self,
            epochs=(1e-6, 1e6),
            batch=(2, 1e9),
            chosen_batch=(2, 1e9),
            multiplicity=(1, 1_000),
            averaging=(0, 0.99999),
            ascent=(0, 1e6),
            rate=(1e-9, 1e9),
            momentum=(0, 0.9999),
            weight_decay=(0, 1e3),
            seed=(0, 2**31 - 2),
        )
        switched_on(self.techniques)

    def has(self, technique: str) -> bool:
        return technique in switched_on(self.techniques)

    def batch_for(self, count: int) -> int:
        return min(self.chosen_batch if self.has("obs") else self.batch, count)

    def steps(self, count: int) -> int:
        """How many batches a training on so many images has."""
        return max(1, round(self.epochs * count / self.batch_for(count)))

    def seconds(self, count: int, side: int) -> float:
        """A rough run time on one core, of the architecture for two cores."""
        seen = self.epochs * count * (self.multiplicity if self.has("am") else 1) * (2 if self.has("sat") else 1)
        depth, widen, stride = WIDE[self.arch]
        return seen * 7e-4 * (side / 32) ** 2 * (depth - 4) / 6 * widen**2 * (2 / stride) ** 2

    def architecture(self) -> dict[str, bool | int | float | str]:
        """The settings of the network `wide-resnet`; batch norm is what group norm is compared with."""
        depth, widen, stride = WIDE[self.arch]
        return {
            "depth": depth,
            "widen": widen,
            "stem_stride": stride,
            "norm": "group" if self.has("gn") else "batch",
            "weight_standardisation": self.has("ws"),
        }

    def staying(self, step: int) -> float:
        """The share of the average that stays when the weights after this step, from 0, are added to it."""
        return min(self.averaging, (1 + step) / (10 + step))


def train_plainly(
    images: Images,
    settings: PlainTraining,
    *,
    what: str,
    callback: Callback | None = None,
    checkpoints: int = CHECKPOINTS,
) -> Classifier:
    """A classifier trained on the labels of these images: the weights of the last step, or with pa their average.

    The callback is called at `checkpoints` equally spaced steps, the last at the end, with the network as it would be
    the result; it does not change training.
    """
    if len(images) < 2:
        raise DataError(f"Expected at least 2 images to train on, got {len(images)}.")
    architecture, steps = settings.architecture(), settings.steps(len(images))
    called_at = {math.ceil(steps * number / checkpoints) for number in range(1, checkpoints + 1)}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        network = build_model("wide-resnet", _shape(images), len(images.classes), architecture)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    result = copy.deepcopy(network).eval() if settings.has("pa") else network
    for step in track(_steps(network, images, settings, steps), what=what, total=steps):
        if settings.has("pa"):
            update_average(result, network, settings.staying(step))
        if callback is not None and step + 1 in called_at:
            callback((step + 1) / steps, copy.deepcopy(result).eval())
    return Classifier("wide-resnet", architecture, result.eval().requires_grad_(False))


def choose_batch(images: Images, settings: PlainTraining, sizes: tuple[int, ...], *, what: str) -> int:
    """Which of these batch sizes is the better one: by accuracy on a tenth of the training images that is held out.

    The others train one classifier for each size, without any other technique; of equals the first counts. No test
    image is used.
    """
    rest, held_out = split_off(images, seed=settings.seed)
    right = []
    for size in sizes:
        trial = replace(settings, techniques="none", batch=size)
        network = train_plainly(rest, trial, what=f"{what}, batches of {size}").network
        right.append(int((predict(network, held_out.pixels) == held_out.labels).sum()))
    return sizes[right.index(max(right))]


def _shape(images: Images) -> tuple[int, int, int]:
    channels, height, width = images.pixels.shape[1:]
    return channels, height, width


def _steps(network: nn.Module, images: Images, settings: PlainTraining, steps: int) -> Iterator[int]:
    """Run the training steps; yields the number of each, from 0, when it is done."""
    size = settings.batch_for(len(images))
    rate = settings.rate * size / UNIT_BATCH
    weights = list(network.parameters())
    optimizer = torch.optim.SGD(weights, rate, settings.momentum, weight_decay=settings.weight_decay)
    order = torch.Generator().manual_seed(settings.seed)
    draw = torch.Generator().manual_seed(settings.seed + 1)  # of versions: the order of images is the same without am
    for step, rows in enumerate(batches(len(images), size, steps, order)):
        optimizer.param_groups[0]["lr"] = rate * 0.5 * (1 + math.cos(math.pi * step / steps))
        pixels, labels = _shown(images, rows, settings, draw)
        _gradient(network, pixels, labels)
        if settings.has("sat"):
            with _uphill(weights, settings.ascent), _kept_statistics(network):
                _gradient(network, pixels, labels)
        optimizer.step()
        yield step


def _shown(images: Images, rows: Tensor, settings: PlainTraining, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """What the network is shown of these images, and labels; with am, K versions of each by windows of their own."""
    pixels, labels = unit(images.pixels[rows]), images.labels[rows]
    if not settings.has("am"):
        return pixels, labels
    mirror = pixels.shape[1] == 3  # mirrored digits and letters are others
    made = [random_versions(pixels, mirror=mirror, draw=draw) for _ in range(settings.multiplicity)]
    return torch.cat(made).contiguous(memory_format=torch.channels_last), labels.repeat(settings.multiplicity)


def _gradient(network: nn.Module, pixels: Tensor, labels: Tensor) -> None:
    network.zero_grad()
    cross_entropy(network(pixels), labels).backward()  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _uphill(weights: list[nn.Parameter], distance: float) -> Iterator[None]:
    """Within this, the weights are so far along the gradient that they have; afterwards they are what they were."""
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    length = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients]))
    before: list[Tensor] = [weight.data for weight in weights]
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.data = weight.data + gradient * (distance / length.clamp(min=1e-12))
    try:
        yield
    finally:
        for weight, data in zip(weights, before, strict=True):
            weight.data = data


@contextlib.contextmanager
def _kept_statistics(network: nn.Module) -> Iterator[None]:
    """Within this, batch norm leaves its running statistics as they are: they are those of the weights themselves."""
    norms = [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d)]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True

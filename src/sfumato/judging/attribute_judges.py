"""Judges that learn to tell attributes from images: a small network on two cores, and the paper's ResNet18."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from sfumato.errors import DataError, UsageError
from sfumato.networks.resnet import resnet18
from sfumato.networks.small_cnn import SmallCNN
from sfumato.progress import track
from sfumato.training.augmentation import random_versions
from sfumato.training.student import batches, outputs, predict, split_off, unit
from sfumato.values import Attributed, Images

LEAST_IMAGES = 12  # to train a judge on: batch norm needs two, and one in ten is held out
Answers = Callable[[Tensor], dict[str, Tensor]]  # pixels (n, c, h, w) -> the class of each asked attribute, int64 (n,)


class Judge(Protocol):
    """A way to learn attributes from images that anyone may see: a frozen dataclass with its settings."""

    def train(self, images: Attributed, asked: tuple[str, ...], *, seed: int, what: str) -> Answers:
        """Learn from all attributes of these images; the answers are to those asked."""

    def seconds(self, count: int, pixels: int, attributes: int) -> float:
        """A rough time on one core to train on so many images of so many pixels each, asked for so many attributes."""


@dataclass(frozen=True)
class SmallJudge:
    """One small network with a head for each attribute: about a minute of one core for 2,300 images of 64 pixels.

    Its length was chosen on real faces that are never tested: shorter ones know less of race and age.
    """

    epochs: float = 24.0
    batch: int = 64
    rate: float = 3e-3  # peak of one cycle
    weight_decay: float = 0.02

    def train(self, images: Attributed, asked: tuple[str, ...], *, seed: int, what: str) -> Answers:
        _refuse_few(images)
        heads = {name: len(images.classes[name]) for name in images.attributes}
        channels, height, width = images.pixels.shape[1:]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network: nn.Module = SmallCNN(channels, height, width, sum(heads.values()))
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        size = min(self.batch, len(images))
        steps = max(1, round(self.epochs * len(images) / size))
        for _ in track(self._steps(network, images, heads, size, steps, seed), what=what, total=steps):
            pass
        network.eval()

        def answers(pixels: Tensor) -> dict[str, Tensor]:
            logits = _by_head(outputs(network, pixels), heads)
            return {name: logits[name].argmax(1) for name in asked}

        return answers

    def seconds(self, count: int, pixels: int, attributes: int) -> float:
        return 1e-3 * self.epochs * count * pixels / 64**2

    def _steps(
        self, network: nn.Module, images: Attributed, heads: Mapping[str, int], size: int, steps: int, seed: int
    ) -> Iterator[int]:
        optimizer = torch.optim.AdamW(network.parameters(), self.rate, weight_decay=self.weight_decay)
        rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.rate, total_steps=steps + 1)
        order, draw = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed + 1)
        for step, rows in enumerate(batches(len(images), size, steps, order)):
            logits = _by_head(network(_shown(images.pixels[rows], draw)), heads)
            loss = torch.stack([cross_entropy(logits[name], images.attributes[name][rows]) for name in heads]).sum()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            rates.step()
            yield step


@dataclass(frozen=True)
class PaperJudge:
    """A ResNet18 for each attribute, as DECO-Bench trains it: SGD whose rate falls by a tenth each epoch.

    It stops early by the loss on a tenth of the images that it is given, which are synthetic wherever the release is
    judged, and never by real test images; the weights are those of the epoch with the lowest loss.
    """

    epochs: int = 100
    batch: int = 128
    rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    gamma: float = 0.9  # factor of the rate after each epoch
    patience: int = 20  # epochs without a loss that is lower by `least_gain`
    least_gain: float = 0.01

    def train(self, images: Attributed, asked: tuple[str, ...], *, seed: int, what: str) -> Answers:
        _refuse_few(images)
        networks = {name: self.fit(images.labelled(name), seed=seed, what=f"{what}, {name}") for name in asked}
        return lambda pixels: {name: predict(network, pixels) for name, network in networks.items()}

    def seconds(self, count: int, pixels: int, attributes: int) -> float:
        """Without an early stop, at 40 billion operations in a second."""
        return 0.1 * self.epochs * count * attributes * pixels / 128**2

    def fit(self, images: Images, *, seed: int, what: str) -> nn.Module:
        """One network for one attribute."""
        training, held_out = split_off(images, seed=seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = resnet18(images.pixels.shape[1], len(images.classes), stem="photographs")
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        stop, best = EarlyStop(self.patience, self.least_gain), copy.deepcopy(network.state_dict())
        for _ in track(self._epochs(network, training, seed), what=what, total=self.epochs):
            network.eval()
            loss = float(cross_entropy(outputs(network, held_out.pixels), held_out.labels))
            network.train()
            if stop.lowest(loss):
                best = copy.deepcopy(network.state_dict())
            if stop.now:
                break
        network.load_state_dict(best)
        return network.eval()

    def descent(self, network: nn.Module) -> tuple[torch.optim.SGD, torch.optim.lr_scheduler.ExponentialLR]:
        """The optimiser, and its rate by epochs."""
        sgd = torch.optim.SGD(network.parameters(), self.rate, self.momentum, weight_decay=self.weight_decay)
        return sgd, torch.optim.lr_scheduler.ExponentialLR(sgd, self.gamma)

    def _epochs(self, network: nn.Module, images: Images, seed: int) -> Iterator[int]:
        sgd, rates = self.descent(network)
        order = torch.Generator().manual_seed(seed)
        size = min(self.batch, len(images))
        for epoch in range(self.epochs):
            for rows in batches(len(images), size, len(images) // size, order):
                loss = cross_entropy(network(unit(images.pixels[rows])), images.labels[rows])
                sgd.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                sgd.step()
            rates.step()
            yield epoch


class EarlyStop:
    """Whether to stop: after `patience` losses in a row of which none is lower than the best by `least_gain`."""

    def __init__(self, patience: int, least_gain: float) -> None:
        self.patience, self.least_gain = patience, least_gain
        self.since = 0  # losses since the last gain
        self._to_beat = self._lowest = float("inf")

    def lowest(self, loss: float) -> bool:
        """Take note of the next loss; whether it is the lowest so far, be it by as little as it may."""
        gained = loss < self._to_beat - self.least_gain
        self.since = 0 if gained else self.since + 1
        self._to_beat = loss if gained else self._to_beat
        is_lowest = loss < self._lowest
        self._lowest = min(loss, self._lowest)
        return is_lowest

    @property
    def now(self) -> bool:
        return self.since >= self.patience


JUDGES: dict[str, Judge] = {"small": SmallJudge(), "resnet18": PaperJudge()}


def find_judge(name: str) -> Judge:
    if name not in JUDGES:
        raise UsageError(f"Expected one of the judges {', '.join(JUDGES)}; got {name!r}.", fix="choose one of these")
    return JUDGES[name]


def _refuse_few(images: Attributed) -> None:
    if len(images) < LEAST_IMAGES:
        raise DataError(f"Expected at least {LEAST_IMAGES} images to train a judge on, got {len(images)}.")


def _by_head(logits: Tensor, heads: Mapping[str, int]) -> dict[str, Tensor]:
    return dict(zip(heads, torch.split(logits, list(heads.values()), dim=1), strict=True))


def _shown(pixels: Tensor, draw: torch.Generator) -> Tensor:
    """Shifted and, in colour, mirrored: a mirrored digit or letter is another."""
    versions = random_versions(unit(pixels), mirror=pixels.shape[1] == 3, draw=draw)
    return versions.contiguous(memory_format=torch.channels_last)

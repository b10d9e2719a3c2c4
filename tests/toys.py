"""Small data sets that tests share, and what a method makes of them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from sfumato.contracts import Learner, Sampler, Synthesizer
from sfumato.privacy import (
    Budget,
    Descent,
    GaussianSum,
    Ledger,
    Noise,
    PrivateImages,
    Query,
    SeededNoise,
    descend,
)
from sfumato.values import Classifier, Images, Spec

CLASSES = ("a", "b", "c")


class ToySource:
    """Records in memory, as a reader would give them."""

    name = "toy"

    def __init__(self, pixels: np.ndarray, labels: np.ndarray, classes: tuple[str, ...] = CLASSES) -> None:
        self.pixels, self.labels = pixels.astype(np.uint8), labels.astype(np.int64)
        self.spec = Spec(len(pixels), *pixels.shape[1:], classes)

    def chunks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, len(self.pixels), 50):
            yield self.pixels[start : start + 50], self.labels[start : start + 50]

    def without(self, record: int) -> ToySource:
        """The zero-out neighbour: that record becomes nothing."""
        labels = self.labels.copy()
        labels[record] = -1
        return ToySource(self.pixels, labels, self.spec.classes)


def toy(count: int = 120, side: int = 4, seed: int = 0) -> ToySource:
    rng = np.random.default_rng(seed)
    return ToySource(rng.integers(0, 256, (count, 1, side, side)), np.arange(count) % 3)


def halves(count: int = 300, side: int = 8) -> ToySource:
    """Three kinds of picture: bright on the left, on the right, everywhere; brightness varies."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 3
    masks = np.zeros((3, 1, side, side))
    masks[0, ..., : side // 2], masks[1, ..., side // 2 :], masks[2] = 1, 1, 1
    return ToySource(masks[labels] * rng.integers(120, 250, (count, 1, 1, 1)), labels, ("left", "right", "all"))


def digits() -> tuple[ToySource, np.ndarray, np.ndarray]:
    """The handwritten digits of scikit-learn: most to learn from; pixels and labels of the last to judge by."""
    values, labels = load_digits(return_X_y=True)  # values 0 to 16
    pixels = (values * 255 / 16).round().astype(np.uint8).reshape(-1, 1, 8, 8)
    return ToySource(pixels[:1400], labels[:1400], tuple("0123456789")), pixels[1400:], labels[1400:]


def digits_known(images: Images) -> float:
    """The share of held-out digits that a linear classifier knows that has seen only these images."""
    _, held_out, truth = digits()
    student = LogisticRegression(max_iter=300).fit(images.unit().flatten(1).numpy(), images.labels.numpy())
    return float(student.score(held_out.reshape(len(held_out), -1) / 255, truth))


def fitted_sampler(method: Synthesizer, source: ToySource, epsilon: float, *, public: Images | None = None) -> Sampler:
    """What a method learns from a source with seeded noise; the records are gone when it comes back."""
    private = PrivateImages.seal(source, Ledger(Budget(epsilon, 1e-4)), noise=SeededNoise(0))
    sampler = method.fit(private, public)
    private.close()
    return sampler


def fitted(
    method: Synthesizer, source: ToySource, epsilon: float, *, count: int = 600, public: Images | None = None
) -> Images:
    """So many images that a method makes after a source, the classes in turn."""
    return fitted_sampler(method, source, epsilon, public=public)(torch.arange(count) % len(source.spec.classes))


def expect_randomness_of_its_own(method: Synthesizer, source: ToySource) -> None:
    """The same answers give the same bytes whatever the global seed, which is left alone; its own seed changes them."""
    made = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        before = torch.get_rng_state()
        made.append(fitted(method, source, 1.0).pixels)
        assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], fitted(replace(method, seed=method.seed + 1), source, 1.0).pixels)


def opened(
    source: ToySource, mechanism: GaussianSum, *, noise: Noise | None = None, epsilon: float = math.inf
) -> Query:
    ledger = Ledger(Budget(epsilon, 1e-5))
    private = PrivateImages.seal(source, ledger, noise=noise)
    query = private.open(mechanism, purpose="test")
    query_keeps_alive.append(private)
    return query


@dataclass(frozen=True)
class LinearLearner(Learner):
    """One linear layer on the pixels, by DP-SGD on all records in every round."""

    rounds: int = 30
    rate: float = 2.0
    l2_bound: float = 1.0

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> LinearLearner:
        return cls()

    def plan(self, spec: Spec) -> list[GaussianSum]:
        return [GaussianSum(rounds=self.rounds, purpose="gradients of the linear layer")]

    def seconds(self, spec: Spec) -> float:
        return 1.0

    def fit(self, private: PrivateImages, public: Images | None) -> Classifier:
        (mechanism,) = private.ledger.calibrate(*self.plan(private.spec))
        layer = nn.Linear(private.spec.pixels, len(private.spec.classes))
        for parameter in layer.parameters():
            nn.init.zeros_(parameter)
        network = nn.Sequential(nn.Flatten(), layer)

        def loss(model: nn.Module, image: Tensor, label: Tensor) -> Tensor:
            return nn.functional.cross_entropy(model(image[None]), label[None])

        descent = Descent(self.l2_bound, self.rate, averaging=0.0)
        descend(private.open(mechanism), network, lambda _: loss, descent, what="linear")
        return Classifier("linear", {}, network.eval())


class KilledError(Exception):
    """A training was killed."""


class CheckpointsInMemory:
    """What a training kept, by name; after so many checkpoints, where a number is given, it is killed."""

    def __init__(self, lasting: int | None = None) -> None:
        self.lasting = lasting
        self.kept: dict[str, dict[str, Tensor]] = {}
        self.restored: list[str] = []

    def restore(self, name: str) -> dict[str, Tensor] | None:
        if name in self.kept:
            self.restored.append(name)
        return self.kept.get(name)

    def keep(self, name: str, state: dict[str, Tensor]) -> None:
        self.kept[name] = {key: value.clone() for key, value in state.items()}
        if self.lasting is not None:
            self.lasting -= 1
            if self.lasting <= 0:
                raise KilledError


def coloured_squares(count: int = 60, side: int = 16, channels: int = 3) -> Images:
    """Dim noise with a bright square, whose channel, or with one channel whose place, is its class."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % 3
    pixels = torch.randint(0, 60, (count, channels, side, side), generator=draw, dtype=torch.uint8)
    for row, label in enumerate(labels.tolist()):
        start = side // 4 + (label if channels == 1 else 0)
        pixels[row, label % channels, start : start + side // 2, start : start + side // 2] = 200
    return Images(pixels, labels, ("red", "green", "blue"))


query_keeps_alive: list[PrivateImages] = []


def development_data(name: str) -> Path:
    """A file of the development data, or skip: a user's machine does not have it."""
    folders = [os.environ.get("SFUMATO_DEV_DATA"), *(p / "shared" / "data" for p in Path(__file__).parents)]
    for folder in filter(None, folders):
        if (Path(folder) / name).exists():
            return Path(folder) / name
    pytest.skip(f"needs the development file {name} (set SFUMATO_DEV_DATA)")

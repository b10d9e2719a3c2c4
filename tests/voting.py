"""Teachers that all say the same, for methods that count votes, and pictures that such methods should learn."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sfumato.contracts import Synthesizer
from sfumato.privacy import Budget, Ledger, PrivateImages, SeededNoise, ShardedSums, Teachers

from toys import fitted, halves, toy

Said = Tensor | Callable[[Any], Tensor]


class Unanimous:
    """A teacher that says one vector, or one that depends on the query, whatever its shard."""

    answers_from = ("nothing",)

    def __init__(self, said: Said) -> None:
        self._said = said

    def begin(self, number: int) -> dict[str, Tensor]:
        return {"nothing": torch.zeros(())}

    def learn(
        self, state: dict[str, Tensor], images: Tensor, labels: Tensor, present: Tensor, public: Any
    ) -> dict[str, Tensor]:
        return state

    def answer(self, state: dict[str, Tensor], query: Any) -> Tensor:
        said = self._said if isinstance(self._said, Tensor) else self._said(query)
        return said + state["nothing"]


def unanimous(model: Unanimous, *, shards: int, rounds: int, noise: float) -> Teachers:
    asked = ShardedSums(shards=shards, rounds=rounds, noise_multiplier=noise, purpose="test")
    private = PrivateImages.seal(toy(60), Ledger(Budget(math.inf, 1e-5)), noise=SeededNoise(0))
    _open.append(private)
    return private.teach(asked, model=model)


_open: list[PrivateImages] = []


def expect_to_tell_halves_apart(method: Synthesizer) -> None:
    """Without noise, images of the left class are brighter on the left, and so on."""
    images = fitted(method, halves(), math.inf, count=90)
    left, right = (images.unit()[:, 0, :, part].mean((1, 2)) for part in (slice(0, 4), slice(4, 8)))
    sides = left - right
    by_class = [float(sides[images.labels == label].mean()) for label in range(3)]
    assert by_class[0] > 0.1, by_class
    assert by_class[1] < -0.1, by_class
    assert abs(by_class[2]) < min(by_class[0], -by_class[1]), by_class

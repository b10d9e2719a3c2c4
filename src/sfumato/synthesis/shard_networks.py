"""Small networks of teachers on disjoint shards, as pure functions, so that vmap runs hundreds of them side by side."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad
from torch.nn.functional import leaky_relu

State = dict[str, Tensor]
BETAS = (0.5, 0.98)  # of Adam
SMALL = 1e-8
LEAK = 0.2  # slope of the activation below zero


@dataclass(frozen=True)
class ShardNetwork:
    """A network with one hidden layer: weights, and what Adam keeps of them, are entries of a teacher's state."""

    name: str
    inputs: int
    hidden: int
    outputs: int

    @property
    def weights(self) -> tuple[str, ...]:
        """The names of its weights in a state: what answers need."""
        return tuple(f"{self.name}.{part}" for part in ("w1", "b1", "w2", "b2"))

    def begin(self, draw: torch.Generator) -> State:
        """Weights before training; Adam's moments are zero."""
        w1 = torch.randn(self.hidden, self.inputs, generator=draw) / math.sqrt(self.inputs)
        w2 = torch.randn(self.outputs, self.hidden, generator=draw) / math.sqrt(self.hidden)
        parts = (w1, torch.zeros(self.hidden), w2, torch.zeros(self.outputs))
        state = dict(zip(self.weights, parts, strict=True))
        for name in self.weights:
            state[f"first.{name}"] = state[f"second.{name}"] = torch.zeros_like(state[name])
        return {**state, f"{self.name}.steps": torch.zeros(())}

    def __call__(self, state: State, z: Tensor) -> Tensor:  # (..., inputs) -> (..., outputs)
        w1, b1, w2, b2 = (state[name] for name in self.weights)
        return leaky_relu(z @ w1.T + b1, LEAK) @ w2.T + b2

    def slope(self, state: State, z: Tensor, weights: Tensor) -> Tensor:
        """The gradient in z of the outputs with these weights, in closed form: (..., inputs), (..., outputs).

        It is a plain expression of the parameters, so that a penalty on it needs no second derivative.
        """
        w1, b1, w2, _ = (state[name] for name in self.weights)
        return (torch.where(z @ w1.T + b1 > 0, 1.0, LEAK) * (weights @ w2)) @ w1

    def trained(self, state: State, loss: Callable[[State], Tensor], *, rate: float, decay: float = 0.0) -> State:
        """The state after one step of Adam down the loss, which sees a state with these weights."""
        weights = {name: state[name] for name in self.weights}
        gradients = grad(lambda own: loss({**state, **own}))(weights)
        steps = state[f"{self.name}.steps"] + 1
        after = {**state, f"{self.name}.steps": steps}
        for name, gradient in gradients.items():
            first = BETAS[0] * state[f"first.{name}"] + (1 - BETAS[0]) * gradient
            second = BETAS[1] * state[f"second.{name}"] + (1 - BETAS[1]) * gradient.square()
            scale = (second / (1 - BETAS[1] ** steps)).sqrt() + SMALL
            after[name] = state[name] * (1 - rate * decay) - rate * first / (1 - BETAS[0] ** steps) / scale
            after[f"first.{name}"], after[f"second.{name}"] = first, second
        return after


def at_label(outputs: Tensor, labels: Tensor) -> Tensor:
    """The output of each row's own class: (..., k), (...) -> (...); a comparison, because vmap takes no gather here."""
    return (outputs * (labels[..., None] == torch.arange(outputs.shape[-1]))).sum(-1)

"""A whole training by DP-SGD, as one value: optimizer, learning rates, averaged weights, DP-SAT.

A training that was killed goes on from its last checkpoint, and its disk use does not grow with the rounds.

A companion is trained beside the model, a generator beside the discriminator that it is to deceive, say. It sees the
model, which comes from noisy gradients, and so it is post-processing.

Guarantee: the model changes by noisy gradients and by gradients on public images only, one paid round for each step,
and not at all after the last.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from sfumato.errors import VerificationFailed, expect_one_of, expect_within
from sfumato.privacy.gradients.reference import Loss
from sfumato.privacy.gradients.step import noisy_gradient
from sfumato.privacy.private import Query
from sfumato.progress import track

LEAST_RATE = 0.1  # of the rate at the start, at the end of a cosine schedule
CHECKPOINT_ROUNDS = 16  # so many noisy gradients are on disk at most

Losses = Callable[[int], Loss]  # the loss of each round, by its number from 0: it may augment a record in its own way
Callback = Callable[
    [float, nn.Module], None
]  # fraction of rounds done, and a copy of the model as it would be returned


@dataclass(frozen=True)
class Descent:
    """The settings of a training; every number is public."""

    l2_bound: float
    rate: float  # the learning rate at the start
    weight_decay: float = 0.0
    optimizer: Literal["sgd", "adam"] = "sgd"
    momentum: float = 0.9  # of sgd, and the first of adam's two
    schedule: Literal["cosine", "constant"] = "cosine"  # cosine: it ends at a tenth
    averaging: float = 0.95  # the share of the averaged weights that stays when a step's are added; 0: the last weights
    # How the average begins: "mean" is that of all steps as long as they are few, "slow" forgets the first steps, as in
    # De et al. (2022), which long averages need.
    warm_up: Literal["mean", "slow"] = "mean"
    multiplicity: int = 1  # evaluations of the loss of a record, each of which may augment it in its own way
    ascent: float = 0.0  # how far DP-SAT goes uphill before each gradient (Park et al. 2023, rho)

    def __post_init__(self) -> None:
        expect_within(self, momentum=(0, 0.9999), averaging=(0, 0.99999), multiplicity=(1, 1_000), ascent=(0, 1e6))
        expect_one_of(self, optimizer=("sgd", "adam"), schedule=("cosine", "constant"), warm_up=("mean", "slow"))

    def rate_at(self, step: int, rounds: int) -> float:
        if self.schedule == "constant":
            return self.rate
        cosine = 0.5 * (1 + math.cos(math.pi * step / rounds))  # from 1 to 0
        return self.rate * (LEAST_RATE + (1 - LEAST_RATE) * cosine)

    def staying(self, step: int) -> float:
        """The share of the average that stays when the weights after this step, from 0, are added to it."""
        if self.warm_up == "slow":
            return min(self.averaging, (1 + step) / (10 + step))
        # An average that began at zero, corrected for that, is one with these shares; the first of them is 0.
        return self.averaging * (1 - self.averaging**step) / (1 - self.averaging ** (step + 1))


class Companion(Protocol):
    """What is trained beside a model: it sees the model's weights and never the records."""

    def loss(self, model: nn.Module) -> Tensor:
        """A loss of the model on public images (generated ones, say), whose gradient is added to each noisy one."""

    def step(self, model: nn.Module, step: int) -> None:
        """Train the companion after a step of the model, by its number from 0."""

    def state(self) -> dict[str, Tensor]:
        """All numbers that its next step depends on."""

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from such numbers, bit by bit."""


def descend(
    query: Query,
    model: nn.Module,
    losses: Losses,
    descent: Descent,
    *,
    what: str,
    callback: Callback | None = None,
    calls: int = 8,
    companion: Companion | None = None,
) -> None:
    """Train the model in place by all rounds of the query; its weights become an average over the last ones.

    The callback is called after so many equally spaced rounds, the last of them at the end. It sees weights, which come
    from answers that were paid for, and a copy of them, so it does not change training.
    """
    training = _Training(model, descent, companion)
    rounds = query.rounds
    called_after = {math.ceil(rounds * number / calls) for number in range(1, calls + 1)}
    begun, state = query.resumed()
    if begun:
        training.restore(state)
    for step in track(range(begun, rounds), what=what, total=rounds - begun):
        training.step(query, losses(step), step, rounds)
        if (step + 1) % CHECKPOINT_ROUNDS == 0 or step + 1 == rounds:
            query.checkpoint(training.state())
        if callback is not None and step + 1 in called_after:
            callback((step + 1) / rounds, training.averaged())
    training.finish()


class _Training:
    """What is computed from noisy gradients: weights, their averages, and the optimizer's own numbers."""

    def __init__(self, model: nn.Module, descent: Descent, companion: Companion | None) -> None:
        self._model = model
        self._descent = descent
        self._companion = companion
        self._trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._optimizer = _optimizer(self._trained, descent)
        self._averages = [parameter.detach().clone() for parameter in self._trained]

    def step(self, query: Query, loss: Loss, step: int, rounds: int) -> None:
        descent = self._descent
        self._optimizer.param_groups[0]["lr"] = descent.rate_at(step, rounds)
        with _uphill(self._trained, descent.ascent):
            noisy_gradient(query, self._model, loss, l2_bound=descent.l2_bound, multiplicity=descent.multiplicity)
        if self._companion is not None:
            self._add_gradients(self._companion.loss(self._model))
        self._optimizer.step()
        for average, parameter in zip(self._averages, self._trained, strict=True):
            average.lerp_(parameter.detach(), 1 - descent.staying(step))
        if self._companion is not None:
            self._companion.step(self._model, step)

    def _add_gradients(self, loss: Tensor) -> None:
        """Add the gradient of a loss on public images to the noisy one."""
        gradients = torch.autograd.grad(loss, self._trained, allow_unused=True)
        for parameter, gradient in zip(self._trained, gradients, strict=True):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient

    def finish(self) -> None:
        for average, parameter in zip(self._averages, self._trained, strict=True):
            parameter.data = average
        self._model.requires_grad_(False)

    def averaged(self) -> nn.Module:
        """A copy of the model with the averages that there are now."""
        made = copy.deepcopy(self._model)
        copied = [parameter for parameter in made.parameters() if parameter.requires_grad]
        for average, parameter in zip(self._averages, copied, strict=True):
            parameter.data = average.clone()
        return made.eval().requires_grad_(False)

    def state(self) -> dict[str, Tensor]:
        """All numbers that the next step depends on."""
        state: dict[str, Tensor] = {}
        for number, (parameter, average) in enumerate(zip(self._trained, self._averages, strict=True)):
            own = {f"optimizer.{name}": value for name, value in self._optimizer.state[parameter].items()}
            if self._descent.ascent and parameter.grad is not None:  # the direction of the next ascent
                own["gradient"] = parameter.grad
            own |= {"weights": parameter.detach(), "average": average}
            state |= {f"{number}.{name}": value for name, value in own.items() if isinstance(value, Tensor)}
        if self._companion is not None:
            state |= {f"companion.{name}": value for name, value in self._companion.state().items()}
        return state

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from such numbers, bit by bit."""
        if self._companion is not None:
            begun = {name: value for name, value in state.items() if name.startswith("companion.")}
            self._companion.restore({name.removeprefix("companion."): value for name, value in begun.items()})
        for number, parameter in enumerate(self._trained):
            own = {name.removeprefix(f"{number}."): v for name, v in state.items() if name.startswith(f"{number}.")}
            if {"weights", "average"} - set(own) or own["weights"].shape != parameter.shape:
                raise VerificationFailed("A checkpoint is of another model than this.", fix="choose another --out")
            parameter.data = own.pop("weights")
            self._averages[number] = own.pop("average")
            parameter.grad = own.pop("gradient", None)
            self._optimizer.state[parameter] = {name.removeprefix("optimizer."): value for name, value in own.items()}


def _optimizer(trained: list[nn.Parameter], descent: Descent) -> torch.optim.Optimizer:
    if descent.optimizer == "adam":
        betas = (descent.momentum, 0.999)
        return torch.optim.Adam(trained, descent.rate, betas, weight_decay=descent.weight_decay)
    return torch.optim.SGD(trained, descent.rate, descent.momentum, weight_decay=descent.weight_decay)


@contextlib.contextmanager
def _uphill(trained: list[nn.Parameter], distance: float) -> Iterator[None]:
    """Within this, the weights are so far along the last noisy gradient; afterwards they are what they were.

    The direction is an answer that was paid for before, so it costs nothing; there is none at the first step.
    """
    gradients = [parameter.grad for parameter in trained]
    if not distance or any(gradient is None for gradient in gradients):
        yield
        return
    known = [gradient for gradient in gradients if gradient is not None]
    length = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(gradient) for gradient in known]))
    before: list[Tensor] = [parameter.data for parameter in trained]
    for parameter, gradient in zip(trained, known, strict=True):
        parameter.data = parameter.data + gradient * (distance / length.clamp(min=1e-12))
    try:
        yield
    finally:
        for parameter, data in zip(trained, before, strict=True):
            parameter.data = data

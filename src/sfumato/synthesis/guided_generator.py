"""A generator guided by what noisy answers say of its images: one step at a time, with averaged weights."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from sfumato.networks.generator import ConditionalGenerator
from sfumato.training.student import update_average

BETAS = (0.5, 0.99)  # of Adam
LEAST_RATE = 0.1  # of the rate at the start, at the end
LEAST_DISTANCE = 1e-3  # of two images, in the diversity term


class GuidedGenerator:
    """A generator in training. Post-processing: who guides it has paid for the answers that it learns from."""

    def __init__(
        self,
        generator: ConditionalGenerator,
        classes: int,
        *,
        rate: float,
        steps: int,
        averaging: float,
        diversity: float,
        draw: torch.Generator,
    ) -> None:
        self.average = copy.deepcopy(generator)  # what images are sampled from in the end
        self.step = 0
        self._generator = generator.train()
        self._classes = classes
        self._rate = rate
        self._steps = steps
        self._averaging = averaging
        self._diversity = diversity
        self._draw = draw
        self._optimizer = torch.optim.Adam(generator.parameters(), rate, BETAS)

    def images(self, count: int) -> tuple[Tensor, Tensor]:
        """Images (count, c, h, w) with a gradient, and their labels (count,): all classes equally often, in turn."""
        labels = torch.arange(count) % self._classes
        return self._generator(self._generator.inputs(labels, self._draw), labels), labels

    @torch.no_grad()
    def fakes(self, count: int) -> tuple[Tensor, Tensor]:
        """The same without a gradient, for discriminators to learn from."""
        return self.images(count)

    def follow(self, images: Tensor, directions: Tensor) -> None:
        """One step that moves these images along noisy directions (count, c, h, w)."""
        self.descend(images, -(directions * images).sum() / len(images))

    def descend(self, images: Tensor, loss: Tensor) -> None:
        """One step down a loss of these images.

        The diversity term, the mean logarithm of the distance of two images of a class, keeps the generator from making
        all images of a class alike.
        """
        if self._diversity:
            of_class = images.flatten(1)[: len(images) // self._classes * self._classes]
            of_class = of_class.reshape(-1, self._classes, of_class.shape[1])
            apart = (of_class - of_class.roll(1, 0)).abs().mean(2).clamp(min=LEAST_DISTANCE)
            loss = loss - self._diversity * apart.log().mean()
        left = 1 - min(1.0, self.step / self._steps)
        self._optimizer.param_groups[0]["lr"] = self._rate * (LEAST_RATE + (1 - LEAST_RATE) * left)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self.step += 1
        update_average(self.average, self._generator, min(self._averaging, 1 - 1 / (self.step + 1)))

    def state(self) -> dict[str, Tensor]:
        """All numbers that the next step depends on."""
        state = {"step": torch.tensor(self.step), "draw": self._draw.get_state()}
        for name, module in (("generator", self._generator), ("average", self.average)):
            state |= {f"{name}.{key}": value.clone() for key, value in module.state_dict().items()}
        for number, parameter in enumerate(self._generator.parameters()):
            own = self._optimizer.state[parameter]
            state |= {f"adam.{number}.{key}": value.clone() for key, value in own.items()}
        return state

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from such numbers, bit by bit; from none, begin."""
        if not state:
            return
        self.step = int(state["step"])
        self._draw.set_state(state["draw"])
        for name, module in (("generator", self._generator), ("average", self.average)):
            module.load_state_dict(below(state, name))
        for number, parameter in enumerate(self._generator.parameters()):
            self._optimizer.state[parameter] = below(state, f"adam.{number}")


def below(state: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """The entries whose names begin with that name and a dot, by the rest of their names."""
    return {key.removeprefix(f"{name}."): value for key, value in state.items() if key.startswith(f"{name}.")}

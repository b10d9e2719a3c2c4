"""The whole state of a training as named tensors, so that a killed one goes on as if nothing had happened."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sfumato.values import Images

STEP, DRAW = "step", "draw"


@dataclass(frozen=True)
class SavedState:
    """What changes while a network is trained: networks, optimisers, the source of random numbers.

    The learning rate is none of it: it is a function of the step.
    """

    networks: Mapping[str, nn.Module]
    optimizers: Mapping[str, torch.optim.Optimizer]
    draw: torch.Generator

    def tensors(self, step: int) -> dict[str, Tensor]:
        """Copies of all, by names."""
        found = {STEP: torch.tensor(step), DRAW: self.draw.get_state()}
        for name, network in self.networks.items():
            found |= {f"{name}/{key}": value for key, value in network.state_dict().items()}
        for name, optimizer in self.optimizers.items():
            for number, moments in optimizer.state_dict()["state"].items():
                found |= {f"{name}/{number}/{key}": value for key, value in moments.items()}
        return {name: value.detach().clone().contiguous() for name, value in found.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> int:
        """Take the state back from its tensors; returns the number of steps that it stands for."""
        self.draw.set_state(tensors[DRAW].clone())
        for name, network in self.networks.items():
            network.load_state_dict(part(tensors, name))
        for name, optimizer in self.optimizers.items():
            state: dict[int, dict[str, Tensor]] = {}
            for key, value in part(tensors, name).items():
                number, moment = key.split("/")
                state.setdefault(int(number), {})[moment] = value.clone()
            optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
        return int(tensors[STEP])


def part(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """The tensors under one name."""
    return {key.removeprefix(f"{name}/"): value for key, value in tensors.items() if key.startswith(f"{name}/")}


def training_name(settings: str, images: Images, network: nn.Module) -> str:
    """The same for the same images, settings and weights to begin with."""
    found = hashlib.sha256(settings.encode())
    for tensor in (images.pixels, images.labels, *network.state_dict().values()):
        found.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        found.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()

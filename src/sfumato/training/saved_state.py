"""The whole state of a training as named tensors, so that a killed one goes on as if nothing had happened."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sfumato.discovery import release_of
from sfumato.values import Checkpoints, Images

STEP, DRAW = "step", "draw"
FORMAT = 1  # of the tensors of a saved state; another one is another training


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

    def resume(self, checkpoints: Checkpoints | None, name: str) -> int:
        """Take back what was kept under this name; the number of its steps, or 0 if nothing that fits was kept."""
        kept = checkpoints.restore(name) if checkpoints else None
        return self.restore(kept) if kept and self.fits(kept) else 0

    def fits(self, tensors: Mapping[str, Tensor]) -> bool:
        """Whether names, shapes and types are those of this state, so that all of it can be restored.

        An optimiser knows nothing of a weight that has never been trained, so moments may be missing as a whole.
        """
        wanted = self.tensors(0)
        moments = {name for name in tensors if name.split("/")[0] in self.optimizers}
        others = tensors.keys() - moments
        alike = all(name in wanted and _layout(tensors[name]) == _layout(wanted[name]) for name in others)
        complete = others == {name for name in wanted if name.split("/")[0] not in self.optimizers}
        return alike and complete and all(self._moments_fit(part(tensors, name), name) for name in self.optimizers)

    def _moments_fit(self, tensors: Mapping[str, Tensor], optimizer: str) -> bool:
        """Whether each weight has all moments of Adam, which all optimisers here are, or none of them."""
        weights = [weight for group in self.optimizers[optimizer].param_groups for weight in group["params"]]
        found: dict[str, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            number, _, moment = key.partition("/")
            found.setdefault(number, {})[moment] = value
        if not found.keys() <= {str(number) for number in range(len(weights))}:
            return False
        shapes = {number: tuple(weights[int(number)].shape) for number in found}
        return all(
            {moment: tuple(value.shape) for moment, value in of_weight.items()}
            == {"step": (), "exp_avg": shapes[number], "exp_avg_sq": shapes[number]}
            for number, of_weight in found.items()
        )

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
    """The same for the same images, settings and weights to begin with, by the same release of Sfumato and of torch.

    What another release trained may differ, and a finished training is not done again.
    """
    found = hashlib.sha256(f"{FORMAT} {release_of('sfumato')} {release_of('torch')} {settings}".encode())
    parts = {"pixels": images.pixels, "labels": images.labels} | network.state_dict(prefix="network/")
    for name, tensor in parts.items():
        found.update(f"{name} {_layout(tensor)}".encode())
        found.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


def _layout(tensor: Tensor) -> tuple[tuple[int, ...], torch.dtype]:
    return tuple(tensor.shape), tensor.dtype

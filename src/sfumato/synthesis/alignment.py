"""Dataset alignment (DP-ImgSyn, Algorithm 1): optimise images until their layer statistics match a target.

Pixels are in [-1, 1] here. Each loss exists as the paper prints it and as the authors' code has it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Form = Literal["paper", "code"]
# Images in [0, 1] to logits (b, k) and layers (b, channels, positions), whose statistics are matched.
LayerTeacher = Callable[[Tensor], tuple[Tensor, list[Tensor]]]


@dataclass(frozen=True)
class TargetStatistics:
    """The target mean and variance of each channel of each layer."""

    means: tuple[Tensor, ...]
    variances: tuple[Tensor, ...]

    @classmethod
    def of(cls, layers: list[Tensor]) -> TargetStatistics:
        """The statistics of a batch."""
        means = tuple(layer.mean((0, 2)) for layer in layers)
        seconds = tuple(layer.square().mean((0, 2)) for layer in layers)
        return cls(means, tuple(s - m.square() for m, s in zip(means, seconds, strict=True)))


@dataclass(frozen=True)
class Weights:
    """alpha_f, alpha_c, alpha_tv and alpha_l2 of equation 5."""

    feature: float = 10.0
    classify: float = 1.0
    variation: float = 2.5e-5
    size: float = 3e-8


def feature_loss(layers: list[Tensor], goal: TargetStatistics, form: Form) -> Tensor:
    """Equation 1; the code leaves out the squares."""
    now = TargetStatistics.of(layers)
    pairs = [*zip(now.means, goal.means, strict=True), *zip(now.variances, goal.variances, strict=True)]
    gaps = torch.stack([(a - b).norm() for a, b in pairs])
    return gaps.square().sum() if form == "paper" else gaps.sum()


def variation_loss(images: Tensor, form: Form) -> Tensor:
    """Equation 3; the code takes mean absolute differences to four neighbours."""
    right, down = images[..., :, 1:] - images[..., :, :-1], images[..., 1:, :] - images[..., :-1, :]
    if form == "paper":
        squares = right[..., :-1, :].square() + down[..., :, :-1].square()
        return (squares + 1e-12).sqrt().sum()
    slash = images[..., 1:, 1:] - images[..., :-1, :-1]
    backslash = images[..., 1:, :-1] - images[..., :-1, 1:]
    return torch.stack([d.abs().mean() for d in (right, down, slash, backslash)]).sum()


def size_loss(images: Tensor, form: Form) -> Tensor:
    """Equation 4; the code leaves out the square."""
    return images.square().sum() if form == "paper" else images.norm()


def align(
    images: Tensor,
    targets: Tensor,
    teacher: LayerTeacher,
    goal: TargetStatistics,
    *,
    steps: int,
    rate: float = 0.1,
    weights: Weights | None = None,
    form: Form = "code",
    draw: torch.Generator,
) -> tuple[Tensor, list[dict[str, float]]]:
    """One batch of images after `steps` steps, and the value of each loss before every step.

    Only pixels are optimised; the teacher is frozen. As in the code, each step shifts and randomly mirrors the batch,
    and the iterate with the least loss is kept; the form "paper" does neither.
    """
    weights = weights or Weights()
    moving = images.clone().requires_grad_()
    optimizer = torch.optim.Adam([moving], lr=rate, betas=(0.5, 0.99))
    best, least, history = images, float("inf"), []
    for step in range(steps + 1):
        shown = moving if form == "paper" else _augmented(moving, draw)
        logits, layers = teacher((shown + 1) / 2)
        terms = {
            "feature": weights.feature * feature_loss(layers, goal, form),
            "classify": weights.classify * F.cross_entropy(logits, targets),
            "variation": weights.variation * variation_loss(shown, form),
            "size": weights.size * size_loss(shown, form),
        }
        total = torch.stack(list(terms.values())).sum()
        history.append({name: term.item() for name, term in {**terms, "total": total}.items()})
        if form == "paper" or history[-1]["total"] < least:
            best, least = moving.detach().clone(), history[-1]["total"]
        if step < steps:
            (moving.grad,) = torch.autograd.grad(total, moving)
            optimizer.step()
            moving.data.clamp_(-1, 1)
    return best, history


def balanced_targets(batch: int, classes: int) -> Tensor:
    """The paper's label generator: every class equally often, in turn; the rest starts from the first class."""
    each = max(1, batch // classes)
    whole = torch.arange(classes).repeat(each)
    return torch.cat([whole, torch.arange(max(0, batch - len(whole))) % classes])[:batch]


def _augmented(images: Tensor, draw: torch.Generator) -> Tensor:
    """Rolled by up to an eighth of a side, and mirrored half of the time."""
    reach = max(1, images.shape[-1] // 8)
    down, right = torch.randint(-reach, reach + 1, (2,), generator=draw).tolist()
    rolled = images.roll((down, right), (2, 3))
    return rolled.flip(3) if torch.rand((), generator=draw) < 0.5 else rolled


class GroupNormTeacher(nn.Module):
    """A network with group norm that also returns the inputs of its norm layers."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.seen: list[Tensor] = []
        for module in network.modules():
            if isinstance(module, nn.GroupNorm):
                module.register_forward_pre_hook(self._note)

    def _note(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.seen.append(inputs[0].flatten(2))

    def forward(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        self.seen = []
        logits = self.network(images)
        layers, self.seen = self.seen, []
        return logits, layers


class ScatteringTeacher(nn.Module):
    """Fixed scattering features and a linear head; statistics are of each position of each feature map."""

    def __init__(self, features: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.features, self.head = features, head

    def forward(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        maps = self.features(images)
        flat = maps.flatten(1)
        # Features of a record have unit length; scaled so that each is of about unit size.
        return self.head(maps), [flat[:, :, None] * flat.shape[1] ** 0.5]

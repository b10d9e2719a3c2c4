"""Contrastive learning (Chen et al. 2020, SimCLR): two random views of one image should get similar features.

No labels are needed, so a network can be trained on procedural images. Training resumes from its last checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from sfumato.files import written_whole
from sfumato.progress import track

HIDDEN, PROJECTED = 512, 128  # units of the projection, which is discarded after training
CHECKPOINT = 500  # steps between two checkpoints


@dataclass(frozen=True)
class Contrast:
    """A schedule of contrastive learning."""

    steps: int = 20_000
    batch: int = 256  # images, of two views each
    rate: float = 3e-3
    weight_decay: float = 1e-3
    temperature: float = 0.2
    side: int = 32  # of a view, in pixels
    smallest_crop: float = 0.2  # of the image's area
    seed: int = 0


def train(
    network: nn.Module,
    width: int,
    images: Callable[[Tensor], Tensor],
    count: int,
    schedule: Contrast,
    checkpoint: Path | None = None,
) -> nn.Module:
    """Train the network, whose pooled features are (n, width), on views of images that `images` gives by number."""
    torch.manual_seed(schedule.seed)
    project = nn.Sequential(nn.Linear(width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, PROJECTED))
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    both = nn.ModuleList([network, project])
    optimiser = torch.optim.AdamW(both.parameters(), lr=schedule.rate, weight_decay=schedule.weight_decay)
    draw = Generator().manual_seed(schedule.seed)
    done = _resumed(checkpoint, schedule, both, optimiser, draw)
    for step in track(range(done, schedule.steps), what="contrastive steps", total=schedule.steps - done):
        for group in optimiser.param_groups:
            group["lr"] = schedule.rate * _rate(step, schedule.steps)
        batch = images(torch.randint(count, (schedule.batch,), generator=draw)).float() / 255
        views = torch.cat([random_view(batch, schedule, draw) for _ in range(2)])
        with torch.autocast("cpu", torch.bfloat16):
            features = network(views.contiguous(memory_format=torch.channels_last))
        loss = contrastive_loss(project(features.float()), schedule.temperature)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if checkpoint is not None and (step + 1) % CHECKPOINT == 0:
            _save(checkpoint, step + 1, schedule, both, optimiser, draw)
    return network.eval()


def contrastive_loss(projected: Tensor, temperature: float) -> Tensor:
    """The cross-entropy of finding an image's other view among all views (2 n, d); the halves are in the same order."""
    unit = F.normalize(projected, dim=1)
    similarity = unit @ unit.T / temperature
    similarity = similarity.masked_fill(torch.eye(len(unit), dtype=torch.bool), -math.inf)
    other = torch.arange(len(unit)).roll(len(unit) // 2)
    return F.cross_entropy(similarity, other)


def random_view(images: Tensor, schedule: Contrast, draw: Generator) -> Tensor:
    """A crop, perhaps mirrored, in other colours, sharper or softer: (n, 3, h, w) -> (n, 3, side, side)."""
    count = len(images)

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, 1, 1, 1, generator=draw)

    def chosen(probability: float) -> Tensor:
        return uniform(0, 1) < probability

    seen = _cropped(images, schedule, draw)
    mixing = torch.eye(3) + 0.12 * torch.randn(count, 3, 3, generator=draw)  # other hues and saturations
    seen = torch.where(chosen(0.8), torch.einsum("noc,nchw->nohw", mixing, seen), seen)
    mean = seen.mean((1, 2, 3), keepdim=True)
    seen = (seen - mean) * uniform(0.5, 1.5) + mean * uniform(0.6, 1.4)
    seen = torch.where(chosen(0.2), seen.mean(1, keepdim=True), seen).clamp(0, 1)
    smooth = F.avg_pool2d(F.pad(seen, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
    return torch.where(chosen(0.4), seen + uniform(-1, 1) * (seen - smooth), seen).clamp(0, 1)


def _cropped(images: Tensor, schedule: Contrast, draw: Generator) -> Tensor:
    count = len(images)
    area = schedule.smallest_crop + (1 - schedule.smallest_crop) * torch.rand(count, generator=draw)
    stretch = (0.5 * torch.rand(count, generator=draw) - 0.25).exp()
    sides = torch.stack([area.sqrt() * stretch, area.sqrt() / stretch], dim=1).clamp(max=1)  # (n, 2)
    centres = (1 - sides) * (2 * torch.rand(count, 2, generator=draw) - 1)
    mirrored = torch.where(torch.rand(count, generator=draw) < 0.5, -1.0, 1.0)
    transform = torch.zeros(count, 2, 3)
    transform[:, 0, 0], transform[:, 1, 1], transform[:, :, 2] = sides[:, 0] * mirrored, sides[:, 1], centres
    places = F.affine_grid(transform, [count, 3, schedule.side, schedule.side], align_corners=False)
    return F.grid_sample(images, places, align_corners=False)


def _rate(step: int, steps: int) -> float:
    """Of the largest learning rate: a short warm-up, then a cosine."""
    return min(1.0, (step + 1) / 100) * (0.01 + 0.495 * (1 + math.cos(math.pi * step / steps)))


def _resumed(
    checkpoint: Path | None, schedule: Contrast, both: nn.Module, optimiser: torch.optim.Optimizer, draw: Generator
) -> int:
    """How many steps were done before; everything that changes from step to step is as it was then."""
    if checkpoint is None or not checkpoint.exists():
        return 0
    state: dict[str, Any] = torch.load(checkpoint, weights_only=True)
    if state["schedule"] != asdict(schedule):
        return 0
    both.load_state_dict(state["networks"])
    optimiser.load_state_dict(state["optimiser"])
    draw.set_state(state["draw"])
    return int(state["steps"])


def _save(
    checkpoint: Path,
    steps: int,
    schedule: Contrast,
    both: nn.Module,
    optimiser: torch.optim.Optimizer,
    draw: Generator,
) -> None:
    state = {
        "steps": steps,
        "schedule": asdict(schedule),
        "networks": both.state_dict(),
        "optimiser": optimiser.state_dict(),
        "draw": draw.get_state(),
    }
    with written_whole(checkpoint) as unfinished:
        torch.save(state, unfinished)

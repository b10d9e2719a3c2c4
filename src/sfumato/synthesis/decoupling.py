"""How adapters learn to re-generate images while an objective on the middle block's features takes an attribute away.

As DECO-Bench has it: low-rank adapters on the attention projections, AdamW with weight decay 0.01, a constant rate
after a warm-up, gradients no longer than 1, and the training stops before it overfits, which is judged on images that
train nothing. What is learnt is kept after each epoch, so that a killed training goes on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from sfumato.networks.filter_generating import ChannelFilter
from sfumato.networks.low_rank import Adapters, attach
from sfumato.progress import track
from sfumato.synthesis.regeneration import Regenerator, noised
from sfumato.training.saved_state import SavedState, part
from sfumato.values import Checkpoints, Images

HEAD_RATE = 1e-3
WARM_UP = 200  # steps in which the rate of the adapters rises, or a tenth of all where they are few
PATIENCE = 3  # epochs without a lower loss on validation images until training stops
LOWEST, SINCE, BEST = "lowest", "since", "best"  # names of what is kept for the early stop


class Objective(Protocol):
    """What a method wants of the pooled features (n, f) of the middle block."""

    @property
    def head(self) -> nn.Module | None:
        """What is trained beside the adapters, by a loss of its own."""

    def for_head(self, pooled: Tensor, labels: Tensor) -> Tensor: ...
    def for_adapters(self, pooled: Tensor, labels: Tensor, draw: torch.Generator) -> Tensor: ...
    def for_validation(self, pooled: Tensor, labels: Tensor, draw: torch.Generator) -> Tensor: ...


@dataclass(frozen=True)
class Adaptation:
    """Settings of the training of adapters."""

    rank: int
    epochs: int
    batch: int
    rate: float
    weight: float  # of the objective beside the denoising loss
    seed: int


def pooled_features(
    model: Regenerator, latents: Tensor, steps: Tensor, noise: Tensor, mask: ChannelFilter | None
) -> tuple[Tensor, Tensor]:
    """The predicted noise, and the means of the middle block's channels (n, f)."""
    predicted, features = model.denoise(noised(model, latents, steps, noise), steps, through=mask)
    return predicted, features.mean(dim=(2, 3))


def decouple(
    model: Regenerator,
    objective: Objective,
    settings: Adaptation,
    train: Images,
    validation: Images,
    checkpoints: Checkpoints,
    *,
    name: str,
    mask: ChannelFilter | None = None,
) -> list[Adapters]:
    """Put adapters into the model, and into the filter, and train them; returns the best ones by validation images.

    A head learns alone for one epoch first: adapters that follow one that knows nothing learn nothing.
    """
    training = _Training(model, objective, settings, mask)
    kept = checkpoints.restore(name)
    if kept is not None:
        training.restore(kept)
    lead = 0 if objective.head is None else 1
    total = settings.epochs + lead
    for epoch in track(range(training.epoch, total), what=f"training {name}, epochs", total=total - training.epoch):
        if training.since >= PATIENCE:
            break
        training.run_epoch(train, adapting=epoch >= lead)
        if epoch >= lead:
            training.judge(validation)
        checkpoints.keep(name, training.state())
    training.take_best()
    return training.adapters


class _Training:
    """The adapters of one model while they learn, and what the early stop remembers."""

    def __init__(
        self, model: Regenerator, objective: Objective, settings: Adaptation, mask: ChannelFilter | None
    ) -> None:
        self.model, self.objective, self.settings, self.mask = model, objective, settings, mask
        self.draw = torch.Generator().manual_seed(settings.seed)
        self.adapters = [attach(model.network, model.adaptable, settings.rank, self.draw)]
        if mask is not None:
            self.adapters.append(attach(mask, ("scores",), settings.rank, self.draw))
        self.learnt: dict[str, nn.Module] = {
            f"adapters {number}": each.learnt for number, each in enumerate(self.adapters)
        }
        weights = [each for module in self.learnt.values() for each in module.parameters()]
        self.optimizer = torch.optim.AdamW(weights, settings.rate, weight_decay=0.01)
        optimizers = {"steps of adapters": self.optimizer}
        if objective.head is not None:
            self.learnt["head"] = objective.head
            self.head_optimizer = torch.optim.AdamW(objective.head.parameters(), HEAD_RATE, weight_decay=0.01)
            optimizers["steps of head"] = self.head_optimizer
        self.weights = weights
        self.saved = SavedState(self.learnt, optimizers, self.draw)
        self.epoch, self.lowest, self.since, self.adapted = 0, math.inf, 0, 0
        self.best = self._now()

    def run_epoch(self, train: Images, *, adapting: bool) -> None:
        """Show every image once; without `adapting` the head alone learns."""
        batches = torch.split(torch.randperm(len(train), generator=self.draw), self.settings.batch)
        warm_up = max(1, min(WARM_UP, len(batches) * self.settings.epochs // 10))
        for rows in track(batches, what="one epoch, batches", total=len(batches)):
            labels = train.labels[rows]
            with torch.set_grad_enabled(adapting):
                predicted, noise, pooled = self._shown(train.pixels[rows], self.draw)
            if adapting:
                self.adapted += 1
                self.optimizer.param_groups[0]["lr"] = self.settings.rate * min(1.0, self.adapted / warm_up)
                wanted = self.objective.for_adapters(pooled, labels, self.draw)
                self._step(mse_loss(predicted, noise) + self.settings.weight * wanted)
            if self.objective.head is not None:
                self.head_optimizer.zero_grad()
                self.objective.for_head(pooled.detach(), labels).backward()  # type: ignore[no-untyped-call]
                self.head_optimizer.step()
        self.epoch += 1

    def judge(self, validation: Images) -> None:
        """Remember what is learnt if its loss on these images, noised in the same way each time, is the lowest."""
        draw = torch.Generator().manual_seed(self.settings.seed)
        total = 0.0
        with torch.no_grad():
            for rows in torch.split(torch.arange(len(validation)), self.settings.batch):
                predicted, noise, pooled = self._shown(validation.pixels[rows], draw)
                wanted = self.objective.for_validation(pooled, validation.labels[rows], draw)
                total += len(rows) * float(mse_loss(predicted, noise) + self.settings.weight * wanted)
        self.since += 1
        if total < self.lowest:
            self.lowest, self.since, self.best = total, 0, self._now()

    def take_best(self) -> None:
        for name, module in self.learnt.items():
            module.load_state_dict(part(self.best, name))

    def state(self) -> dict[str, Tensor]:
        remembered = {f"{BEST}/{name}": value.clone() for name, value in self.best.items()}
        judged = {LOWEST: torch.tensor(self.lowest, dtype=torch.float64), SINCE: torch.tensor(self.since)}
        return self.saved.tensors(self.epoch) | remembered | judged | {"adapted": torch.tensor(self.adapted)}

    def restore(self, state: dict[str, Tensor]) -> None:
        self.epoch = self.saved.restore(state)
        self.best = {name: value.clone() for name, value in part(state, BEST).items()}
        self.lowest, self.since = float(state[LOWEST]), int(state[SINCE])
        self.adapted = int(state["adapted"])

    def _shown(self, pixels: Tensor, draw: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """The predicted noise, the noise, and pooled features of images at random steps."""
        with torch.no_grad():
            latents = self.model.encode(pixels)
        steps = torch.randint(len(self.model.signal), (len(pixels),), generator=draw)
        noise = torch.randn(latents.shape, generator=draw)
        predicted, pooled = pooled_features(self.model, latents, steps, noise, self.mask)
        return predicted, noise, pooled

    def _step(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.weights, 1.0)
        self.optimizer.step()

    def _now(self) -> dict[str, Tensor]:
        """Copies of all that is learnt."""
        return {f"{n}/{k}": v.clone() for n, module in self.learnt.items() for k, v in module.state_dict().items()}

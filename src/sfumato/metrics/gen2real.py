"""Accuracy on real images of a small CNN that was trained on synthetic images alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from sfumato.contracts import Metric
from sfumato.errors import DataError, UsageError
from sfumato.networks.small_cnn import SmallCNN
from sfumato.progress import track
from sfumato.values import Images, Reference, Score


@dataclass(frozen=True)
class Gen2Real(Metric):
    """Nothing is selected on real data: fixed schedule, last step, every seed counts."""

    higher_is_better: ClassVar[bool] = True

    seeds: tuple[int, ...] = (0, 1, 2)
    images_seen: int = 240_000  # bound on the training work for images up to 32 px
    max_epochs: float = 60.0
    batch: int = 256
    peak_rate: float = 4e-3
    weight_decay: float = 0.01

    def __call__(self, synthetic: Images, real: Reference) -> Score:
        held_out = _known(real.held_out)
        _check(synthetic, held_out)
        k = len(synthetic.classes)
        accuracies, by_class = [], torch.zeros(len(self.seeds), k, dtype=torch.float64)
        for row, seed in enumerate(self.seeds):
            right = _predict(self._train(synthetic, seed), held_out.pixels) == held_out.labels
            accuracies.append(right.double().mean().item())
            for c in range(k):  # nan for a class that the held-out data does not have
                by_class[row, c] = right[held_out.labels == c].double().mean()
        per_class = dict(zip(synthetic.classes, by_class.mean(0).tolist(), strict=True))
        seen = {c: v for c, v in per_class.items() if not math.isnan(v)}
        spread = torch.tensor(accuracies, dtype=torch.float64)
        details = {
            "accuracies": accuracies,
            "per_class": {c: seen.get(c) for c in per_class},
            "worst_class": min(seen, key=seen.__getitem__),
            "worst_class_accuracy": min(seen.values()),
            "loss": "cross-entropy" if synthetic.logits is None else "squared error on centred logits",
            "epochs": self._steps(synthetic) * self._batch(synthetic) / len(synthetic),
            "test_split": real.test is not None,
        }
        return Score(
            name="gen2real-smallcnn",
            value=float(spread.mean()),
            standard_error=float(spread.std() / math.sqrt(len(spread))) if len(spread) > 1 else None,
            higher_is_better=self.higher_is_better,
            seeds=self.seeds,
            details=details,
        )

    def _batch(self, synthetic: Images) -> int:
        return max(2, min(self.batch, len(synthetic) // 16))

    def _steps(self, synthetic: Images) -> int:
        area = synthetic.pixels.shape[2] * synthetic.pixels.shape[3]
        seen = min(self.max_epochs * len(synthetic), self.images_seen * min(1.0, 32 * 32 / area))
        return math.ceil(seen / self._batch(synthetic))

    def _train(self, synthetic: Images, seed: int) -> SmallCNN:
        steps, size = self._steps(synthetic), self._batch(synthetic)
        order = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            channels, height, width = synthetic.pixels.shape[1:]
            network = SmallCNN(channels, height, width, len(synthetic.classes))
        # Twice as fast on CPU as the default layout.
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimizer = torch.optim.AdamW(network.parameters(), weight_decay=self.weight_decay)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=self.peak_rate, total_steps=steps)
        batches = _batches(len(synthetic), size, steps, order)
        for rows in track(batches, what=f"gen2real, seed {seed}", total=steps):
            images = _float(synthetic.pixels[rows])
            loss = _loss(network(images), synthetic, rows)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        return network.eval()


def _loss(outputs: Tensor, synthetic: Images, rows: Tensor) -> Tensor:
    if synthetic.logits is None:
        return nn.functional.cross_entropy(outputs, synthetic.labels[rows])
    target = synthetic.logits[rows]
    # Only differences of logits mean something, so both sides are centred.
    return nn.functional.mse_loss(outputs - outputs.mean(1, True), target - target.mean(1, True))


def _batches(count: int, size: int, steps: int, order: torch.Generator) -> Iterator[Tensor]:
    """Full batches only: batch norm needs company."""
    rows = torch.empty(0, dtype=torch.int64)
    for _ in range(steps):
        if len(rows) < size:
            rows = torch.randperm(count, generator=order)
        yield rows[:size]
        rows = rows[size:]


def _float(pixels: Tensor) -> Tensor:
    return (pixels.float() / 255).contiguous(memory_format=torch.channels_last)


def _predict(network: SmallCNN, pixels: Tensor) -> Tensor:
    with torch.inference_mode():
        return torch.cat([network(_float(chunk)).argmax(1) for chunk in torch.split(pixels, 500)])


def _known(images: Images) -> Images:
    """Without the records whose label is none of the classes: they count as absent."""
    known = (images.labels >= 0) & (images.labels < len(images.classes))
    return Images(images.pixels[known], images.labels[known], images.classes)


def _check(synthetic: Images, held_out: Images) -> None:
    if synthetic.classes != held_out.classes:
        raise UsageError(f"Expected the classes {held_out.classes}, got {synthetic.classes}.")
    if synthetic.pixels.shape[1:] != held_out.pixels.shape[1:]:
        shapes = tuple(held_out.pixels.shape[1:]), tuple(synthetic.pixels.shape[1:])
        raise UsageError(f"Expected synthetic images of shape {shapes[0]}, got {shapes[1]}.")
    if len(synthetic) < 2 or not len(held_out):
        raise DataError(
            f"Expected at least 2 synthetic and 1 held-out image, got {len(synthetic)} and {len(held_out)}."
        )

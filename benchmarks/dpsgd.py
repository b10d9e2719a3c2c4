"""One DP-SGD step, whole: batch, gradients, clipping, noise, update; beside Opacus and beside training without privacy.

Run: python benchmarks/dpsgd.py [--quick] [--threads 2] [--json FILE]. Every contender is a process of its own; all of
them take turns, several times, and the least and the median time of a step are printed, and the least processor time,
which is what can be trusted with one thread on a machine that others use too (ratios are of that). Memory is the peak
above what the process held after its first small step. The batch is drawn at rate 0.999 from just enough records, so
that all steps of ours are of the same size as theirs. Opacus comes with `pip install --no-deps opacus opt_einsum`.

Two tasks have four versions of each record (augmentation multiplicity): ours clips the gradient of a record's mean
loss. Opacus has no such thing, so it is given four times the records instead, which flatters it: it then has four
times the rows to make, but need not add up those of one record. Training without privacy has four times the images.
Opacus takes the gradients of standardised convolutions by functorch, because it has no rule for them.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.networks.models import build_model
from sfumato.networks.resnet import ResNet
from sfumato.privacy import Budget, GaussianSum, Ledger, PrivateImages, noisy_gradient
from sfumato.privacy.gradients import step as gradient_step
from sfumato.values import Spec

Step = Callable[[], object]
RATE = 0.999
EMBEDDED = 64  # values of a time or a class
LAST_TIME = 1000.0


def small_cnn() -> nn.Module:
    """The tanh network of Papernot et al. (2021) and Tramèr and Boneh (2021) for 28x28 grey images."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.Tanh(),
        nn.Linear(32, 10),
    )


def resnet18() -> nn.Module:
    return ResNet(blocks=(2, 2, 2, 2), channels=1, classes=10, width=16, norm="group")


def wide_resnet() -> nn.Module:
    return build_model("wide-resnet", (3, 32, 32), 10, {"depth": 16, "widen": 1})


def head() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3969, 10))


class Block(nn.Module):
    """Two convolutions around a shortcut; time and class scale and shift what is between them."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first_norm, self.second_norm = nn.GroupNorm(8, inputs), nn.GroupNorm(8, outputs)
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.condition = nn.Linear(EMBEDDED, 2 * outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, maps: Tensor, embedded: Tensor) -> Tensor:
        inner = self.second_norm(self.first(F.silu(self.first_norm(maps))))
        scale, shift = self.condition(embedded)[:, :, None, None].chunk(2, dim=1)
        return self.second(F.silu(inner * (1 + scale) + shift)) + self.shortcut(maps)


class Attention(nn.Module):
    """Every position looks at every other of its image."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, channels)
        self.query, self.key, self.value, self.out = (nn.Linear(channels, channels) for _ in range(4))

    def forward(self, maps: Tensor) -> Tensor:
        tokens = self.norm(maps).flatten(2).transpose(1, 2)
        seen = F.scaled_dot_product_attention(self.query(tokens), self.key(tokens), self.value(tokens))
        return maps + self.out(seen).transpose(1, 2).reshape(maps.shape)


class UNet(nn.Module):
    """What a diffusion model of 28x28 grey images needs at least: two sizes, times, classes, attention."""

    def __init__(self) -> None:
        super().__init__()
        self.time, self.classes = nn.Linear(EMBEDDED, EMBEDDED), nn.Embedding(10, EMBEDDED)
        self.stem, self.down = nn.Conv2d(1, 32, 3, padding=1), nn.Conv2d(32, 32, 3, stride=2, padding=1)
        self.large, self.small, self.small_again = Block(32, 32), Block(32, 64), Block(64, 64)
        self.attention = Attention(64)
        self.up, self.large_again = nn.Conv2d(64, 32, 3, padding=1), Block(64, 32)
        self.last_norm, self.last = nn.GroupNorm(8, 32), nn.Conv2d(32, 1, 3, padding=1)

    def forward(self, images: Tensor, times: Tensor, labels: Tensor) -> Tensor:
        waves = times[:, None] * torch.logspace(0, -4, EMBEDDED // 2)
        embedded = F.silu(self.time(torch.cat([waves.sin(), waves.cos()], dim=1)) + self.classes(labels))
        large = self.large(self.stem(images), embedded)
        small = self.small_again(self.attention(self.small(self.down(large), embedded)), embedded)
        up = self.up(F.interpolate(small, scale_factor=2.0))
        return self.last(F.silu(self.last_norm(self.large_again(torch.cat([up, large], dim=1), embedded))))


@dataclass(frozen=True)
class Task:
    """What is trained on how many records, each in so many versions."""

    model: Callable[[], nn.Module]
    shape: tuple[int, int, int]
    batch: int
    steps: int
    versions: int = 1

    @property
    def criterion(self) -> nn.Module:
        return nn.CrossEntropyLoss()

    def given(self, images: Tensor, labels: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """The model's inputs and its targets, for images that are all versions of one record, or of many."""
        return (images,), labels

    def loss(self, call: Callable[..., Tensor], image: Tensor, label: Tensor) -> Tensor:
        """Of one record: the mean over its versions, which are shifted, and every other one is flipped."""
        moved = [image.roll(version, 2) for version in range(self.versions)]
        versions = torch.stack([image.flip(2) if number % 2 else image for number, image in enumerate(moved)])
        inputs, targets = self.given(versions, label.expand(self.versions))
        return self.criterion(call(*inputs), targets)

    def data(self, records: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """The same for contenders that take every version for a record."""
        images = records * self.versions
        return self.given(torch.rand(images, *self.shape), torch.randint(10, (images,)))


class SquaredError(nn.MSELoss):
    """Without a reduction, a value for each image, which Opacus' ghost mode asks for."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002 (torch's name)
        by_image = F.mse_loss(input, target, reduction="none").flatten(1).mean(1)
        return by_image if self.reduction == "none" else by_image.mean()


@dataclass(frozen=True)
class Denoising(Task):
    """Find the noise in images; noise and times are the same at every step, which does not change the cost."""

    @property
    def criterion(self) -> nn.Module:
        return SquaredError()

    def given(self, images: Tensor, labels: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        noise = torch.randn(self.versions, *self.shape, generator=torch.Generator().manual_seed(0))
        times = torch.linspace(1, LAST_TIME, self.versions)
        noise = noise.repeat(len(images) // self.versions, 1, 1, 1)
        times = times.repeat(len(images) // self.versions)
        kept = (1 - times / LAST_TIME)[:, None, None, None]
        return (kept.sqrt() * images + (1 - kept).sqrt() * noise, times, labels), noise


TASKS: dict[str, Task] = {
    "small CNN": Task(small_cnn, (1, 28, 28), batch=256, steps=20),
    "ResNet18-GN": Task(resnet18, (1, 28, 28), batch=128, steps=5),
    "WRN-16-1": Task(wide_resnet, (3, 32, 32), batch=64, steps=5, versions=4),
    "U-Net": Denoising(UNet, (1, 28, 28), batch=32, steps=5, versions=4),
    "linear head": Task(head, (81, 7, 7), batch=1800, steps=20),
}


class Random:
    """Records of noise; what they show does not change the cost."""

    name = "random"

    def __init__(self, count: int, shape: tuple[int, int, int]) -> None:
        self.spec = Spec(count, *shape, tuple("0123456789"))

    def chunks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        rng = np.random.default_rng(0)
        yield (
            rng.integers(0, 256, (self.spec.count, *self.spec.shape), dtype=np.uint8),
            rng.integers(0, 10, self.spec.count),
        )


def ours(task: Task, model: nn.Module, batch: int) -> Step:
    private = PrivateImages.seal(Random(math.ceil(batch / RATE), task.shape), Ledger(Budget(math.inf, 1e-5)))
    handle = private.mapped(lambda x: x) if task.shape[0] > 3 else private  # a head reads stored features
    query = handle.open(GaussianSum(rounds=100_000, sampling=RATE, noise_multiplier=1.0), purpose="benchmark")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step() -> None:
        assert private is not None  # the data lives as long as its handle
        noisy_gradient(query, model, task.loss, l2_bound=1.0)
        optimizer.step()

    return step


def reference(task: Task, model: nn.Module, batch: int) -> Step:
    gradient_step.record_layers = lambda *_, **__: None
    return ours(task, model, batch)


def plain(task: Task, model: nn.Module, batch: int) -> Step:
    inputs, targets = task.data(batch)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step() -> None:
        optimizer.zero_grad()
        task.criterion(model(*inputs), targets).backward()
        optimizer.step()

    return step


def opacus_hooks(task: Task, model: nn.Module, batch: int) -> Step:
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    inputs, targets = task.data(batch)
    wrapped, inner = GradSampleModule(model), torch.optim.SGD(model.parameters(), 0.1)
    optimizer = DPOptimizer(inner, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=len(targets))

    def step() -> None:
        optimizer.zero_grad()
        task.criterion(wrapped(*inputs), targets).backward()
        optimizer.step()

    return step


def opacus_ghost(task: Task, model: nn.Module, batch: int) -> Step:
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    inputs, targets = task.data(batch)
    wrapped = GradSampleModuleFastGradientClipping(model, max_grad_norm=1.0, use_ghost_clipping=True)
    inner, bounds = torch.optim.SGD(model.parameters(), 0.1), {"noise_multiplier": 1.0, "max_grad_norm": 1.0}
    optimizer = DPOptimizerFastGradientClipping(inner, **bounds, expected_batch_size=len(targets))
    criterion = DPLossFastGradientClipping(wrapped, optimizer, task.criterion)

    def step() -> None:
        optimizer.zero_grad()
        criterion(wrapped(*inputs), targets).backward()
        optimizer.step()

    return step


CONTENDERS: dict[str, Callable[[Task, nn.Module, int], Step]] = {
    "ours": ours,
    "ours, reference": reference,
    "Opacus hooks": opacus_hooks,
    "Opacus ghost": opacus_ghost,
    "not private": plain,
}


def held(what: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if what in line) / 1024


def cell(contender: str, name: str, *, quick: bool, threads: int) -> dict[str, object]:
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    task = TASKS[name]
    CONTENDERS[contender](task, task.model(), 4)()  # loads what is loaded once
    step = CONTENDERS[contender](task, task.model(), task.batch)
    before = held("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    seconds = []
    for _ in range(2 + (task.steps // 4 if quick else task.steps)):
        started, worked = time.perf_counter(), time.process_time()
        step()
        seconds.append((time.perf_counter() - started, time.process_time() - worked))
    return {"seconds": seconds[2:], "peak_mb": held("VmHWM") - before}


def measured(name: str, asked: argparse.Namespace) -> dict[str, dict[str, float]]:
    found: dict[str, list[dict[str, object]]] = {contender: [] for contender in CONTENDERS}
    options = ["--threads", str(asked.threads), *(["--quick"] if asked.quick else [])]
    for _ in range(1 if asked.quick else asked.repeats):
        for contender in CONTENDERS:
            command = [sys.executable, __file__, "--cell", contender, name, *options]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found[contender].append(json.loads(done.stdout))
    table = {}
    for contender, cells in found.items():
        wall, work = zip(*(s for c in cells for s in c["seconds"]), strict=True)
        table[contender] = {
            "least_ms": 1000 * min(wall),
            "median_ms": 1000 * statistics.median(wall),
            "cpu_ms": 1000 * min(work),
            "peak_mb": min(c["peak_mb"] for c in cells),
        }
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--models", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cell", nargs=2)
    asked = parser.parse_args()
    if asked.cell:
        print(json.dumps(cell(*asked.cell, quick=asked.quick, threads=asked.threads)))
        return
    tables = {}
    print("| model, batch | contender | least ms | median ms | CPU ms | CPU ratio | peak MB | memory ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for name in asked.models:
        tables[name] = table = measured(name, asked)
        floor = table["not private"]
        for contender, row in table.items():
            ratios = [f"{row[what] / floor[what]:.2f}" for what in ("cpu_ms", "peak_mb")]
            times = [f"{row[what]:.1f}" for what in ("least_ms", "median_ms", "cpu_ms")]
            batch = " x ".join(str(n) for n in (TASKS[name].batch, TASKS[name].versions) if n > 1)
            line = [f"{name}, {batch}", contender, *times, ratios[0], f"{row['peak_mb']:.0f}", ratios[1]]
            print(f"| {' | '.join(line)} |", flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(tables, indent=2))


if __name__ == "__main__":
    main()

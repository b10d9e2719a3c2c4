"""One DP-SGD step, whole: batch, gradients, clipping, noise, update; beside Opacus and beside training without privacy.

Run: python benchmarks/dpsgd.py [--quick] [--threads 2] [--json FILE]. Every contender is a process of its own; all of
them take turns, several times, and the least and the median time of a step are printed, and the least processor time,
which is what can be trusted with one thread on a machine that others use too (ratios are of that). Memory is the peak
above what the process held after its first small step. The batch is drawn at rate 0.999 from just enough records, so
that all steps of ours are of the same size as theirs. Opacus comes with `pip install --no-deps opacus opt_einsum`.
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
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.networks.resnet import ResNet
from sfumato.privacy import Budget, GaussianSum, Ledger, PrivateImages, noisy_gradient
from sfumato.privacy.gradients import step as gradient_step
from sfumato.values import Spec

Step = Callable[[], object]
RATE = 0.999


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


def head() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3969, 10))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, int, int], int, int]] = {
    "small CNN": (small_cnn, (1, 28, 28), 256, 20),  # model, record, batch, steps
    "ResNet18-GN": (resnet18, (1, 28, 28), 128, 5),
    "linear head": (head, (81, 7, 7), 1800, 20),
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


def loss(call: Callable[..., Tensor], image: Tensor, label: Tensor) -> Tensor:
    return F.cross_entropy(call(image[None]), label[None])


def ours(model: nn.Module, shape: tuple[int, int, int], batch: int) -> Step:
    private = PrivateImages.seal(Random(math.ceil(batch / RATE), shape), Ledger(Budget(math.inf, 1e-5)))
    handle = private.mapped(lambda x: x) if shape[0] > 3 else private  # a head reads stored features
    query = handle.open(GaussianSum(rounds=100_000, sampling=RATE, noise_multiplier=1.0), purpose="benchmark")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step() -> None:
        assert private is not None  # the data lives as long as its handle
        noisy_gradient(query, model, loss, l2_bound=1.0)
        optimizer.step()

    return step


def reference(model: nn.Module, shape: tuple[int, int, int], batch: int) -> Step:
    gradient_step.record_layers = lambda *_: None
    return ours(model, shape, batch)


def data(shape: tuple[int, int, int], batch: int) -> tuple[Tensor, Tensor]:
    return torch.rand(batch, *shape), torch.randint(10, (batch,))


def plain(model: nn.Module, shape: tuple[int, int, int], batch: int) -> Step:
    images, labels = data(shape, batch)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def opacus_hooks(model: nn.Module, shape: tuple[int, int, int], batch: int) -> Step:
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    images, labels = data(shape, batch)
    wrapped, inner = GradSampleModule(model), torch.optim.SGD(model.parameters(), 0.1)
    optimizer = DPOptimizer(inner, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=batch)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(wrapped(images), labels).backward()
        optimizer.step()

    return step


def opacus_ghost(model: nn.Module, shape: tuple[int, int, int], batch: int) -> Step:
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    images, labels = data(shape, batch)
    wrapped = GradSampleModuleFastGradientClipping(model, max_grad_norm=1.0, use_ghost_clipping=True)
    inner, bounds = torch.optim.SGD(model.parameters(), 0.1), {"noise_multiplier": 1.0, "max_grad_norm": 1.0}
    optimizer = DPOptimizerFastGradientClipping(inner, **bounds, expected_batch_size=batch)
    criterion = DPLossFastGradientClipping(wrapped, optimizer, nn.CrossEntropyLoss())

    def step() -> None:
        optimizer.zero_grad()
        criterion(wrapped(images), labels).backward()
        optimizer.step()

    return step


CONTENDERS: dict[str, Callable[[nn.Module, tuple[int, int, int], int], Step]] = {
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
    make, shape, batch, steps = MODELS[name]
    CONTENDERS[contender](make(), shape, 4)()  # loads what is loaded once
    step = CONTENDERS[contender](make(), shape, batch)
    before = held("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    seconds = []
    for _ in range(2 + (steps // 4 if quick else steps)):
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
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
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
            line = [f"{name}, {MODELS[name][2]}", contender, *times, ratios[0], f"{row['peak_mb']:.0f}", ratios[1]]
            print(f"| {' | '.join(line)} |", flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(tables, indent=2))


if __name__ == "__main__":
    main()

"""The one-pass sum over shards at growing size: time, peak memory, and what a billion images would take.

Run: python benchmarks/scale.py [--rows 60000 600000 6000000] [--workers 1 2] [--frequencies 50] [--out FILE.json].
The records are synthetic 28 x 28 images in ten classes, made anew by whoever reads them; the question is DP-MERF's mean
embedding of each class by so many frequencies. Each count of workers is a Ray cluster of its own with one core each.
The peer is the same sum in this process without Ray, on one thread, over the smallest count of rows.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import math
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sfumato.privacy import Budget, GaussianSum, Ledger, PrivateImages, RayCrew
from sfumato.synthesis.fourier_embedding import features
from sfumato.values import Spec

CHUNK = 5_000
CLASSES = tuple("0123456789")
BILLION = 1_000_000_000


class Synthetic:
    """So many records, made from the shard's number; a source like any other."""

    name = "synthetic"

    def __init__(self, number: int, count: int) -> None:
        self._number, self.spec = number, Spec(count, 1, 28, 28, CLASSES)

    def chunks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, self.spec.count, CHUNK):
            rng, size = np.random.default_rng((self._number, start)), min(CHUNK, self.spec.count - start)
            made = np.frombuffer(rng.bytes(size * 784), np.uint8).reshape(size, 1, 28, 28)
            yield made, rng.integers(0, len(CLASSES), size)


def shards(rows: int, size: int) -> list[Any]:
    sizes = [min(size, rows - start) for start in range(0, rows, size)]
    return [functools.partial(Synthetic, number, count) for number, count in enumerate(sizes)]


def asked(private: PrivateImages, frequencies: int) -> torch.Tensor:
    """The noisy mean embedding of each class: one charge, one pass."""
    omega = torch.randn(frequencies, 784, generator=torch.Generator().manual_seed(0)) / 8
    (mechanism,) = private.ledger.calibrate(GaussianSum(rounds=1))
    query = private.open(mechanism, purpose="mean embedding of each class")
    return query.per_class(lambda image, label: features(image.flatten(), omega), l2_bound=1.0)


def ledger() -> Ledger:
    return Ledger(Budget(1.0, 1e-10))


class Watch(threading.Thread):
    """The largest resident sizes that this process and Ray's workers reach, in MB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peaks: dict[str, float] = {}
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.2):
            for folder in Path("/proc").glob("[0-9]*"):
                try:
                    told = (folder / "status").read_text()
                except OSError:  # it has just ended
                    continue
                if told.startswith("Name:\tray::_sum") or folder.name == str(os.getpid()):
                    resident = next((int(line.split()[1]) for line in told.splitlines() if line.startswith("VmRSS")), 0)
                    self.peaks[folder.name] = max(self.peaks.get(folder.name, 0.0), resident / 1024)

    def stop(self) -> dict[str, float]:
        self._over.set()
        self.join()
        driver = self.peaks.pop(str(os.getpid()), 0.0)
        return {"driver_mb": driver, "largest_worker_mb": max(self.peaks.values(), default=0.0)}


def with_ray(rows: int, workers: int, frequencies: int, size: int) -> dict[str, Any]:
    crew = RayCrew(shards(rows, size), workers=workers)
    warm_up(workers)
    watch = Watch()
    watch.start()
    private = PrivateImages.seal(crew, ledger())
    started = time.perf_counter()
    answer = asked(private, frequencies)
    seconds = time.perf_counter() - started
    memory = watch.stop()
    private.close()
    assert torch.isfinite(answer).all()
    return {"rows": rows, "workers": workers, "seconds": seconds, "rows_per_second": rows / seconds, **memory}


def warm_up(workers: int) -> None:
    """Workers start and import torch before the clock does."""
    import ray

    def ready() -> None:
        importlib.import_module("sfumato.privacy.ray_crew")
        time.sleep(2)  # so that each worker gets one

    ray.get([ray.remote(num_cpus=1)(ready).remote() for _ in range(workers)])


def alone(rows: int, frequencies: int) -> float:
    """Rows in a second without Ray, on one thread."""
    torch.set_num_threads(1)
    asked(PrivateImages.seal(Synthetic(0, 16), ledger()), frequencies)  # calibration is remembered, torch is warm
    private = PrivateImages.seal(Synthetic(0, rows), ledger())
    started = time.perf_counter()
    asked(private, frequencies)
    seconds = time.perf_counter() - started
    private.close()
    return rows / seconds


def line(cell: dict[str, Any], peer: float) -> str:
    speed = cell["rows_per_second"]
    told = (
        f"{cell['rows']:,}",
        cell["workers"],
        f"{cell['seconds']:.1f}",
        f"{speed:,.0f}",
        f"{speed / peer:.2f}",
        f"{cell['largest_worker_mb']:.0f}",
        f"{cell['driver_mb']:.0f}",
    )
    return f"| {' | '.join(map(str, told))} |"


def billion(cells: list[dict[str, Any]]) -> str:
    """By the largest run with the most workers, and under which assumptions."""
    best = max(cells, key=lambda cell: (cell["rows"], cell["workers"]))
    each = best["rows_per_second"] / best["workers"]
    hours = BILLION / each / 3600
    return (
        f"A billion images at {each:,.0f} rows a second and core: {hours:.1f} core hours, {hours / 64 * 60:.0f} min "
        "on 64 cores.\nAssumed: time goes as rows (compare the lines above), cores do not slow each other down, shards "
        f"are read as fast as they are made here ({each * 784 / 1e6:.0f} MB/s and core), no worker is lost.\nMemory "
        f"does not grow with rows. A sum is exact below 2^53 steps of the lattice; a billion rows of 2^20 steps need "
        f"{math.log2(BILLION) + 20:.1f} bits."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[60_000, 600_000, 6_000_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--frequencies", type=int, default=50)
    parser.add_argument("--shard", type=int, default=50_000, help="records of each shard")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    peer = alone(min(options.rows), options.frequencies)
    print(f"Without Ray, one thread: {peer:,.0f} rows a second.\n")
    print("| rows | workers | seconds | rows/s | against one thread without Ray | largest worker, MB | driver, MB |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    cells = []
    for workers in options.workers:
        for rows in options.rows:
            size = min(options.shard, -(-rows // (4 * workers)))  # enough shards to keep all busy to the end
            cells.append(with_ray(rows, workers, options.frequencies, size))
            print(line(cells[-1], peer), flush=True)
    print(f"\n{billion(cells)}")
    if options.out:
        options.out.write_text(json.dumps({"peer_rows_per_second": peer, "cells": cells}, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()

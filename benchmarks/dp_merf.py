"""DP-MERF's one question over 10k, 60k and 600k rows: time and peak memory, beside a plain pass without privacy.

The peer does the same arithmetic in plain torch with all images in memory: no sealing, no clipping, no lattice,
no noise. Run: python benchmarks/dp_merf.py [--rows 10000 60000 600000] [--json FILE]. Every cell is a process of
its own; the two of a row run one after the other.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from sfumato.contracts import find
from sfumato.privacy import Budget, GaussianSum, Ledger, PrivateImages
from sfumato.values import Spec

FREQUENCIES = 2000
CHUNK = 2000


class Procedural:
    """28x28 images made on the fly, so that the source itself needs no memory."""

    name = "procedural"

    def __init__(self, rows: int) -> None:
        self.spec = Spec(rows, 1, 28, 28, tuple(str(c) for c in range(10)))

    def chunks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, self.spec.count, CHUNK):
            size = min(CHUNK, self.spec.count - start)
            rng = np.random.default_rng(start)
            yield rng.integers(0, 256, (size, 1, 28, 28), dtype=np.uint8), rng.integers(0, 10, size)


def row_function() -> object:
    """The features of the product's own DP-MERF."""
    from sfumato.synthesis.fourier_embedding import features

    omega = torch.randn(FREQUENCIES, 784, generator=torch.Generator().manual_seed(0)) / math.sqrt(784 * 0.05)
    return lambda image, label: features(image.flatten(), omega)


def ours(rows: int) -> None:
    source = Procedural(rows)
    ledger = Ledger(Budget.of(1.0, count=rows))
    with tempfile.TemporaryDirectory() as folder:
        private = PrivateImages.seal(source, ledger, folder=Path(folder))
        (mechanism,) = ledger.calibrate(GaussianSum())
        private.open(mechanism, purpose="benchmark").per_class(row_function(), l2_bound=1.0)
        private.close()


def plain(rows: int) -> None:
    parts = list(Procedural(rows).chunks())
    pixels, labels = np.concatenate([p for p, _ in parts]), np.concatenate([y for _, y in parts])
    row = torch.func.vmap(row_function())
    total = torch.zeros(10, 2 * FREQUENCIES)
    for start in range(0, rows, 4096):
        batch = torch.from_numpy(pixels[start : start + 4096]).float() / 255
        chosen = torch.from_numpy(labels[start : start + 4096])
        total.index_add_(0, chosen, row(batch, chosen))


def measured(kind: str, rows: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--cell", kind, "--rows", str(rows)]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def cell(kind: str, rows: int) -> None:
    find("methods", "dp-merf")  # imports before the clock starts
    started = time.perf_counter()
    {"ours": ours, "plain": plain}[kind](rows)
    seconds = time.perf_counter() - started
    peak = next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    print(json.dumps({"seconds": seconds, "peak_mb": peak / 1024}))


def growth(table: list[dict[str, float]], what: str) -> float:
    """The exponent p in cost ~ rows^p between the smallest and the largest run."""
    first, last = table[0], table[-1]
    return math.log(last[what] / first[what]) / math.log(last["rows"] / first["rows"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 60_000, 600_000])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--cell", choices=["ours", "plain"])
    asked = parser.parse_args()
    if asked.cell:
        cell(asked.cell, asked.rows[0])
        return
    table = []
    print("    rows |  ours s | plain s | time ratio | ours MB | plain MB | memory ratio")
    for rows in asked.rows:
        a, b = measured("ours", rows), measured("plain", rows)
        table.append({"rows": rows, **a, "plain_seconds": b["seconds"], "plain_mb": b["peak_mb"]})
        time_ratio, memory_ratio = a["seconds"] / b["seconds"], a["peak_mb"] / b["peak_mb"]
        print(f"{rows:8d} | {a['seconds']:7.1f} | {b['seconds']:7.1f} | {time_ratio:10.2f} | ", end="")
        print(f"{a['peak_mb']:7.0f} | {b['peak_mb']:8.0f} | {memory_ratio:12.2f}", flush=True)
    if len(table) > 1:
        print(f"growth: time ~ rows^{growth(table, 'seconds'):.2f}, peak memory ~ rows^{growth(table, 'peak_mb'):.2f}")
    if asked.json:
        asked.json.write_text(json.dumps(table, indent=2))


if __name__ == "__main__":
    main()

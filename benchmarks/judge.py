"""The judge's arithmetic beside peers that compute the same numbers from the same features; and the default panel.

Peers: torchmetrics (FID, KID) with an extractor that hands features through, and prdc (precision, recall, density,
coverage). Time as a ratio in one process, one after the other, after a warm-up; the values are printed so that
one sees that both computed the same. With --release R --real DATA the default panel is run as well, and its time
by metric and the peak memory of the process are shown.

Run: python benchmarks/judge.py [--images 5000] [--release R --real DATA] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import resource
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sfumato.contracts import Reading
from sfumato.errors import NotApplicable
from sfumato.judging.evaluate import panel_of
from sfumato.judging.reference import reference_for
from sfumato.release import read_release
from sfumato.statistics.gaussians import frechet_distance
from sfumato.statistics.neighbours import kernel_distance, overlap

DIMENSIONS = 1280  # of EfficientNet-Lite0
NEAREST = 5


class AsFeatures(nn.Module):
    """The images are features already."""

    num_features = DIMENSIONS

    def forward(self, rows: Tensor) -> Tensor:
        return rows


def features(images: int, seed: int) -> Tensor:
    """Correlated and positive, as pooled features are."""
    draw = torch.Generator().manual_seed(seed)
    mixing = torch.randn(DIMENSIONS, DIMENSIONS, generator=torch.Generator().manual_seed(9)) / DIMENSIONS**0.5
    return (torch.randn(images, DIMENSIONS, generator=draw) @ mixing + 0.1 * seed).relu()


def measured(work: Callable[[], float]) -> tuple[float, float]:
    """A value and its seconds, the second time."""
    work()
    began = time.perf_counter()
    value = work()
    return value, time.perf_counter() - began


def torchmetrics_value(kind: str, ours: Tensor, theirs: Tensor) -> Callable[[], float]:
    from torchmetrics.image.fid import FrechetInceptionDistance
    from torchmetrics.image.kid import KernelInceptionDistance

    def work() -> float:
        if kind == "fid":
            metric = FrechetInceptionDistance(feature=AsFeatures(), input_img_size=(DIMENSIONS,))
        else:
            metric = KernelInceptionDistance(feature=AsFeatures(), subsets=1, subset_size=len(ours))
        for rows, real in ((theirs, True), (ours, False)):
            metric.update(rows, real=real)
        value = metric.compute()
        return float(value if kind == "fid" else value[0])

    return work


def prdc_value(ours: Tensor, theirs: Tensor) -> Callable[[], float]:
    from prdc import compute_prdc

    def work() -> float:
        with contextlib.redirect_stdout(io.StringIO()):
            return float(compute_prdc(theirs.numpy(), ours.numpy(), nearest_k=NEAREST)["coverage"])

    return work


def peers(images: int) -> list[dict[str, Any]]:
    a, b = features(images, 1), features(images, 2)
    pairs: dict[str, tuple[Callable[[], float], Callable[[], float]]] = {
        "FID, torchmetrics": (lambda: frechet_distance(a, b), torchmetrics_value("fid", a, b)),
        "KID, torchmetrics": (lambda: kernel_distance(a, b, subset=images).value, torchmetrics_value("kid", a, b)),
        "coverage and kin, prdc": (
            lambda: overlap(a.clone(), b.clone(), neighbours=NEAREST).covered.double().mean().item(),
            prdc_value(a, b),
        ),
    }
    found = []
    for name, (ours, theirs) in pairs.items():
        (value, seconds), (other, peer) = measured(ours), measured(theirs)
        found.append({"what": name, "ours": value, "peer": other, "ratio": seconds / peer})
        print(f"| {name} | {value:.5g} | {other:.5g} | {seconds / peer:.2f} x |", flush=True)
    return found


def panel(release: Path, real: str) -> dict[str, Any]:
    read = read_release(release)
    reference = reference_for(read, real, Reading())
    seconds = {}
    for name, metric in panel_of("default").items():
        began = time.perf_counter()
        with contextlib.suppress(NotApplicable):
            metric(read.images, reference)
        seconds[name] = time.perf_counter() - began
        print(f"| {name} | {seconds[name]:.0f} s |", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"default panel on {len(read.images):,} images: {sum(seconds.values()) / 60:.1f} min, peak {peak:.0f} MB")
    return {"images": len(read.images), "seconds": seconds, "peak_mb": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--images", type=int, default=5_000)
    parser.add_argument("--release", type=Path)
    parser.add_argument("--real")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{options.images} features of {DIMENSIONS} dimensions on either side, {torch.get_num_threads()} threads")
    print("| what, peer | ours | peer | time, of the peer's |\n|---|---|---|---|")
    result: dict[str, Any] = {"peers": peers(options.images)}
    if options.release is not None:
        print("\n| metric | time |\n|---|---|")
        result["panel"] = panel(options.release, options.real)
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()

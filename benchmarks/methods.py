"""Every method on one data set at one epsilon: time, peak memory and gen2real, and their growth with the records.

Run: python benchmarks/methods.py --real fashion_mnist.npz [--public images.npz] [--epsilon 1] [--sizes 6000 60000]
[--methods dp-merf ...] [--seeds 1] [--out FOLDER]. Each cell is a release made by a process of its own, one after the
other, from the first so many training records; a small CNN that saw nothing but the release is then tested on the
test split, by hard labels and, where the release has them, by logits. Processor time is given beside wall time, for
a busy machine changes it less, and as a ratio to DP-MERF in the same run. With --out the releases and the finished
cells are kept there, and a second run goes on where the first stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.contracts import find, names
from sfumato.data import open_source
from sfumato.judging.student import train_student
from sfumato.privacy import Budget

PEER = "dp-merf"


def subset(real: Path, rows: int, folder: Path) -> Path:
    """The first records of the training split, with the whole test split."""
    path = folder / f"{real.stem}-{rows}.npz"
    if not path.exists():
        with np.load(real) as arrays:
            parts = {key: arrays[key][:rows] if key.endswith("train") else arrays[key] for key in arrays.files}
        np.savez(path, **parts)
    return path


def released(method: str, data: Path, epsilon: float, public: Path | None, out: Path) -> dict[str, float]:
    """Make the release in a process of its own; what it took."""
    program = str(Path(sys.executable).with_name("sfumato"))
    command = [
        program,
        "release",
        str(data),
        "--method",
        method,
        "--epsilon",
        str(epsilon),
        "--out",
        str(out),
        *(["--public", str(public)] if public else []),
    ]
    started = time.perf_counter()
    process = os.posix_spawn(program, command, os.environ)
    _, status, usage = os.wait4(process, 0)
    if status:
        raise SystemExit(f"{method} on {data.name} failed.")
    return {
        "seconds": time.perf_counter() - started,
        "processor": usage.ru_utime + usage.ru_stime,
        "peak_mb": usage.ru_maxrss / 1024,
    }


def judged(out: Path, data: Path, seeds: int) -> dict[str, float | None]:
    from sfumato.release import read_release

    if not seeds:
        return {"labels": None, "logits": None}
    images = read_release(out).images
    soft = images.transfer is not None or images.logits is not None
    by_labels = train_student(out, str(data), seeds=seeds, loss="labels").value
    return {"labels": by_labels, "logits": train_student(out, str(data), seeds=seeds).value if soft else None}


def wants(method: str, data: Path, epsilon: float, public: Path | None) -> Path | None:
    """The public images, for a method that cannot do without."""
    spec = open_source(str(data)).spec
    needs = find("methods", method).for_task(spec, Budget.of(epsilon, count=spec.count)).public_images == "needed"
    if needs and public is None:
        raise SystemExit(f"{method} needs --public images; name some, or leave it out with --methods.")
    return public if needs else None


def line(cell: dict[str, Any], peer: dict[str, Any] | None) -> str:
    ratio = f"{cell['processor'] / peer['processor']:.2f}" if peer else ""
    public = "yes" if cell["public"] else ""
    hard, soft = ("" if cell[by] is None else f"{100 * cell[by]:.1f}" for by in ("labels", "logits"))
    return (
        f"| {cell['method']} | {cell['rows']} | {cell['seconds']:.0f} | {cell['processor']:.0f} | {ratio} "
        f"| {cell['peak_mb']:.0f} | {hard} | {soft} | {public} |"
    )


def growth(cells: list[dict[str, Any]], method: str) -> str:
    own = sorted((c for c in cells if c["method"] == method), key=lambda c: int(c["rows"]))
    if len(own) < 2:
        return ""
    rows = math.log(own[-1]["rows"] / own[0]["rows"])
    time_power, memory_power = (math.log(own[-1][what] / own[0][what]) / rows for what in ("processor", "peak_mb"))
    return f"{method}: processor time ~ rows^{time_power:.2f}, peak memory ~ rows^{memory_power:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", type=Path, required=True)
    parser.add_argument("--public", type=Path)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--sizes", type=int, nargs="+", default=[6_000, 60_000])
    parser.add_argument("--methods", nargs="+", default=sorted(names("methods"), key=lambda name: name != PEER))
    parser.add_argument("--seeds", type=int, default=1, help="students of each release; 0: time and memory alone")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    print("| method | records | s | processor s | times dp-merf | MB | by labels, % | by logits, % | public images |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        finished = folder / "cells.json"
        cells: list[dict[str, Any]] = json.loads(finished.read_text()) if finished.exists() else []
        for rows in asked.sizes:
            data = subset(asked.real, rows, folder)
            for method in asked.methods:
                place = {"data": asked.real.stem, "method": method, "rows": rows, "epsilon": asked.epsilon}
                known = [c for c in cells if place.items() <= c.items()]
                if not known:
                    # A folder of its own: a stopped run is not resumed, which would be no time, and its ledger stays.
                    name = f"{data.stem}-{method}-{asked.epsilon:g}-"
                    out = Path(tempfile.mkdtemp(prefix=name, dir=folder)) / "release"
                    public = wants(method, data, asked.epsilon, asked.public)
                    cost = released(method, data, asked.epsilon, public, out)
                    known = [{**place, "public": bool(public), **cost, **judged(out, data, asked.seeds)}]
                    cells += known
                    finished.write_text(json.dumps(cells, indent=2))
                peer = next((c for c in cells if {**place, "method": PEER}.items() <= c.items()), None)
                print(line(known[0], peer), flush=True)
        cells = [c for c in cells if (c["data"], c["epsilon"]) == (asked.real.stem, asked.epsilon)]
    print("\n".join(filter(None, (growth(cells, method) for method in asked.methods))))


if __name__ == "__main__":
    main()

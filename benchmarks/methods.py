"""Every method on one data set at one epsilon: time, peak memory and gen2real, and their growth with the records.

Run: python benchmarks/methods.py --real fashion_mnist.npz [--public images.npz] [--epsilon 1] [--sizes 6000 60000]
[--methods dp-merf "dp-gan drafts=1" ...] [--releases 1] [--count N] [--seeds 1] [--results FILE.jsonl].

A method may be followed by settings. Each release is made by a process of its own, one after the other, from the first
so many training records; a small CNN that saw nothing but the release is then tested on the test split, by hard labels
and, where the release has them, by logits. Means and standard errors are over releases. Processor time is given beside
wall time, for a busy machine changes it less, and as a ratio to DP-MERF in the same run. With --results every finished
release is a line of that file, with its commit, and a second run goes on where the first stopped.
`results/methods.jsonl` has what was measured so far.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
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
Cell = dict[str, Any]


def subset(real: Path, rows: int, folder: Path) -> Path:
    """The first records of the training split, with the whole test split."""
    path = folder / f"{real.stem}-{rows}.npz"
    if not path.exists():
        with np.load(real) as arrays:
            parts = {key: arrays[key][:rows] if key.endswith("train") else arrays[key] for key in arrays.files}
        np.savez(path, **parts)
    return path


def released(method: str, data: Path, epsilon: float, count: int | None, public: Path | None, out: Path) -> Cell:
    """Make the release in a process of its own; what it took."""
    program = str(Path(sys.executable).with_name("sfumato"))
    name, *settings = method.split()
    command = [program, "release", str(data), "--method", name, "--epsilon", str(epsilon), "--out", str(out)]
    command += [part for setting in settings for part in ("--set", setting)]
    command += ["--count", str(count)] if count else []
    command += ["--public", str(public)] if public else []
    started = time.perf_counter()
    process = os.posix_spawn(program, command, os.environ)
    _, status, usage = os.wait4(process, 0)
    if status:
        raise SystemExit(f"{method} on {data.name} failed.")
    return {
        "seconds": round(time.perf_counter() - started, 1),
        "processor": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_mb": round(usage.ru_maxrss / 1024),
    }


def judged(out: Path, data: Path, seeds: int) -> Cell:
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
    found = find("methods", method.split()[0])
    needs = found.for_task(spec, Budget.of(epsilon, count=spec.count)).public_images == "needed"
    if needs and public is None:
        raise SystemExit(f"{method} needs --public images; name some, or leave it out with --methods.")
    return public if needs else None


def commit() -> str:
    asked = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def mean(cells: list[Cell], what: str) -> float:
    return statistics.mean(cell[what] for cell in cells)


def accuracy(cells: list[Cell], by: str) -> str:
    """In percent, with the standard error of the mean where there are several releases."""
    values = [100 * cell[by] for cell in cells if cell[by] is not None]
    if not values:
        return ""
    error = f" +- {statistics.stdev(values) / math.sqrt(len(values)):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{error}"


def line(cells: list[Cell], peers: list[Cell]) -> str:
    first = cells[0]
    ratio = f"{mean(cells, 'processor') / mean(peers, 'processor'):.2f}" if peers else ""
    costs = f"{mean(cells, 'seconds'):.0f} | {mean(cells, 'processor'):.0f} | {ratio} | {mean(cells, 'peak_mb'):.0f}"
    scores = f"{accuracy(cells, 'labels')} | {accuracy(cells, 'logits')} | {'yes' if first['public'] else ''}"
    return f"| {first['method']} | {first['rows']} | {len(cells)} | {costs} | {scores} |"


def growth(cells: list[Cell], method: str) -> str:
    own = [cell for cell in cells if cell["method"] == method]
    sizes = sorted({cell["rows"] for cell in own})
    if len(sizes) < 2:
        return ""
    few, many = ([cell for cell in own if cell["rows"] == rows] for rows in (sizes[0], sizes[-1]))
    powers = [
        math.log(mean(many, what) / mean(few, what)) / math.log(sizes[-1] / sizes[0])
        for what in ("processor", "peak_mb")
    ]
    return f"{method}: processor time ~ rows^{powers[0]:.2f}, peak memory ~ rows^{powers[1]:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", type=Path, required=True)
    parser.add_argument("--public", type=Path)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--sizes", type=int, nargs="+", default=[6_000, 60_000])
    parser.add_argument("--methods", nargs="+", default=sorted(names("methods"), key=lambda name: name != PEER))
    parser.add_argument("--releases", type=int, default=1)
    parser.add_argument("--count", type=int, help="images of a release; default: as many as records")
    parser.add_argument("--seeds", type=int, default=1, help="students of each release; 0: time and memory alone")
    parser.add_argument("--results", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        results = asked.results or folder / "results.jsonl"
        results.touch()
        for number in range(asked.releases):
            for rows in asked.sizes:
                data = subset(asked.real, rows, folder)
                for method in asked.methods:
                    place = {
                        "data": asked.real.stem,
                        "method": method,
                        "rows": rows,
                        "epsilon": asked.epsilon,
                        "count": asked.count or rows,
                        "release": number,
                    }
                    if any(place.items() <= cell.items() for cell in read(results)):
                        continue
                    out = Path(tempfile.mkdtemp(dir=folder)) / "release"
                    public = wants(method, data, asked.epsilon, asked.public)
                    cost = released(method, data, asked.epsilon, asked.count, public, out)
                    cell = {
                        **place,
                        "public": bool(public),
                        **cost,
                        **judged(out, data, asked.seeds),
                        "commit": commit(),
                    }
                    with results.open("a") as file:
                        file.write(json.dumps(cell) + "\n")
                    shutil.rmtree(out.parent)
        wanted = {"data": asked.real.stem, "epsilon": asked.epsilon}
        cells = [cell for cell in read(results) if wanted.items() <= cell.items() and cell["method"] in asked.methods]
    print(
        "| method | records | releases | s | processor s | times dp-merf | MB | by labels, % | by logits, % | public |"
    )
    print("|---" * 10 + "|")
    for rows in asked.sizes:
        of_size = [cell for cell in cells if cell["rows"] == rows]
        peers = [cell for cell in of_size if cell["method"] == PEER]
        for method in asked.methods:
            own = [cell for cell in of_size if cell["method"] == method]
            if own:
                print(line(own, peers))
    print("\n".join(filter(None, (growth(cells, method) for method in asked.methods))))


def read(results: Path) -> list[Cell]:
    return [json.loads(row) for row in results.read_text("utf-8").splitlines()]


if __name__ == "__main__":
    main()

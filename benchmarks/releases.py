"""What releases are worth: means over several releases, judged on a test split.

Run: python benchmarks/releases.py RESULTS.jsonl DATA... --epsilon 1,10 --releases 3 [--network efficientnet-lite0]

DATA is an npz with a test split, or the name of a data set; anything else that Sfumato reads is split 80 / 20 (with
--size and --label) into an npz beside the results first. Every release is made and judged by the commands that are
printed, added to the results as one line, and removed; a run that was stopped goes on where it was. The table at the
end has mean and standard error over the releases, and in brackets their number, for each kind of student (--students):
a small CNN on the released logits, the same on the labels of the class images alone or of all images, the linear
student on the fixed features of this package, and with a public network the linear student on its features. With
--forecast these means are what `sfumato plan` tells people to expect.

`results/releases.jsonl` has what was measured so far, each line with its commit. Lines differ in the version of the
default: those before 5a63313 drew images in another order; with a network they did not ask for class images, which get
a fifth of the budget now (the network's teacher had the same share); and MNIST at epsilon 0.2 had 34 % of the budget
for mixtures, where it would have 30 % now.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from sfumato import data
from sfumato.contracts import Reading
from sfumato.making.forecast import STUDENTS as FORECAST
from sfumato.making.forecast import TABLE

COSTS = {"seconds": "s", "gigabytes": "GB"}
NAMES = {  # as people are told
    "cifar10_20k": "CIFAR-10",
    "faces_utk128_gender_64": "faces by gender",
    "fashion_mnist": "FashionMNIST",
    "mnist": "MNIST",
}
FACTS = ("data", "colour", "records", "classes")
STUDENTS = {
    "logits": [],
    "labels": ["--loss", "labels"],
    "all": ["--subset", "all"],
    "fixed": ["--arch", "fixed-features"],
    "features": ["--arch", "features"],
}


def split(where: str, size: int | None, label: str | None, folder: Path) -> Path:
    """The data as an npz with a test split, made once; a data set that is known by its name has one."""
    if where.endswith(".npz") or not Path(where).exists():
        return Path(where)
    target = folder / f"{Path(where).stem}_{label or 'classes'}_{size or 'full'}.npz"
    if not target.exists():
        images = data.load(where, Reading(size=size, label=label))
        pixels, labels = images.pixels.permute(0, 2, 3, 1).numpy(), images.labels.numpy()
        order = np.random.default_rng(0).permutation(len(labels))
        train, test = order[: int(0.8 * len(order))], order[int(0.8 * len(order)) :]
        arrays = {"x_train": pixels[train], "y_train": labels[train], "x_test": pixels[test], "y_test": labels[test]}
        np.savez(target, **arrays)
    return target


def run(*arguments: str) -> tuple[str, float, float]:
    """Run a command; its output, its seconds of processor time, and the most memory that it had, in GB."""
    print("$ sfumato", *arguments, flush=True)
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        command = [str(Path(sys.executable).with_name("sfumato")), *arguments]
        process = subprocess.Popen(command, stdout=output, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        if process.returncode:
            sys.exit(errors.read())
        return output.read(), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20


def commit() -> str:
    asked = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def measured(file: Path, epsilon: str, network: str | None, students: list[str], arch: str | None) -> dict[str, Any]:
    """One release, judged by these kinds of student, the first three of them with this architecture.

    The images for a public network do not depend on how many others there are, so few are made beside them.
    """
    more = [] if network is None else ["--set", f"network={network}", "--count", "1000"]
    with tempfile.TemporaryDirectory() as folder:
        release = f"{folder}/release"
        _, seconds, memory = run("release", str(file), "--epsilon", epsilon, *more, "--out", release)
        scores = {}
        for kind in students:
            options = STUDENTS[kind] + (["--arch", arch] if arch and "--arch" not in STUDENTS[kind] else [])
            output, _, _ = run("student", release, "--real", str(file), *options, "--seeds", "1", "--json")
            scores[kind] = json.loads(output)["score"]["value"]
        shutil.rmtree(release)
    return {"seconds": round(seconds), "gigabytes": round(memory, 2), **scores, "commit": commit()}


def table(results: Path) -> None:
    """Mean and standard error over the releases of each cell."""
    cells: dict[tuple[Any, ...], dict[str, list[float]]] = {}
    for line in results.read_text("utf-8").splitlines():
        row = json.loads(line)
        found = cells.setdefault((row["data"], row["epsilon"], row["network"] or "none"), {})
        for name in ("release", *STUDENTS, "seconds", "gigabytes"):
            if name in row:
                found.setdefault(name, []).append(row[name])
    print(f"| data | epsilon | network | releases | {' | '.join(STUDENTS)} | processor time | memory |")
    print("|---" * (6 + len(STUDENTS)) + "|")
    for (name, epsilon, network), found in sorted(cells.items()):
        shown = [_percent(found.get(kind)) for kind in STUDENTS]
        costs = [f"{statistics.mean(found[part]):.1f} {unit}" if part in found else "" for part, unit in COSTS.items()]
        print(f"| {name} | {epsilon} | {network} | {len(found['release'])} | {' | '.join([*shown, *costs])} |")


def write_forecast(results: Path) -> None:
    """The means as a table for `sfumato plan`."""
    cells: dict[tuple[Any, ...], list[float]] = {}
    for line in results.read_text("utf-8").splitlines():
        row = json.loads(line)
        for student in FORECAST:
            if student in row:
                facts = (NAMES.get(row["data"], row["data"]), *(row[name] for name in FACTS[1:]))
                cells.setdefault((*facts, row["epsilon"], student), []).append(row[student])
    with TABLE.open("w", encoding="utf-8", newline="") as out:
        lines = csv.writer(out, lineterminator="\n")
        lines.writerow([*FACTS, "epsilon", "student", "accuracy"])
        lines.writerows([*cell, f"{statistics.mean(values):.4f}"] for cell, values in sorted(cells.items()))


def facts(file: Path) -> dict[str, Any]:
    """What is public of a data set."""
    spec = data.open_source(str(file), Reading()).spec
    colour = "yes" if spec.channels == 3 else "no"
    return {"data": file.stem, "colour": colour, "records": spec.count, "classes": len(spec.classes)}


def _percent(values: list[float] | None) -> str:
    if values is None:
        return ""
    error = f" +- {100 * statistics.stdev(values) / math.sqrt(len(values)):.2f}" if len(values) > 1 else ""
    return f"{100 * statistics.mean(values):.2f}{error} % ({len(values)})"


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("results", type=Path)
    reader.add_argument("data", nargs="*")
    reader.add_argument("--epsilon", default="1,10")
    reader.add_argument("--releases", type=int, default=3)
    reader.add_argument("--network")
    reader.add_argument("--arch", help="in place of the small CNN")
    reader.add_argument("--students", help="kinds, with commas; default: logits,labels,fixed, or features")
    reader.add_argument("--forecast", action="store_true", help="write the table of `sfumato plan`")
    reader.add_argument("--size", type=int)
    reader.add_argument("--label")
    asked = reader.parse_args()
    students = (asked.students or ("features" if asked.network else "logits,labels,fixed")).split(",")
    asked.results.touch()
    for number in range(asked.releases):
        for where in asked.data:
            file = split(where, asked.size, asked.label, asked.results.absolute().parent)
            for epsilon in asked.epsilon.split(","):
                cell = {**facts(file), "epsilon": epsilon, "network": asked.network, "release": number}
                lines = [json.loads(line) for line in asked.results.read_text("utf-8").splitlines()]
                if any(all(line[name] == value for name, value in cell.items()) for line in lines):
                    continue
                row = json.dumps({**cell, **measured(file, epsilon, asked.network, students, asked.arch)})
                with asked.results.open("a") as out:
                    out.write(row + "\n")
                    out.flush()
                    os.fsync(out.fileno())
    table(asked.results)
    if asked.forecast:
        write_forecast(asked.results)


if __name__ == "__main__":
    main()

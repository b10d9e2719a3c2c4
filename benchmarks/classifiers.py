"""What released classifiers are worth: accuracy on a test split, mean over several trainings.

Run: python benchmarks/classifiers.py OUT.jsonl DATA... --epsilon 1,8 [--trainings 3] [-- OPTIONS of `sfumato train`]

DATA is anything with a test split that Sfumato reads. Every classifier is trained and judged by the commands that are
printed, added to the results as one line with its commit, and removed; a run that was stopped goes on where it was.
`results/classifiers.jsonl` has what was measured so far.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from releases import commit, run


def measured(data: str, epsilon: str, options: list[str]) -> dict[str, Any]:
    """One classifier: its accuracy, and what its training took."""
    with tempfile.TemporaryDirectory() as folder:
        model = f"{folder}/model"
        _, seconds, memory = run("train", data, "--epsilon", epsilon, *options, "--out", model)
        output, _, _ = run("evaluate", model, "--real", data, "--metric", "accuracy", "--json")
    accuracy = json.loads(output)["scores"][0]["value"]
    return {"accuracy": accuracy, "seconds": round(seconds), "gigabytes": round(memory, 2), "commit": commit()}


def table(results: Path) -> None:
    cells: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for line in results.read_text("utf-8").splitlines():
        row = json.loads(line)
        cells.setdefault((row["data"], row["epsilon"], row["options"]), []).append(row)
    print("| data | epsilon | options | trainings | accuracy | processor time | memory |")
    print("|---" * 7 + "|")
    for (data, epsilon, options), rows in sorted(cells.items()):
        values = [row["accuracy"] for row in rows]
        error = f" +- {100 * statistics.stdev(values) / math.sqrt(len(values)):.2f}" if len(values) > 1 else ""
        costs = [f"{statistics.mean(row[part] for row in rows):.1f}" for part in ("seconds", "gigabytes")]
        accuracy = f"{100 * statistics.mean(values):.2f}{error} %"
        print(f"| {data} | {epsilon} | {options} | {len(rows)} | {accuracy} | {costs[0]} s | {costs[1]} GB |")


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("results", type=Path)
    reader.add_argument("data", nargs="*")
    reader.add_argument("--epsilon", default="1")
    reader.add_argument("--trainings", type=int, default=3)
    written = sys.argv[1:]
    own, options = (
        (written[: written.index("--")], written[written.index("--") + 1 :]) if "--" in written else (written, [])
    )
    asked = reader.parse_args(own)
    asked.results.touch()
    for number in range(asked.trainings):
        for data in asked.data:
            for epsilon in asked.epsilon.split(","):
                cell = {"data": Path(data).stem, "epsilon": epsilon, "options": " ".join(options), "training": number}
                lines = [json.loads(line) for line in asked.results.read_text("utf-8").splitlines()]
                if any(all(line[name] == value for name, value in cell.items()) for line in lines):
                    continue
                row = json.dumps({**cell, **measured(data, epsilon, options)})
                with asked.results.open("a") as out:
                    out.write(row + "\n")
                    out.flush()
                    os.fsync(out.fileno())
    table(asked.results)


if __name__ == "__main__":
    main()

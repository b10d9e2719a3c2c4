"""How long the pages of a store take, and whether ten times the cells take ten times as long.

The cells are made up, as for the tests; their files are read and their pages written as ever. Time of the processor
and by the clock, in one process, after a warm-up: on a busy machine believe the processor's.

Run: python benchmarks/report.py [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from sfumato.report.site import write_site

# in place of this folder, where `report` would be this file
sys.path[0] = str(Path(__file__).resolve().parents[1] / "tests")
from report.fabricated import METHODS, fabricate  # noqa: E402

SIZES = (100, 1000)
EPSILONS = (1.0, 10.0)


def rendered(cells: int, folder: Path) -> dict[str, float]:
    """The pages of a store of so many cells, all lines of their own."""
    kinds = len(METHODS[:2]) * len(EPSILONS)
    settings = [{"steps": str(number)} for number in range(cells // kinds)]
    made = fabricate(folder / "runs", methods=METHODS[:2], epsilons=EPSILONS, settings=settings, repeats=1)
    began, worked = time.perf_counter(), time.process_time()
    index = write_site(folder / "runs", folder / "site")
    took = {"processor_seconds": time.process_time() - worked, "seconds": time.perf_counter() - began}
    size = sum(file.stat().st_size for file in index.parent.rglob("*") if file.is_file())
    return {"cells": len(made), **took, "index_mb": index.stat().st_size / 1e6, "site_mb": size / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    figures = []
    for cells in (4, *SIZES):
        with tempfile.TemporaryDirectory(prefix="sfumato-report-") as folder:
            figures.append(rendered(cells, Path(folder)))
    few, many = figures[1:]  # the first one was the warm-up
    for told in (few, many):
        took = f"{told['processor_seconds']:6.2f} s of the processor  {told['seconds']:6.2f} s by the clock"
        print(f"{told['cells']:5.0f} cells  {took}  index {told['index_mb']:.2f} MB  site {told['site_mb']:.1f} MB")
    ratio = many["processor_seconds"] / few["processor_seconds"]
    print(f"{many['cells'] / few['cells']:.0f} times the cells take {ratio:.1f} times as long")
    if options.json:
        options.json.write_text(json.dumps({"figures": [few, many], "ratio": ratio}, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()

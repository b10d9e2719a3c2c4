"""Stores for tests of the report: many cells with valid files in little time, around one release that is real."""

from __future__ import annotations

import itertools
import json
import random
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from release.making import make_certificate, make_images
from sfumato.lab.store import Store, Stored
from sfumato.release import write_release

EPSILONS = (0.2, 1.0, 10.0)
METHODS = ("dp-merf", "dp-hp", "p3gm")


def fabricate(
    store: Path,
    *,
    data: Sequence[str] = ("digits",),
    methods: Sequence[str] = METHODS,
    epsilons: Sequence[float] = EPSILONS,
    publics: Sequence[str] = ("",),
    settings: Iterable[dict[str, str]] = ({},),
    repeats: int = 2,
    seed: int = 0,
) -> list[Stored]:
    """Cells of the whole product, with scores that grow with epsilon; the releases are copies of one."""
    images = make_images()
    mould = write_release(store.with_name(store.name + "-mould"), images, make_certificate(images))
    draw, made = random.Random(seed), []
    for name, method, epsilon, public, given, repeat in itertools.product(
        data, methods, epsilons, publics, settings, range(repeats)
    ):
        inputs: dict[str, Any] = {
            "method": method,
            "data": name,
            "public": public,
            "epsilon": epsilon,
            "delta": 1e-5,
            "count": 40,
            "size": None,
            "mode": None,
            "repeat": repeat,
            "data_content": f"sfumato's {name}",
            "public_content": public,
            "settings": {**given, "seed": str(repeat)} if repeat else given,
            "reading": {"size": None},
            "sfumato": "0.1.0",
        }
        stored = Store(store).cell(inputs)
        copy_release(mould, stored)
        accuracy = min(0.95, 0.3 + 0.1 * methods.index(method) + 0.04 * min(epsilon, 10) + draw.uniform(0, 0.1))
        judge(stored, accuracy, draw)
        made.append(stored)
    return made


def copy_release(mould: Path, stored: Stored) -> None:
    stored.release.mkdir()
    for name in ("certificate.json", "preview.png"):
        shutil.copyfile(mould / name, stored.release / name)


def judge(stored: Stored, accuracy: float, draw: random.Random) -> None:
    """The measures that a recipe would have filed."""
    cost = {
        "seconds": draw.uniform(2, 90),
        "processor_seconds": 1.5,
        "peak_mb": draw.uniform(300, 2000),
        "versions": {"python": "3.11"},
    }
    stored.add("made", {**cost, "guarantee": "certified", "spent": 1.0})
    classes = {str(digit): min(1.0, accuracy + draw.uniform(-0.2, 0.2)) for digit in range(10)}
    parts = [{"name": "gen2real-mlp", "value": accuracy - 0.05, "standard_error": 0.01, "higher_is_better": True}]
    score(stored, "gen2real", accuracy, "utility", details={"per_class": classes}, parts=parts, **cost)
    score(
        stored, "fid", 40 / accuracy + draw.uniform(0, 9), "fidelity", name="fid[some-network-64]", better=False, **cost
    )
    score(stored, "nearest", 1 + draw.uniform(0, 0.2), "privacy", **cost)


def score(stored: Stored, measure: str, value: float | None, judges: str, *, better: bool = True, **more: Any) -> None:
    stored.add(
        measure,
        {
            "name": measure,
            "value": value,
            "standard_error": 0.02,
            "higher_is_better": better,
            "judges": judges,
            "details": {},
            "parts": [],
            **more,
        },
    )


def report_literature(store: Path, *, measure: str, rows: list[dict[str, Any]], beside: list[dict[str, Any]]) -> None:
    """A table as a recipe writes it: numbers beside cells, and others of their own."""
    file_table(store, "some-small", rows=beside, reported={"measure": measure, "rows": rows})


def file_table(store: Path, name: str, **document: Any) -> None:
    folder = store / "tables" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.json").write_text(json.dumps(document))


CHOICES = [  # as `experiments.tuning` writes them: on public data with scores, on private data the choice alone
    {
        "group": "digits, dp-merf, epsilon 1, mlp",
        "chosen": "steps 500",
        "cost": "nothing",
        "scores": {"steps 100": 0.512345, "steps 500": 0.71, "steps 900": 0.7},
    },
    {"group": "digits, dp-hp, epsilon 1, mlp", "chosen": "bins 8", "cost": "epsilon 0.3", "scores": {}},
]

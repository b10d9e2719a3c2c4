"""The store of runs: a folder for each cell, named after what goes into it; files are added and never changed.

    STORE/cells/DIGEST/inputs.json        what the cell is made from; the digest is of this
                       release/           the release, and beside it its lab with the ledger
                       measures/NAME.json one judgement with everything it depends on, flat enough for a table
    STORE/choices/DIGEST/                 a choice among cells that private records made, with its own ledger
    STORE/studies/DIGEST/                 a run of a study: inputs and measures as above, and no release
    STORE/hiding/DIGEST/                  the same of a comparison of hiders, with the release and its lab; or of judges
                                          of real images, which all hiders share, without a release

It can be queried directly: `duckdb -c "select * from 'STORE/cells/*/measures/*.json'"`. The store is the
only state: who runs a cell, on which machine, and how often it was tried, changes nothing else. All of it is lab
material.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sfumato.errors import DataError, EnvironmentProblem
from sfumato.files import write_once, write_whole
from sfumato.lab.folder import NOTICE, Lab
from sfumato.progress import Stage

DIGITS = 16  # of a digest: 64 bits are enough to distinguish cells
RELEASE = "release"
STUDIES = "studies"
HIDING = "hiding"
PUBLIC_TRIAL = "public_trial"  # an input of cells whose private data was public, so that they cost nobody


@dataclass(frozen=True, slots=True)
class Stored:
    """One cell's folder."""

    folder: Path

    @property
    def digest(self) -> str:
        return self.folder.name

    @property
    def release(self) -> Path:
        return self.folder / RELEASE

    @property
    def ledger(self) -> Path:
        """What it has paid: a cell's beside its release, a choice's in its own folder."""
        beside = self.folder / f"{RELEASE}.lab" / "ledger.jsonl"
        return beside if beside.exists() else self.folder / "ledger.jsonl"

    def say(self, stage: Stage) -> None:
        """Write the progress of the work on this cell, for `status`; the only file that changes."""
        with contextlib.suppress(OSError):
            write_whole(self.folder / ".stage", json.dumps(asdict(stage)))

    def stage(self) -> Stage | None:
        try:
            stage = json.loads((self.folder / ".stage").read_text("utf-8"))
            return Stage(stage["what"], stage["done"], stage["total"], stage["rate"])
        except (OSError, ValueError, KeyError):
            return None

    @property
    def lab(self) -> Lab:
        """Held while the cell is worked on: by one process at a time."""
        return Lab(self.folder)

    def inputs(self) -> dict[str, Any]:
        return _read(self.folder / "inputs.json")

    def measures(self) -> dict[str, dict[str, Any]]:
        """What is known of the cell, by the names of the measures."""
        return {path.stem: _read(path) for path in sorted((self.folder / "measures").glob("*.json"))}

    def has(self, measure: str) -> bool:
        return (self.folder / "measures" / f"{measure}.json").exists()

    def add(self, measure: str, document: Mapping[str, Any]) -> None:
        """One judgement, whole or not at all; an existing file is kept."""
        known = {"cell": self.digest, "measure": measure, **_flat(self.inputs()), **document}
        (self.folder / "measures").mkdir(exist_ok=True)
        _write_once(self.folder / "measures" / f"{measure}.json", known)


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of cells; any number of processes may add to it at the same time."""

    folder: Path

    def cell(self, inputs: Mapping[str, Any]) -> Stored:
        """The cell with these inputs; its folder is made where there is none yet."""
        return self._folder_of("cells", inputs)

    def _folder_of(self, kind: str, inputs: Mapping[str, Any]) -> Stored:
        text = _canonical(inputs)
        stored = Stored(self.folder / kind / hashlib.sha256(text.encode()).hexdigest()[:DIGITS])
        try:
            stored.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "PRIVATE").write_text(NOTICE, "utf-8")
        except OSError as error:
            raise EnvironmentProblem(f"The store cannot be used ({error.strerror}).", where=self.folder) from error
        _write_once(stored.folder / "inputs.json", json.loads(text))
        if _canonical(stored.inputs()) != text:
            raise DataError("Expected the inputs that the folder is named after, got others.", where=stored.folder)
        return stored

    def choice(self, inputs: Mapping[str, Any]) -> Stored:
        """The same for a choice among cells, which has a ledger of its own."""
        return self._folder_of("choices", inputs)

    def study(self, inputs: Mapping[str, Any]) -> Stored:
        """The same for a run of a study, which releases nothing and is in no ranking."""
        return self._folder_of(STUDIES, inputs)

    def hiding(self, inputs: Mapping[str, Any]) -> Stored:
        """The same for a run of a comparison of hiders, which costs nothing and is in no ranking."""
        return self._folder_of(HIDING, inputs)

    def cells(self) -> Iterator[Stored]:
        """Every cell, finished or not, in the order of their names."""
        return self._folders("cells")

    def choices(self) -> Iterator[Stored]:
        return self._folders("choices")

    def _folders(self, kind: str) -> Iterator[Stored]:
        for folder in sorted((self.folder / kind).glob("*")):
            if (folder / "inputs.json").exists():  # one that is being made has none for an instant
                yield Stored(folder)


def _canonical(document: Mapping[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=True)


def _flat(document: Mapping[str, Any]) -> dict[str, Any]:
    """Inner documents as text, so that rows of many cells have the same columns."""
    return {name: _canonical(value) if isinstance(value, Mapping) else value for name, value in document.items()}


def _read(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DataError("Expected a file of the store, got one that cannot be read.", where=path) from error
    return document


def _write_once(path: Path, document: Mapping[str, Any]) -> None:
    """Whole or not at all; a file that is there is left as it is."""
    if path.exists():
        return
    try:
        write_once(path, json.dumps(document, indent=2, default=str) + "\n")
    except OSError as error:
        raise EnvironmentProblem(f"The store cannot be written to ({error.strerror}).", where=path) from error

"""Where the data sets of a recipe are: found by name in the data folder, or among our own."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from sfumato import contracts, data
from sfumato.contracts import Reading
from sfumato.errors import DataError, SfumatoError, UsageError
from sfumato.experiments.recipe_format import Entry
from sfumato.lab.folder import content_of

ENDINGS = ("", ".npz", ".zip", ".parquet")  # of a data set that the recipe gives no file for


@dataclass(frozen=True, slots=True)
class Shelf:
    """Data sets by the names that recipes call them; found paths are cached."""

    folder: Path | None
    entries: dict[str, Entry]
    seen: dict[str, tuple[str, Reading] | DataError] = field(default_factory=dict)
    contents: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path | None, entries: dict[str, Entry]) -> Self:
        """A folder that is not there is an error; without any there are our own data sets."""
        if folder is not None and not folder.is_dir():
            raise UsageError(
                "Expected --data (or SFUMATO_DATA) as a folder, got none.",
                where=folder,
                fix="name the folder of the data sets",
            )
        return cls(folder, entries)

    def find(self, name: str) -> tuple[str, Reading]:
        """Where a data set is and how it is read; where it is not here, a DataError with what to do."""
        if name not in self.seen:
            try:
                self.seen[name] = self._look(name)
            except DataError as error:
                self.seen[name] = error
        found = self.seen[name]
        if isinstance(found, DataError):
            raise found
        return found

    def content(self, name: str) -> str:
        """A digest of the files, wherever they lie: cells with the same one have the same private data set."""
        where = self.find(name)[0]
        if where not in self.contents:
            self.contents[where] = content_of(where)
        return self.contents[where]

    def _look(self, name: str) -> tuple[str, Reading]:
        entry = self.entries.get(name)
        spellings = dict.fromkeys((name, name.replace("-", "_")))
        files = entry.files if entry else tuple(s + ending for s in spellings for ending in ENDINGS)
        reading = Reading(label=entry.label, size=entry.size, mode=entry.mode) if entry else Reading()
        for file in files if self.folder else ():
            if (path := Path(self.folder or "") / file).exists():
                return str(path.absolute()), reading
        wanted = f"put {' or '.join(files[:2])} into the folder that --data or SFUMATO_DATA names"
        if name not in contracts.names("data"):
            raise DataError(f"The data set {name} is not here.", fix=wanted)
        try:
            data.open_source(name, reading)  # of our own sets, also what can be downloaded
        except SfumatoError as error:
            raise DataError(f"The data set {name} is not here.", fix=f"{wanted}, or {error.fix}") from error
        return name, reading

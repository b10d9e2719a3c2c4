"""Well-known data sets by name: from the cache where they are, else from their official sources."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from sfumato.cache import cache_folder
from sfumato.contracts import Reading
from sfumato.data import _idx, _npy
from sfumato.data._arrays import ArrayRecords, Stack
from sfumato.data._download import Download, fetch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Named(ArrayRecords):
    """A data set that is found by its name; what lies in the cache is taken as it is."""

    called: ClassVar[str]
    class_names: ClassVar[tuple[str, ...]]
    downloads: ClassVar[tuple[Download, ...]]

    @classmethod
    def recognises(cls, where: str) -> bool:
        return where in _spellings(cls.called)

    @classmethod
    def splits(cls, where: str) -> tuple[str, ...]:
        return ("train", "test")

    def __init__(self, where: str, reading: Reading) -> None:
        stack, classes, labels = self._found(reading)
        self._settle(where, reading, name=self.called, stack=stack, classes=classes, labels=labels)

    def _found(self, reading: Reading) -> tuple[Stack, tuple[str, ...], NDArray[np.int64]]:
        for spelling in _spellings(self.called):
            for archive in (cache_folder() / f"{spelling}.npz", cache_folder() / spelling / f"{spelling}.npz"):
                if archive.is_file():
                    return _npy.read(archive, reading, self.class_names)
        folder = self._folder()
        if folder is None:
            missing = [d for d in self.downloads if not (cache_folder() / self.called / d.name).is_file()]
            for k, download in enumerate(missing):
                fetch(download, cache_folder() / self.called, beside=[other.name for other in missing[k + 1 :]])
            folder = self._folder()
        assert folder is not None, "the downloads are what _folder looks for"
        return self._read(folder, reading)

    @classmethod
    def places(cls) -> tuple[Path, ...]:
        """The folders in which the files may be."""
        return tuple(cache_folder() / spelling for spelling in _spellings(cls.called))

    @classmethod
    @abstractmethod
    def _folder(cls) -> Path | None:
        """The folder in which both splits lie, if there is one."""

    @abstractmethod
    def _read(self, folder: Path, reading: Reading) -> tuple[Stack, tuple[str, ...], NDArray[np.int64]]: ...


class NamedIdx(Named):
    """A well-known data set of idx files."""

    @classmethod
    def _folder(cls) -> Path | None:
        return next((place for place in cls.places() if _idx.complete(place)), None)

    def _read(self, folder: Path, reading: Reading) -> tuple[Stack, tuple[str, ...], NDArray[np.int64]]:
        return _idx.read(folder, reading, self.class_names)


def idx_downloads(sources: tuple[str, ...], sha256: dict[str, str]) -> tuple[Download, ...]:
    """The four files of an idx data set."""
    return tuple(
        Download(name, digest, tuple(f"{source}/{name}" for source in sources)) for name, digest in sha256.items()
    )


def _spellings(name: str) -> tuple[str, ...]:
    return (name, name.replace("-", "_")) if "-" in name else (name,)

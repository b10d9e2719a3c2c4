"""The cache folder: where it is, and trainings in it, for their owner alone, so many and no more."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch

from sfumato import cache
from sfumato.cache import CachedTrainings, cache_folder


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "trainings"


def test_what_is_kept_comes_back_and_a_later_state_takes_its_place() -> None:
    trainings = CachedTrainings()
    assert trainings.restore("a") is None
    for value in (1.0, 2.0):
        trainings.keep("a", {"weights": torch.full((2, 3), value).T, "step": torch.tensor(7)})
    found = trainings.restore("a")
    assert found is not None
    assert torch.equal(found["weights"], torch.full((3, 2), 2.0))
    assert int(found["step"]) == 7


def test_nobody_else_can_read_it_and_nothing_unfinished_stays(folder: Path) -> None:
    CachedTrainings().keep("a", {"x": torch.ones(2)})
    assert folder.stat().st_mode & 0o077 == 0
    (file,) = folder.iterdir()
    assert file.name == "a.safetensors"
    assert file.stat().st_mode & 0o077 == 0


def test_the_newest_stay(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MOST", 2)
    trainings = CachedTrainings()
    for age, name in ((30, "old"), (20, "used"), (10, "young")):
        trainings.keep(name, {"x": torch.ones(2)})
        when = folder.joinpath(f"{name}.safetensors").stat().st_mtime - age
        os.utime(folder / f"{name}.safetensors", (when, when))
        if name == "used":
            trainings.restore("used")  # what is used is as good as new
    trainings.keep("new", {"x": torch.ones(2)})
    assert {file.stem for file in folder.iterdir()} == {"used", "new"}


def test_a_damaged_file_counts_as_none(folder: Path) -> None:
    CachedTrainings().keep("a", {"x": torch.ones(2)})
    (folder / "a.safetensors").write_bytes(b"nothing that can be read")
    assert CachedTrainings().restore("a") is None


def test_a_folder_that_cannot_be_written_stops_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "file"))
    CachedTrainings().keep("a", {"x": torch.ones(2)})
    assert CachedTrainings().restore("a") is None
    assert cache_folder() == tmp_path / "file"


def test_what_killed_programs_left_is_removed_after_a_day(folder: Path) -> None:
    CachedTrainings().keep("a", {"x": torch.ones(2)})
    old, young = folder / ".b.safetensors.tmp-1-1", folder / ".c.safetensors.tmp-2-2"
    for file, age in ((old, 25 * 3600), (young, 23 * 3600)):
        file.touch()
        os.utime(file, (time.time() - age,) * 2)
    CachedTrainings().keep("a", {"x": torch.ones(2)})
    assert {file.name for file in folder.iterdir()} == {"a.safetensors", young.name}


@pytest.mark.parametrize("mode", [0o020, 0o002])
@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_others_can_write_to_counts_as_none(folder: Path, what: str, mode: int) -> None:
    CachedTrainings().keep("a", {"x": torch.ones(2)})
    path = folder if what == "folder" else folder / "a.safetensors"
    path.chmod(path.stat().st_mode | mode)
    assert CachedTrainings().restore("a") is None
    CachedTrainings().keep("a", {"x": torch.ones(2)})  # which makes both the owner's alone again
    assert CachedTrainings().restore("a") is not None


def test_what_others_own_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    CachedTrainings().keep("a", {"x": torch.ones(2)})
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert CachedTrainings().restore("a") is None

"""Releases, a stopped run and a working directory that tests of several commands share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from commands import Outcome, request, sfumato, tiny


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Outcome]:
    """A data set, its release, and what the command printed."""
    folder = tmp_path_factory.mktemp("made")
    data = tiny(folder)
    return data, folder / "r", sfumato(*request(data, folder / "r"))


@pytest.fixture(scope="session")
def larger(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Outcome]:
    """A data set, its release of 40 images, enough to train classifiers on, and what the command printed as JSON."""
    folder = tmp_path_factory.mktemp("larger")
    data = tiny(folder)
    return data, folder / "r", sfumato(*request(data, folder / "r", "--count", "40", "--json"))


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of a test; it holds a data set, tiny.npz."""
    tiny(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a data set and the lab of a run that was killed just before it wrote its release."""
    folder = tmp_path_factory.mktemp("stopped")
    assert sfumato(*request(tiny(folder), folder / "r")).code == 0
    (folder / "r").rename(folder / "whole")
    return folder


@pytest.fixture
def lab(stopped: Path, tmp_path: Path) -> Path:
    """A copy of that lab, which a test may spoil."""
    return Path(shutil.copytree(stopped / "r.lab", tmp_path / "r.lab"))

"""A release that several commands are tried on."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import Outcome, request, sfumato, tiny


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Outcome]:
    """A data set, its release, and what the command said."""
    folder = tmp_path_factory.mktemp("made")
    data = tiny(folder)
    return data, folder / "r", sfumato(*request(data, folder / "r"))

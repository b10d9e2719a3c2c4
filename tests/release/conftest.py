"""Small releases to read, verify and tamper with; made once, copied by whoever changes them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from release.hidden_making import make_faces, make_facts
from release.making import make_certificate, make_images
from sfumato.release import write_hidden, write_release


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    images = make_images(logits=True)
    return write_release(tmp_path_factory.mktemp("r") / "release", images, make_certificate(images))


@pytest.fixture(scope="session")
def pristine_pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With images for transfer."""
    images = make_images(transfer=25)
    return write_release(tmp_path_factory.mktemp("p") / "release", images, make_certificate(images))


@pytest.fixture
def pair(pristine_pair: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine_pair, tmp_path / "pair"))


@pytest.fixture
def release(pristine: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(pristine, tmp_path / "release"))


@pytest.fixture(scope="session")
def pristine_hidden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images with a hidden attribute."""
    images = make_faces()
    return write_hidden(tmp_path_factory.mktemp("h") / "hidden", images, make_facts(images))


@pytest.fixture
def hidden(pristine_hidden: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine_hidden, tmp_path / "hidden"))

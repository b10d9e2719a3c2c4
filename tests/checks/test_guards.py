"""Guards close by default: a new package or core module is guarded without being listed."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def check(name: str) -> ModuleType:
    found = importlib.util.spec_from_file_location(name, ROOT / "checks" / f"{name}.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The source as it is, in a place where it may be changed."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def layers(copy: Path) -> subprocess.CompletedProcess[str]:
    """What import-linter says of the copy."""
    code = "import sys; from importlinter.cli import lint_imports_command; lint_imports_command(['--no-cache'])"
    environment = {"PYTHONPATH": str(copy / "src"), "PATH": ""}
    return subprocess.run([sys.executable, "-c", code], cwd=copy, env=environment, capture_output=True, text=True)


def add(copy: Path, name: str, text: str) -> Path:
    path = copy / "src" / "sfumato" / name
    path.parent.mkdir(exist_ok=True)
    (path.parent / "__init__.py").touch()
    path.write_text(text)
    return path


def test_the_copy_as_it_is_passes(copy: Path) -> None:
    done = layers(copy)
    assert done.returncode == 0, done.stdout + done.stderr
    assert check("boundary").tree_problems(copy / "src" / "sfumato") == []


@pytest.mark.parametrize("name", ["annex", "values_of_others"])
def test_a_package_without_a_layer_is_an_error(copy: Path, name: str) -> None:
    add(copy, f"{name}/inside.py", '"""Something new."""\n')
    done = layers(copy)
    assert done.returncode != 0
    assert name in done.stdout, done.stdout


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("from sfumato.privacy import Noise\n", "it may only ask"),
        ("from sfumato.privacy.noise import Noise\n", "through sfumato.privacy alone"),
        ("from sfumato import data\n", "out of bounds"),
        ("import sfumato.making.release\n", "out of bounds"),
        ("import pickle\n", "pickle"),
        ("def peek(handle):\n    return handle._vault\n", "hidden attribute"),
        ("def peek(handle):\n    return getattr(handle, 'pixels')\n", "getattr"),
    ],
)
def test_a_new_package_may_only_query(copy: Path, text: str, complaint: str) -> None:
    add(copy, "annex/inside.py", f'"""Something new."""\n\n{text}')
    found = check("boundary").tree_problems(copy / "src" / "sfumato")
    assert any(complaint in line for line in found), found


KEPT_ELSEWHERE = [
    ("from sfumato.synthesis.pretraining import in_cache\n", "names in_cache"),
    ("from sfumato.synthesis import pretraining\n\nkept = pretraining._in_cache()\n", "names _in_cache"),
    ("from sfumato.cache import CachedTrainings\n", "names CachedTrainings"),
    ("from sfumato import cache\n\nkept = cache.CachedTrainings()\n", "names CachedTrainings"),
    ("import torch\n\nkept = torch.Tensor.from_file('x')\n", "names from_file"),
    ("from sfumato.contracts import DataSource\n", "names DataSource"),
    ("from pathlib import Path\n", "imports pathlib"),
    ("import pathlib\n", "imports pathlib"),
    ("import numpy as np\n\nkept = np.load('x')\n", "calls load"),
]


@pytest.mark.parametrize("room", ["methods", "learners", "synthesis"])
@pytest.mark.parametrize(("text", "complaint"), KEPT_ELSEWHERE)
def test_who_asks_reads_nothing_and_takes_up_nothing_that_was_kept(
    tmp_path: Path, room: str, text: str, complaint: str
) -> None:
    path = tmp_path / "written.py"
    path.write_text(f'"""Something new."""\n\n{text}')
    found = check("boundary").problems(path, room=room)
    assert any(complaint in line for line in found), found


@pytest.mark.parametrize("name", ["pretraining.py", "stable_diffusion.py", "candidates.py"])
def test_three_modules_of_synthesis_read_what_is_public(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('"""Something public."""\n\nfrom pathlib import Path\n\nPath("x").read_bytes()\n')
    assert check("boundary").problems(tmp_path / name, room="synthesis") == []
    assert check("boundary").problems(tmp_path / name, room="methods")


def test_a_method_cannot_say_that_its_images_are_public(tmp_path: Path) -> None:
    path = tmp_path / "written.py"
    path.write_text('"""New."""\n\n\ndef fit(self, images):\n    self.pretrain(images, images_are_public=True)\n')
    assert any("says images_are_public" in line for line in check("boundary").problems(path, room="methods"))


@pytest.mark.parametrize("what", ["keep('a', state)", "restore('a')"])
def test_a_method_keeps_nothing_and_brings_nothing_back(tmp_path: Path, what: str) -> None:
    path = tmp_path / "written.py"
    for owner, refused in (("self", False), ("kept", True), ("self.kept", True), ("made()", True)):
        path.write_text(f'"""Something new."""\n\n\ndef fit(self, made, kept, state):\n    return {owner}.{what}\n')
        assert bool(check("boundary").problems(path, room="methods")) == refused, owner


def test_a_new_module_of_the_core_is_guarded(copy: Path) -> None:
    path = add(copy, "privacy/shortcut.py", '"""A way around."""\n\nimport torch\n\nnoise = torch.randn(3)\n')
    add(copy, "judging/uses.py", '"""Uses it."""\n\nfrom sfumato.privacy.shortcut import noise\n')
    found = check("boundary").tree_problems(copy / "src" / "sfumato")
    assert any("shortcut.py" in line and "draws randomness" in line for line in found), found
    assert any("uses.py" in line and "through sfumato.privacy alone" in line for line in found), found
    assert any("promises nothing" in line for line in check("modules").problems(path, copy / "src" / "sfumato"))


def test_a_new_module_at_the_top_is_guarded(copy: Path) -> None:
    (copy / "src" / "sfumato" / "loose.py").write_text('"""Loose."""\n\nfrom sfumato.privacy import Noise\n')
    assert layers(copy).returncode != 0
    assert any("loose.py" in line for line in check("boundary").tree_problems(copy / "src" / "sfumato"))


@pytest.mark.parametrize("importer", ["networks", "values", "methods"])
def test_an_import_of_an_upper_package_is_an_error(copy: Path, importer: str) -> None:
    name = "values.py" if importer == "values" else f"{importer}/upwards.py"
    path = copy / "src" / "sfumato" / name
    text = path.read_text() if path.exists() else '"""Upwards."""\n'
    path.write_text(text + "\nfrom sfumato.judging import evaluate\n")
    done = layers(copy)
    assert done.returncode != 0
    assert "judging" in done.stdout

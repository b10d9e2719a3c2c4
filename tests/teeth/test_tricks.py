"""Files that try to reach private pixels around the ledger: the lint or the run must reject each."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from sfumato.privacy import Budget, Ledger, PrivateImages

from toys import toy

TRICKS = sorted((Path(__file__).parent / "tricks").glob("*.py"))
CHECK = Path(__file__).parents[2] / "checks" / "boundary.py"
AT_RUN_TIME = {
    "attribute_access",
    "handle_to_metric",
    "iteration",
    "kept_image",
    "pickling",
    "reflection",
    "unpaid_question",
}


def boundary() -> ModuleType:
    loaded = importlib.util.spec_from_file_location("boundary", CHECK)
    module = importlib.util.module_from_spec(loaded)
    loaded.loader.exec_module(module)
    return module


def refused_by_lint(path: Path) -> bool:
    return subprocess.run([sys.executable, CHECK, path], capture_output=True).returncode != 0


def refused_at_run_time(path: Path) -> bool:
    loaded = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(loaded)
    loaded.loader.exec_module(module)
    try:
        module.steal(PrivateImages.seal(toy(), Ledger(Budget(1e6, 1e-5))))
    except Exception:
        return True
    return False


@pytest.mark.parametrize("path", TRICKS, ids=[p.stem for p in TRICKS])
def test_the_trick_is_refused(path: Path) -> None:
    assert refused_at_run_time(path) if path.stem in AT_RUN_TIME else refused_by_lint(path)


def test_an_honest_file_passes_the_lint() -> None:
    honest = Path(__file__).parents[2] / "src" / "sfumato" / "methods" / "dp_merf.py"
    assert not refused_by_lint(honest)


@pytest.mark.parametrize(
    ("call", "room", "refused"),
    [
        ("torch.load(file, weights_only=True)", "networks", False),
        ("torch.load(file, weights_only=True)", "statistics", True),
        ("torch.load(file, weights_only=True)", "methods", True),
        ("torch.load(file, weights_only=False)", "networks", True),
        ("torch.load(file, weights_only=trusted)", "networks", True),
        ("torch.load(file)", "networks", True),
        ("torch.save(file, weights_only=True)", "networks", True),
        ("torch.export.load(file)", "networks", False),
        ("torch.export.load(file)", "methods", True),
    ],
)
def test_only_published_weights_are_unpickled_and_only_safely(
    tmp_path: Path, call: str, room: str, refused: bool
) -> None:
    (tmp_path / "written.py").write_text(f"import torch\n\nmade = {call}\n")
    assert bool(boundary().problems(tmp_path / "written.py", room=room)) == refused


@pytest.mark.parametrize(
    ("module", "room", "name", "refused"),
    [
        ("cloudpickle", "privacy", "gloo_crew.py", False),
        ("pickle", "privacy", "gloo_crew.py", True),
        ("cloudpickle", "privacy", "tape.py", True),
        ("cloudpickle", "methods", "gloo_crew.py", True),
        ("cloudpickle", "judging", "gloo_crew.py", True),
    ],
)
def test_functions_travel_between_our_own_processes_alone(
    tmp_path: Path, module: str, room: str, name: str, refused: bool
) -> None:
    (tmp_path / name).write_text(f"import {module}\n")
    assert bool(boundary().problems(tmp_path / name, room=room)) == refused

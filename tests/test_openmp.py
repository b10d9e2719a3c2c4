"""OpenMP's threads sleep while they wait: set before torch is loaded, and never against a user's own setting."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sfumato.openmp import CHOSEN, SETTINGS

SEEN = f"; print({{n: os.environ.get(n) for n in {SETTINGS!r}}}, 'torch' in sys.modules)"


def seen(first: str, **own: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    command = [sys.executable, "-c", f"import os, sys; {first}" + SEEN]
    done = subprocess.run(command, env={**clean, **own}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("first", ["import sfumato", "import sfumato.cli", "import sfumato.values"])
def test_it_is_set_by_whatever_is_imported_first(first: str) -> None:
    expected = {name: CHOSEN.get(name) for name in SETTINGS}
    assert seen(first).startswith(str(expected))


def test_the_package_itself_does_not_load_torch() -> None:
    assert seen("import sfumato").endswith("False")


@pytest.mark.parametrize("name", SETTINGS)
def test_a_users_own_setting_wins(name: str) -> None:
    expected = {other: "7" if other == name else None for other in SETTINGS}
    assert seen("import sfumato", **{name: "7"}).startswith(str(expected))

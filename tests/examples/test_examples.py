"""Every example runs as it stands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
ARGUMENTS = {"first_release": ["{folder}/release", "--quick"]}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda p: p.stem)
def test_example(path: Path, tmp_path: Path) -> None:
    arguments = [a.format(folder=tmp_path) for a in ARGUMENTS.get(path.stem, [])]
    done = subprocess.run(
        [sys.executable, path, *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout

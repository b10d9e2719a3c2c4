"""Adding a metric touches one file: then it is listed, it is in the panel, and the conformance suite holds it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

JUDGES = Path(__file__).with_name("test_judges.py")
METRIC = '''"""How bright the release is against real images: a metric that a test has added."""

from dataclasses import dataclass
from typing import ClassVar

from sfumato.contracts import Metric
from sfumato.values import Images, Reference, Score


@dataclass(frozen=True)
class Brightness(Metric):
    judges: ClassVar = "fidelity"
    higher_is_better: ClassVar[bool] = {higher}

    def __call__(self, synthetic: Images, real: Reference) -> Score:
        gap = abs(synthetic.unit().mean().item() - real.train.unit().mean().item())
        return Score("brightness", gap, 0.01, higher_is_better={higher})
'''
WITH_IT = """
import sys
import sfumato.metrics
sfumato.metrics.__path__.append(sys.argv[1])
"""


def run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITH_IT + code, str(folder), str(JUDGES)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=JUDGES.parents[2])


def added(tmp_path: Path, *, higher: bool) -> Path:
    (tmp_path / "brightness.py").write_text(METRIC.format(higher=higher))
    return tmp_path


def test_it_is_listed_and_in_the_panel(tmp_path: Path) -> None:
    code = """
from sfumato.judging.evaluate import panel_of
assert "brightness" in panel_of("default")
sys.argv = ["sfumato", "list", "metrics"]
from sfumato.cli import main
main()
"""
    done = run(added(tmp_path, higher=False), code)
    assert done.returncode == 0, done.stderr
    assert "a metric that a test has added" in done.stdout


CONFORM = """
import pytest
sys.exit(pytest.main(["-vv", "-p", "no:cacheprovider", sys.argv[2], "-k", "brightness"]))
"""


def test_the_conformance_suite_holds_it(tmp_path: Path) -> None:
    done = run(added(tmp_path, higher=False), CONFORM)
    assert done.returncode == 0, done.stdout
    assert "[brightness] PASSED" in done.stdout


def test_the_conformance_suite_notices_a_wrong_direction(tmp_path: Path) -> None:
    done = run(added(tmp_path, higher=True), CONFORM)
    assert done.returncode == 1, done.stdout
    assert "[brightness] FAILED" in done.stdout

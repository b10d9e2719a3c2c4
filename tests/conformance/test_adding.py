"""Adding something touches one file: then it is listed, it is used, and the conformance suite holds it."""

from __future__ import annotations

import importlib
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
METRIC = '''"""How bright the release is against real images: a metric that a test has added."""

from dataclasses import dataclass
from typing import ClassVar

from sfumato.contracts import Metric
from sfumato.values import Images, Reference, Score


@dataclass(frozen=True)
class Brightness(Metric):
    judges: ClassVar = "fidelity"
    higher_is_better: ClassVar[bool] = False

    def __call__(self, synthetic: Images, real: Reference) -> Score:
        gap = abs(synthetic.unit().mean().item() - real.train.unit().mean().item())
        return Score("brightness", gap, 0.01, higher_is_better=False)
'''
METHOD = '''"""A noisy mean image of each class: a method that a test has added."""

from dataclasses import dataclass

import torch

from sfumato.contracts import Synthesizer
from sfumato.privacy import GaussianSum
from sfumato.values import Images


@dataclass(frozen=True)
class MeanImages(Synthesizer):
    seed: int = 0

    @classmethod
    def for_task(cls, spec, budget):
        return cls()

    def plan(self, spec):
        return [GaussianSum(purpose="the sum of the images of each class, and how many there are")]

    def seconds(self, spec):
        return 1.0

    def fit(self, private, public):
        (sums,) = private.ledger.calibrate(*self.plan(private.spec))
        row = lambda image, label: torch.cat([torch.ones(1), image.flatten()])
        rows = private.open(sums).per_class(row, l2_bound=9.0)
        means = (rows[:, 1:] / rows[:, :1].clamp(min=1)).mul(255).clamp(0, 255).to(torch.uint8)
        pixels, classes = means.reshape(-1, *private.spec.shape), private.spec.classes
        return lambda labels: Images(pixels[labels], labels, classes)
'''
ATTACK = '''"""How near the nearest released image is: an attack that a test has added."""

from dataclasses import dataclass

import torch

from sfumato.contracts import Attack


@dataclass(frozen=True)
class NearestPixel(Attack):
    def score(self, release, candidates, *, population):
        return -torch.cdist(candidates.unit().flatten(1), release.images.unit().flatten(1)).min(1).values
'''
DATASET = '''"""Two grey squares: a data set that a test has added."""

import numpy as np

from sfumato.contracts import Dataset
from sfumato.values import Spec


class GreySquares(Dataset):
    name, spec = "grey-squares", Spec(40, 1, 8, 8, ("dark", "light"))

    @classmethod
    def recognises(cls, where):
        return where == "grey-squares"

    def __init__(self, where, reading):
        pass

    def chunks(self):
        labels = np.arange(40) % 2
        yield (80 + 90 * labels)[:, None, None, None].repeat(8, 2).repeat(8, 3).astype(np.uint8), labels
'''
ADDED = {
    "methods": ("mean_images", METHOD),
    "metrics": ("brightness", METRIC),
    "attacks": ("nearest_pixel", ATTACK),
    "data": ("grey_squares", DATASET),
}
LIST = """
sys.argv = ["sfumato", "list", {kind!r}]
from sfumato.cli import main
main()
"""
CONFORM = """
import pytest
sys.exit(pytest.main(["-vv", "-p", "no:cacheprovider", {suite!r}, "-k", {name!r}]))
"""


def run(folder: Path, kind: str, code: str) -> subprocess.CompletedProcess[str]:
    """Some code where a package of ours has one more folder."""
    first = f"import sys\nimport sfumato.{kind}\nsfumato.{kind}.__path__.append({str(folder)!r})\n"
    command = [sys.executable, "-c", first + code]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE.parents[1])


def added(folder: Path, kind: str, *, change: tuple[str, str] = ("", "")) -> str:
    """The name under which a file of that kind is known."""
    name, text = ADDED[kind]
    (folder / f"{name}.py").write_text(text.replace(*change))
    return name.replace("_", "-")


@pytest.mark.parametrize("kind", ADDED)
def test_it_is_listed(kind: str, tmp_path: Path) -> None:
    name = added(tmp_path, kind)
    done = run(tmp_path, kind, LIST.format(kind="datasets" if kind == "data" else kind))
    assert done.returncode == 0, done.stderr
    assert name in done.stdout
    assert "that a test has added" in done.stdout


@pytest.mark.parametrize("kind", ["methods", "metrics", "attacks"])
def test_it_is_in_the_tables_of_the_documents(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, because a fresh one would take seconds to load every method."""
    name = added(tmp_path, kind)
    package = importlib.import_module(f"sfumato.{kind}")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    try:
        pages = runpy.run_path(str(HERE.parents[1] / "docs" / "build.py"))["pages"]()
    finally:
        sys.modules.pop(f"sfumato.{kind}.{ADDED[kind][0]}", None)
    listed = [page.name for page, text in pages.items() if f"\n| `{name}` | " in text]
    assert listed == ["commands.md", "one_shot.md" if kind == "methods" else "judging.md"]


def conformed(folder: Path, kind: str, suite: str, name: str) -> subprocess.CompletedProcess[str]:
    return run(folder, kind, CONFORM.format(suite=str(HERE / suite), name=name))


@pytest.mark.parametrize(
    ("kind", "suite", "least"),
    [("methods", "test_methods.py", 8), ("metrics", "test_judges.py", 1), ("attacks", "test_judges.py", 1)],
)
def test_the_conformance_suite_holds_it(kind: str, suite: str, least: int, tmp_path: Path) -> None:
    name = added(tmp_path, kind)
    done = conformed(tmp_path, kind, suite, name)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count(f"[{name}] PASSED") >= least, done.stdout


@pytest.mark.parametrize(
    ("kind", "suite", "change"),
    [
        ("metrics", "test_judges.py", ("= False", "= True")),
        ("methods", "test_methods.py", ("the sum of the images of each class, and how many there are", "sums")),
        ("attacks", "test_judges.py", ("return -torch", "return torch")),
    ],
)
def test_the_conformance_suite_notices_what_is_wrong(
    kind: str, suite: str, change: tuple[str, str], tmp_path: Path
) -> None:
    name = added(tmp_path, kind, change=change)
    done = conformed(tmp_path, kind, suite, name)
    assert done.returncode == 1, done.stdout
    assert f"[{name}] FAILED" in done.stdout


def test_a_metric_is_in_the_panel(tmp_path: Path) -> None:
    name = added(tmp_path, "metrics")
    done = run(
        tmp_path, "metrics", f"from sfumato.judging.panel import panel_of\nassert {name!r} in panel_of('default')"
    )
    assert done.returncode == 0, done.stderr


def test_a_method_can_be_planned_and_a_data_set_read(tmp_path: Path) -> None:
    added(tmp_path, "data")
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods" / "mean_images.py").write_text(METHOD)
    code = f"""
import sfumato.methods
sfumato.methods.__path__.append({str(tmp_path / "methods")!r})
sys.argv = ["sfumato", "plan", "grey-squares", "--method", "mean-images", "--epsilon", "1"]
from sfumato.cli import main
main()
"""
    done = run(tmp_path, "data", code)
    assert done.returncode == 0, done.stderr


ARCHITECTURE = '''"""A linear classifier: an architecture that a test has added."""

from torch import nn

CLASSIFIERS = {"linear": lambda c, h, w, k: nn.Sequential(nn.Flatten(), nn.Linear(c * h * w, k))}
'''


def test_an_architecture_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "linear.py").write_text(ARCHITECTURE)
    code = """
import torch
from sfumato.networks.classifiers import architectures, build
assert "linear" in architectures() and "small-cnn" in architectures()
assert build("linear", 1, 8, 8, 3)(torch.zeros(2, 1, 8, 8)).shape == (2, 3)
"""
    done = run(tmp_path, "networks", code)
    assert done.returncode == 0, done.stderr


def test_a_new_method_is_in_recipes_that_say_all(tmp_path: Path) -> None:
    added(tmp_path, "methods")
    code = """
from pathlib import Path
from sfumato.experiments.recipe import read_recipe, rows_of
recipe = read_recipe(Path("recipes/compare_digits.toml"))
methods = {row.cell.method for row in rows_of(recipe, "small")}
assert {"mean-images", "sfumato", "dp-imgsyn"} <= methods, methods
"""
    done = run(tmp_path, "methods", code)
    assert done.returncode == 0, done.stderr

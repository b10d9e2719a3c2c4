"""Recipes: what is refused, that every one we ship can be planned, and a small one from end to end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sfumato.errors import DataError, UsageError
from sfumato.experiments.experiment import Experiment
from sfumato.experiments.hiding_format import is_hiding
from sfumato.experiments.recipe import read_recipe, rows_of
from sfumato.experiments.shelf import Shelf
from sfumato.experiments.study_format import is_study
from sfumato.lab.folder import NOTICE
from sfumato.release import verify
from sfumato.training.student import Schedule

from commands import sfumato

FILES = sorted((Path(__file__).parents[2] / "recipes").glob("*.toml"))
RECIPES = [path for path in FILES if not is_study(path) and not is_hiding(path)]  # these are planned in tests of theirs
SMALL = """
title = "Digits"
source = "A test, Table 1"
show = "curve"
measure = ["student", "teacher", "losses", "obfuscation"]

[data]
strokes = { files = "strokes.npz", stands_for = "places" }

[profiles.small]
count = 40
student = { seeds = 2 }
set = { rounds = 2, sampling = 1.0, align_batch = 20 }

[[grid]]
data = "digits"
public = "digits"
epsilon = 8
set = { steps = [0, 1] }

[[grid]]
label = "elsewhere"
data = "digits"
public = "strokes"
epsilon = inf

[reported]
columns = ["by", "data", "public", "steps", "value"]
rows = [["paper", "digits", "digits", 1, 12.5], ["DP-GAN", "digits", "", 0, 40.36]]
"""


@pytest.fixture(scope="module", autouse=True)
def _hasty() -> Iterator[None]:
    """Students that stop after a few steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Schedule, "steps", lambda schedule, images: 20)
        yield


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refused(*_: object) -> str:
        raise OSError("no network in tests")

    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SFUMATO_DATA", raising=False)
    monkeypatch.setattr("sfumato.data._download._save", refused)


def recipe(folder: Path, text: str = SMALL) -> Path:
    path = folder / "digits.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("epsilon = 8", "epsilonn = 8", "'epsilonn'; did you mean 'epsilon'"),
        ("title =", "titel =", "did you mean 'title'"),
        ("seeds = 2", "seedz = 2", "did you mean 'seeds'"),
        ("seeds = 2", 'seeds = "two"', "valid integer"),
        ("seeds = 2", "seeds = 0", "at least one seed"),
        ("seeds = 2", 'arch = "resnet19"', "resnet18"),
        ("epsilon = 8", 'epsilon = "8"', "valid number"),
        ("epsilon = 8", "epsilon = -8", "above 0"),
        ("steps = [0, 1]", "stepz = [0, 1]", "setting of dp-imgsyn, got 'stepz'; did you mean 'steps'"),
        ("steps = [0, 1]", "steps = [0, 1.5]", "steps as int"),
        ("steps = [0, 1]", 'start = "publik"', "Expected start"),
        ("[profiles.small]", "[profiles.smal]", "'small' or 'paper'"),
        ('"obfuscation"]', '"obfuscated"]', "did you mean 'obfuscation'"),
        ('"steps", "value"]', '"stepz", "value"]', "reported column"),
        ('"DP-GAN", "digits", "", 0, 40.36', '"DP-GAN", 40.36', "5 values"),
        ('public = "digits"', "", "public images"),
        ("[[grid]]", "[profiles.small.metrics]\nobfuscation = { blurr = 3 }\n\n[[grid]]", "setting of obfuscation"),
        ("[[grid]]", "[profiles.small.metrics]\nfid = { most = 30 }\n\n[[grid]]", "metric with settings, got 'fid'"),
        ('show = "curve"', 'show = "pie"', "'table', 'curve', 'grid' or 'toy'"),
        ("[[grid]]", "[[grid", "TOML"),
    ],
)
def test_a_wrong_recipe_is_refused_by_name(tmp_path: Path, right: str, wrong: str, said: str) -> None:
    assert right in SMALL
    with pytest.raises(UsageError) as refused:
        read_recipe(recipe(tmp_path, SMALL.replace(right, wrong, 1)))
    assert said in refused.value.what
    assert "\n" not in refused.value.what
    assert "digits.toml" in str(refused.value.where)


@pytest.mark.parametrize(
    ("path", "profile"),
    [(path, profile) for path in RECIPES for profile in read_recipe(path).profiles],
    ids=lambda part: part.stem if isinstance(part, Path) else part,
)
def test_every_recipe_can_be_planned_without_data(path: Path, profile: str, tmp_path: Path) -> None:
    experiment = Experiment.of(path, profile=profile, out=tmp_path / "out")
    result = experiment.dry_run()
    plan, text = result.document, result.text
    assert len(plan) == len({row.cell for row in experiment.rows()})
    assert len(plan) > 0 or experiment.recipe.show == "toy"
    assert all("--data" in cell["problem"] or cell["minutes"] > 0 for cell in plan if "problem" in cell)
    assert f"of {len(plan)} releases can be made here" in text
    assert not (tmp_path / "out").exists()


def test_every_number_by_the_paper_has_a_cell_in_the_paper_profile() -> None:
    from sfumato.experiments.table import document

    for path in RECIPES:
        read = read_recipe(path)
        if "paper" not in read.profiles:  # a comparison of our own
            assert not [entry for entry in read.reported.documents() if entry["by"] == "paper"], path.stem
            continue
        rows = rows_of(read, "paper")
        left = document(read, "paper", rows, [{} for _ in rows], {}, {})["reported"]["rows"]
        assert not [entry for entry in left if entry["by"] == "paper"], path.stem


def test_data_sets_are_found_by_name(tmp_path: Path) -> None:
    (tmp_path / "fashion_mnist.npz").touch()
    shelf = Shelf(tmp_path, {})
    assert shelf.find("fashion-mnist")[0] == str(tmp_path / "fashion_mnist.npz")
    assert shelf.find("digits")[0] == "digits"
    for name in ("celeba-hair", "mnist"):
        with pytest.raises(DataError, match="--data"):
            shelf.find(name)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    folder = tmp_path_factory.mktemp("run")
    experiment = Experiment.of(recipe(folder), out=folder / "out")
    experiment.run()
    return experiment


def contents(out: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (out / "cells").rglob("*") if path.is_file()}


def test_the_table_has_what_was_measured_beside_what_was_reported(done: Experiment) -> None:
    text = (done.folder / "table.md").read_text()
    made = json.loads((done.folder / "table.json").read_text())
    first, second, third = made["rows"]
    assert text.startswith(NOTICE)
    assert (done.folder / "PRIVATE").read_text() == NOTICE
    assert (done.store.folder / "PRIVATE").read_text() == NOTICE
    assert (first["reported"], second["reported"]) == (None, 12.5)
    assert set(second["measured"]) == {"student", "teacher", "obfuscation"}
    assert 0 <= second["measured"]["teacher"]["value"] <= 1
    assert second["measured"]["student"]["standard_error"] is not None
    assert "DP-GAN (reported)" in text
    assert "strokes (stands in for places)" in text
    assert "not here" in third["problem"]
    assert "inf (not private)" in text
    assert (done.folder / "figure.png").stat().st_size > 1_000


def test_the_losses_of_alignment_are_kept(done: Experiment) -> None:
    first, second, _ = done.rows()
    losses = [done.stored(row).measures()["losses"]["value"] for row in (first, second)]
    assert losses[0] == []
    assert len(losses[1]) == 2, "before the step and after it"
    assert {"feature", "classify", "variation", "size", "total"} == set(losses[1][0])


def test_a_cell_is_a_release_that_verifies(done: Experiment) -> None:
    for row in done.rows()[:2]:
        assert verify(done.stored(row).release).ok


def test_a_cell_is_not_run_twice(done: Experiment) -> None:
    before = contents(done.store.folder)
    Experiment.of(done.store.folder.parent / "digits.toml", out=done.store.folder).run("steps 1")
    assert contents(done.store.folder) == before


def test_lost_scores_are_made_again_from_the_same_release(done: Experiment) -> None:
    row = done.rows()[0]
    cell = done.stored(row)
    before, scores = contents(done.store.folder), cell.measures()
    shutil.rmtree(cell.folder / "measures")
    done.run("steps 0")
    again = cell.measures()
    assert again[row.student.key]["value"] == scores[row.student.key]["value"]
    assert again["teacher"]["value"] is None, "the teacher went with the run that made the release"
    after = contents(done.store.folder)
    assert all(after[path] == data for path, data in before.items() if "release" in path.parts)


def test_pictures_come_with_and_without_private_images(done: Experiment, tmp_path: Path) -> None:
    path = recipe(tmp_path, SMALL.replace('show = "curve"', 'show = "grid"'))
    again = Experiment.of(path, out=done.store.folder)
    again.run("steps")
    assert (again.folder / "figure.png").exists()
    assert (again.folder / "figure_without_private.png").exists()


def test_the_toy_runs_in_seconds(tmp_path: Path) -> None:
    toy = next(path for path in RECIPES if path.stem.endswith("figure5"))
    result = Experiment.of(toy, out=tmp_path / "out").table()
    made, text = result.document, result.text
    agreed = made["agreement_with_the_teacher"]
    assert agreed["aligned"]["value"] > 0.97
    assert agreed["aligned"]["value"] >= agreed["distillation"]["value"] - 0.01
    assert "nothing here is private" in text
    assert (tmp_path / "out" / "tables" / f"{toy.stem}-small" / "figure.png").exists()


def test_the_command(done: Experiment, tmp_path: Path) -> None:
    path = done.store.folder.parent / "digits.toml"
    again = sfumato("run", path, "--out", done.store.folder, "--only", "steps 1", "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["rows"][1]["reported"] == 12.5
    dry = sfumato("run", path, "--out", tmp_path / "out", "--dry-run")
    assert dry.code == 0, dry.err
    assert "noise multiplier" in dry.out
    assert "2 of 3 releases" in dry.out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("nowhere.toml",), 2, "can be read"),
        (("--profile", "paper"), 2, "profiles"),
        (("--only", "nothing"), 2, "--only"),
        (("--data", "/nowhere"), 2, "folder"),
        (("--only", "elsewhere"), 3, "No cell could be run"),
    ],
)
def test_what_the_command_refuses(arguments: tuple[str, ...], code: int, said: str, tmp_path: Path) -> None:
    path = () if arguments[0].endswith(".toml") else (recipe(tmp_path),)
    outcome = sfumato("run", *path, *arguments, "--out", tmp_path / "out")
    assert outcome.code == code, outcome.err
    assert said in outcome.err
    assert "Traceback" not in outcome.err

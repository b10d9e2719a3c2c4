"""Studies: what is refused, that every one we ship can be planned, and small ones from end to end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfumato.errors import UsageError
from sfumato.experiments.cell import Outcome, Runnable
from sfumato.experiments.engines import local
from sfumato.experiments.experiment import run_recipe
from sfumato.experiments.study import StudyExperiment
from sfumato.experiments.study_format import CUMULATIVE, SINGLE, conditions_of, is_study, read_study
from sfumato.experiments.study_run import StudyRun
from sfumato.lab.folder import NOTICE

from commands import sfumato

STUDIES = [path for path in sorted((Path(__file__).parents[2] / "recipes").glob("*.toml")) if is_study(path)]
SMALL = """
study = "techniques"
title = "Tiny"
source = "A test, Figure 1"
measure = ["accuracy", "bias", "auc", "harmonic"]

[data]
cifar10 = "tiny.npz"
celeba = { files = "faces", label = "Smiling", group = "Male" }

[profiles.small]
records = 80
candidates = 30
seeds = 2
private = { epochs = 1.0, batch = 40, multiplicity = 1 }
plain = { epochs = 2.0, batch = 20, chosen_batch = 10 }

[[grid]]
data = "cifar10s-95"
epsilon = inf
techniques = ["none", "gn"]

[[grid]]
data = "cifar10s-95"
epsilon = 8
techniques = "none"

[[grid]]
data = "celeba"
epsilon = inf
"""
CONDITIONS = ("cifar10s-95, not private, none", "cifar10s-95, not private, gn", "cifar10s-95, epsilon 8, none")


def tiny(folder: Path) -> Path:
    """A folder with a data set like CIFAR-10: ten classes of small images in colour."""
    rng = np.random.default_rng(0)
    folder.mkdir(exist_ok=True)
    patterns = rng.integers(40, 216, (10, 8, 8, 3))

    def images(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.arange(count) % 10
        noise = rng.integers(-40, 40, (count, 8, 8, 3))
        return (patterns[labels] + noise).astype(np.uint8), labels

    (x_train, y_train), (x_test, y_test) = images(100), images(40)
    np.savez(folder / "tiny.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    return folder


def recipe(folder: Path, text: str = SMALL) -> Path:
    path = folder / "tiny.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ('study = "techniques"', 'study = "technique"', "'techniques', 'memorisation', 'grid' or 'outliers'"),
        ("records = 80", "recordz = 80", "did you mean 'records'"),
        ("records = 80", "records = 2", "greater than or equal to 20"),
        ("chosen_batch = 10", "chosen_batsh = 10", "setting of plain training, got 'chosen_batsh'"),
        ("multiplicity = 1", "multiplicitie = 1", "setting of dp-sgd training, got 'multiplicitie'"),
        ("multiplicity = 1", "seed = 1", "setting of dp-sgd training, got 'seed'"),
        ("batch = 20", "batch = 1", "batch from 2"),
        ('"none", "gn"', '"none", "dropout"', "dropout"),
        ("epsilon = 8", "epsilon = -8", "above 0"),
        ('"bias", "auc"', '"bias", "auk"', "'auc'"),
        ("[profiles.small]", "[profiles.smal]", "'small' or 'paper'"),
    ],
)
def test_a_wrong_study_is_refused_by_name(tmp_path: Path, right: str, wrong: str, said: str) -> None:
    assert right in SMALL
    with pytest.raises(UsageError) as refused:
        read_study(recipe(tmp_path, SMALL.replace(right, wrong, 1)))
    assert said in refused.value.what
    assert "tiny.toml" in str(refused.value.where)


def test_plans_of_techniques_are_written_out_and_each_set_is_run_once(tmp_path: Path) -> None:
    text = SMALL.replace('techniques = ["none", "gn"]', 'techniques = ["cumulative", "single", "ws,obs,gn"]')
    found = [c.techniques for c in conditions_of(read_study(recipe(tmp_path, text)), "small") if c.data != "celeba"]
    assert CUMULATIVE[:3] == ("none", "obs", "obs,gn")
    assert CUMULATIVE[-1] == "obs,gn,ws,am,pa,sat"
    assert SINGLE == ("none", "obs", "gn", "ws", "am", "pa", "sat")
    assert found == [*CUMULATIVE, *SINGLE[2:], "none"]  # the last is the private one


@pytest.mark.parametrize(
    ("path", "profile"),
    [(path, profile) for path in STUDIES for profile in read_study(path).profiles],
    ids=lambda part: part.stem if isinstance(part, Path) else part,
)
def test_every_study_can_be_planned_without_data(
    path: Path, profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sfumato.experiments.study._noise", lambda *_: 1.0)  # calibration is tested elsewhere
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "cache"))
    result = run_recipe(path, profile=profile, out=tmp_path / "out", dry_run=True)
    assert result.document
    assert all(cell["minutes"] > 0 for cell in result.document)
    assert f"of {len(result.document)} conditions can be run here" in result.text
    assert not (tmp_path / "out").exists()


def test_all_five_figures_are_there() -> None:
    assert [path.stem for path in STUDIES] == [f"generalization_figure{number}" for number in range(1, 6)]
    kinds = [read_study(path).study for path in STUDIES]
    assert kinds == ["techniques", "memorisation", "grid", "grid", "outliers"]


def test_figures_3_and_4_share_their_runs(tmp_path: Path) -> None:
    folder = tiny(tmp_path / "data")
    (folder / "tiny.npz").rename(folder / "cifar10.npz")
    found = []
    for path in STUDIES[2:4]:
        study = StudyExperiment.of(path, out=tmp_path / "out", folder=folder)
        found.append([run.inputs() for condition in study.conditions() for run in study.runs(condition)])
    assert found[0] == found[1]
    assert len(found[0]) == 60


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StudyExperiment]:
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SFUMATO_CACHE", str(folder / "cache"))
        study = StudyExperiment.of(recipe(folder), out=folder / "out", folder=tiny(folder / "data"))
        study.run("not private")
        yield study


def measures(study: StudyExperiment) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (study.store.folder / "studies").rglob("measures/*.json")}


def test_the_table_has_means_and_standard_errors_over_seeds(done: StudyExperiment) -> None:
    made = json.loads((done.folder / "table.json").read_text())
    assert [row["techniques"] for row in made["rows"]] == ["none", "gn", "none", "none"]
    results = done.results()
    for condition, row in zip(done.conditions(), made["rows"], strict=True):
        if condition.data == "celeba" or condition.private:
            assert ("not run yet" if condition.private else "not here") in row["problem"]
            assert row["seeds"] == 0
            continue
        assert row["seeds"] == 2
        for name in ("accuracy", "bias", "auc", "harmonic"):
            values = [run.value[name] for run in results[condition].values()]
            assert row["measured"][name]["value"] == pytest.approx(np.mean(values))
            assert row["measured"][name]["standard_error"] == pytest.approx(np.std(values, ddof=1) / 2**0.5)
            assert min(values) >= 0
            assert max(values) <= 1


def test_the_text_has_what_people_need(done: StudyExperiment) -> None:
    text = (done.folder / "table.md").read_text()
    assert text.startswith(NOTICE)
    assert "| cifar10s-95 | not private | gn |" in text
    assert "| cifar10s-95 | epsilon 8 | none |" in text
    assert "HS = 3 / (1/A + 1/P + 1/F)" in text
    assert "not run: data not here" in text, "claim 5"
    assert "needs the runs of generalization_figure2" in text, "claim 2 is not measured by this study"
    assert (done.folder / "figure.png").stat().st_size > 1_000


def test_the_private_arm_has_the_same_measures(done: StudyExperiment, tmp_path: Path) -> None:
    path = recipe(tmp_path, SMALL.replace("seeds = 2", "seeds = 1"))
    study = StudyExperiment.of(path, out=tmp_path / "out", folder=done.shelf.folder)
    study.run("epsilon 8")
    ((condition, runs),) = study.results().items()
    (theirs, *_) = done.results().values()
    assert condition.private
    assert set(runs[0].value) == set(theirs[0].value)
    assert all(0 <= value <= 1 for value in runs[0].value.values())


def test_a_finished_run_is_not_run_again(done: StudyExperiment, monkeypatch: pytest.MonkeyPatch) -> None:
    before = measures(done)
    assert len(before) == 4
    monkeypatch.setattr(StudyRun, "_fill", lambda *_: pytest.fail("it was run again"))
    again = StudyExperiment.of(done.store.folder.parent / "tiny.toml", out=done.store.folder, folder=done.shelf.folder)
    again.run("not private")
    assert measures(done) == before


def test_a_stopped_study_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head, first, *_ = SMALL.split("[[grid]]")
    text = f"{head}[[grid]]{first}"
    path, folder, trained = recipe(tmp_path, text), tiny(tmp_path / "data"), []
    fill = StudyRun._fill

    def counted(run: StudyRun, *arguments: Any) -> None:
        trained.append(run.name)
        fill(run, *arguments)

    def stops(store: Path, runs: Sequence[Runnable]) -> Iterator[Outcome]:
        yield runs[0].run(store)
        raise KeyboardInterrupt

    monkeypatch.setattr(StudyRun, "_fill", counted)
    study = StudyExperiment.of(path, out=tmp_path / "out", folder=folder)
    with pytest.raises(KeyboardInterrupt):
        study.run(engine=stops)
    assert trained == [f"{CONDITIONS[0]}, seed 0"]
    after_one = json.loads((study.folder / "table.json").read_text())
    assert [row["seeds"] for row in after_one["rows"]] == [1, 0], "the table is written after every run"
    assert after_one["rows"][0]["measured"]["accuracy"]["standard_error"] is None
    first = measures(study)
    made = StudyExperiment.of(path, out=tmp_path / "out", folder=folder).run()
    assert trained == [f"{condition}, seed {seed}" for condition in CONDITIONS[:2] for seed in (0, 1)]
    assert [row["seeds"] for row in made["rows"]] == [2, 2]
    assert {name: when for name, when in measures(study).items() if name in first} == first


def test_training_without_privacy_is_the_same_in_another_store(done: StudyExperiment, tmp_path: Path) -> None:
    again = StudyExperiment.of(done.store.folder.parent / "tiny.toml", out=tmp_path / "out", folder=done.shelf.folder)
    again.run("not private, gn")
    condition = done.conditions()[1]
    assert again.results()[condition] == done.results()[condition]


def test_two_workers_fill_the_same_store(done: StudyExperiment, tmp_path: Path) -> None:
    path = done.store.folder.parent / "tiny.toml"
    again = StudyExperiment.of(path, out=tmp_path / "out", folder=done.shelf.folder)
    again.run("not private", engine=lambda store, runs: local(store, runs, workers=2))
    assert {c: again.results()[c] for c in done.conditions()[:2]} == {
        c: done.results()[c] for c in done.conditions()[:2]
    }


def test_a_curve_over_training_time(tmp_path: Path) -> None:
    text = SMALL.replace('"techniques"', '"memorisation"').replace("seeds = 2", "seeds = 2\ncheckpoints = 3")
    study = StudyExperiment.of(recipe(tmp_path, text), out=tmp_path / "out", folder=tiny(tmp_path / "data"))
    study.run("cifar10s-95, not private, none")
    ((_, runs),) = study.results().items()
    for run in runs.values():
        assert [round(row["done"], 2) for row in run.rows] == [0.38, 0.75, 1.0]
        assert all(0 <= row["membership probability"] <= 1 for row in run.rows)
        assert run.epochs == 2.0
    made = json.loads((study.folder / "table.json").read_text())
    assert "early" in made["rows"][0]["measured"]
    assert [f["claim"] for f in made["claims"] if f["difference"] is not None] == [2]
    assert (study.folder / "figure.png").exists()


def test_removal_in_rounds_goes_on_from_the_rounds_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SMALL.replace('"techniques"', '"outliers"').replace("seeds = 2", "seeds = 1\nrounds = 1\nremoved = 10")
    path, folder = recipe(tmp_path, text), tiny(tmp_path / "data")
    study = StudyExperiment.of(path, out=tmp_path / "out", folder=folder)
    study.run("cifar10s-95, not private, none")
    first = measures(study)
    assert sorted(name.stem for name in first) == ["round-0", "round-1"]
    more = StudyExperiment.of(
        recipe(tmp_path, text.replace("rounds = 1", "rounds = 2")), out=tmp_path / "out", folder=folder
    )
    made = more.run("cifar10s-95, not private, none")
    assert {name: when for name, when in measures(more).items() if name in first} == first
    stored = {name.stem: json.loads(name.read_text()) for name in measures(more)}
    assert [stored[f"round-{n}"]["trained_on"] for n in range(3)] == [80, 70, 60]
    assert set(stored["round-1"]["kept"]) < set(stored["round-0"]["kept"]) < set(range(80))
    assert [row["round"] for row in made["rows"] if "round" in row] == [0, 1, 2]
    assert "it holds for the records that were left" in (more.folder / "table.md").read_text()
    assert (more.folder / "figure.png").exists()


def test_a_grid_is_drawn_against_epsilon(done: StudyExperiment, tmp_path: Path) -> None:
    text = SMALL.replace('"techniques"', '"grid"', 1)
    again = StudyExperiment.of(recipe(tmp_path, text), out=done.store.folder, folder=done.shelf.folder)
    made = again.run("not private")
    assert [row["seeds"] for row in made["rows"]] == [2, 2, 0, 0], "the runs of a grid are those of techniques"
    assert (again.folder / "figure.png").stat().st_size > 1_000


def test_more_records_than_there_are_is_a_problem_with_a_sentence(tmp_path: Path) -> None:
    text = SMALL.replace("records = 80", "records = 8000")
    study = StudyExperiment.of(recipe(tmp_path, text), out=tmp_path / "out", folder=tiny(tmp_path / "data"))
    study.run("cifar10s-95, not private, none")
    assert "Expected 8000 training records, got 100" in study.problems[study.conditions()[0]]


def test_the_command(done: StudyExperiment) -> None:
    path = done.store.folder.parent / "tiny.toml"
    arguments = ("run", path, "--out", done.store.folder, "--data", done.shelf.folder, "--only")
    again = sfumato(*arguments, "cifar10s-95, not private", "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["rows"][0]["seeds"] == 2
    dry = sfumato(*arguments, "cifar10s-95", "--dry-run")
    assert dry.code == 0, dry.err
    assert "noise multiplier" in dry.out
    assert "3 of 3 conditions" in dry.out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--profile", "paper"), 2, "profiles"),
        (("--only", "nothing"), 2, "--only"),
        (("--data", "/nowhere"), 2, "folder"),
        (("--only", "celeba"), 3, "No cell could be run"),
    ],
)
def test_what_the_command_refuses(arguments: tuple[str, ...], code: int, said: str, tmp_path: Path) -> None:
    outcome = sfumato("run", recipe(tmp_path), *arguments, "--out", tmp_path / "out")
    assert outcome.code == code, outcome.err
    assert said in outcome.err
    assert "Traceback" not in outcome.err

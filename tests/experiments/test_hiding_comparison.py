"""Comparisons of hiders: what is refused, that every one we ship can be planned, and a small one from end to end."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from sfumato.errors import DataError, NotApplicable, UsageError
from sfumato.experiments import hiding_run
from sfumato.experiments.cell import Outcome, Runnable
from sfumato.experiments.experiment import run_recipe
from sfumato.experiments.hiding_comparison import FACES, SCATTER, HidingExperiment
from sfumato.experiments.hiding_format import Choice, conditions_of, is_hiding, largest, read_hiding, settings_of
from sfumato.experiments.hiding_run import BaselineRun, HidingRun, read_faces
from sfumato.experiments.hiding_table import _alarms
from sfumato.experiments.status import line_of
from sfumato.judging import attribute_judges
from sfumato.judging import leak as leak_module
from sfumato.judging.attribute_judges import SmallJudge
from sfumato.judging.leak import measure_leak
from sfumato.judging.leak_table import LIMITS
from sfumato.lab.folder import NOTICE
from sfumato.making import hide
from sfumato.report.site import write_site

from attributed import write_folder
from commands import sfumato
from wording import only_says_there_is_no_epsilon

RECIPES = [path for path in sorted((Path(__file__).parents[2] / "recipes").glob("*.toml")) if is_hiding(path)]
PUBLISHED = [path for path in RECIPES if path.stem.startswith("deco")]
OTHERS = [path for path in RECIPES if path not in PUBLISHED]  # each varies one setting of the default
TOY = """
hiding = "colour"
keep = ["shape", "brightness"]
title = "Tiny"
source = "A test, Table 1"
methods = ["transport", "ce"]
parts = ["g", "tr+v+g"]

[data]
pictures = "pictures"
gone = "gone"

[set.ce]
width = 8

[profiles.small]
seeds = 2

[profiles.small.set]
transport = { codes = 20 }
ce = { updates = 2, epochs = 1, steps = 2 }

[[setup]]
name = "A"
train = "pictures"
release = "pictures"

[[setup]]
name = "B"
train = ["gone", "pictures"]
release = "pictures"
methods = "transport"

[[reported]]
table = 12
setup = "A"
parts = "g"
front = "no"
rows = [["real", "-", 90.0, 80.5, 70], ["ce", 50, 60.25, 70.5, 60], ["metric", "-", 55.0, 65.0, 50.0]]
"""


def recipe(folder: Path, text: str = TOY) -> Path:
    path = folder / "tiny.toml"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with one data set."""
    folder = tmp_path_factory.mktemp("hiding")
    write_folder(folder / "pictures", 100)
    return folder


def _nobody(*_: torch.Tensor) -> None:
    raise NotApplicable("Expected faces, got none.")


@pytest.fixture(scope="module", autouse=True)
def _hasty() -> Iterator[None]:
    """Judges that stop after a few steps, and nobody who is looked for in pictures that show no face."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(attribute_judges.JUDGES, "small", SmallJudge(epochs=1, batch=16))
        patch.setattr("sfumato.judging.recognition._by_faces", _nobody)
        yield


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("keep =", "keeep =", "did you mean 'keep'"),
        ('keep = ["shape", "brightness"]', 'keep = ["shape", "colour"]', "beside the hidden one"),
        ('keep = ["shape", "brightness"]', 'keep = ["shape", "shape"]', "each once"),
        ('"transport", "ce"]', '"transport", "cee"]', "method of hiding, got 'cee'; did you mean 'ce'"),
        ('parts = ["g", "tr+v+g"]', 'parts = ["g", "tr"]', "'g', 'v+g' or 'tr+v+g'"),
        ('parts = ["g", "tr+v+g"]', 'front = "front"', "'no', 'test' or 'everywhere'"),
        ('parts = ["g", "tr+v+g"]', "shares = [1, 2, 3]", "at least 4 items"),
        ("seeds = 2", "seeds = 0", "greater than or equal to 1"),
        ("seeds = 2", 'seeds = 2\njudge = "large"', "'small' or 'resnet18'"),
        ("width = 8", "widht = 8", "setting of ce, got 'widht'; did you mean 'width'"),
        ("width = 8", "seed = 8", "setting of ce, got 'seed'"),
        ("width = 8", 'weights = "w"', "setting of ce, got 'weights'"),
        ("width = 8", "width = 9", "multiple of 8"),
        ("width = 8", 'width = "wide"', "width as int"),
        ("[set.ce]", "[set.cd]", "method of hiding, got 'cd'"),
        ("[profiles.small]", "[profiles.smal]", "'small' or 'paper'"),
        ('name = "B"', 'name = "A"', "different names in a profile, got 'A' twice"),
        ('name = "B"', 'nam = "B"', "did you mean 'name'"),
        ('gone = "gone"', 'gone = { files = "gone", label = "shape" }', "Expected no label"),
        ('gone = "gone"', 'gone = { files = "gone", split = "val" }', "'train' or 'test'"),
        ('setup = "A"', 'setup = "C"', "setup, got 'C'"),
        ('setup = "A"', 'setup = "A"\nrelease = "gone"', "release of the setup, got 'gone'"),
        ('["metric", "-"', '["metrix", "-"', "row, got 'metrix'; did you mean 'metric'"),
        ('["metric", "-", 55.0', '["metric", 55.0', "4 numbers, or '-', after 'metric' in reported table 12"),
        ('["metric", "-", 55.0', '["metric", "-", "x"', "4 numbers, or '-', after 'metric'"),
    ],
)
def test_a_wrong_recipe_is_refused_by_name(tmp_path: Path, right: str, wrong: str, said: str) -> None:
    assert right in TOY
    with pytest.raises(UsageError) as refused:
        read_hiding(recipe(tmp_path, TOY.replace(right, wrong, 1)))
    assert said in refused.value.what
    assert "\n" not in refused.value.what
    assert "tiny.toml" in str(refused.value.where)


def test_several_releases_need_a_name_beside_a_reported_table(tmp_path: Path) -> None:
    text = TOY.replace('release = "pictures"', 'release = ["pictures", "gone"]', 1)
    with pytest.raises(UsageError, match="in reported table 12, because its setup releases several"):
        read_hiding(recipe(tmp_path, text))
    found = read_hiding(recipe(tmp_path, text.replace('setup = "A"', 'setup = "A"\nrelease = "gone"')))
    assert [c.release for c in conditions_of(found, "small") if c.setup == "A"] == [*["pictures"] * 2, *["gone"] * 2]


def test_front_faces_everywhere_are_hidden_apart(tmp_path: Path) -> None:
    text = TOY.replace("methods =", 'front = ["no", "test", "everywhere"]\nmethods =', 1)
    found = [c for c in conditions_of(read_hiding(recipe(tmp_path, text)), "small") if c.setup == "A"]
    assert [(c.everywhere, c.method) for c in found] == [
        (False, "transport"),
        (False, "ce"),
        (True, "transport"),
        (True, "ce"),
    ]
    measured = [[(choice.parts, choice.front) for choice in c.choices] for c in (found[0], found[2])]
    assert measured == [
        [("g", "no"), ("g", "test"), ("tr+v+g", "no"), ("tr+v+g", "test")],
        [("g", "no"), ("tr+v+g", "no")],
    ]


def test_a_setting_that_is_varied_makes_a_row_of_each_value(tmp_path: Path) -> None:
    varied = (
        '[[setup]]\nname = "C"\ntrain = "pictures"\nrelease = "pictures"\nmethods = "transport"\nparts = "g"\nvary = {}'
    )
    both = varied.replace("{}", "{ strength = [0.5, 1.0], codes = [10, 20] }")
    (tmp_path / "varied.toml").write_text(f"{TOY}\n{both}\n")
    found = read_hiding(tmp_path / "varied.toml")
    rows = [condition for condition in conditions_of(found, "small") if condition.setup == "C"]
    assert [condition.row for condition in rows] == [
        f"transport, strength {strength}, codes {codes}" for strength in (0.5, 1.0) for codes in (10, 20)
    ]
    settings = [settings_of(found, found.profiles["small"], "transport", 3, condition.varied) for condition in rows]
    assert [(one["strength"], one["codes"], one["seed"]) for one in settings][1] == ("0.5", "20", "3")
    (tmp_path / "varied.toml").write_text(f"{TOY}\n{varied.replace('{}', '{ strngth = 0.5 }')}\n")
    with pytest.raises(UsageError, match="did you mean 'strength'"):
        read_hiding(tmp_path / "varied.toml")


def test_no_more_is_re_generated_than_is_judged() -> None:
    assert largest([Choice("g", "no"), Choice("v+g", "test")]) == "v+g"


@pytest.mark.parametrize("profile", ["small", "paper"])
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_can_be_planned_without_data(
    path: Path, profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "cache"))
    result = run_recipe(path, profile=profile, out=tmp_path / "out", dry_run=True)
    assert all("not here" in cell["problem"] for cell in result.document)
    wanted = {"transport"} if path in OTHERS else {"ce", "ce-mask", "metric", "transport"}
    assert {cell["cell"].split(", ")[-1 - (path in OTHERS)] for cell in result.document} >= wanted
    assert f"0 of {len(result.document)} conditions can be run here" in result.text
    assert only_says_there_is_no_epsilon(result.text)
    assert not (tmp_path / "out").exists()


def test_the_recipes_have_all_published_tables() -> None:
    assert [path.stem for path in PUBLISHED] == ["deco_setup_a", "deco_setup_b", "deco_setup_c"]
    tables = [{table.table for table in read_hiding(path).reported} for path in PUBLISHED]
    assert tables == [{7, 12, 16}, {8, 13, 17}, {9, 10, 14, 15, 18, 19}]
    for path in PUBLISHED:
        found = read_hiding(path)
        assert [len(table.rows) for table in found.reported] == [4] * len(found.reported)
        for table in found.reported:
            assert all((pt is None) == (by in ("real", "metric") or table.parts == "tr+v+g") for by, pt in pts(table))
    first = read_hiding(PUBLISHED[0]).reported[1]
    assert (first.table, first.parts, first.front) == (12, "g", "test")
    assert first.percents["ce"] == (18.71, 42.34, 35.86, 78.59)


def pts(table: Any) -> list[tuple[str, float | None]]:
    return [(by, values[0]) for by, values in table.percents.items()]


def test_a_plan_says_what_is_run_and_measured(pictures: Path, tmp_path: Path) -> None:
    result = run_recipe(recipe(tmp_path), out=tmp_path / "out", data=pictures, dry_run=True)
    cells = {cell["cell"]: cell for cell in result.document}
    assert list(cells) == [
        "pictures, real images",
        "A, pictures, transport",
        "A, pictures, ce",
        "B, pictures, transport",
    ]
    assert "gone is not here" in cells["B, pictures, transport"]["problem"]
    for name in list(cells)[:3]:
        assert cells[name]["runs"] == 2
        assert cells[name]["measures"] == ["small-1-g", "small-1-tr+v+g"]
        assert cells[name]["minutes"] > 0
    assert "3 of 4 conditions can be run here" in result.text
    assert not (tmp_path / "out").exists()


class Counted:
    """How often something was done, by its name."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.hidden: list[tuple[str, int]] = []
        self.baselines: list[int] = []
        self.leaks: list[str] = []
        hide, baseline, leak = hiding_run.hide_attribute, hiding_run.baseline_of, hiding_run.leak_of

        def hides(job: Any, out: Path, **named: Any) -> Path:
            self.hidden.append((job.method, job.seed))
            return hide(job, out, **named)

        def baselines(pairs: Any, *arguments: Any, **named: Any) -> Any:
            self.baselines.append(len(pairs.real))
            return baseline(pairs, *arguments, **named)

        def leaks(*arguments: Any, **named: Any) -> Any:
            self.leaks.append(named["parts"])
            return leak(*arguments, **named)

        patch.setattr(hiding_run, "hide_attribute", hides)
        patch.setattr(hiding_run, "baseline_of", baselines)
        patch.setattr(hiding_run, "leak_of", leaks)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> Iterator[tuple[HidingExperiment, Counted]]:
    folder = tmp_path_factory.mktemp("done")
    with pytest.MonkeyPatch.context() as patch:
        counted = Counted(patch)
        experiment = HidingExperiment.of(recipe(folder), out=folder / "out", folder=pictures)
        experiment.run()
        yield experiment, counted


def table_of(experiment: HidingExperiment) -> Any:
    return json.loads((experiment.folder / "table.json").read_text())


def sections(experiment: HidingExperiment) -> dict[tuple[str, str], Any]:
    return {(section["setup"], section["parts"]): section for section in table_of(experiment)["sections"]}


def rows(section: Any) -> dict[str, Any]:
    return {row["by"]: row for row in section["rows"]}


def test_each_method_hides_once_with_each_seed_and_shares_the_baseline(
    done: tuple[HidingExperiment, Counted],
) -> None:
    _, counted = done
    assert counted.hidden == [("transport", 0), ("transport", 1), ("ce", 0), ("ce", 1)]
    assert len(counted.baselines) == 2 * 2, "of two seeds and two choices of parts, for two methods"
    assert counted.leaks == ["g", "tr+v+g"] * 4


def test_the_table_has_means_and_standard_errors_over_seeds(done: tuple[HidingExperiment, Counted]) -> None:
    experiment, _ = done
    assert set(sections(experiment)) == {(setup, parts) for setup in "AB" for parts in ("g", "tr+v+g")}
    results = experiment.results()
    for (setup, parts), section in sections(experiment).items():
        if setup == "B":
            continue
        assert list(rows(section)) == ["real", "transport", "ce"]
        (key,) = (s for s in results.hidden if (s.setup, s.choice.parts) == (setup, parts))
        for method in ("transport", "ce"):
            leaks = list(results.hidden[key][method].values())
            row = rows(section)[method]
            assert (row["seeds"], row["problem"]) == (2, "")
            shown = {
                "cls": [leak["released"]["colour"]["accuracy"] for leak in leaks],
                "balanced": [leak["released"]["colour"]["balanced"] for leak in leaks],
                "inside": [leak["inside"]["accuracy"] for leak in leaks],
                "by_pixels": [leak["recognition"]["by_pixels"]["share"] for leak in leaks],
            }
            for name, values in shown.items():
                same_mean(row["measured"][name], values)
            same_mean(row["keep"]["shape"], [leak["released"]["shape"]["accuracy"] for leak in leaks])
        real = list(results.real[key].values())
        same_mean(rows(section)["real"]["measured"]["cls"], [scores["colour"]["accuracy"] for scores in real])
        same_mean(rows(section)["real"]["measured"]["majority"], [scores["colour"]["majority"] for scores in real])
        assert rows(section)["real"]["measured"]["chance"]["value"] == pytest.approx(1 / 3)


def same_mean(shown: Any, values: list[float]) -> None:
    assert shown["value"] == pytest.approx(np.mean(values))
    assert shown["standard_error"] == pytest.approx(np.std(values, ddof=1) / 2**0.5)


def test_pt_is_of_heads_on_images_that_did_not_train_them(done: tuple[HidingExperiment, Counted]) -> None:
    experiment, _ = done
    found = sections(experiment)
    assert rows(found["A", "g"])["ce"]["measured"]["pt"] is not None
    assert rows(found["A", "g"])["transport"]["measured"]["pt"] is None, "it has no head"
    for row in rows(found["A", "tr+v+g"]).values():
        assert row["measured"]["pt"] is None
    text = (experiment.folder / "table.md").read_text()
    of_all = text.split("judges trained on tr+v+g")[1].split("## ")[0]
    lines = [line for line in of_all.splitlines() if line.startswith(("| real |", "| transport |", "| ce |"))]
    assert len(lines) == 3
    assert all(line.split(" | ")[1:3] == ["2", "-"] for line in lines)


def test_what_judges_say_is_what_leak_says(done: tuple[HidingExperiment, Counted]) -> None:
    """`sfumato leak` on a release of the store trains its own baseline and finds the same."""
    experiment, _ = done
    condition = experiment.conditions()[0]
    run = experiment.runs(condition)[1]
    stored = run.stored(experiment.store.folder)
    found = measure_leak(stored.release, run.job.data, seeds=1, parts="g", keep=("shape", "brightness"))
    known = stored.measures()["small-1-g"]["value"]
    assert found.real["shape"].accuracy == known["real"]["shape"]["accuracy"]
    assert found.released["colour"].accuracies == tuple(known["released"]["colour"]["accuracies"])
    assert found.gain.value == known["gain"]["value"]


def test_the_text_has_what_people_need(done: tuple[HidingExperiment, Counted]) -> None:
    experiment, _ = done
    text = (experiment.folder / "table.md").read_text()
    assert text.startswith(NOTICE)
    assert all(limit in text for limit in LIMITS)
    assert "There is no epsilon here" in text
    assert "| ce, reported |  | 50.00 | 60.25 | - | - | 70.50 | 60.00 |" in text
    assert "| metric, reported |  | - | 55.00 |" in text, "of a method that is not compared here"
    assert text.index("| real |") < text.index("| real, reported |") < text.index("| transport |")
    assert "Majority rates of the kept attributes: shape" in text
    assert "The data set gone is not here" in text
    alarms = [section["alarms"] for section in table_of(experiment)["sections"]]
    for alarm in (alarm for found in alarms for alarm in found):
        assert f"**ALARM** {alarm['alarm']}" in text
        assert all(of.startswith(("transport, seed ", "ce, seed ")) for of in alarm["of"])


def test_an_alarm_is_said_once_with_all_who_raised_it() -> None:
    same = {"alarms": ["race, PT: degenerate"]}
    found = _alarms(
        {"ce": {0: same, 2: {"alarms": ["race: constant", *same["alarms"]]}}, "metric": {0: {"alarms": []}}}
    )
    assert found == [
        {"alarm": "race, PT: degenerate", "of": ["ce, seed 0", "ce, seed 2"]},
        {"alarm": "race: constant", "of": ["ce, seed 2"]},
    ]


def test_nothing_speaks_of_epsilon(done: tuple[HidingExperiment, Counted], tmp_path: Path) -> None:
    experiment, _ = done
    for path in experiment.store.folder.rglob("*"):
        if path.suffix in (".json", ".md"):
            assert only_says_there_is_no_epsilon(path.read_text()), path
    page = write_site(experiment.store.folder, tmp_path / "site").read_text()
    assert only_says_there_is_no_epsilon(page)
    assert "there is no epsilon here" in page
    assert "<code>tables/tiny-small</code>" in page
    assert [path.name for path in experiment.store.folder.iterdir() if path.name == "cells"] == []


def test_its_figures_are_drawn(done: tuple[HidingExperiment, Counted]) -> None:
    experiment, _ = done
    for name in (SCATTER, FACES):
        with Image.open(experiment.folder / name) as picture:
            assert min(picture.size) > 100
    runs = [experiment.runs(condition)[0] for condition in experiment.conditions("A, ")]
    shown = [read_faces(run, experiment.store.folder) for run in runs]
    first, second = (pictures for pictures in shown if pictures is not None)
    assert first[0].equal(second[0]), "the same real faces"
    assert first[0].shape == first[1].shape == second[1].shape == (8, 3, 16, 16)
    assert not first[1].equal(second[1])


def test_a_finished_run_is_not_run_again(
    done: tuple[HidingExperiment, Counted], monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, _ = done
    before = measures(experiment)
    monkeypatch.setattr(HidingRun, "_fill", lambda *_: pytest.fail("it was run again"))
    monkeypatch.setattr(BaselineRun, "_fill", lambda *_: pytest.fail("it was run again"))
    path = experiment.store.folder.parent / "tiny.toml"
    made = HidingExperiment.of(path, out=experiment.store.folder, folder=experiment.shelf.folder).run()
    assert [row["seeds"] for row in made["sections"][0]["rows"]] == [2, 2, 2]
    assert measures(experiment) == before


def measures(experiment: HidingExperiment) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (experiment.store.folder / "hiding").rglob("measures/*.json")}


def test_other_setups_that_release_the_same_share_the_baseline(
    done: tuple[HidingExperiment, Counted], tmp_path: Path
) -> None:
    experiment, _ = done
    text = TOY.replace('train = "pictures"', 'train = ["pictures", "more"]').replace('"A"', '"D"')
    text = text.replace('gone = "gone"', 'more = "pictures"\ngone = "gone"')
    other = HidingExperiment.of(recipe(tmp_path, text), out=experiment.store.folder, folder=experiment.shelf.folder)
    condition, known = other.conditions("D, ")[0], experiment.conditions("A, ")[0]
    assert other.runs(condition)[0].inputs != experiment.runs(known)[0].inputs
    for seed in range(2):
        assert other.baseline(condition, seed).inputs == experiment.baseline(known, seed).inputs
        assert other.baseline(condition, seed).finished(experiment.store.folder)
    assert other.runs(condition)[0].job.train_on == (str(experiment.shelf.folder / "pictures"),) * 2  # type: ignore[operator]


def test_methods_adapt_the_same_diffusion_model_which_is_trained_once(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same seed and not of another; with labs of others a release has the bytes that it has without."""
    monkeypatch.setattr(hide.secrets, "SystemRandom", lambda: random.Random(5))
    monkeypatch.setattr(hide.secrets, "randbits", lambda bits: 5)
    monkeypatch.setattr("sfumato.experiments.hiding_comparison.draw_scatter", lambda *_: None)  # it takes a second
    monkeypatch.setattr(hiding_run, "leak_of", lambda *_, **__: pytest.fail("nothing is measured here"))
    monkeypatch.setattr(hiding_run, "_measure", lambda *_: None)
    settings = "{ updates = 2, epochs = 1, steps = 2, width = 8 }"
    text = TOY.replace('"transport", "ce"]', '"ce", "ce-mask"]').replace("[set.ce]\nwidth = 8\n", "")
    text = text.replace("ce = { updates = 2, epochs = 1, steps = 2 }", f"ce = {settings}\nce-mask = {settings}")
    experiment = HidingExperiment.of(recipe(tmp_path, text), out=tmp_path / "out", folder=pictures)
    experiment.run("A, ")
    ce, masked = (experiment.runs(condition) for condition in experiment.conditions("A, "))
    kept = [
        [path.stem for path in run.stored(experiment.store.folder).folder.rglob("denoiser-*.safetensors")]
        for run in (*ce, *masked)
    ]
    assert [len(names) for names in kept] == [1, 1, 0, 0]
    assert kept[0] != kept[1]
    alone = hiding_run.hide_attribute(masked[1].job, tmp_path / "alone")
    shared = masked[1].stored(experiment.store.folder).release
    assert (alone / "SHA256SUMS").read_text() == (shared / "SHA256SUMS").read_text()


def test_a_stopped_comparison_goes_on_where_it_was(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    text = TOY.replace('methods = ["transport", "ce"]', 'methods = "transport"').split('[[setup]]\nname = "B"')[0]
    path, stop = recipe(tmp_path, text), [True]
    leak = hiding_run.leak_of

    def stopping(*arguments: Any, **named: Any) -> Any:
        if stop[0] and named["parts"] == "tr+v+g":
            raise KeyboardInterrupt
        return leak(*arguments, **named)

    monkeypatch.setattr(hiding_run, "leak_of", stopping)
    monkeypatch.setattr("sfumato.experiments.hiding_comparison.draw_scatter", lambda *_: None)  # it takes a second
    experiment = HidingExperiment.of(path, out=tmp_path / "out", folder=pictures)
    with pytest.raises(KeyboardInterrupt):
        experiment.run()
    assert counted.hidden == [("transport", 0)]
    first = measures(experiment)
    assert sorted(name.stem for name in first) == [*["made"], *["small-1-g"] * 3, *["small-1-tr+v+g"] * 2]
    assert rows(sections(experiment)["A", "g"])["real"]["seeds"] == 2, "the table is written after every run"
    stop[0] = False
    made = HidingExperiment.of(path, out=tmp_path / "out", folder=pictures).run()
    assert counted.hidden == [("transport", 0), ("transport", 1)]
    assert len(counted.baselines) == 4
    assert counted.leaks == ["g", "tr+v+g", "g", "tr+v+g"]
    assert [row["seeds"] for section in made["sections"] for row in section["rows"]] == [2, 2, 2, 2]
    assert {name: when for name, when in measures(experiment).items() if name in first} == first


def test_what_cannot_be_measured_stops_nothing_else(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faces from the front cannot be tested without dlib; what is measured of all faces is there."""

    def missing(_: torch.Tensor) -> torch.Tensor:
        raise DataError("Expected dlib, got none.", fix="install it")

    monkeypatch.setattr(leak_module, "front_faces", missing)
    text = TOY.replace('parts = ["g", "tr+v+g"]', 'parts = "g"\nfront = ["no", "test"]').replace(
        "seeds = 2", "seeds = 1"
    )
    path = recipe(tmp_path, text.replace('"transport", "ce"]', '"transport"]'))
    made = HidingExperiment.of(path, out=tmp_path / "out", folder=pictures).run()
    everyone, front = made["sections"][:2]
    assert (everyone["front"], front["front"]) == ("no", "test")
    assert rows(everyone)["transport"]["measured"]["cls"]["standard_error"] is None, "of one seed"
    assert (rows(everyone)["transport"]["seeds"], rows(everyone)["transport"]["problem"]) == (1, "")
    assert rows(front)["transport"]["seeds"] == 0
    assert "Expected dlib, got none." in rows(front)["transport"]["problem"]


def test_faces_from_the_front_are_tested_and_hidden_apart(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With bright pictures in the place of faces, because the pictures of this test show none."""

    def bright(pixels: torch.Tensor, **_: Any) -> torch.Tensor:
        return pixels.float().mean((1, 2, 3)) > 50

    monkeypatch.setattr(leak_module, "front_faces", bright)
    monkeypatch.setattr("sfumato.statistics.faces.front_faces", bright)
    monkeypatch.setattr("sfumato.experiments.hiding_comparison.draw_scatter", lambda *_: None)  # it takes a second
    text = TOY.replace('parts = ["g", "tr+v+g"]', 'parts = "tr+v+g"\nfront = ["no", "test", "everywhere"]')
    text = text.replace("seeds = 2", "seeds = 1").replace('"transport", "ce"]', '"transport"]')
    experiment = HidingExperiment.of(recipe(tmp_path, text), out=tmp_path / "out", folder=pictures)
    made = experiment.run("A, ")
    assert [section["front"] for section in made["sections"] if section["setup"] == "A"] == ["no", "test", "everywhere"]
    tested = {
        section.front: leaks["transport"][0]["released"]["colour"]["images"]
        for section, leaks in experiment.results().hidden.items()
    }
    trained = {
        section.front: leaks["transport"][0]["trained_on"] for section, leaks in experiment.results().hidden.items()
    }
    assert tested["test"] < tested["no"]
    assert trained["test"] == trained["no"] > trained["everywhere"]


def test_weights_are_looked_for_in_the_data_folder(pictures: Path, tmp_path: Path) -> None:
    text = TOY.replace("seeds = 2", 'seeds = 2\nweights = "sd"')
    experiment = HidingExperiment.of(recipe(tmp_path, text), out=tmp_path / "out", folder=pictures)
    transport, ce = experiment.conditions("A, ")
    assert dict(experiment.runs(transport)[0].job.settings) == {"codes": "20", "seed": "0"}
    with pytest.raises(DataError, match="The weights sd are not here"):
        experiment.runs(ce)
    plan = {cell["cell"]: cell for cell in experiment.plan()}
    assert "weights sd are not here" in plan["A, pictures, ce"]["problem"]


def test_a_run_has_a_name_in_the_live_table(done: tuple[HidingExperiment, Counted]) -> None:
    experiment, _ = done
    run = experiment.runs(experiment.conditions()[0])[1]
    line = line_of(run.stored(experiment.store.folder))
    assert line["name"] == "pictures by transport, repeat 1"
    baseline = line_of(run.baseline.stored(experiment.store.folder))
    assert baseline["name"] == "pictures by real, repeat 1"


def test_a_lost_baseline_is_a_problem_and_not_trained_in_secret(pictures: Path, tmp_path: Path) -> None:
    text = TOY.replace("seeds = 2", "seeds = 1").replace('methods = ["transport", "ce"]', 'methods = "transport"')

    def lost(store: Path, runs: Sequence[Runnable]) -> Iterator[Outcome]:
        for run in runs:
            yield Outcome(run.name, "", "Its worker was lost.") if isinstance(run, BaselineRun) else run.run(store)

    experiment = HidingExperiment.of(recipe(tmp_path, text), out=tmp_path / "out", folder=pictures)
    made = experiment.run("A, ", engine=lost)
    assert rows(made["sections"][0])["transport"]["problem"] == "Its worker was lost."


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--profile", "paper"), 2, "profiles"),
        (("--only", "nothing"), 2, "--only"),
        (("--data", "/nowhere"), 2, "folder"),
        (("--only", "B, "), 3, "No cell could be run"),
    ],
)
def test_what_the_command_refuses(arguments: tuple[str, ...], code: int, said: str, tmp_path: Path) -> None:
    outcome = sfumato("run", recipe(tmp_path), *arguments, "--out", tmp_path / "out")
    assert outcome.code == code, outcome.err
    assert said in outcome.err
    assert "Traceback" not in outcome.err

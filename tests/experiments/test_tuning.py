"""Tuning: a choice on public data costs nothing and asks nothing else; one on private data is charged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sfumato.errors import SfumatoError, UsageError
from sfumato.experiments.experiment import Experiment
from sfumato.experiments.totals import totals
from sfumato.lab.store import PUBLIC_TRIAL

from toys import digits

RECIPE = """
title = "t"
source = "s"
measure = ["nearest"]
method = "dp-merf"
{tuning}
[profiles.small]
count = 100
set = {{ frequencies = 100, batch = 50, hidden = 32, latent = 4 }}
[data]
ours = "ours.npz"
theirs = "theirs.npz"
[[grid]]
data = "ours"
epsilon = 8
set = {{ steps = [1, 60] }}
"""


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """Two data sets of digits that have no record in common."""
    source, pixels, labels = digits()
    folder = tmp_path / "data"
    folder.mkdir()
    for name, part in (("ours", slice(0, 400)), ("theirs", slice(400, 800))):
        np.savez(
            folder / f"{name}.npz",
            x_train=source.pixels[part, 0],
            y_train=source.labels[part],
            x_test=(pixels * 255).astype(np.uint8).reshape(-1, 8, 8),
            y_test=labels,
        )
    return folder


def experiment(tmp_path: Path, shelf: Path, tuning: str) -> Experiment:
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.format(tuning=tuning))
    return Experiment.of(path, out=tmp_path / "runs", folder=shelf)


def asked(made: Experiment) -> list[tuple[str, str]]:
    """Data and steps of every cell in the store."""
    inputs = [cell.inputs() for cell in made.store.cells()]
    return sorted((entry["data"], entry["settings"]["steps"]) for entry in inputs)


def test_on_public_data_the_private_data_is_asked_with_the_chosen_setting_alone(tmp_path: Path, shelf: Path) -> None:
    made = experiment(tmp_path, shelf, '[tuning]\non = "public"\ndata = "theirs"')
    table = made.run()
    assert asked(made) == [("ours", "60"), ("theirs", "1"), ("theirs", "60")]  # one step teaches nothing
    assert [line["axes"]["steps"] for line in table["rows"]] == [60]
    assert table["tuning"]["how"] == "public"
    (choice,) = table["tuning"]["choices"]
    assert (choice["chosen"], choice["cost"]) == ("steps 60", "nothing")
    assert choice["scores"]["steps 60"] > choice["scores"]["steps 1"]
    (total,) = totals(made.store)  # trials on public data are nobody's cost
    assert (total.data, total.cells) == ("ours", 1)
    assert sum(bool(cell.inputs().get(PUBLIC_TRIAL)) for cell in made.store.cells()) == 2
    assert "chosen on theirs" in (made.folder / "table.md").read_text()


def test_on_private_data_candidates_and_choice_are_all_charged_once(tmp_path: Path, shelf: Path) -> None:
    made = experiment(tmp_path, shelf, '[tuning]\non = "private"\nepsilon = 2.0')
    table = made.run()
    (choice,) = table["tuning"]["choices"]
    assert (table["tuning"]["how"], choice["chosen"], choice["cost"]) == ("charged", "steps 60", "epsilon 2")
    (total,) = totals(made.store)
    assert total.cells == 3  # two releases and a choice
    assert total.epsilon > 8
    before = {path: path.read_bytes() for path in made.store.folder.rglob("ledger.jsonl")}
    assert len(before) == 3
    again = experiment(tmp_path, shelf, '[tuning]\non = "private"\nepsilon = 2.0').run()
    assert again["tuning"]["choices"] == table["tuning"]["choices"]
    assert {path: path.read_bytes() for path in made.store.folder.rglob("ledger.jsonl")} == before


def test_without_tuning_the_table_says_that_nothing_was_chosen(tmp_path: Path, shelf: Path) -> None:
    table = experiment(tmp_path, shelf, "").run(only="steps 1,")
    assert table["tuning"]["how"] == "none"
    assert "nobody has paid for" in table["tuning"]["sentence"]


def test_the_private_data_is_no_public_data(tmp_path: Path, shelf: Path) -> None:
    (shelf / "theirs.npz").write_bytes((shelf / "ours.npz").read_bytes())
    with pytest.raises(UsageError, match="got the private data itself"):
        experiment(tmp_path, shelf, '[tuning]\non = "public"\ndata = "theirs"').run()


@pytest.mark.parametrize(
    ("tuning", "sentence"),
    [
        ('[tuning]\non = "public"', "Expected data"),
        ('[tuning]\non = "private"\ndata = "theirs"', "there alone"),
        ('[tuning]\non = "private"\nepsilon = 0.0', "above 0"),
        ('[tuning]\non = "private"\nby = "gen2rael"', "did you mean 'gen2real'"),
    ],
)
def test_wrong_tunings_are_refused(tmp_path: Path, shelf: Path, tuning: str, sentence: str) -> None:
    with pytest.raises(SfumatoError, match=sentence):
        experiment(tmp_path, shelf, tuning)


def test_one_setting_alone_is_nothing_to_choose_from(tmp_path: Path, shelf: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.format(tuning='[tuning]\non = "private"').replace("[1, 60]", "60"))
    with pytest.raises(UsageError, match="Expected a list of settings"):
        Experiment.of(path, out=tmp_path / "runs", folder=shelf)

"""The one table of scores: whole for machines and people, added to by each judge, and marked private."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sfumato.errors import DataError
from sfumato.lab.folder import Lab
from sfumato.lab.scores import Entry, add_scores, read_scores
from sfumato.values import Score


def entry(
    name: str, value: float, *, by: str | None = None, judges: str = "utility", parts: tuple[Score, ...] = ()
) -> Entry:
    score = Score(
        name, value, 0.01, higher_is_better=True, seeds=(0, 1), details={"per_class": {"a": 0.5}}, parts=parts
    )
    return Entry(score, by or name, judges, {"seeds": (0, 1)})


def added(tmp_path: Path, *entries: Entry, **left_out: str) -> Path:
    with Lab(tmp_path / "r.lab") as lab:
        add_scores(lab, entries, judged_on="the test split", left_out=left_out)
        return lab.folder


def test_parts_have_rows_of_their_own_in_parquet_and_json(tmp_path: Path) -> None:
    folder = added(tmp_path, entry("gen2real", 0.8, parts=(Score("gen2real-mlp", 0.7, None, True),)))
    rows = json.loads((folder / "scores.json").read_text())["scores"]
    table = pq.read_table(folder / "scores.parquet").to_pylist()
    assert [row["score"] for row in rows] == [row["score"] for row in table] == ["gen2real", "gen2real-mlp"]
    assert [row["part_of"] for row in table] == [None, "gen2real"]
    assert table[0]["value"] == 0.8
    assert table[0]["standard_error"] == 0.01
    assert table[1]["seeds"] == [0, 1]  # a part is of its whole's seeds
    assert json.loads(table[0]["settings"]) == {"seeds": [0, 1]}
    assert set(json.loads(table[0]["versions"])) >= {"python", "sfumato", "torch"}
    assert json.loads(table[0]["details"])["per_class"] == {"a": 0.5}


def test_a_judge_replaces_its_own_rows_and_no_others(tmp_path: Path) -> None:
    added(tmp_path, entry("gen2real", 0.8), entry("fid", 30.0, judges="fidelity"), bias="no colour")
    folder = added(tmp_path, entry("gen2real", 0.9), entry("attack-x", 0.5, judges="privacy"))
    document = read_scores(folder)
    assert {row["score"]: row["value"] for row in document["scores"]} == {"gen2real": 0.9, "fid": 30.0, "attack-x": 0.5}
    assert document["left_out"] == {"bias": "no colour"}
    assert "bias: no colour" in (folder / "scores.md").read_text()


def test_what_was_left_out_and_is_then_computed_is_no_longer_left_out(tmp_path: Path) -> None:
    added(tmp_path, bias="no colour")
    assert read_scores(added(tmp_path, entry("bias", 0.1, judges="fairness")))["left_out"] == {}


def test_numbers_that_json_does_not_know(tmp_path: Path) -> None:
    folder = added(tmp_path, entry("epsilon", math.inf), entry("nothing", math.nan))
    text = (folder / "scores.json").read_text()
    assert "Infinity" not in text
    assert "NaN" not in text
    assert [row["value"] for row in json.loads(text)["scores"]] == [None, None]


def test_every_form_says_that_it_is_private(tmp_path: Path) -> None:
    folder = added(tmp_path, entry("gen2real", 0.8))
    assert (folder / "scores.md").read_text().startswith("PRIVATE")
    assert json.loads((folder / "scores.json").read_text())["notice"].startswith("PRIVATE")
    assert pq.read_schema(folder / "scores.parquet").metadata[b"notice"].startswith(b"PRIVATE")


def test_a_foreign_table_is_refused(tmp_path: Path) -> None:
    folder = added(tmp_path, entry("gen2real", 0.8))
    (folder / "scores.json").write_text("[1]")
    with pytest.raises(DataError, match="table of scores"):
        added(tmp_path, entry("gen2real", 0.8))

"""sfumato evaluate: scores go to the lab alone."""

from __future__ import annotations

import json
from pathlib import Path

from commands import Outcome, sfumato


def test_evaluate_writes_to_the_lab_only(made: tuple[Path, Path, Outcome]) -> None:
    data, release, _ = made
    before = sorted(release.rglob("*"))
    outcome = sfumato("evaluate", release, "--real", data, "--classes", "a,b,c", "--metric", "nearest")
    assert outcome.code == 0, outcome.err
    assert "nearest" in outcome.out
    assert "not for publication" in outcome.out
    assert sorted(release.rglob("*")) == before
    lab = release.with_name("r.lab")
    assert json.loads((lab / "scores.json").read_text())["scores"][0]["score"] == "nearest"
    assert (lab / "scores.md").read_text().startswith("PRIVATE")
    page = (lab / "scores.html").read_text()
    assert "PRIVATE" in page
    assert "http" not in page.replace("http-equiv", "")  # one file, nothing from elsewhere

"""sfumato evaluate: scores are written to the lab only, and which requests are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cli.checking import left_in, refused

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


def test_json(made: tuple[Path, Path, Outcome]) -> None:
    data, release, _ = made
    outcome = sfumato("evaluate", release, "--real", data, "--metric", "nearest", "--classes", "a,b,c", "--json")
    assert json.loads(outcome.out)["lab"] is True


REQUESTS: dict[str, tuple[tuple[str, ...], str]] = {
    "without real data": (("r",), "Missing option '--real'"),
    "of nothing": (("r", "--real=tiny.npz"), "Expected a release folder"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_bad_request(name: str, workdir: Path) -> None:
    arguments, needle = REQUESTS[name]
    refused(sfumato("evaluate", *arguments), 2, needle)
    assert left_in(workdir) == []


EVALUATIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "other classes": (("--classes", "x,y,z"), "with the released classes"),
    "another size": (("--classes", "a,b,c", "--size", "4"), "Expected real images of shape (1, 8, 8)"),
    "an unknown metric": (("--classes", "a,b,c", "--metric", "fidd"), "got 'fidd'"),
}


@pytest.mark.parametrize("name", EVALUATIONS)
def test_real_data_or_metric_that_does_not_fit(name: str, stopped: Path, tmp_path: Path) -> None:
    release = Path(shutil.copytree(stopped / "whole", tmp_path / "r"))
    more, needle = EVALUATIONS[name]
    refused(sfumato("evaluate", release, "--real", stopped / "tiny.npz", *more), 2, needle)
    assert left_in(tmp_path) == ["r"]


def test_evaluate_of_a_tampered_release(stopped: Path, tmp_path: Path) -> None:
    release = Path(shutil.copytree(stopped / "whole", tmp_path / "r"))
    path = release / "certificate.json"
    certificate = json.loads(path.read_text())
    certificate["guarantee"]["epsilon"] /= 10
    path.write_text(json.dumps(certificate))
    real = ("--real", stopped / "tiny.npz", "--classes", "a,b,c")
    refused(sfumato("evaluate", release, *real, "--metric", "nearest"), 6, "differs from its sum")
    assert left_in(tmp_path) == ["r"]

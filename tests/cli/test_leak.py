"""sfumato leak: numbers on the screen, as JSON and on a page; alarms on standard error; a sentence for bad requests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.checking import left_in, refused
from judging.hiding import hidden_release, on_disk
from sfumato.judging import attribute_judges
from sfumato.judging.attribute_judges import SmallJudge

from commands import sfumato


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("hidden")
    data = on_disk(folder / "pictures", 120)
    return data, hidden_release(folder / "h", data)


@pytest.fixture(autouse=True)
def short_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(attribute_judges.JUDGES, "small", SmallJudge(epochs=3, batch=16))


def test_what_is_printed(hidden: tuple[Path, Path]) -> None:
    data, release = hidden
    asked = ("--attribute", "colour", "--keep", "shape, brightness", "--seeds", "1", "--parts", "g")
    outcome = sfumato("leak", release, "--real", data, *asked)
    assert outcome.code == 0, outcome
    assert "colour hidden: judge small, 1 seed, trained on 48 images of g, tested on 24" in outcome.out
    assert "An attribute hidden is not a person hidden" in outcome.out
    assert outcome.out.lower().count("epsilon") == outcome.out.count("There is no epsilon here") == 1
    lines = outcome.out.splitlines()
    assert [line.split(",")[0].split(" (")[0].strip() for line in lines[1:6]] == [
        *["colour"] * 3,
        "shape",
        "brightness",
    ]
    page = release.with_name("h.lab") / "leak.html"
    assert str(page) in outcome.out
    assert page.exists()


def test_json(hidden: tuple[Path, Path]) -> None:
    data, release = hidden
    document = json.loads(sfumato("leak", release, "--real", data, "--seeds", "1", "--json").out)
    assert document["lab"] is True
    assert document["leak"]["told"]["accuracy"] == 1
    assert document["leak"]["parts"] == "v+g"


def test_a_judge_that_learns_nothing_is_an_alarm(hidden: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(attribute_judges.JUDGES, "small", SmallJudge(epochs=0.1, batch=16))
    data, release = hidden
    outcome = sfumato("leak", release, "--real", data, "--seeds", "1", "--json")
    assert outcome.code == 0  # it is said, and nothing was claimed that does not hold
    assert "ALARM: colour" in outcome.err
    assert json.loads(outcome.out)["leak"]["alarms"]


REQUESTS: dict[str, tuple[tuple[str, ...], str]] = {
    "without real data": (("h",), "Missing option '--real'"),
    "of nothing": (("h", "--real=digits"), "Expected"),
    "with an unknown judge": (("h", "--real=digits", "--judge=vgg"), "'vgg' is not one of"),
    "with an unknown front": (("h", "--real=digits", "--front=all"), "'all' is not one of"),
    "without seeds": (("h", "--real=digits", "--seeds=0"), "Expected 1 to 100 seeds, got 0"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_bad_request(name: str, workdir: Path) -> None:
    arguments, needle = REQUESTS[name]
    outcome = sfumato("leak", *arguments)
    refused(outcome, outcome.code if name == "of nothing" else 2, needle)
    assert outcome.code != 0
    assert left_in(workdir) == []


def test_an_attribute_that_is_not_hidden(hidden: tuple[Path, Path]) -> None:
    data, release = hidden
    refused(
        sfumato("leak", release, "--real", data, "--attribute", "race"), 2, "that is hidden here, colour; got 'race'"
    )

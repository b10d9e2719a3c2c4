"""`sfumato hide` on the screen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.checking import refused
from sfumato.release import read_hidden

from attributed import write_folder
from commands import sfumato
from wording import only_says_there_is_no_epsilon


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("hide") / "pictures")


def test_it_says_that_nothing_is_proved_and_what_to_do_next(pictures: Path, tmp_path: Path) -> None:
    done = sfumato(
        "hide", pictures, "--attribute", "colour", "--set", "codes=20", "--keep", "shape", "--out", tmp_path / "h"
    )
    assert done.code == 0, done
    assert "There is no epsilon here" in done.out
    assert f"sfumato leak {tmp_path / 'h'} --real {pictures}" in done.out
    assert only_says_there_is_no_epsilon(done.out + done.err)
    assert tuple(read_hidden(tmp_path / "h").images.attributes) == ("shape",)


def test_a_dry_run_shows_the_plan_and_writes_nothing(pictures: Path, tmp_path: Path) -> None:
    asked = ("hide", pictures, "--attribute", "colour", "--keep", "shape", "--out", tmp_path / "h", "--dry-run")
    done = sfumato(*asked)
    assert done.code == 0, done
    assert "blue, green, red" in done.out
    assert not list(tmp_path.iterdir())
    document = json.loads(sfumato(*asked, "--json").out)
    assert document["keep"] == ["shape"]
    assert sum(document["counts"].values()) == 120


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--attribute", "race"), 2, "attributes among"),
        (("--attribute", "colour", "--shares", "a,b"), 2, "four numbers"),
        (("--attribute", "colour", "--method", "magic"), 2, "Expected one of the hiding"),
        (("--attribute", "colour", "--set", "codes"), 2, "name=value"),
        (("--attribute", "colour", "--size", "0"), 2, "Expected a size"),
        ((), 2, "--attribute"),
    ],
)
def test_bad_requests(pictures: Path, tmp_path: Path, options: tuple[str, ...], code: int, said: str) -> None:
    refused(sfumato("hide", pictures, "--keep", "shape", "--out", tmp_path / "h", *options), code, said)
    assert not list(tmp_path.iterdir())

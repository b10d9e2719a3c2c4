"""sfumato verify: a release that verifies, exit 6 for one that does not, and which requests are refused."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from cli.checking import Change, left_in, refused
from release.hidden_making import make_faces, make_facts
from sfumato.release import write_hidden

from commands import COMMAND, Outcome, sfumato
from wording import PROMISES, only_says_there_is_no_epsilon


def test_verify_says_yes(made: tuple[Path, Path, Outcome]) -> None:
    outcome = sfumato("verify", made[1])
    assert outcome.code == 0, outcome.out
    assert outcome.out.startswith("VERIFIED")


def test_json(made: tuple[Path, Path, Outcome]) -> None:
    assert json.loads(sfumato("verify", made[1], "--json").out)["ok"] is True


def test_verify_says_no_with_exit_6(made: tuple[Path, Path, Outcome], tmp_path: Path) -> None:
    outcome = sfumato("verify", tmp_path)
    assert outcome.code == 6
    assert outcome.out.startswith("FAILED")


REQUESTS: dict[str, tuple[tuple[str, ...], str]] = {
    "of a missing folder": (("r",), "Expected a release folder"),
    "of a file": (("tiny.npz",), "Expected a release folder"),
    "without a folder": ((), "Missing argument"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_bad_request(name: str, workdir: Path) -> None:
    arguments, needle = REQUESTS[name]
    refused(sfumato("verify", *arguments), 2, needle)
    assert left_in(workdir) == []


def smaller_claim(release: Path) -> None:
    path = release / "certificate.json"
    certificate = json.loads(path.read_text())
    certificate["guarantee"]["epsilon"] /= 10
    path.write_text(json.dumps(certificate))


def mended_sums(release: Path) -> None:
    smaller_claim(release)
    name = "certificate.json"
    rows = (release / "SHA256SUMS").read_text().splitlines()
    new = f"{hashlib.sha256((release / name).read_bytes()).hexdigest()}  {name}"
    (release / "SHA256SUMS").write_text("".join(f"{new if r.endswith(name) else r}\n" for r in rows))


def an_extra_folder(release: Path) -> None:
    (release / "r").mkdir()
    (release / "r" / "r").write_text("mine")


BUNDLES: dict[str, Change] = {
    "a smaller epsilon": smaller_claim,
    "a smaller epsilon with sums to match": mended_sums,
    "an extra file": lambda r: (r / "notes.txt").write_text("hello"),
    "an extra folder with a file": an_extra_folder,
    "a lab inside": lambda r: ((r / "r.lab").mkdir(), (r / "r.lab" / "PRIVATE").write_text("x")),
    "a link": lambda r: (r / "link").symlink_to("/etc/passwd"),
    "a pipe": lambda r: os.mkfifo(r / "pipe"),
    "no certificate": lambda r: (r / "certificate.json").unlink(),
    "a certificate that is no JSON": lambda r: (r / "certificate.json").write_text("{"),
    "no sums": lambda r: (r / "SHA256SUMS").unlink(),
    "no images": lambda r: shutil.rmtree(r / "data"),
    "half of the images": lambda r: os.truncate(r / "data" / "train-00000-of-00001.parquet", 1000),
    "nothing at all": lambda r: (shutil.rmtree(r), r.mkdir()),
    "other things": lambda r: (shutil.rmtree(r), r.mkdir(), (r / "holiday.txt").write_text("sun")),
}


@pytest.mark.parametrize("name", BUNDLES)
def test_bundle(name: str, stopped: Path, tmp_path: Path) -> None:
    release = Path(shutil.copytree(stopped / "whole", tmp_path / "r"))
    BUNDLES[name](release)
    outcome = sfumato("verify", release)
    assert outcome.code == 6, outcome.out
    assert outcome.out.startswith("FAILED")
    assert "Traceback" not in outcome.out + outcome.err
    as_json = sfumato("verify", release, "--json")
    assert as_json.code == 6
    assert json.loads(as_json.out)["ok"] is False


@pytest.fixture
def hidden(tmp_path: Path) -> Path:
    images = make_faces()
    return write_hidden(tmp_path / "h", images, make_facts(images))


def test_a_hidden_attribute_is_no_guarantee_and_exits_with_7(hidden: Path) -> None:
    outcome = sfumato("verify", hidden)
    assert outcome.code == 7
    assert outcome.out.splitlines()[0] == f"NO GUARANTEE  {hidden}: there is no epsilon here."
    assert not [word for word in PROMISES if word in outcome.out]
    assert only_says_there_is_no_epsilon(outcome.out + outcome.err)
    as_json = sfumato("verify", hidden, "--json")
    assert as_json.code == 7
    document = json.loads(as_json.out)
    assert (document["ok"], document["level"]) == (False, "empirical")
    assert all(check["ok"] for check in document["checks"])
    assert only_says_there_is_no_epsilon(as_json.out)


SPOILED: dict[str, Change] = {
    "a card with a promise": lambda r: (r / "README.md").write_text("VERIFIED, epsilon 1"),
    "an extra file": lambda r: (r / "notes.txt").write_text("hello"),
    "a certificate": lambda r: (r / "certificate.json").write_text("{}"),
    "facts that are no JSON": lambda r: (r / "hidden.json").write_text("{"),
    "no sums": lambda r: (r / "SHA256SUMS").unlink(),
    "no images": lambda r: shutil.rmtree(r / "data"),
    "half of the images": lambda r: os.truncate(r / "data" / "train-00000-of-00001.parquet", 1000),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_release_with_a_hidden_attribute_exits_with_6(name: str, hidden: Path) -> None:
    SPOILED[name](hidden)
    outcome = sfumato("verify", hidden)
    assert outcome.code == 6
    assert outcome.out.startswith("NO GUARANTEE")
    assert only_says_there_is_no_epsilon(outcome.out)
    document = json.loads(sfumato("verify", hidden, "--json").out)
    assert (document["ok"], document["level"]) == (False, "empirical")
    assert not all(check["ok"] for check in document["checks"])


COMMANDS: dict[str, tuple[str, ...]] = {
    "evaluate": ("--real", "tiny.npz"),
    "evaluate --panel full": ("--real", "tiny.npz"),
    "attack": ("--real", "tiny.npz"),
    "student": ("--real", "tiny.npz"),
    "select": ("--real", "tiny.npz", "--epsilon", "1"),
    "resample": ("--count", "5", "--out", "other"),
    "predict": ("tiny.npz", "--out", "labels.csv"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_that_need_a_certificate_name_what_can_be_done(name: str, hidden: Path, workdir: Path) -> None:
    command, *options = name.split()
    before = sorted(hidden.parent.rglob("*"))
    outcome = sfumato(command, hidden, *COMMANDS[name], *options)
    refused(outcome, 2, "Expected a release with a certificate, got images with a hidden attribute")
    assert "sfumato leak" in outcome.err
    assert "sfumato verify" in outcome.err
    assert only_says_there_is_no_epsilon(outcome.out + outcome.err)
    assert sorted(hidden.parent.rglob("*")) == before


def test_reader_that_hangs_up(stopped: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    run = subprocess.run([*COMMAND, "verify", stopped / "whole"], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert run.returncode in (1, 5), "a verdict that could not be printed is not a success"
    assert "Traceback" not in run.stderr


def test_there_are_enough_cases() -> None:
    assert sum(map(len, (BUNDLES))) >= 14

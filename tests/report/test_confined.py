"""The process that builds a public page: the same page and the same refusals as here, and nothing else in reach."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from release.making import edit_certificate, make_certificate, make_images
from sfumato.errors import EnvironmentProblem, SfumatoError
from sfumato.release import write_release
from sfumato.report.confined import write_public_page
from sfumato.report.public import write_page_here

from commands import sfumato

CHILD = """
import sys
from sfumato.report import confined
def other(release, out):
    {code}
confined.write_page_here = other
confined.main()
"""


@pytest.fixture
def release(tmp_path: Path) -> Path:
    images = make_images()
    made = write_release(tmp_path / "r", images, make_certificate(images))
    lab = tmp_path / "r.lab"
    lab.mkdir()
    (lab / "ledger.jsonl").write_text("private")
    return made


def child(code: str, release: Path) -> dict[str, Any]:
    """What the process of a page says if something else is to be done in it."""
    command = [sys.executable, "-c", CHILD.format(code=code), str(release), str(release.with_name("page.html"))]
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return json.loads(subprocess.run(command, env=found, capture_output=True, check=True, timeout=120).stdout)


def refused(attempt: Callable[[], object]) -> tuple[type[SfumatoError], str]:
    with pytest.raises(SfumatoError) as error:
        attempt()
    return error.type, error.value.message()


def test_the_page_is_the_one_that_is_made_here(release: Path, tmp_path: Path) -> None:
    here = write_page_here(release, tmp_path / "here.html").read_bytes()
    done = sfumato("report", release, "--public", "--out", tmp_path / "there.html")
    assert (done.code, done.out) == (0, f"open {tmp_path / 'there.html'}\n")
    assert (tmp_path / "there.html").read_bytes() == here
    assert {p.name for p in tmp_path.iterdir()} == {"here.html", "there.html", "r", "r.lab"}


@pytest.mark.parametrize(
    "code",
    [
        "(release.with_name('r.lab') / 'ledger.jsonl').read_text()",
        "(release / 'planted').read_text()",
        "(release / 'folder' / 'ledger.jsonl').read_text()",
        "list((release / 'folder').iterdir())",
        "out.with_name('notes').write_text('x')",
        "__import__('socket').create_connection(('127.0.0.1', 9))",
        "__import__('subprocess').run(['true'])",
    ],
)
def test_what_is_outside_stays_there(code: str, release: Path) -> None:
    lab = release.with_name("r.lab")
    (release / "planted").symlink_to(lab / "ledger.jsonl")
    (release / "folder").symlink_to(lab)
    answer = child(code, release)
    assert answer["kind"] == "VerificationFailed"
    assert answer["what"].startswith("Expected a page made of its release alone, got an attempt to ")
    assert "\n" not in answer["what"]
    assert {p.name for p in release.parent.iterdir()} == {"r", "r.lab"}


def test_what_is_inside_is_not_out_of_reach(release: Path) -> None:
    assert child("(release / 'certificate.json').read_text()", release) == {}
    assert child("import colorsys, xml.dom.minidom", release) == {}  # packages that nobody has imported yet


def test_refusals_are_the_same_as_here(release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, out in (("r", "r/page.html"), ("none", "page.html"), ("r", "none/page.html")):
        here = refused(lambda: write_page_here(Path(folder), Path(out)))  # noqa: B023
        assert refused(lambda: write_public_page(Path(folder), Path(out))) == here  # noqa: B023
        done = sfumato("report", folder, "--public", "--out", out)
        assert (done.code, done.err) == (here[0].exit_code, here[1] + "\n")
    edit_certificate(release, lambda c: c["guarantee"].update(epsilon=0.1))
    done = sfumato("report", "r", "--public")
    assert done.code == 6
    assert done.err.startswith("Expected a release whose files hold together, got: ")
    assert not (tmp_path / "r.html").exists()


def test_a_defect_has_no_traceback_and_a_death_is_noticed(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert child("1 / 0", release)["what"] == "Sfumato has met something it did not expect (ZeroDivisionError)."
    assert child("raise OSError(28, 'No space left')", release)["what"] == "The system refused: No space left."
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(EnvironmentProblem, match="end of the process"):
        write_public_page(release, release.with_name("page.html"))


def test_a_module_in_the_working_folder_is_not_ours(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(release.parent)
    (release.parent / "base64.py").write_text("raise SystemExit('not the standard library')")
    assert write_public_page(release, Path("page.html")).exists()

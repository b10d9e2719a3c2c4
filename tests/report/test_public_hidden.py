"""The public page of images with a hidden attribute: true to its release, and never to be taken for a guarantee."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from release.hidden_making import WEIGHTS, make_faces, make_facts
from release.making import renew_sums
from sfumato.errors import VerificationFailed
from sfumato.release import write_hidden
from sfumato.report.public import write_page_here
from sfumato.values import Attributed

from commands import sfumato
from wording import PROMISES, only_says_there_is_no_epsilon


def words(text: str) -> str:
    """What a reader sees."""
    return " ".join(html.unescape(re.sub(r"<style>.*?</style>|<[^>]+>", " ", text, flags=re.DOTALL)).split())


@pytest.fixture
def release(tmp_path: Path) -> Path:
    images = make_faces()
    return write_hidden(tmp_path / "h", images, make_facts(images, weights=WEIGHTS))


def page(release: Path) -> str:
    return write_page_here(release, release.with_name("page.html")).read_text("utf-8")


def test_it_says_what_was_hidden_and_that_nothing_is_proved(release: Path) -> None:
    text = page(release)
    said = words(text)
    for expected in (
        "Images with race hidden",
        "30 images, each re-generated from one real image",
        "There is no epsilon here: nothing is proved about what this release gives away",
        "An attribute hidden is not a person hidden.",
        "people may still be recognised",
        "sfumato leak",
        "2 labels of every image",
        "10-19",
        "The method transport of sfumato 0.1.0",
        WEIGHTS,
        "strength 0.8",
        "Licence: not stated",
    ):
        assert expected in said, expected
    assert text.index("NO GUARANTEE", text.index("<body>")) < text.index("<h1>"), "the banner comes first"
    for line in (release / "SHA256SUMS").read_text().splitlines():
        assert all(part in text for part in line.split("  "))


def test_the_word_has_one_sentence_and_there_is_no_promise(release: Path) -> None:
    said = words(page(release))
    assert only_says_there_is_no_epsilon(said)
    assert only_says_there_is_no_epsilon(page(release))
    assert not [word for word in PROMISES if word in said]


def test_the_confined_process_makes_the_same_page(release: Path, tmp_path: Path) -> None:
    here = page(release)
    done = sfumato("report", release, "--public", "--out", tmp_path / "there.html")
    assert (done.code, done.out) == (0, f"open {tmp_path / 'there.html'}\n")
    assert (tmp_path / "there.html").read_text("utf-8") == here


def test_it_depends_on_nothing_but_the_release(release: Path, tmp_path: Path) -> None:
    images = make_faces()
    other = write_hidden(tmp_path / "another-name", images, make_facts(images, weights=WEIGHTS))
    lab = tmp_path / "h.lab"
    lab.mkdir()
    (lab / "provenance.json").write_text("private")
    assert write_page_here(other, tmp_path / "other.html").read_text("utf-8") == page(release)


def test_a_release_without_labels_has_a_page(tmp_path: Path) -> None:
    plain = Attributed(make_faces().pixels, {}, {})
    said = words(page(write_hidden(tmp_path / "h", plain, make_facts(plain))))
    assert "The images carry no labels." in said
    assert "It used no public weights." in said


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    plain = make_faces()
    bad = "<script>alert(1)</script>"
    images = Attributed(
        plain.pixels, {bad: plain.attributes["gender"]}, {bad: ("a\"'&{{ 7*7 }}", "up\u202edown\nline")}
    )
    text = page(write_hidden(tmp_path / "h", images, make_facts(images, hidden="<img src=x onerror=alert(1)>")))
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert "\u202e" not in text
    assert "{{ 7*7 }}" in html.unescape(text)


def test_a_changed_release_has_no_page(release: Path) -> None:
    for name, renew in (("preview.png", False), ("README.md", True), ("hidden.json", True), ("epsilon.txt", True)):
        path = release / name
        whole = path.read_bytes() if path.exists() else None
        path.write_bytes(b"x")
        if renew:
            renew_sums(release)
        with pytest.raises(VerificationFailed) as refused:
            page(release)
        assert only_says_there_is_no_epsilon(refused.value.what)
        path.unlink() if whole is None else path.write_bytes(whole)
        renew_sums(release)
    assert page(release)
    assert not [p for p in release.parent.iterdir() if p.name not in ("h", "page.html")]


def snippet(name: str, release: Path) -> str:
    found = re.search(rf'id="snippet-{name}"><code>(.*?)</code>', page(release), re.DOTALL)
    assert found is not None
    return html.unescape(found[1]).replace("path/to/release", str(release))


def test_the_snippet_for_datasets_runs(release: Path, tmp_path: Path) -> None:
    script = snippet("datasets", release) + "assert image.size == (8, 8) and set(labels) == {'age', 'gender'}\n"
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "HF_DATASETS_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=os.environ | offline, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_snippet_for_pytorch_runs(release: Path) -> None:
    names: dict[str, Any] = {}
    exec(snippet("pytorch", release), names)
    assert names["pixels"].shape == (30, 3, 8, 8)
    assert set(names["labels"]) == {"age", "gender"}

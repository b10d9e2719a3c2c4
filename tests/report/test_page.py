"""The page of a lab: charts to scale, alarms in words, and nothing that a file name could inject."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from release.making import OPEN, make_certificate, make_images
from sfumato.lab.folder import Lab
from sfumato.lab.scores import Entry, add_scores
from sfumato.release import write_release
from sfumato.report.charts import LABEL, PLOT, Bar, bars
from sfumato.report.evaluation import write_page
from sfumato.values import Score

HOSTILE = "<script>alert(1)</script>"


def utility(*, ceiling: bool) -> list[Entry]:
    trained = Score(
        "gen2real",
        0.7,
        0.01,
        True,
        details={"accuracies": {"mlp": [0.7]}, "per_class": {HOSTILE: 0.25}},
        parts=(Score("gen2real-mlp", 0.7, 0.02, True),),
    )
    real = Score(
        "real2gen",
        0.8,
        0.01,
        True,
        parts=(Score("real2real", 0.9, 0.01, True), Score("real2real-mlp", 0.9, None, True)),
    )
    fair = Score("representation", 0.5, 0.1, True)
    entries = [Entry(trained, "gen2real", "utility"), Entry(fair, "representation", "fairness")]
    return [*entries, Entry(real, "real2gen", "utility")] if ceiling else entries


@pytest.fixture
def release(tmp_path: Path) -> Path:
    images = make_images()
    return write_release(tmp_path / "r&d", images, make_certificate(images))


def page(release: Path, *entries: Entry, **left_out: str) -> str:
    with Lab.beside(release) as lab:
        add_scores(lab, entries, judged_on="the test split", left_out=left_out)
    return write_page(release).read_text("utf-8")


def test_bars_are_to_scale_and_bounded() -> None:
    svg = bars([Bar("half", 0.5, 0.1, 0.75), Bar("beyond", 1.7)], mark_means="ceiling")
    widths = [float(w) for w in re.findall(r'<rect [^>]*width="([\d.]+)"', svg)]
    assert widths == [PLOT / 2, PLOT]
    assert f'x1="{LABEL + 0.75 * PLOT:.1f}"' in svg  # the mark
    assert f'x1="{LABEL + 0.4 * PLOT:.1f}" x2="{LABEL + 0.6 * PLOT:.1f}"' in svg  # the error
    assert "1.700" in svg  # the number is printed as it is
    assert "ceiling" in svg


def test_the_ceiling_is_marked_where_it_is_known(release: Path) -> None:
    assert "trained on real images instead" not in page(release, *utility(ceiling=False))
    assert "trained on real images instead" in page(release, *utility(ceiling=True))


def test_names_from_outside_are_text(release: Path) -> None:
    text = page(release, *utility(ceiling=True), bias=HOSTILE)
    assert HOSTILE not in text
    assert "&lt;script&gt;" in text
    assert "r&amp;d" in text


def test_alarms_are_said_in_words(release: Path) -> None:
    copied = Score("near-duplicates", 0.05, 0.01, False, details={"flagged": True})
    attack = Score("attack-domias", 0.9, 0.01, False, details={"above_claim": True})
    quiet = Score("attack-domias", 0.5, 0.01, False, details={"above_claim": False})
    text = page(release, Entry(copied, "near-duplicates", "privacy"), Entry(attack, "domias", "privacy"))
    assert "nearer to training images than chance allows" in text
    assert "Do not publish" in text
    text = page(release, Entry(quiet, "domias", "privacy"))
    assert "Do not publish" not in text


def test_the_claim_stands_on_top(release: Path) -> None:
    text = page(release, *utility(ceiling=False))
    assert text.index("PRIVATE") < text.index("under epsilon") < text.index("Utility")
    images = make_images()
    certificate = make_certificate(images, guarantee=OPEN)
    naked = write_release(release.with_name("naked"), images, certificate)
    assert "NOT PRIVATE" in page(naked, *utility(ceiling=False))

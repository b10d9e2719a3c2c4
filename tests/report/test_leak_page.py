"""The page of a leak: all that was measured, alarms in words, no promise, and nothing that a name could inject."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from judging.shapes import shapes, without_colour
from sfumato.errors import UsageError
from sfumato.judging.attribute_judges import SmallJudge
from sfumato.judging.attribute_leak import Leak, Pairs, leak_of
from sfumato.judging.leak import PICTURE
from sfumato.judging.leak_table import add_leak
from sfumato.lab.folder import Lab
from sfumato.lab.pictures import side_by_side
from sfumato.report.leak_page import write_leak_page

HOSTILE = "<script>alert(1)</script>"


@cache
def measured() -> Leak:
    real = shapes(60)
    head = torch.ones(60, dtype=torch.int64)
    given = Pairs(real.with_pixels(without_colour(real)), real, shapes(40, seed=1), head, real.attributes["colour"])
    asked = ("colour", "shape", "brightness")
    return leak_of(given, asked, SmallJudge(epochs=2, batch=16), judge="small", seeds=(0,), parts="g")


def page(folder: Path, *leaks: Leak) -> str:
    with Lab.beside(folder) as lab:
        for leak in leaks:
            add_leak(lab, leak)
        side_by_side(shapes(8).labelled("colour"), shapes(8).labelled("colour"), lab.folder / PICTURE, caption="HIDDEN")
    return write_leak_page(folder).read_text("utf-8")


def test_everything_is_on_the_page(tmp_path: Path) -> None:
    text = page(tmp_path / "h", measured(), replace(measured(), judge="resnet18"))
    assert text.count("<h2>") == 2
    assert "judge resnet18, 1 seed, trained on 60 images of g, tested on 40" in text
    assert "data:image/png;base64,iVBOR" in text
    assert "PRIVATE" in text
    assert text.count("<svg") >= 3  # bars for each, and one scatter with a legend
    assert "below the majority rate (50.0 %) is degenerate, not privacy" in text
    assert "Recall of each class" in text


def test_nothing_is_promised(tmp_path: Path) -> None:
    text = page(tmp_path / "h", measured())
    assert "There is no epsilon here" in text
    assert len(re.findall("epsilon", text, re.IGNORECASE)) == text.count("There is no epsilon here")
    assert "certified" not in re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
    assert "An attribute hidden is not a person hidden" in text
    assert "The harmonic score does not apply" in text


def test_names_of_attributes_cannot_inject(tmp_path: Path) -> None:
    leak = measured()
    renamed = replace(
        leak,
        attribute=HOSTILE,
        keep=(),
        real={HOSTILE: leak.real["colour"]},
        released={HOSTILE: leak.released["colour"]},
        losses={},
        alarms=(f"{HOSTILE}, PT: alarm",),
    )
    text = page(tmp_path / "h", renamed)
    assert HOSTILE not in text
    assert "&lt;script&gt;" in text


def test_without_a_measurement_there_is_no_page(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Expected something that was measured of this release"):
        write_leak_page(tmp_path / "h")
    assert list(tmp_path.iterdir()) == []

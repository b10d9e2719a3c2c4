"""CE: which way the cross-entropy goes, and that its head tells the attribute before it is removed."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from sfumato.errors import UsageError
from sfumato.hiding.ce import CE
from sfumato.values import Rewriter

from toys import CheckpointsInMemory, coloured_squares

IMAGES = coloured_squares()
QUICK = {"steps": 4, "batch": 8, "width": 8, "updates": 3}


def fitted(**settings: object) -> Rewriter:
    hider = CE(**{**QUICK, **settings})  # type: ignore[arg-type]
    return hider.fit(IMAGES, IMAGES.rows(torch.arange(12)), checkpoints=CheckpointsInMemory())


def test_a_head_that_predicts_tells_the_attribute_of_images() -> None:
    tells = fitted(reading="predict", epochs=25).tells
    assert tells is not None
    assert float((tells(IMAGES.pixels).argmax(dim=1) == IMAGES.labels).float().mean()) > 0.5  # of three


def test_removing_is_another_training_than_predicting() -> None:
    made = [fitted(reading=reading, epochs=2, weight=10.0, rate=0.05) for reading in ("remove", "predict")]
    pixels = [each.rewrite(IMAGES, torch.Generator().manual_seed(0)) for each in made]
    assert not torch.equal(*pixels)


def test_an_unknown_reading_is_refused() -> None:
    with pytest.raises(UsageError, match="remove, predict"):
        CE(reading="forget")


def test_its_published_rate() -> None:
    assert CE.paper("w").rate == 1e-5


def test_loading_every_hider_does_not_load_the_privacy_core() -> None:
    loaded = (
        "import sys; from sfumato import contracts; "
        "[contracts.find('hiding', name) for name in contracts.names('hiding')]; "
        "assert 'sfumato.hiding.ce' in sys.modules; "
        "print([m for m in sys.modules if m.startswith('sfumato.privacy')])"
    )
    found = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"

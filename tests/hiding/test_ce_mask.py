"""CE + mask: the mask is at work in what is re-generated, and its settings are the published ones."""

from __future__ import annotations

import pytest
import torch

from sfumato.errors import UsageError
from sfumato.hiding.ce import CE
from sfumato.hiding.ce_mask import CEMask

from toys import CheckpointsInMemory, coloured_squares

IMAGES = coloured_squares()
QUICK = {"steps": 4, "batch": 16, "width": 8, "updates": 30, "epochs": 1}


def pixels(hider: CE | CEMask) -> torch.Tensor:
    rewriter = hider.fit(IMAGES, IMAGES.rows(torch.arange(12)), checkpoints=CheckpointsInMemory())
    return rewriter.rewrite(IMAGES, torch.Generator().manual_seed(0))


def test_the_mask_changes_the_images() -> None:
    made = [pixels(CE(**QUICK)), *(pixels(CEMask(ratio=ratio, **QUICK)) for ratio in (0.6, 0.9))]
    assert not torch.equal(made[0], made[1])
    assert not torch.equal(made[1], made[2])


def test_the_published_mask() -> None:
    found = CEMask.paper("w")
    assert (found.ratio, found.temperature, found.rate) == (0.6, 1 / 30, 1e-5)


@pytest.mark.parametrize("settings", [{"ratio": 1.2}, {"temperature": 0.0}, {"reading": "forget"}])
def test_settings_out_of_range_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=f"Expected {next(iter(settings))}"):
        CEMask(**settings)  # type: ignore[arg-type]

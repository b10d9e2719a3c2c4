"""What is kept outside lab and ledger: trainings on public images alone, and nothing that depends on an answer."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from sfumato.cache import cache_folder
from sfumato.contracts import Synthesizer, find
from sfumato.values import Images

from toys import fitted, halves

FEW = {"width": 8, "rounds": 2, "sampling": 0.3, "multiplicity": 2, "sampler_steps": 2, "steps": 3, "batch": 16}
CENTRAL = {"central_rounds": 2, "varied": 30}
GENERATED = {"generated": 30, "generated_steps": 3, "frequencies": 20, "length_scales": (0.3,), "generator_steps": 3}
FROM_ANSWERS = {
    "dp-refine": {"painted": 50, "components": 2},
    "dp-feta": CENTRAL,
    "feta-pro": {**CENTRAL, **GENERATED, "generator_batch": 24, "latent": 3, "hidden": 16, "codes": 4},
    "privimage": {"clusters": 6},
}
FROM_PUBLIC_IMAGES = {"pdp-diffusion": 1, "dp-ldm": 2, "dp-lora": 2}  # with how many trainings


def method(name: str, **further: object) -> Synthesizer:
    return find("methods", name)(**FEW, **further)


def public() -> Images:
    return Images(torch.from_numpy(halves(60).pixels // 2 + 60), torch.arange(60) % 3, ("x", "y", "z"))


def kept() -> list[Path]:
    return [path for path in cache_folder().rglob("*") if path.is_file()]


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
@pytest.mark.parametrize("name", FROM_ANSWERS)
def test_trainings_on_images_from_answers_are_kept_nowhere(name: str, epsilon: float) -> None:
    """They would outlive the lab, and come from runs that are not private, from audits and from shadow fits, too."""
    fitted(method(name, **FROM_ANSWERS[name]), halves(60), epsilon, count=3, public=public())
    assert not kept()


@pytest.mark.parametrize("name", FROM_PUBLIC_IMAGES)
def test_trainings_on_public_images_are_kept_and_do_not_depend_on_records(name: str) -> None:
    fitted(method(name), halves(60), 1.0, count=3, public=public())
    before = kept()
    assert len(before) == FROM_PUBLIC_IMAGES[name]
    fitted(method(name), halves(90), 2.0, count=3, public=public())
    assert set(kept()) == set(before)

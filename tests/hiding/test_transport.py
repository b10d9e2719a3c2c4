"""Transport: what is left of the attribute after it, and what is left of everything else."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from sfumato.hiding.transport import Transport
from sfumato.values import Images, Spec

from attributed import CLASSES, attributes, pictures


class NoCheckpoints:
    """A run that is not killed needs none."""

    def restore(self, name: str) -> None:
        return None

    def keep(self, name: str, state: dict[str, Tensor]) -> None:
        raise AssertionError("it takes seconds, so it keeps nothing")


KNOWN = attributes(600)
PIXELS = pictures(KNOWN)
DEFAULT = Transport(codes=40, detail=0.0)


def rewritten(settings: Transport, *, seed: int = 0) -> Tensor:
    images = Images(PIXELS, KNOWN["colour"], CLASSES["colour"])
    rewriter = settings.fit(
        images.rows(torch.arange(400)), images.rows(torch.arange(400, 420)), checkpoints=NoCheckpoints()
    )
    return rewriter.rewrite(images, torch.Generator().manual_seed(seed))


def told(pixels: Tensor, name: str) -> float:
    """How often a linear classifier of pixels, trained on two thirds, names the source's attribute in the last."""
    rows = pixels.flatten(1).double() / 255
    rows = torch.cat([rows, torch.ones(len(rows), 1)], 1)
    wanted = (KNOWN[name][:, None] == torch.arange(len(CLASSES[name]))).double()
    seen = rows[:400]
    weights = torch.linalg.solve(seen.T @ seen + 30.0 * torch.eye(rows.shape[1]), seen.T @ wanted[:400])
    return float(((rows[400:] @ weights).argmax(1) == KNOWN[name][400:]).double().mean())


def test_the_attribute_is_gone_and_the_others_are_not() -> None:
    made = rewritten(DEFAULT)
    assert told(PIXELS, "colour") > 0.95
    assert told(made, "colour") < 0.62  # half of all pictures are blue
    assert told(made, "shape") > 0.75
    assert told(made, "brightness") > 0.75


def test_the_values_that_are_seen_are_as_frequent_as_before() -> None:
    made = rewritten(DEFAULT).float()
    middle = made[:, :, 6:10, 3:13].mean((2, 3))  # every shape covers these
    shown = 2 - middle.argmax(1)
    assert (shown.bincount(minlength=3).double() / len(made) - torch.tensor([0.5, 0.25, 0.25])).abs().max() < 0.06


def test_with_a_strength_of_nothing_and_all_detail_the_images_stay() -> None:
    assert rewritten(replace(DEFAULT, strength=0.0, detail=1.0)).equal(PIXELS)


def test_more_strength_leaves_less_of_the_attribute() -> None:
    left = [told(rewritten(replace(DEFAULT, strength=s)), "colour") for s in (0.0, 0.5, 1.0)]
    assert left[0] > left[1] > left[2]


def test_an_image_that_is_drawn_its_own_value_does_not_stay_as_it_is() -> None:
    """Otherwise who can tell that it was not moved knows its value."""
    moved = (rewritten(replace(DEFAULT, detail=1.0)).float() - PIXELS.float()).abs().mean((1, 2, 3))
    stayed = (rewritten(replace(DEFAULT, detail=1.0, redrawn=0.0)).float() - PIXELS.float()).abs().mean((1, 2, 3))
    assert (stayed == 0).double().mean() > 0.3  # by chance 3 in 8 are drawn their own
    assert moved.min() > 1


def test_few_images_have_few_codes() -> None:
    def codes(count: int) -> int:
        return Transport.for_task(Spec(count, 3, 16, 16, CLASSES["colour"])).codes

    assert [codes(count) for count in (2, 100, 1024, 60_000)] == [1, 25, 256, 256]


def test_the_seed_decides_all_that_is_random() -> None:
    assert rewritten(DEFAULT, seed=1).equal(rewritten(DEFAULT, seed=1))
    assert not rewritten(DEFAULT, seed=1).equal(rewritten(DEFAULT, seed=2))

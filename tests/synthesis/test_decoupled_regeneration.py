"""What the methods of DECO-Bench share: settings, refusals, and what the head says of images."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sfumato.errors import DataError, SfumatoError, UsageError
from sfumato.synthesis.attribute_head import AttributeHead
from sfumato.synthesis.decoupled_regeneration import DecoupledRegeneration
from sfumato.values import Images, Rewriter, Spec

from toys import CheckpointsInMemory, coloured_squares

IMAGES = coloured_squares()
QUICK = DecoupledRegeneration(steps=4, epochs=1, batch=16, width=8, updates=3)


def rewriter(settings: DecoupledRegeneration, images: Images = IMAGES) -> Rewriter:
    kept = CheckpointsInMemory()
    model, features = settings.begun(images, images, kept)
    head = AttributeHead(features, images.labels, 3, reading="remove", seed=0)
    return settings.rewriter(model, head, images, images.rows(torch.arange(9)), kept, name="toy")


def test_the_published_settings_are_those_of_the_supplement() -> None:
    found = DecoupledRegeneration.paper("weights")
    assert (found.rate, found.epochs, found.batch, found.rank) == (1e-5, 15, 128, 4)
    assert (found.strength, found.guidance, found.steps, found.weights) == (0.75, 7.5, 50, "weights")


def test_guidance_changes_nothing_without_a_prompt() -> None:
    draws = [torch.Generator().manual_seed(0) for _ in range(2)]
    plain, guided = (
        rewriter(replace(QUICK, guidance=w)).rewrite(IMAGES, draw) for w, draw in zip((1.0, 7.5), draws, strict=True)
    )
    assert torch.equal(plain, guided)


def test_strength_zero_gives_the_images_back() -> None:
    made = rewriter(replace(QUICK, strength=0.0)).rewrite(IMAGES, torch.Generator())
    assert torch.equal(made, IMAGES.pixels)


def test_what_is_told_of_an_image_does_not_depend_on_those_beside_it() -> None:
    tells = rewriter(QUICK).tells
    assert tells is not None
    together = tells(IMAGES.pixels)
    assert together.shape == (60, 3)
    torch.testing.assert_close(tells(IMAGES.pixels[7:9]), together[7:9], rtol=1e-4, atol=1e-5)
    assert torch.equal(together, tells(IMAGES.pixels))


def test_other_shapes_than_those_that_it_learnt_from_are_refused() -> None:
    with pytest.raises(DataError, match=r"shape \(3, 16, 16\) that the model was trained on, got \(3, 24, 24\)"):
        rewriter(QUICK).rewrite(coloured_squares(side=24), torch.Generator())


def test_sides_that_the_model_cannot_take_are_refused_before_anything_is_learnt() -> None:
    with pytest.raises(UsageError, match="multiples of 8"):
        QUICK.begun(coloured_squares(side=20), IMAGES, CheckpointsInMemory())


def test_without_images_that_stop_the_training_nothing_begins() -> None:
    kept = CheckpointsInMemory()
    with pytest.raises(DataError, match="say when to stop the training, got none"):
        QUICK.begun(IMAGES, IMAGES.rows(torch.arange(0)), kept)
    assert not kept.kept


def test_what_it_cannot_take_is_known_from_public_facts() -> None:
    with pytest.raises(UsageError, match="multiples of 8"):
        QUICK.check(Spec(60, 3, 20, 20, ("a", "b")))
    QUICK.check(Spec(60, 3, 24, 16, ("a", "b")))


def test_one_image_is_too_few() -> None:
    with pytest.raises(DataError, match="at least 2 images"):
        QUICK.begun(IMAGES.rows(torch.arange(1)), IMAGES, CheckpointsInMemory())


@pytest.mark.parametrize(
    "settings", [{"strength": 1.5}, {"rank": 0}, {"epochs": 0}, {"rate": 0.0}, {"width": 12}, {"seed": -1}]
)
def test_settings_out_of_range_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(SfumatoError, match=f"Expected {next(iter(settings))}"):
        replace(QUICK, **settings)  # type: ignore[arg-type]


def test_few_images_train_the_model_for_less() -> None:
    many, few = (DecoupledRegeneration.for_task(Spec(count, 3, 64, 64, ("a", "b"))) for count in (10_000, 1_000))
    assert many.updates > few.updates > 0


def test_time_grows_with_what_is_done() -> None:
    spec = Spec(1000, 3, 64, 64, ("a", "b"))
    longer = (
        replace(QUICK, updates=900),
        replace(QUICK, epochs=40),
        replace(QUICK, steps=90),
        replace(QUICK, width=16),
    )
    assert all(each.seconds(spec) > QUICK.seconds(spec) for each in longer)

"""Judges of attributes: they learn what is there, by the recipe that they are named after, and twice the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from judging.shapes import shapes
from sfumato.errors import DataError, UsageError
from sfumato.judging import attribute_judges
from sfumato.judging.attribute_judges import EarlyStop, Judge, PaperJudge, SmallJudge, find_judge
from sfumato.values import Attributed

SHORT = SmallJudge(epochs=4)
TINY = PaperJudge(epochs=1, batch=16)
ALL = ("colour", "shape", "brightness")


def accuracies(answers: dict[str, Tensor], images: Attributed) -> dict[str, float]:
    return {n: float((found == images.attributes[n]).double().mean()) for n, found in answers.items()}


def test_the_small_judge_learns_every_attribute_at_once() -> None:
    answers = SHORT.train(shapes(), ALL, seed=0, what="test")
    test = shapes(80, seed=1)
    assert min(accuracies(answers(test.pixels), test).values()) > 0.9


def test_answers_are_to_what_is_asked() -> None:
    assert list(SHORT.train(shapes(40), ("shape",), seed=0, what="test")(shapes(4).pixels)) == ["shape"]


def test_the_same_seed_gives_the_same_answers_whatever_was_drawn_before() -> None:
    train, test = shapes(36), torch.randint(0, 256, (40, 3, 16, 16), generator=torch.Generator().manual_seed(0))

    def answers(seed: int) -> Tensor:
        torch.rand(3)
        return torch.stack(list(SHORT.train(train, ALL, seed=seed, what="test")(test.to(torch.uint8)).values()))

    first = answers(0)
    assert first.equal(answers(0))
    assert not first.equal(answers(1))


def test_the_same_seed_gives_the_same_resnet_whatever_was_drawn_before() -> None:
    def weights(seed: int) -> Tensor:
        torch.rand(3)
        network = TINY.fit(shapes(18).labelled("shape"), seed=seed, what="test")
        return torch.cat([parameter.flatten() for parameter in network.parameters()])

    first = weights(0)
    assert first.equal(weights(0))
    assert not first.equal(weights(1))


def test_pictures_in_colour_are_mirrored_and_digits_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    shown = attribute_judges.random_versions

    def heard(images: Tensor, *, mirror: bool, draw: torch.Generator) -> Tensor:
        asked.append(mirror)
        return shown(images, mirror=mirror, draw=draw)

    monkeypatch.setattr(attribute_judges, "random_versions", heard)
    colour = shapes(16)
    grey = replace(colour, pixels=colour.pixels[:, :1].contiguous())
    for images in (colour, grey):
        SmallJudge(epochs=1, batch=16).train(images, ("shape",), seed=0, what="test")
    assert asked == [True, False]


def test_the_recipe_of_the_paper() -> None:
    """Digest 1.3 and its checklist 10."""
    paper = PaperJudge()
    sgd, rates = paper.descent(nn.Linear(2, 2))
    (group,) = sgd.param_groups
    assert (group["momentum"], group["weight_decay"], group["nesterov"]) == (0.9, 5e-4, False)
    seen = []
    for _ in range(4):
        seen.append(group["lr"])
        sgd.step()
        rates.step()
    assert seen == pytest.approx([0.1, 0.09, 0.081, 0.0729])
    assert (paper.epochs, paper.batch, paper.patience, paper.least_gain) == (100, 128, 20, 0.01)
    assert find_judge("resnet18") == paper


def stops_at(losses: list[float], *, patience: int = 20) -> int | None:
    """After how many epochs training stops."""
    stop = EarlyStop(patience, 0.01)
    for epoch, loss in enumerate(losses, start=1):
        stop.lowest(loss)
        if stop.now:
            return epoch
    return None


def test_early_stopping_on_constructed_losses() -> None:
    assert stops_at([1.0] * 30) == 21  # the first is a gain; then twenty without one
    assert stops_at([1 - 0.02 * epoch for epoch in range(40)]) is None
    assert stops_at([1 - 0.009 * epoch for epoch in range(100)]) is None  # two small gains make a large one
    assert stops_at([1.0, 0.995, *[0.992] * 30]) == 21  # no gain of 0.01 since the first
    assert stops_at([1.0] * 20 + [0.98] + [1.0] * 30) == 41  # a gain in time starts the count again


def test_the_lowest_loss_counts_be_it_lower_by_little() -> None:
    stop = EarlyStop(20, 0.01)
    assert [stop.lowest(loss) for loss in (1.0, 0.995, 0.997, 0.5)] == [True, True, False, True]


def test_training_ends_when_the_loss_does_not_fall(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a rate of nothing, no epoch is a gain, so that patience is all there is."""
    epochs = []
    track = attribute_judges.track

    def counted(items, **named):  # type: ignore[no-untyped-def]
        for item in track(items, **named):
            epochs.append(item)
            yield item

    monkeypatch.setattr(attribute_judges, "track", counted)
    still = replace(TINY, rate=0.0, weight_decay=0.0, epochs=50, patience=2, least_gain=10.0)
    still.fit(shapes(24).labelled("shape"), seed=0, what="test")
    assert epochs == [0, 1, 2]


def test_the_held_out_tenth_is_of_the_images_that_train(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    outputs = attribute_judges.outputs

    def heard(network: nn.Module, pixels: Tensor) -> Tensor:
        asked.append(pixels)
        return outputs(network, pixels)

    monkeypatch.setattr(attribute_judges, "outputs", heard)
    images = shapes(40)
    replace(TINY, epochs=1).fit(images.labelled("shape"), seed=0, what="test")
    given = {image.numpy().tobytes() for image in images.pixels}
    assert [len(pixels) for pixels in asked] == [4]
    assert all(image.numpy().tobytes() in given for image in asked[0])


@pytest.mark.parametrize("judge", [SmallJudge(), PaperJudge()], ids=["small", "resnet18"])
def test_too_few_images(judge: Judge) -> None:
    with pytest.raises(DataError, match="Expected at least 12 images to train a judge on, got 11"):
        judge.train(shapes(11), ("shape",), seed=0, what="test")


def test_an_unknown_judge() -> None:
    with pytest.raises(UsageError, match="Expected one of the judges small, resnet18; got 'mind-reader'"):
        find_judge("mind-reader")

"""What a release tells of an attribute: as much as the real images where it copies them, nothing where it is erased."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cache

import pytest
import torch
from torch import Tensor

from judging.shapes import shapes, without_colour
from sfumato.errors import DataError
from sfumato.judging.attribute_judges import Answers, SmallJudge
from sfumato.judging.attribute_leak import Leak, Pairs, leak_of
from sfumato.values import Attributed

ASKED = ("colour", "shape", "brightness")
SHORT = SmallJudge(epochs=8, batch=32)


def pairs(made: Callable[[Attributed], Tensor], *, head: Tensor | None = None) -> Pairs:
    real = shapes(120)
    learnt = shapes(60, seed=2).attributes["colour"]
    return Pairs(real.with_pixels(made(real)), real, shapes(80, seed=1), head, learnt)


def leak(given: Pairs, *, seeds: tuple[int, ...] = (0,), trainer: SmallJudge = SHORT) -> Leak:
    return leak_of(given, ASKED, trainer, judge="small", seeds=seeds, parts="g")


@cache
def of_copies() -> Leak:
    return leak(pairs(lambda real: real.pixels.clone()))


@cache
def of_erased() -> Leak:
    return leak(pairs(without_colour))


def test_a_release_that_copies_leaks_as_much_as_real_images() -> None:
    found = of_copies()
    assert found.released == found.real  # the same code on the same images
    assert found.real["colour"].accuracy > 0.9
    assert found.inside.accuracy > 0.9
    assert (found.gain.value, {name: lost.value for name, lost in found.losses.items()}) == (
        0,
        {"shape": 0, "brightness": 0},
    )
    assert found.recognition.by_pixels.share == 1
    assert found.recognition.by_pixels.chance == 1 / 120
    assert found.alarms == ()


def test_a_release_without_the_attribute_leaves_no_more_than_its_majority() -> None:
    found = of_erased()
    assert found.real["colour"].accuracy > 0.9
    assert found.released["colour"].accuracy < 0.7
    assert found.released["colour"].majority == 0.5
    assert found.released["colour"].balanced < 0.6
    assert found.gain.value == pytest.approx(found.real["colour"].accuracy - found.released["colour"].accuracy)
    assert min(found.released[name].accuracy for name in ("shape", "brightness")) > 0.9


def test_an_attribute_hidden_is_not_a_person_hidden() -> None:
    """The background of each picture is left as it was."""
    found = of_erased().recognition.by_pixels
    assert found.share > 20 * found.chance
    assert found.median_rank < found.images / 4


def test_without_faces_no_face_network_is_asked() -> None:
    found = of_copies().recognition
    assert found.by_faces is None
    assert found.why_not_by_faces.startswith("Expected")


def test_seeds_give_the_same_numbers() -> None:
    assert asdict(leak(pairs(lambda real: real.pixels.clone()))) == asdict(of_copies())


def test_the_head_of_the_method_is_asked_where_it_may_be() -> None:
    assert of_copies().told is None
    right = shapes(120).attributes["colour"]
    told = leak(replace(pairs(lambda real: real.pixels.clone()), head=right)).told
    assert told is not None
    assert (told.accuracy, told.majority, told.images) == (1, 0.5, 120)


def test_the_head_is_not_asked_about_faces_from_the_side() -> None:
    given = pairs(without_colour)
    blue = given.real.attributes["colour"] == 0
    told = leak(replace(given, head=torch.zeros(120, dtype=torch.int64).where(blue, -1)), trainer=First()).told
    assert told is not None
    assert (told.accuracy, told.images) == (1, 60)


def test_a_masked_head_that_answers_one_class_raises_an_alarm() -> None:
    """The paper's CE + mask: PT is a class's frequency in every setup."""
    always_red = torch.ones(120, dtype=torch.int64)
    alarms = leak(replace(pairs(lambda real: real.pixels.clone()), head=always_red)).alarms
    assert len(alarms) == 2
    assert "25.0 %: below the majority rate (50.0 %) is degenerate, not privacy" in alarms[0]
    assert "colour, PT: 1 of 1 answer one class (red)" in alarms[1]


@dataclass(frozen=True)
class Collapsing(SmallJudge):
    """A judge whose training fails on some images: it answers the last class whatever it sees."""

    on: Tensor | None = None

    def train(self, images: Attributed, asked: tuple[str, ...], *, seed: int, what: str) -> Answers:
        if self.on is not None and images.pixels.equal(self.on):
            return lambda pixels: {name: torch.full((len(pixels),), len(images.classes[name]) - 1) for name in asked}
        return super().train(images, asked, seed=seed, what=what)


def test_a_baseline_that_collapsed_raises_an_alarm() -> None:
    """The paper's table 12: judges trained on real images are worse than those trained on any release."""
    given = pairs(lambda real: real.pixels.flip(2))
    alarms = leak(given, trainer=Collapsing(epochs=8, batch=32, on=given.real.pixels)).alarms
    assert any(alarm.startswith("colour, real images: the baseline collapsed") for alarm in alarms)
    assert any("colour, real images: 1 of 1 answer one class (green)" in alarm for alarm in alarms)
    assert not any("released images" in alarm.split(":")[0] for alarm in alarms)


@dataclass(frozen=True)
class First(SmallJudge):
    """A judge that learns nothing: it answers the first class."""

    def train(self, images: Attributed, asked: tuple[str, ...], *, seed: int, what: str) -> Answers:
        return lambda pixels: {name: torch.zeros(len(pixels), dtype=torch.int64) for name in asked}


def test_each_seed_holds_out_another_sixth_of_the_release() -> None:
    given = pairs(without_colour)
    found = {seeds: leak(given, seeds=seeds, trainer=First()).inside for seeds in ((0, 1), (0, 6), tuple(range(6)))}
    assert [score.images for score in found.values()] == [40, 20, 120]
    assert found[tuple(range(6))].accuracy == pytest.approx(
        0.5
    )  # all of the release were asked about once: half are blue


def test_too_small_a_release() -> None:
    few = torch.arange(14)
    given = pairs(without_colour)
    with pytest.raises(DataError, match="Expected at least 15 released images of g to judge, got 14"):
        leak(replace(given, released=given.released.rows(few), real=given.real.rows(few)))


@pytest.mark.parametrize("which", ["released", "test"])
def test_one_class_of_the_hidden_attribute(which: str) -> None:
    given = pairs(without_colour)
    chosen = getattr(given, which)
    alike = chosen.rows(chosen.attributes["colour"] == 0)
    with pytest.raises(DataError, match=f"Expected {which} images of at least 2 classes of colour, got 1"):
        leak(replace(given, **{which: alike}))


@dataclass(frozen=True)
class Recording(SmallJudge):
    """A judge that learns nothing and notes the images that it was given."""

    given: list[Attributed] = field(default_factory=list)

    def train(self, images: Attributed, asked: tuple[str, ...], *, seed: int, what: str) -> Answers:
        self.given.append(images)
        return lambda pixels: {name: torch.zeros(len(pixels), dtype=torch.int64) for name in asked}


def test_inside_the_release_nobody_is_asked_about_who_was_learnt() -> None:
    """Some people have many images; each image carries the number of its person in its first pixel."""
    given = pairs(without_colour)
    people = torch.cat([torch.arange(30), torch.arange(15).repeat_interleave(5), torch.full((15,), 40)])
    assert len(people) == len(given.released)
    marked = given.released.pixels.clone()
    marked[:, 0, 0, 0] = people.to(torch.uint8)
    judge = Recording()
    given = replace(given, released=given.released.with_pixels(marked), people=people)
    found = leak(given, seeds=tuple(range(6)), trainer=judge)
    assert found.inside.images == 120  # all were asked about once
    learnt = [set(images.pixels[:, 0, 0, 0].tolist()) for images in judge.given[-6:]]
    everyone = set(people.tolist())
    asked = [everyone - known for known in learnt]
    assert sorted(person for some in asked for person in some) == sorted(everyone)
    sizes = [int(torch.isin(people, torch.tensor(sorted(some))).sum()) for some in asked]
    assert max(sizes) - min(sizes) <= 1


def test_too_few_people() -> None:
    given = pairs(without_colour)
    for people in (torch.arange(120) % 5, torch.arange(120).clamp(min=110)):
        with pytest.raises(DataError, match="at least 6 people and 12 images beside those of any one"):
            leak(replace(given, people=people))

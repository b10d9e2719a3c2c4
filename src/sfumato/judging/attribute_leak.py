"""What released images tell of a hidden attribute and of kept ones, by judges that are trained on them.

An adversary trains a judge on released images and the attribute of the people they were made from, and asks it about
real people (CLS); an honest user trains one on a kept label. Both are tested on real images of which nothing was
released. The baseline is the same code on the real images that were re-generated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from sfumato.errors import DataError
from sfumato.judging.attribute_judges import LEAST_IMAGES, Judge
from sfumato.judging.recognition import Recognition, recognition
from sfumato.statistics.attribute_scores import (
    AttributeScore,
    Difference,
    collapsed_baseline,
    constant_prediction,
    degenerate_head,
    difference,
    score_attribute,
)
from sfumato.values import Attributed

Front = Literal["no", "test"]
FOLDS = 6  # a judge is trained on five sixths of the release and tested on the sixth
LEAST_RELEASED = LEAST_IMAGES * FOLDS // (FOLDS - 1) + 1  # so that five sixths are enough to train a judge on


@dataclass(frozen=True, slots=True)
class Leak:
    """What was measured of a release, by one kind of judge on images of some parts; lab material."""

    attribute: str  # that is hidden
    keep: tuple[str, ...]
    judge: str
    settings: dict[str, Any]  # of the judge
    seeds: tuple[int, ...]
    parts: str  # whose re-generated images the judges were trained on, such as v+g
    front: Front  # which images had to show a face from the front; with "test", those of the head (PT) had to as well
    trained_on: int
    told: AttributeScore | None  # PT: by the method's own head; None where it has none, or was trained on these images
    real: dict[str, AttributeScore]  # by attribute: judges trained on the real images, tested on other real ones
    released: dict[str, AttributeScore]  # judges trained on the released images, tested on the same real ones
    inside: AttributeScore  # the hidden attribute: judges trained on most of the release, tested on the rest of it
    gain: Difference  # in privacy: what judges of the hidden attribute lose by the release
    losses: dict[str, Difference]  # in utility, by kept attribute: what judges lose by the release
    recognition: Recognition
    alarms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Released images beside the real records that they were made from, and the real ones that test."""

    released: Attributed  # with all labels of their sources
    real: Attributed  # the sources, image by image
    test: Attributed
    head: Tensor | None  # int64 (n,): what the method's own head tells of each released image; -1: it is not asked
    head_learnt: Tensor  # int64 (m,): the hidden attribute of the records that the hider was trained on
    people: Tensor | None = None  # int64 (n,): who is on each released image; None: not known


def leak_of(
    pairs: Pairs,
    asked: tuple[str, ...],
    trainer: Judge,
    *,
    judge: str,
    seeds: tuple[int, ...],
    parts: str,
    front: Front = "no",
    baseline: Mapping[str, AttributeScore] | None = None,
) -> Leak:
    """What the released images tell of the attributes; the first of those asked is the hidden one.

    `baseline` is what `baseline_of` found with the same real images, judge and seeds; None: it is measured here.
    """
    hidden, keep = asked[0], asked[1:]
    _refuse_unjudgeable(pairs, hidden, parts)
    released = _tested(trainer, pairs.released, pairs.test, asked, seeds, "judges of released images")
    real = _baseline(pairs, asked, trainer, seeds) if baseline is None else dict(baseline)
    inside = _inside(trainer, pairs, hidden, seeds)
    told = _told(pairs, hidden)
    return Leak(
        attribute=hidden,
        keep=keep,
        judge=judge,
        settings=asdict(trainer),  # type: ignore[call-overload]
        seeds=seeds,
        parts=parts,
        front=front,
        trained_on=len(pairs.released),
        told=told,
        real=real,
        released=released,
        inside=inside,
        gain=difference(real[hidden], released[hidden]),
        losses={name: difference(real[name], released[name]) for name in keep},
        recognition=recognition(pairs.released.pixels, pairs.real.pixels, pairs.people),
        alarms=_alarms(told, real, released, inside),
    )


def baseline_of(
    pairs: Pairs, asked: tuple[str, ...], trainer: Judge, *, seeds: tuple[int, ...], parts: str
) -> dict[str, AttributeScore]:
    """What judges tell that are trained on the real images: the same for every method that re-generates these."""
    _refuse_unjudgeable(pairs, asked[0], parts)
    return _baseline(pairs, asked, trainer, seeds)


def _baseline(
    pairs: Pairs, asked: tuple[str, ...], trainer: Judge, seeds: tuple[int, ...]
) -> dict[str, AttributeScore]:
    return _tested(trainer, pairs.real, pairs.test, asked, seeds, "judges of real images")


def _tested(
    trainer: Judge, train: Attributed, test: Attributed, asked: tuple[str, ...], seeds: tuple[int, ...], what: str
) -> dict[str, AttributeScore]:
    """Train a judge for each seed and test all on the same images."""
    answers = [trainer.train(train, asked, seed=seed, what=what)(test.pixels) for seed in seeds]
    return {
        name: score_attribute(
            [answer[name] for answer in answers],
            [test.attributes[name]] * len(seeds),
            train.attributes[name],
            test.classes[name],
            images=len(test),
        )
        for name in asked
    }


def _inside(trainer: Judge, pairs: Pairs, hidden: str, seeds: tuple[int, ...]) -> AttributeScore:
    """An adversary who knows the attribute of most released people asks for that of the others.

    Each seed holds another sixth out, in the same division of the release.
    """
    released, folds = pairs.released, _folds(pairs)
    predicted, truth = [], []
    for seed in seeds:
        held_out = released.rows(folds[seed % FOLDS])
        rest = released.rows(torch.cat([fold for at, fold in enumerate(folds) if at != seed % FOLDS]))
        answers = trainer.train(rest, (hidden,), seed=seed, what="judges inside the release")
        predicted.append(answers(held_out.pixels)[hidden])
        truth.append(held_out.attributes[hidden])
    different = sum(len(folds[at]) for at in {seed % FOLDS for seed in seeds})
    return score_attribute(predicted, truth, released.attributes[hidden], released.classes[hidden], images=different)


def _folds(pairs: Pairs) -> tuple[Tensor, ...]:
    """The released images in sixths, by number; all images of a person in one, so that no judge is asked about a person
    whose attribute it has learnt."""
    generator = torch.Generator().manual_seed(0)
    if pairs.people is None:
        return torch.randperm(len(pairs.released), generator=generator).tensor_split(FOLDS)
    who = torch.unique(pairs.people, return_inverse=True)[1]
    counts = who.bincount()
    order = torch.randperm(len(counts), generator=generator)
    order = order[counts[order].argsort(descending=True, stable=True)]  # small ones even out what large ones leave
    fold_of, held = torch.empty_like(counts), torch.zeros(FOLDS, dtype=torch.int64)
    for person in order.tolist():
        fold_of[person] = held.argmin()
        held[fold_of[person]] += counts[person]
    return tuple((fold_of[who] == fold).nonzero()[:, 0] for fold in range(FOLDS))


def _told(pairs: Pairs, hidden: str) -> AttributeScore | None:
    if pairs.head is None:
        return None
    asked = pairs.head >= 0
    truth, classes = pairs.released.attributes[hidden][asked], pairs.released.classes[hidden]
    return score_attribute([pairs.head[asked]], [truth], pairs.head_learnt, classes, images=len(truth))


def _alarms(
    told: AttributeScore | None,
    real: dict[str, AttributeScore],
    released: dict[str, AttributeScore],
    inside: AttributeScore,
) -> tuple[str, ...]:
    """Every result that is degenerate, in words."""
    found = []
    hidden = next(iter(released))
    if told is not None:
        found += [(f"{hidden}, PT", degenerate_head(told)), (f"{hidden}, PT", constant_prediction(told))]
    for name in released:
        found.append((f"{name}, real images", collapsed_baseline(real[name], released[name])))
        found.append((f"{name}, real images", constant_prediction(real[name])))
        found.append((f"{name}, released images", constant_prediction(released[name])))
    found.append((f"{hidden}, inside the release", constant_prediction(inside)))
    return tuple(f"{where}: {alarm}" for where, alarm in found if alarm is not None)


def _refuse_unjudgeable(pairs: Pairs, hidden: str, parts: str) -> None:
    if len(pairs.released) < LEAST_RELEASED:
        raise DataError(
            f"Expected at least {LEAST_RELEASED} released images of {parts} to judge, got {len(pairs.released)}.",
            fix="judge more parts, or hide the attribute of more images",
        )
    if pairs.people is not None:
        sizes = [len(fold) for fold in _folds(pairs)]
        if not min(sizes) or len(pairs.released) - max(sizes) < LEAST_IMAGES:
            raise DataError(
                f"Expected released images of at least {FOLDS} people and {LEAST_IMAGES} images beside those of any "
                f"one, got {len(pairs.released)} images of {len(set(pairs.people.tolist()))} people.",
                fix="judge more parts, or hide the attribute of more people",
            )
    for images, which in ((pairs.released, "released"), (pairs.test, "test")):
        if len(torch.unique(images.attributes[hidden])) < 2:
            raise DataError(
                f"Expected {which} images of at least 2 classes of {hidden}, got 1: there is nothing to tell apart.",
                fix="judge more parts, or an attribute that differs between people",
            )

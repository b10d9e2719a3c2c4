"""Membership inference against a classifier: train the target and its shadows, run the attacks; lab side."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from sfumato import contracts
from sfumato.contracts import ClassifierAttack
from sfumato.errors import DataError, NotApplicable, UsageError
from sfumato.statistics.outputs import log_probability
from sfumato.training.student import Schedule, outputs, train
from sfumato.values import Exposed, Images

BINS = 15
LEAST_LOSS = 1e-8  # smaller losses count as equal: the logarithm of the loss has no lower bound


def expose(members: Images, others: Images, schedule: Schedule, *, shadows: int = 8, seed: int = 0) -> Exposed:
    """Train a target on all members and shadows on random halves of all records; their logits on the candidates.

    Candidates are as many members as others. Shadows come in pairs: the second is trained on the records that the
    first is not. So with an even number of shadows, each candidate is a training record of exactly half of them.
    """
    _check(members, others, shadows)
    draw = torch.Generator().manual_seed(seed)
    if len(others) > len(members):  # so that half of the pool is as large as the target's training set
        others = others.rows(torch.randperm(len(others), generator=draw)[: len(members)])
    chosen = torch.randperm(len(members), generator=draw)[: len(others)].sort().values
    candidates = torch.cat([chosen, len(members) + torch.arange(len(others))])
    pool = _joined(members, others)
    target = train(members, schedule, seed=seed, what="target")
    trained_on = halves(len(pool), shadows, draw)  # (m, pool)
    logits = outputs(target, pool.pixels[candidates])
    shadow_logits = torch.empty(shadows, *logits.shape, dtype=logits.dtype)
    for number, half in enumerate(trained_on):
        shadow = train(pool.rows(half), schedule, seed=seed + 1 + number, what=f"shadow {number + 1}")
        shadow_logits[number] = outputs(shadow, pool.pixels[candidates])
    return Exposed(
        logits=logits,
        labels=pool.labels[candidates],
        members=candidates < len(members),
        shadow_logits=shadow_logits,
        shadow_members=trained_on[:, candidates],
    )


def expose_trained(classifier: nn.Module, members: Images, others: Images) -> Exposed:
    """The logits of a trained classifier on members and others; there are no shadow classifiers."""
    logits = outputs(classifier, torch.cat([members.pixels, others.pixels]))
    labels = torch.cat([members.labels, others.labels])
    return Exposed(
        logits=logits,
        labels=labels,
        members=torch.arange(len(labels)) < len(members),
        shadow_logits=torch.empty(0, *logits.shape),
        shadow_members=torch.empty(0, len(labels)).bool(),
    )


def attack_classifier(exposed: Exposed, *, attacks: tuple[str, ...] = ()) -> dict[str, Tensor]:
    """The scores of the named attacks, or of all; attacks that do not apply to these logits are left out."""
    refuse_attacks_on_images(attacks)
    scores, _ = run_attacks(exposed, attacks or classifier_attacks())
    return scores


def refuse_attacks_on_images(names: Iterable[str]) -> None:
    """Refuse attacks that no classifier can be attacked with, by name."""
    for name in names:
        if not issubclass(contracts.find("attacks", name), ClassifierAttack):
            raise UsageError(
                f"Expected attacks on a classifier, got {name}, which attacks a release of images.",
                fix=f"choose of {', '.join(classifier_attacks())}",
            )


def classifier_attacks() -> tuple[str, ...]:
    """The names of all attacks on a classifier."""
    return contracts.names_of("attacks", ClassifierAttack)


def run_attacks(exposed: Exposed, names: Iterable[str]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The scores of these attacks by name, and for each that does not apply the reason."""
    scores: dict[str, Tensor] = {}
    left_out: dict[str, str] = {}
    for name in names:
        try:
            scores[name] = contracts.find("attacks", name)().score(exposed)
        except NotApplicable as reason:
            left_out[name] = reason.what
    return scores, left_out


def membership_probability(exposed: Exposed) -> Tensor:
    """The share of members among the candidates whose loss is in the same of 15 bins on a log scale.

    This is the privacy risk score of TensorFlow Privacy (Song and Mittal 2021). Members and others each count as a
    fraction of their number. A candidate counts in its own bin, so this describes risk and is not an attack. An empty
    bin has the value 0.5.
    """
    loss = (-log_probability(exposed.logits, exposed.labels)).clamp(min=LEAST_LOSS).log()
    width = (loss.max() - loss.min()) / BINS
    if width > 0:
        bins = ((loss - loss.min()) / width).long().clamp(max=BINS - 1)
    else:
        bins = torch.zeros_like(exposed.labels)
    of_members, of_others = _shares(bins[exposed.members]), _shares(bins[~exposed.members])
    both = of_members + of_others
    return torch.where(both > 0, of_members / both, 0.5)[bins]


def _shares(bins: Tensor) -> Tensor:
    return torch.bincount(bins, minlength=BINS).double() / max(1, len(bins))


def halves(count: int, shadows: int, draw: torch.Generator) -> Tensor:
    """Which records train which shadow; the second of a pair gets what the first does not."""
    chosen = torch.zeros(shadows, count, dtype=torch.bool)
    for number in range(shadows):
        if number % 2:
            chosen[number] = ~chosen[number - 1]
        else:
            chosen[number, torch.randperm(count, generator=draw)[: count // 2]] = True
    return chosen


def _check(members: Images, others: Images, shadows: int) -> None:
    if shadows < 0:
        raise UsageError(f"Expected 0 or more shadows, got {shadows}.")
    if not len(members) or not len(others):
        raise DataError(f"Expected members and others, got {len(members)} and {len(others)}.")
    if members.pixels.shape[1:] != others.pixels.shape[1:] or members.classes != others.classes:
        raise DataError("Expected members and others of one shape and with the same classes, got two kinds.")
    if (members.logits is None) != (others.logits is None):
        raise DataError("Expected logits with members and others, or with neither; got them with one.")


def _joined(first: Images, second: Images) -> Images:
    logits = None
    if first.logits is not None and second.logits is not None:
        logits = torch.cat([first.logits, second.logits])
    pixels = torch.cat([first.pixels, second.pixels])
    return Images(pixels, torch.cat([first.labels, second.labels]), first.classes, logits)

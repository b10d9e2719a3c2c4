"""How much a classifier gives away about the records that trained it: target, shadows, attacks; lab side."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sfumato import contracts
from sfumato.contracts import ClassifierAttack
from sfumato.errors import DataError, NotApplicable, UsageError
from sfumato.statistics.outputs import log_probability
from sfumato.training.student import Schedule, outputs, train
from sfumato.values import Exposed, Images

BINS = 15
LEAST_LOSS = 1e-8  # a surer classifier is not told apart: the logarithm of the loss has no lower end


def expose(members: Images, others: Images, lesson: Schedule, *, shadows: int = 8, seed: int = 0) -> Exposed:
    """A target trained on all members, shadows trained on random halves, and what they say about candidates.

    Candidates are as many members as others. Shadows come in pairs that share the records out between them, so
    that an even number of them has every candidate in half of the shadows and out of the other half.
    """
    _check(members, others, shadows)
    draw = torch.Generator().manual_seed(seed)
    if len(others) > len(members):  # a half of the pool is then as large as what trains the target
        others = others.rows(torch.randperm(len(others), generator=draw)[: len(members)])
    chosen = torch.randperm(len(members), generator=draw)[: len(others)].sort().values
    candidates = torch.cat([chosen, len(members) + torch.arange(len(others))])
    pool = _joined(members, others)
    target = train(members, lesson, seed=seed, what="target")
    halves = _halves(len(pool), shadows, draw)  # (m, pool)
    said = [outputs(target, pool.pixels[candidates])]
    for number, half in enumerate(halves):
        shadow = train(pool.rows(half), lesson, seed=seed + 1 + number, what=f"shadow {number + 1}")
        said.append(outputs(shadow, pool.pixels[candidates]))
    return Exposed(
        logits=said[0],
        labels=pool.labels[candidates],
        members=candidates < len(members),
        shadow_logits=torch.stack(said)[1:],
        shadow_members=halves[:, candidates],
    )


def answered(classifier: nn.Module, members: Images, others: Images) -> Exposed:
    """What a finished classifier says about members and others; it has no shadows."""
    said = outputs(classifier, torch.cat([members.pixels, others.pixels]))
    labels = torch.cat([members.labels, others.labels])
    none = torch.empty(0, *said.shape)
    return Exposed(said, labels, torch.arange(len(labels)) < len(members), none, torch.empty(0, len(labels)).bool())


def attack_classifier(exposed: Exposed, *, attacks: tuple[str, ...] = ()) -> dict[str, Tensor]:
    """The scores of the named attacks, or of all; those that these answers do not allow are left out."""
    scores = {}
    for name in attacks or contracts.names("attacks"):
        attack = contracts.find("attacks", name)
        if issubclass(attack, ClassifierAttack):
            try:
                scores[name] = attack().score(exposed)
            except NotApplicable:
                continue
        elif attacks:
            raise UsageError(f"Expected attacks on a classifier, got {name}, which attacks a release.")
    return scores


def membership_probability(exposed: Exposed) -> Tensor:
    """The share of members among the candidates whose loss is in the same of 15 bins on a log scale.

    As TensorFlow Privacy's privacy risk score (Song and Mittal 2021): each side counts as a fraction of itself, and a
    candidate counts in its own bin, so this describes a candidate's risk and is no attack. A bin that is empty
    says 0.5.
    """
    loss = (-log_probability(exposed.logits, exposed.labels)).clamp(min=LEAST_LOSS).log()
    width = (loss.max() - loss.min()) / BINS
    bins = ((loss - loss.min()) / width).long().clamp(max=BINS - 1) if width > 0 else torch.zeros_like(exposed.labels)
    ins, outs = (_shares(bins[side]) for side in (exposed.members, ~exposed.members))
    return torch.where(ins + outs > 0, ins / (ins + outs), 0.5)[bins]


def _shares(bins: Tensor) -> Tensor:
    return torch.bincount(bins, minlength=BINS).double() / max(1, len(bins))


def _halves(count: int, shadows: int, draw: torch.Generator) -> Tensor:
    """Which records train which shadow; the second of a pair gets what the first does not."""
    halves = torch.zeros(shadows, count, dtype=torch.bool)
    for number in range(shadows):
        if number % 2:
            halves[number] = ~halves[number - 1]
        else:
            halves[number, torch.randperm(count, generator=draw)[: count // 2]] = True
    return halves


def _check(members: Images, others: Images, shadows: int) -> None:
    if shadows < 0:
        raise UsageError(f"Expected 0 or more shadows, got {shadows}.")
    if not len(members) or not len(others):
        raise DataError(f"Expected members and others to tell apart, got {len(members)} and {len(others)}.")
    if members.pixels.shape[1:] != others.pixels.shape[1:] or members.classes != others.classes:
        raise DataError("Expected members and others of one shape and with the same classes, got two kinds.")
    if (members.logits is None) != (others.logits is None):
        raise DataError("Expected logits with members and others, or with neither; got them with one.")


def _joined(first: Images, second: Images) -> Images:
    pixels, labels = torch.cat([first.pixels, second.pixels]), torch.cat([first.labels, second.labels])
    soft = None if first.logits is None or second.logits is None else torch.cat([first.logits, second.logits])
    return Images(pixels, labels, first.classes, soft)

"""How much of its training records a release gives away to attackers; lab side, after the release is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from sfumato import contracts
from sfumato.contracts import Attack, Reading
from sfumato.errors import DataError, NotApplicable, UsageError
from sfumato.judging.attack_figures import draw_curves, draw_pairs
from sfumato.judging.evaluate import reference_for
from sfumato.judging.exposure import answered, attack_classifier
from sfumato.judging.harmonic import add_harmonic_score
from sfumato.judging.near_duplicates import Pairs, described, near_duplicates, without_twins
from sfumato.judging.shadow import SHADOWED, shadow_lira
from sfumato.lab.folder import NOTICE, Lab
from sfumato.lab.scores import Entry, add_scores, read_scores
from sfumato.progress import track
from sfumato.release import read_release
from sfumato.statistics.roc import Rate, area, epsilon_bound, rate_at
from sfumato.training.student import Schedule, train, training_images
from sfumato.values import Images, Reference, Release, Score

MOST_CANDIDATES, MOST_POPULATION = 2_000, 10_000
FEWEST = 20  # candidates on either side, below which nothing can be said
FALSE_ALARMS = (0.01, 0.001)
DUPLICATES = "near-duplicates"
LIMITS = (
    "Every number here was measured on real records outside the ledger, so all of them are for the lab alone. "
    "They are smoke alarms for copying and not a test of differential privacy: an attack that fails proves nothing."
)


@dataclass(frozen=True, slots=True)
class Lineup:
    """Candidates with the truth about them, and other real images."""

    members: Images
    others: Images
    population: Images
    twins: int  # test records left out, because they are training records too


@dataclass(frozen=True, slots=True)
class Found:
    """The scores that an attacker gave to members and to others."""

    members: Tensor
    others: Tensor
    settings: Mapping[str, Any]
    details: Mapping[str, Any]


def attack_release(
    folder: Path | str,
    real: str,
    *,
    reading: Reading | None = None,
    attacks: tuple[str, ...] = (),
    panel: Literal["default", "full"] = "default",
    public: str | None = None,
) -> list[Score]:
    """Attack the release in `folder` with its real data at hand; the results go to its lab folder.

    Naming attacks runs those instead of a panel's. The full panel adds attacks on a classifier
    that was trained on the release, and shadow releases, which take minutes.
    """
    chosen = _chosen(attacks, panel)
    release = read_release(Path(folder))
    reference = reference_for(release, real, reading or Reading(), public=public)
    lineup = _lineup(reference)
    lab = Lab.beside(release.path.absolute())
    with lab:  # a lab that cannot be used, or a foreign table in it, is said before the work and not after
        read_scores(lab.folder)
    full = panel == "full" and not attacks
    found = {
        name: _scored(attack, release, lineup)
        for name, attack in track(chosen.items(), what="attacks", total=len(chosen))
    }
    found |= _on_student(release.images, lineup) if full else {}
    left_out: dict[str, str] = {}
    if full or SHADOWED in attacks:
        try:
            shadowed = shadow_lira(release, reference)
            found[SHADOWED] = Found(shadowed.members, shadowed.others, {}, shadowed.details)
        except NotApplicable as reason:
            left_out[SHADOWED] = reason.what
    duplicates, pairs = near_duplicates(release, reference)
    entries = [Entry(_judged(name, f, release), name, "privacy", f.settings) for name, f in found.items()]
    entries.append(Entry(duplicates, DUPLICATES, "privacy"))
    with lab:
        _keep(lab, entries, found, pairs, left_out)
        together = add_harmonic_score(lab)
    return [*(entry.score for entry in entries), *([together] if together and not attacks else [])]


def _keep(lab: Lab, entries: list[Entry], found: dict[str, Found], pairs: Pairs, left_out: dict[str, str]) -> None:
    add_scores(lab, entries, judged_on="training records against test records", left_out=left_out)
    lab.write("attacks.md", _table([entry.score for entry in entries], left_out))
    if found:
        draw_curves({name: (f.members, f.others) for name, f in found.items()}, lab.folder / "attacks.png")
    draw_pairs(pairs, lab.folder / "near_duplicates.png")


def _on_student(released: Images, lineup: Lineup) -> dict[str, Found]:
    """What a classifier gives away that learnt from the release alone: no more than the release, if all is well."""
    images = training_images(released)
    lesson = Schedule.short("small-cnn", soft=images.logits is not None)
    student = train(images, lesson, seed=0, what="a classifier to attack")
    exposed = answered(student, lineup.members, lineup.others)
    told = {"target": "a classifier trained on the release"}
    return {
        f"student-{name}": Found(scores[exposed.members], scores[~exposed.members], asdict(lesson), told)
        for name, scores in attack_classifier(exposed).items()
    }


def _chosen(named: tuple[str, ...], panel: str) -> dict[str, Attack]:
    """The attacks to run; those on classifiers are another command's."""
    if panel not in ("default", "full"):
        raise UsageError(f"Expected the panel default or full, got {panel!r}.")
    on_releases = {
        name: kind for name in contracts.names("attacks") if issubclass(kind := contracts.find("attacks", name), Attack)
    }
    for name in named:
        if name not in (*on_releases, SHADOWED):
            known = ", ".join((*on_releases, SHADOWED))
            raise UsageError(
                f"Expected one of the attacks on a release {known}; got {name!r}.",
                fix="run `sfumato list attacks` to see what there is",
            )
    wanted = named or [name for name, kind in on_releases.items() if panel in ("full", kind.panel)]
    return {name: on_releases[name]() for name in wanted if name != SHADOWED}


def _lineup(real: Reference) -> Lineup:
    """As many members as others, drawn at random; the test records that are left are the population."""
    if real.test is None:
        raise NotApplicable(
            "Expected a data set with a test split, because an attack is judged on records that were not trained on.",
            fix="give the data set with its test split, or one where you have kept some records from the release",
        )
    draw = torch.Generator().manual_seed(0)
    fresh = without_twins(real.test, real.train)
    fresh = fresh[torch.randperm(len(fresh), generator=draw)]
    count = min(MOST_CANDIDATES, len(real.train), len(fresh) // 2)
    if count < FEWEST:
        raise DataError(
            f"Expected {FEWEST} training records and twice as many test records that are none, "
            f"got {len(real.train)} and {len(fresh)}."
        )
    members = torch.randperm(len(real.train), generator=draw)[:count]
    population = fresh[count : count + MOST_POPULATION]
    return Lineup(
        real.train.rows(members), real.test.rows(fresh[:count]), real.test.rows(population), len(real.test) - len(fresh)
    )


def _scored(attack: Attack, release: Release, lineup: Lineup) -> Found:
    """Members and others in one call, so that what an attacker learns is learnt once."""
    ins, outs = lineup.members, lineup.others
    both = Images(torch.cat([ins.pixels, outs.pixels]), torch.cat([ins.labels, outs.labels]), ins.classes)
    scores = attack.score(release, both, population=lineup.population)
    details = {"test_records_also_in_training": lineup.twins}
    return Found(scores[: len(ins)], scores[len(ins) :], asdict(attack), details)  # type: ignore[call-overload]


def _judged(name: str, found: Found, release: Release) -> Score:
    members, others = found.members, found.others
    guarantee = release.certificate["guarantee"]
    value, error = area(members, others)
    rates = [rate_at(members, others, false_alarms=share) for share in FALSE_ALARMS]
    bound = epsilon_bound(members, others, delta=guarantee["delta"])
    claimed = guarantee["epsilon"]
    told = {
        "members": len(members),
        "others": len(others),
        "rates": [asdict(rate) for rate in rates],
        "epsilon_lower_bound": bound.epsilon,
        "confidence": bound.confidence,
        "largest_measurable_epsilon": bound.largest,
        "bound_from": bound.direction,
        "claimed_epsilon": claimed,
        "claimed_delta": guarantee["delta"],
        "above_claim": claimed is not None and bound.epsilon > claimed,
        **found.details,
    }
    parts = tuple(_part(name, rate, len(members)) for rate in rates)
    return Score(f"attack-{name}", value, error, higher_is_better=False, seeds=(0,), details=told, parts=parts)


def _part(name: str, rate: Rate, count: int) -> Score:
    error = (rate.value * (1 - rate.value) / count) ** 0.5
    return Score(
        f"attack-{name}-tpr-at-fpr-{rate.false_alarms:g}",
        rate.value,
        error,
        higher_is_better=False,
        details=asdict(rate),
    )


def _table(scores: list[Score], left_out: dict[str, str]) -> str:
    head = [
        "attack",
        "AUC",
        *(f"TPR at {100 * share:g} % FPR" for share in FALSE_ALARMS),
        "epsilon at least",
        "epsilon claimed",
        "above the claim",
    ]
    attacks = [score for score in scores if score.name != DUPLICATES]
    body = [_cells(score) for score in attacks]
    (duplicates,) = (score for score in scores if score.name == DUPLICATES)
    lines = [NOTICE, LIMITS, "", _row(head), _row(["---"] * len(head)), *map(_row, body), ""]
    if attacks:
        told = attacks[0].details
        lines.append(
            "AUC with its standard error, rates with 95 % intervals, "
            f"epsilon at {100 * told['confidence']:g} % confidence and delta {told['claimed_delta']:g}; "
            f"so many candidates cannot show an epsilon above {told['largest_measurable_epsilon']:.2f}."
        )
    if any("*" in cell for cells in body for cell in cells):
        lines.append("\\* Too few records that are no members to measure that: the rate is at no false alarm at all.")
    lines += ["", f"Near duplicates: {described(duplicates)}", ""]
    lines += [f"Left out: {name}, because: {reason}" for name, reason in left_out.items()]
    return "\n".join(lines) + "\n"


def _cells(score: Score) -> list[str]:
    told = score.details
    rates = [
        f"{100 * rate['value']:.1f} % ({100 * rate['low']:.1f} to {100 * rate['high']:.1f})"
        + ("" if rate["measurable"] else " \\*")
        for rate in told["rates"]
    ]
    claimed = "none: not private" if told["claimed_epsilon"] is None else f"{told['claimed_epsilon']:.3f}"
    return [
        score.name.removeprefix("attack-"),
        f"{score.value:.3f} ± {score.standard_error:.3f}",
        *rates,
        f"{told['epsilon_lower_bound']:.3f}",
        claimed,
        "YES" if told["above_claim"] else "no",
    ]


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"

"""Membership attacks on a release, given its real data; lab side, after the release is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from sfumato import contracts
from sfumato.contracts import Attack, ClassifierAttack, Reading
from sfumato.errors import DataError, NotApplicable, UsageError
from sfumato.judging.attack_figures import draw_curves, draw_pairs
from sfumato.judging.attack_table import attack_table
from sfumato.judging.exposure import expose_trained, run_attacks
from sfumato.judging.harmonic import add_harmonic_score
from sfumato.judging.near_duplicates import NEAR_DUPLICATES, Pairs, near_duplicates, without_copies
from sfumato.judging.reference import reference_for
from sfumato.judging.shadow import CLOSENESS, SHADOW_LIRA, Measure, closeness, measure_shadows, score_closeness
from sfumato.lab.folder import Lab
from sfumato.lab.scores import Entry, add_scores, read_scores
from sfumato.progress import track
from sfumato.release import read_release
from sfumato.statistics.roc import Rate, area, epsilon_bound, rate_at
from sfumato.training.student import Schedule, outputs, train, training_images, with_hard_labels
from sfumato.values import Exposed, Images, Reference, Release, Score

MOST_CANDIDATES, MOST_POPULATION = 2_000, 10_000
FEWEST = 20  # candidates on either side, below which no rate can be estimated
FALSE_POSITIVE_RATES = (0.01, 0.001)
STUDENT_LOGITS = "student logits"
SHADOW_IMAGES_SEEN = 60_000  # in the training of one shadow student: there are many of them


@dataclass(frozen=True, slots=True)
class Lineup:
    """Candidates of known membership, and other real images."""

    members: Images
    others: Images
    population: Images
    copies: int  # test records left out, because they are training records too


@dataclass(frozen=True, slots=True)
class AttackScores:
    """The scores that an attack gave to members and to others."""

    members: Tensor
    others: Tensor
    settings: Mapping[str, Any]
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AttackPlan:
    """Which attacks to run, by what they attack."""

    on_release: tuple[str, ...]
    on_student: tuple[str, ...]  # a classifier trained on the release
    on_shadows: tuple[str, ...]  # the same, with classifiers trained on shadow releases
    shadow_lira: bool  # the release itself, with shadow releases


@dataclass
class Results:
    """Scores by attack, and for each attack that does not apply the reason."""

    scores: dict[str, AttackScores]
    left_out: dict[str, str]


def attack_release(
    folder: Path | str,
    real: str,
    *,
    panel: Literal["default", "full"] = "default",
    attacks: tuple[str, ...] = (),
    shadows: int = 16,
    reading: Reading | None = None,
    public: str | None = None,
) -> list[Score]:
    """Attack the release in `folder`, given its real data; the results go to its lab folder.

    `attacks` names attacks to run instead of a panel: any of `sfumato list attacks`, and `shadow-lira`. An attack on a
    classifier attacks one that is trained on the release. The default panel attacks the released images alone; the
    full panel runs every attack. Attacks with shadows fit the method `shadows` times on other records and take minutes;
    where the method cannot be fitted again, they are left out, and the table gives the reason.
    """
    plan = plan_attacks(attacks, panel)
    release = read_release(Path(folder))
    reference = reference_for(release, real, reading or Reading(), public=public)
    lineup = _lineup(reference)
    lab = Lab.beside(release.path.absolute())
    with lab:  # report an unusable lab folder, or a foreign table in it, before the work
        read_scores(lab.folder)
    results = Results({}, {})
    for name in track(plan.on_release, what="attacks", total=len(plan.on_release)):
        results.scores[name] = _attack_images(contracts.find("attacks", name)(), release, lineup)
    if plan.on_student:
        _attack_student(plan.on_student, release.images, lineup, results)
    if plan.on_shadows or plan.shadow_lira:
        _attack_with_shadows(plan, release, reference, shadows, results)
    duplicates, pairs = near_duplicates(release, reference)
    entries = [
        Entry(_score(name, found, release), name, "privacy", found.settings) for name, found in results.scores.items()
    ]
    entries.append(Entry(duplicates, NEAR_DUPLICATES, "privacy"))
    with lab:
        _write(lab, entries, results, pairs)
        harmonic = add_harmonic_score(lab)
    scores = [entry.score for entry in entries]
    if harmonic is not None and not attacks:
        scores.append(harmonic)
    return scores


def _write(lab: Lab, entries: list[Entry], results: Results, pairs: Pairs) -> None:
    add_scores(lab, entries, judged_on="training records against test records", left_out=results.left_out)
    scores = [entry.score for entry in entries]
    lab.write("attacks.md", attack_table(scores, results.left_out, FALSE_POSITIVE_RATES))
    if results.scores:
        curves = {name: (found.members, found.others) for name, found in results.scores.items()}
        draw_curves(curves, lab.folder / "attacks.png")
    draw_pairs(pairs, lab.folder / "near_duplicates.png")


def plan_attacks(named: tuple[str, ...], panel: str) -> AttackPlan:
    """The attacks that are named, or else all of a panel."""
    if panel not in ("default", "full"):
        raise UsageError(f"Expected the panel default or full, got {panel!r}.")
    known = {name: contracts.find("attacks", name) for name in contracts.names("attacks")}
    for name in named:
        if name not in (*known, SHADOW_LIRA):
            raise UsageError(
                f"Expected one of the attacks {', '.join((*known, SHADOW_LIRA))}; got {name!r}.",
                fix="run `sfumato list attacks` to see what there is",
            )
    if named:
        wanted = [name for name in named if name != SHADOW_LIRA]
    elif panel == "full":
        wanted = list(known)
    else:
        wanted = [name for name, kind in known.items() if issubclass(kind, Attack) and kind.panel == "default"]
    on_classifier = [name for name in wanted if issubclass(known[name], ClassifierAttack)]
    return AttackPlan(
        on_release=tuple(name for name in wanted if issubclass(known[name], Attack)),
        on_student=tuple(name for name in on_classifier if not known[name].needs_shadows),
        on_shadows=tuple(name for name in on_classifier if known[name].needs_shadows),
        shadow_lira=SHADOW_LIRA in named if named else panel == "full",
    )


def _lineup(real: Reference) -> Lineup:
    """As many members as others, drawn at random; the remaining test records are the population."""
    if real.test is None:
        raise NotApplicable(
            "Expected a data set with a test split, because an attack is judged on records that were not trained on.",
            fix="give the data set with its test split, or one where you have kept some records from the release",
        )
    draw = torch.Generator().manual_seed(0)
    fresh = without_copies(real.test, real.train)
    fresh = fresh[torch.randperm(len(fresh), generator=draw)]
    count = min(MOST_CANDIDATES, len(real.train), len(fresh) // 2)
    if count < FEWEST:
        raise DataError(
            f"Expected {FEWEST} training records and twice as many test records that are none, "
            f"got {len(real.train)} and {len(fresh)}.",
            fix="attack with more real images, none of them in both splits",
        )
    members = torch.randperm(len(real.train), generator=draw)[:count]
    population = fresh[count : count + MOST_POPULATION]
    return Lineup(
        real.train.rows(members), real.test.rows(fresh[:count]), real.test.rows(population), len(real.test) - len(fresh)
    )


def _attack_images(attack: Attack, release: Release, lineup: Lineup) -> AttackScores:
    """Score members and others in one call, so that an attack that fits a model fits it once."""
    members, others = lineup.members, lineup.others
    both = Images(
        torch.cat([members.pixels, others.pixels]), torch.cat([members.labels, others.labels]), members.classes
    )
    scores = attack.score(release, both, population=lineup.population)
    return AttackScores(
        members=scores[: len(members)],
        others=scores[len(members) :],
        settings=asdict(attack),  # type: ignore[call-overload]
        details={"test_records_also_in_training": lineup.copies},
    )


def _attack_student(names: tuple[str, ...], released: Images, lineup: Lineup, results: Results) -> None:
    """Attack a classifier that is trained on the release alone."""
    images = training_images(released)
    schedule = Schedule.short("small-cnn", soft=images.logits is not None)
    student = train(images, schedule, seed=0, what="a classifier to attack")
    exposed = expose_trained(student, lineup.members, lineup.others)
    _attack_exposed(names, exposed, schedule, {}, results)


def _attack_with_shadows(plan: AttackPlan, release: Release, real: Reference, shadows: int, results: Results) -> None:
    """Fit the method on shadow data sets once, for all attacks that compare with shadow releases.

    The target of an attack on a classifier is trained like the shadow classifiers: with the labels of as many
    released images.
    """
    schedule = Schedule.short("small-cnn", loss="labels", images_seen=SHADOW_IMAGES_SEEN)

    def student_logits(released: Images, candidates: Images) -> Tensor:
        student = train(with_hard_labels(released), schedule, seed=0, what="a classifier of a shadow release")
        return outputs(student, candidates.pixels)

    measures: dict[str, Measure] = {}
    if plan.shadow_lira:
        measures[CLOSENESS] = closeness
    if plan.on_shadows:
        measures[STUDENT_LOGITS] = student_logits
    try:
        study = measure_shadows(release, real, measures, shadows=shadows)
    except NotApplicable as reason:
        skipped = [_student_name(name) for name in plan.on_shadows]
        if plan.shadow_lira:
            skipped.append(SHADOW_LIRA)
        results.left_out.update(dict.fromkeys(skipped, reason.what))
        return
    if plan.on_shadows:
        exposed = Exposed(
            logits=study.target[STUDENT_LOGITS],
            labels=study.candidates.labels,
            members=study.members,
            shadow_logits=study.shadows[STUDENT_LOGITS],
            shadow_members=study.shadow_members,
        )
        _attack_exposed(plan.on_shadows, exposed, schedule, study.details, results)
    if plan.shadow_lira:
        found = score_closeness(study)
        results.scores[SHADOW_LIRA] = AttackScores(found.members, found.others, {}, found.details)


def _attack_exposed(
    names: tuple[str, ...], exposed: Exposed, schedule: Schedule, details: Mapping[str, Any], results: Results
) -> None:
    found, left_out = run_attacks(exposed, names)
    details = {"target": "a classifier trained on the release", **details}
    for name, scores in found.items():
        results.scores[_student_name(name)] = AttackScores(
            scores[exposed.members], scores[~exposed.members], asdict(schedule), details
        )
    results.left_out.update({_student_name(name): reason for name, reason in left_out.items()})


def _student_name(attack: str) -> str:
    """The name of a score: the same attack on another classifier would have another."""
    return f"student-{attack}"


def _score(name: str, found: AttackScores, release: Release) -> Score:
    members, others = found.members, found.others
    guarantee = release.certificate["guarantee"]
    value, error = area(members, others)
    rates = [rate_at(members, others, false_alarms=rate) for rate in FALSE_POSITIVE_RATES]
    bound = epsilon_bound(members, others, delta=guarantee["delta"])
    claimed = guarantee["epsilon"]
    details = {
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
    return Score(f"attack-{name}", value, error, higher_is_better=False, seeds=(0,), details=details, parts=parts)


def _part(name: str, rate: Rate, count: int) -> Score:
    error = (rate.value * (1 - rate.value) / count) ** 0.5
    return Score(
        f"attack-{name}-tpr-at-fpr-{rate.false_alarms:g}",
        rate.value,
        error,
        higher_is_better=False,
        details=asdict(rate),
    )

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
from sfumato.errors import NotApplicable, UsageError
from sfumato.judging.attack_figures import draw_pairs
from sfumato.judging.attack_scores import AttackScores, Results, write_attacks
from sfumato.judging.exposure import expose_trained, run_attacks
from sfumato.judging.harmonic import add_harmonic_score
from sfumato.judging.lineup import Lineup, line_up
from sfumato.judging.model_attack import MODEL_SHADOWS, attack_model, plan_model_attacks
from sfumato.judging.near_duplicates import NEAR_DUPLICATES, near_duplicates
from sfumato.judging.reference import reference_for
from sfumato.judging.shadow import CLOSENESS, SHADOW_LIRA, Measure, closeness, measure_shadows, score_closeness
from sfumato.lab.folder import Lab
from sfumato.lab.scores import Entry, read_scores
from sfumato.progress import track
from sfumato.release import read_model, read_release
from sfumato.release.kind import release_kind
from sfumato.training.student import Schedule, outputs, train, training_images, with_hard_labels
from sfumato.values import Exposed, Images, Reference, Release, Score

SHADOW_RELEASES = 16
STUDENT_LOGITS = "student logits"
SHADOW_IMAGES_SEEN = 60_000  # in the training of one shadow student: there are many of them


@dataclass(frozen=True, slots=True)
class AttackPlan:
    """Which attacks to run, by what they attack."""

    on_release: tuple[str, ...]
    on_student: tuple[str, ...]  # a classifier trained on the release
    on_shadows: tuple[str, ...]  # the same, with classifiers trained on shadow releases
    shadow_lira: bool  # the release itself, with shadow releases


def attack_release(
    folder: Path | str,
    real: str,
    *,
    panel: Literal["default", "full"] = "default",
    attacks: tuple[str, ...] = (),
    shadows: int | None = None,
    reading: Reading | None = None,
    public: str | None = None,
) -> list[Score]:
    """Attack the release in `folder`, given its real data; the results go to its lab folder.

    `attacks` names attacks to run instead of a panel: any of `sfumato list attacks`, and `shadow-lira`. Of images, the
    default panel attacks these alone, and an attack on a classifier attacks one that is trained on the release; of a
    released classifier, the attacks are those on classifiers. The full panel runs every attack. Attacks with shadows
    fit the method `shadows` times (16, of a classifier 8) on other records and take minutes; where it cannot be fitted
    again, they are left out, and the table gives the reason.
    """
    reading = reading or Reading()
    if release_kind(folder) == "model":
        plan_model_attacks(attacks, panel)  # refuse what cannot be run before anything is read
        model = read_model(Path(folder))
        reference = reference_for(model, real, reading, public=public)
        count = MODEL_SHADOWS if shadows is None else shadows
        return attack_model(model, reference, panel=panel, attacks=attacks, shadows=count)
    plan = plan_attacks(attacks, panel)
    release = read_release(Path(folder))
    reference = reference_for(release, real, reading, public=public)
    count = SHADOW_RELEASES if shadows is None else shadows
    return _attack_release_of_images(release, reference, plan, shadows=count, summarise=not attacks)


def _attack_release_of_images(
    release: Release, real: Reference, plan: AttackPlan, *, shadows: int, summarise: bool
) -> list[Score]:
    lineup = line_up(real)
    lab = Lab.beside(release.path.absolute())
    with lab:  # report an unusable lab folder, or a foreign table in it, before the work
        read_scores(lab.folder)
    results = Results({}, {})
    for name in track(plan.on_release, what="attacks", total=len(plan.on_release)):
        results.scores[name] = _attack_images(contracts.find("attacks", name)(), release, lineup)
    if plan.on_student:
        _attack_student(plan.on_student, release.images, lineup, results)
    if plan.on_shadows or plan.shadow_lira:
        _attack_with_shadows(plan, release, real, shadows, results)
    duplicates, pairs = near_duplicates(release, real)
    entries = results.entries(release.certificate["guarantee"])
    entries.append(Entry(duplicates, NEAR_DUPLICATES, "privacy"))
    with lab:
        write_attacks(lab, entries, results)
        draw_pairs(pairs, lab.folder / "near_duplicates.png")
        harmonic = add_harmonic_score(lab)
    scores = [entry.score for entry in entries]
    if harmonic is not None and summarise:
        scores.append(harmonic)
    return scores


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

"""Membership attacks on a released classifier, given its real data; lab side, after it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch

from sfumato import contracts
from sfumato.errors import NotApplicable, UsageError
from sfumato.judging.attack_scores import AttackScores, Results, write_attacks
from sfumato.judging.exposure import classifier_attacks, expose_trained, halves, refuse_attacks_on_images, run_attacks
from sfumato.judging.harmonic import add_harmonic_score
from sfumato.judging.lineup import Lineup, line_up
from sfumato.judging.refitting import LIMIT, fitted_again, joined, refuse_long_work, stated_in
from sfumato.judging.shadow import SHADOW_LIRA
from sfumato.lab.folder import Lab
from sfumato.lab.scores import read_scores
from sfumato.progress import track
from sfumato.training.student import outputs
from sfumato.values import Exposed, ModelRelease, Reference, Score, Spec

MODEL_SHADOWS = 8
SHADOW_SECONDS = 1_200.0  # that all shadows together may take


@dataclass(frozen=True, slots=True)
class ModelAttackPlan:
    """Which attacks to run, by what they learn from."""

    on_answers: tuple[str, ...]  # the classifier's answers alone
    on_shadows: tuple[str, ...]  # shadow classifiers, too


def attack_model(
    release: ModelRelease,
    real: Reference,
    *,
    panel: Literal["default", "full"] = "default",
    attacks: tuple[str, ...] = (),
    shadows: int = MODEL_SHADOWS,
    seconds: float = SHADOW_SECONDS,
) -> list[Score]:
    """Attack a released classifier; the results go to its lab folder.

    Members are training records, others are test records. The default panel learns from the classifier's answers alone;
    the full panel and attacks by name also from shadow classifiers, which the certificate's learner makes of other
    records under the same budget. Where it cannot be fitted again within `seconds`, they are left out, and the table
    gives the reason.
    """
    plan = plan_model_attacks(attacks, panel)
    _check_shadows(shadows)
    lineup = line_up(real)
    lab = Lab.beside(release.path.absolute())
    with lab:  # report an unusable lab folder, or a foreign table in it, before the work
        read_scores(lab.folder)
    results = Results({}, {})
    exposed = expose_trained(release.classifier.network.eval(), lineup.members, lineup.others)
    about: dict[str, Any] = {"test_records_also_in_training": lineup.copies}
    _attack(plan.on_answers, exposed, about, results)
    if plan.on_shadows:
        try:
            exposed = with_shadows(exposed, release, real, lineup, shadows=shadows, seconds=seconds)
            about = {**about, "shadows": shadows, "records_of_a_shadow": _records_of_a_shadow(lineup), "limit": LIMIT}
            _attack(plan.on_shadows, exposed, about, results)
        except NotApplicable as reason:
            results.left_out.update(dict.fromkeys(plan.on_shadows, reason.what))
    entries = results.entries(release.certificate["guarantee"])
    with lab:
        write_attacks(lab, entries, results)
        harmonic = add_harmonic_score(lab)
    scores = [entry.score for entry in entries]
    return scores if harmonic is None or attacks else [*scores, harmonic]


def plan_model_attacks(named: tuple[str, ...], panel: str) -> ModelAttackPlan:
    """The attacks that are named, or else all of a panel."""
    if panel not in ("default", "full"):
        raise UsageError(f"Expected the panel default or full, got {panel!r}.", fix="choose one of these")
    if SHADOW_LIRA in named:
        raise UsageError(
            f"Expected attacks on a classifier, got {SHADOW_LIRA}, which attacks a release of images.",
            fix="the same idea for a classifier is called lira",
        )
    refuse_attacks_on_images(named)
    known = {name: contracts.find("attacks", name) for name in classifier_attacks()}
    learns_from_shadows = {name for name, kind in known.items() if kind.needs_shadows}
    if named or panel == "full":
        wanted = named or tuple(known)
    else:
        wanted = tuple(name for name, kind in known.items() if kind.panel == "default" and not kind.needs_shadows)
    return ModelAttackPlan(
        on_answers=tuple(name for name in wanted if name not in learns_from_shadows),
        on_shadows=tuple(name for name in wanted if name in learns_from_shadows),
    )


def with_shadows(
    exposed: Exposed, release: ModelRelease, real: Reference, lineup: Lineup, *, shadows: int, seconds: float
) -> Exposed:
    """Add the answers of shadow classifiers to those of the target; all are for the same candidates.

    A shadow is fitted by the certificate's learner on a random half of the candidates and on the training records that
    are no candidates: on as many records as the target, so that the same budget means the same noise. Shadows come in
    pairs: the second gets the candidates that the first does not.
    """
    candidates = joined(
        lineup.members, torch.arange(len(lineup.members)), lineup.others, torch.arange(len(lineup.others))
    )
    spec = Spec(_records_of_a_shadow(lineup), *release.shape, release.classes)
    learner, budget = stated_in(release.certificate, "learners", spec)
    refuse_long_work(learner, spec, real.public, shadows=shadows, seconds=seconds)
    trained_on = halves(len(candidates), shadows, torch.Generator().manual_seed(0))  # (m, n)
    logits = torch.empty(shadows, *exposed.logits.shape)
    for number in track(range(shadows), what="shadow classifiers", total=shadows):
        records = joined(candidates, trained_on[number].nonzero()[:, 0], real.train, lineup.remaining)
        shadow = fitted_again(learner, budget, records, real.public)
        logits[number] = outputs(shadow.network.eval(), candidates.pixels)
    return replace(exposed, shadow_logits=logits, shadow_members=trained_on)


def _records_of_a_shadow(lineup: Lineup) -> int:
    return len(lineup.members) + len(lineup.remaining)


def _check_shadows(shadows: int) -> None:
    if shadows < 2 or shadows % 2:
        raise UsageError(f"Expected an even number of shadows from 2 on, got {shadows}.", fix="give 8, or leave it out")


def _attack(names: tuple[str, ...], exposed: Exposed, about: Mapping[str, Any], results: Results) -> None:
    found, left_out = run_attacks(exposed, names)
    for name, scores in found.items():
        settings = asdict(contracts.find("attacks", name)())
        results.scores[name] = AttackScores(scores[exposed.members], scores[~exposed.members], settings, about)
    results.left_out.update(left_out)

"""Evaluate a release: a panel of metrics against real images; lab side, after the release is written."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from sfumato.contracts import Metric, Reading
from sfumato.errors import NotApplicable, UsageError
from sfumato.judging.attack import attack_release
from sfumato.judging.harmonic import add_harmonic_score
from sfumato.judging.model_evaluation import evaluate_model
from sfumato.judging.panel import Panel, classifier_panel_of, panel_of, run_panel
from sfumato.judging.reference import reference_for
from sfumato.judging.weights import provide_weights
from sfumato.lab.folder import Lab
from sfumato.lab.pictures import side_by_side
from sfumato.lab.scores import read_scores
from sfumato.release import read_model, read_release
from sfumato.release.kind import release_kind
from sfumato.statistics.panels import Profile
from sfumato.values import Reference, Release, Score


def evaluate_release(
    folder: Path | str,
    real: str,
    *,
    reading: Reading | None = None,
    metrics: tuple[str, ...] = (),
    panel: Panel = "default",
    profile: Profile = "cpu",
    extractor: str = "auto",
    public: str | None = None,
    group: str | None = None,
) -> list[Score]:
    """Score the release in `folder` against the real data; the results go to its lab folder.

    Metrics that are named are all computed; metrics of a panel that do not apply are left out, and the table gives the
    reason. `group` names the column of a protected attribute. The full panel attacks the release, too. Of images,
    `public` are those that the release was made from, if any, `profile` is how classifiers are trained, `extractor` the
    network whose features fidelity is measured with; a released classifier is judged without these.
    """
    reading = reading or Reading()
    if release_kind(folder) == "model":
        _refuse_for_a_model(profile=profile, extractor=extractor, public=public)
        classifier_panel_of(panel, metrics)  # refuse what cannot be judged before anything is read
        model = read_model(Path(folder))
        scores = evaluate_model(model, reference_for(model, real, reading, group=group), metrics=metrics, panel=panel)
    else:
        judges = panel_of(panel, metrics, profile=profile, extractor=extractor)
        scores = score_release(folder, real, judges, reading=reading, public=public, group=group, named=bool(metrics))
    if panel == "full" and not metrics:
        try:
            scores += attack_release(folder, real, reading=reading, panel="full", public=public)
        except NotApplicable as reason:
            print(f"Attacks were left out. {reason.what}", file=sys.stderr)
    return scores


def score_release(
    folder: Path | str,
    real: str,
    judges: Mapping[str, Metric],
    *,
    reading: Reading,
    public: str | None = None,
    group: str | None = None,
    named: bool = True,
) -> list[Score]:
    """Score released images by these metrics, with the settings that they have; the results go to the lab folder."""
    release = read_release(Path(folder))
    for extractor in {getattr(metric, "extractor", "auto") for metric in judges.values()}:
        provide_weights(extractor)
    return _evaluate_images(
        release, reference_for(release, real, reading, public=public, group=group), judges, named=named
    )


def _evaluate_images(release: Release, real: Reference, judges: Mapping[str, Metric], *, named: bool) -> list[Score]:
    lab = Lab.beside(release.path.absolute())
    read_scores(lab.folder)  # refuse a foreign table before the work
    with lab:
        side_by_side(real.held_out, release.images, lab.folder / "real_vs_synthetic.png")
    entries = run_panel(judges, release.images, real, lab, leave_out=not named)
    scores = [entry.score for entry in entries]
    with lab:
        harmonic = add_harmonic_score(lab)
    return scores if harmonic is None or named else [*scores, harmonic]


def _refuse_for_a_model(**given: str | None) -> None:
    """Refuse options that only images can be judged with, where they were changed."""
    for name, value in given.items():
        if value not in ("cpu", "auto", None):  # what they are where nobody gave them
            raise UsageError(
                f"Expected a release of images for --{name}, got a released classifier, which is judged without it.",
                fix=f"leave --{name} out",
            )

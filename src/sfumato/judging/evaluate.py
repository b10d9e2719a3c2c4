"""Evaluate a release: a panel of metrics against real images; lab side, after the release is written."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

from sfumato import contracts
from sfumato.contracts import Metric, Reading
from sfumato.errors import NotApplicable
from sfumato.judging.attack import attack_release
from sfumato.judging.harmonic import add_harmonic_score
from sfumato.judging.reference import judged_on, reference_for
from sfumato.judging.weights import provide_weights
from sfumato.lab.folder import Lab
from sfumato.lab.pictures import side_by_side
from sfumato.lab.scores import Entry, add_scores, read_scores
from sfumato.release import read_release
from sfumato.statistics.panels import Profile
from sfumato.values import Score

Panel = Literal["default", "full"]


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

    Metrics that are named are all computed; metrics of a panel that do not apply to these images are left out, and
    the table gives the reason. `public` are the public images that the release was made from, if any;
    `group` names the column of a protected attribute, `profile` how classifiers are trained, `extractor` the network
    whose features fidelity is measured with. The full panel attacks the release, too.
    """
    release = read_release(Path(folder))
    provide_weights(extractor)
    judges = panel_of(panel, metrics, profile=profile, extractor=extractor)
    lab = Lab.beside(release.path.absolute())
    read_scores(lab.folder)  # refuse a foreign table before the work
    reference = reference_for(release, real, reading or Reading(), public=public, group=group)
    with lab:
        side_by_side(reference.held_out, release.images, lab.folder / "real_vs_synthetic.png")
    entries: list[Entry] = []
    left_out: dict[str, str] = {}
    for number, (name, metric) in enumerate(judges.items(), 1):
        print(f"{name} ({number} of {len(judges)})", file=sys.stderr, flush=True)
        try:
            entries.append(Entry(metric(release.images, reference), name, metric.judges, asdict(metric)))  # type: ignore[call-overload]
        except NotApplicable as reason:
            if metrics:
                raise
            left_out[name] = reason.what
        with lab:  # after each metric: a panel may take long and be stopped
            add_scores(lab, entries, judged_on=judged_on(reference), left_out=left_out)
    with lab:
        harmonic = add_harmonic_score(lab)
    scores = [entry.score for entry in entries]
    if harmonic is not None and not metrics:
        scores.append(harmonic)
    if panel == "full" and not metrics:
        try:
            scores += attack_release(folder, real, reading=reading, panel="full", public=public)
        except NotApplicable as reason:
            print(f"Attacks were left out. {reason.what}", file=sys.stderr)
    return scores


def panel_of(panel: Panel, named: tuple[str, ...] = (), **settings: str) -> dict[str, Metric]:
    """The metrics that are named, or all of a panel; each gets those of the settings that it has."""
    found = {name: contracts.find("metrics", name)() for name in named or contracts.names("metrics")}
    return {
        name: replace(metric, **{key: value for key, value in settings.items() if hasattr(metric, key)})
        for name, metric in found.items()
        if named or panel == "full" or metric.panel == "default"
    }

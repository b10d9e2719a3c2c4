"""A panel of metrics, of released images or of released classifiers, run one after the other into the lab's table."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Literal

from sfumato import contracts
from sfumato.contracts import ClassifierMetric, Metric
from sfumato.errors import NotApplicable, UsageError
from sfumato.judging.reference import judged_on
from sfumato.lab.folder import Lab
from sfumato.lab.scores import Entry, add_scores
from sfumato.values import Reference

Panel = Literal["default", "full"]
JUDGED = {Metric: "released images", ClassifierMetric: "a released classifier"}


def panel_of(panel: Panel, named: tuple[str, ...] = (), **settings: str) -> dict[str, Metric]:
    """The metrics of images that are named, or all of a panel; each gets those of the settings that it has."""
    return {
        name: replace(metric, **{key: value for key, value in settings.items() if hasattr(metric, key)})
        for name, metric in _chosen(Metric, panel, named).items()
    }


def classifier_panel_of(panel: Panel, named: tuple[str, ...] = ()) -> dict[str, ClassifierMetric]:
    """The metrics of classifiers that are named, or all of a panel."""
    return _chosen(ClassifierMetric, panel, named)


def _chosen(contract: type[Any], panel: Panel, named: tuple[str, ...]) -> dict[str, Any]:
    if panel not in ("default", "full"):
        raise UsageError(f"Expected the panel default or full, got {panel!r}.", fix="choose one of these")
    ours = contracts.names_of("metrics", contract)
    for name in named:
        kind = contracts.find("metrics", name)  # refuses what is no metric at all
        if name not in ours:
            judged = next(words for other, words in JUDGED.items() if issubclass(kind, other))
            raise UsageError(
                f"Expected metrics of {JUDGED[contract]}, got {name}, which judges {judged}.",
                fix=f"choose of {', '.join(ours)}",
            )
    found = {name: contracts.find("metrics", name)() for name in named or ours}
    return {name: metric for name, metric in found.items() if named or panel == "full" or metric.panel == "default"}


def run_panel(judges: Mapping[str, Any], judged: Any, real: Reference, lab: Lab, *, leave_out: bool) -> list[Entry]:
    """Score images by metrics of images, or a classifier by metrics of classifiers.

    Metrics that do not apply are left out with the reason, or refused.
    """
    entries: list[Entry] = []
    left_out: dict[str, str] = {}
    for number, (name, metric) in enumerate(judges.items(), 1):
        print(f"{name} ({number} of {len(judges)})", file=sys.stderr, flush=True)
        try:
            entries.append(Entry(metric(judged, real), name, metric.judges, asdict(metric)))
        except NotApplicable as reason:
            if not leave_out:
                raise
            left_out[name] = reason.what
        with lab:  # after each metric: a panel may take long and be stopped
            add_scores(lab, entries, judged_on=judged_on(real), left_out=left_out)
    return entries

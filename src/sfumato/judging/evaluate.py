"""Evaluate a release: a panel of metrics against real images; lab side, after the release is written."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from sfumato import contracts, data
from sfumato.contracts import Metric, Reading
from sfumato.errors import NotApplicable, UsageError
from sfumato.judging.harmonic import add_harmonic_score
from sfumato.judging.weights import provide_weights
from sfumato.lab.folder import Lab
from sfumato.lab.pictures import side_by_side
from sfumato.lab.scores import Entry, add_scores, read_scores
from sfumato.release import read_release
from sfumato.statistics.panels import Profile
from sfumato.values import Groups, Images, Reference, Release, Score

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
    whose features fidelity is measured with.
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
    return scores


def panel_of(panel: Panel, named: tuple[str, ...] = (), **settings: str) -> dict[str, Metric]:
    """The metrics that are named, or all of a panel; each gets those of the settings that it has."""
    found = {name: contracts.find("metrics", name)() for name in named or contracts.names("metrics")}
    return {
        name: replace(metric, **{key: value for key, value in settings.items() if hasattr(metric, key)})
        for name, metric in found.items()
        if named or panel == "full" or metric.panel == "default"
    }


def judged_on(reference: Reference) -> str:
    if reference.test is not None:
        return "the test split"
    return "the training records themselves: there is no test split"


def reference_for(
    release: Release, real: str, reading: Reading, *, public: str | None = None, group: str | None = None
) -> Reference:
    """Real images in the release's shape; a mismatch of shape or classes is refused."""
    facts = release.certificate["public"]
    square = facts["height"] if facts["height"] == facts["width"] else None
    mode: Literal["grey", "colour"] = "grey" if facts["channels"] == 1 else "colour"
    reading = replace(reading, size=reading.size or square, mode=reading.mode or mode)
    train = data.load(real, reading)
    test = data.load(real, replace(reading, split="test")) if data.has_split(real, "test") else None
    for images in filter(None, (train, test)):
        _refuse_other_kind(images, facts)
    there = Reference(train=train, test=test)
    return replace(
        there,
        public=None if public is None else data.load(public, Reading(size=facts["height"], mode=mode)),
        groups=None if group is None else _groups(there, real, replace(reading, label=group, classes=None)),
    )


def _groups(there: Reference, real: str, reading: Reading) -> Groups:
    """The protected attribute, read as if it were the label: of the same records in the same order."""
    read = {"train": data.load(real, reading)}
    if there.test is not None:
        read["test"] = data.load(real, replace(reading, split="test"))
    for images, grouped in zip(filter(None, (there.train, there.test)), read.values(), strict=True):
        if not images.pixels.equal(grouped.pixels):
            raise UsageError(
                f"Expected a {reading.label!r} for each image that has a label, got images without one.",
                fix="complete the attribute table, or choose another --group",
            )
    if read["train"].labels.equal(there.train.labels):
        raise UsageError(
            "Expected groups beside the classes, got the classes themselves.",
            fix="name another column with --group, of a data set with an attribute table",
        )
    return Groups(read["train"].classes, **{split: grouped.labels for split, grouped in read.items()})


def _refuse_other_kind(images: Images, public: dict[str, Any]) -> None:
    expected = (public["channels"], public["height"], public["width"])
    if tuple(images.pixels.shape[1:]) != expected or images.classes != tuple(public["classes"]):
        raise UsageError(
            f"Expected real images of shape {expected} with the released classes; "
            f"got {tuple(images.pixels.shape[1:])} with {len(images.classes)} classes.",
            fix="give the data that the release was made from, with the same --size, --mode and --label",
        )

"""What is a release worth: every metric against real images, and a picture; lab side, after the release is written."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from sfumato import contracts, data
from sfumato.bench.lab import NOTICE, Lab
from sfumato.bench.picture import side_by_side
from sfumato.contracts import Reading
from sfumato.errors import UsageError
from sfumato.release import read_release
from sfumato.values import Images, Reference, Release, Score


def evaluate_release(
    folder: Path | str, real: str, *, reading: Reading | None = None, metrics: tuple[str, ...] = (),
    public: str | None = None,
) -> list[Score]:  # fmt: skip
    """Score the release in `folder` against the real data; the results go to its lab folder.

    Public images, where the release was made from some, show how far it has come from them.
    """
    release = read_release(Path(folder))
    reference = reference_for(release, real, reading or Reading())
    if public is not None:
        reference = replace(reference, public=_public_for(release, public))
    scores = []
    for name in metrics or tuple(contracts.names("metrics")):
        metric = contracts.find("metrics", name)()
        scores.append(metric(release.images, reference))
    with Lab.beside(release.path.absolute()) as lab:
        lab.write("scores.json", json.dumps([asdict(s) for s in scores], indent=2, default=str) + "\n")
        lab.write("scores.md", _table(scores, reference))
        side_by_side(reference.held_out, release.images, lab.folder / "real_vs_synthetic.png")
    return scores


def reference_for(release: Release, real: str, reading: Reading) -> Reference:
    """Real images in the release's shape; a mismatch of classes is refused rather than guessed at."""
    public = release.certificate["public"]
    square = public["height"] if public["height"] == public["width"] else None
    mode: Literal["grey", "colour"] = "grey" if public["channels"] == 1 else "colour"
    reading = replace(reading, size=reading.size or square, mode=reading.mode or mode)
    train = data.load(real, reading)
    test = data.load(real, replace(reading, split="test")) if data.has_split(real, "test") else None
    for images in filter(None, (train, test)):
        _refuse_other_kind(images, public)
    return Reference(train=train, test=test)


def _public_for(release: Release, where: str) -> Images:
    """The public images as the method saw them."""
    facts = release.certificate["public"]
    return data.load(where, Reading(size=facts["height"], mode="grey" if facts["channels"] == 1 else "colour"))


def _refuse_other_kind(images: Images, public: dict[str, Any]) -> None:
    expected = (public["channels"], public["height"], public["width"])
    if tuple(images.pixels.shape[1:]) != expected or images.classes != tuple(public["classes"]):
        raise UsageError(
            f"Expected real images of shape {expected} with the released classes; "
            f"got {tuple(images.pixels.shape[1:])} with {len(images.classes)} classes.",
            fix="give the data that the release was made from, with the same --size, --mode and --label",
        )


def _table(scores: list[Score], real: Reference) -> str:
    judged = "the test split" if real.test is not None else "the training records themselves: there is no test split"
    rows = [
        f"| {s.name} | {s.value:.4f} | {_error(s)} | {'higher' if s.higher_is_better else 'lower'} |" for s in scores
    ]
    return "\n".join([NOTICE, f"Judged on {judged}.", "", "| score | value | standard error | better |",
                      "|---|---|---|---|", *rows, ""])  # fmt: skip


def _error(score: Score) -> str:
    return "" if score.standard_error is None else f"{score.standard_error:.4f}"

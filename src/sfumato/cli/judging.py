"""Commands of the judge: what a release is worth, what attackers get out of it, whether our own core holds."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sfumato.cli.options import (
    Arch,
    Classes,
    Json,
    Label,
    Method,
    Mode,
    Size,
    SkipBad,
    app,
    parsed_reading,
    print_json,
)
from sfumato.contracts import DEFAULT_METHOD
from sfumato.errors import NotApplicable

if TYPE_CHECKING:
    from sfumato.auditing.audit import Finding
    from sfumato.values import Score

Folder = Annotated[Path, typer.Argument(help="A release folder.")]
Real = Annotated[str, typer.Option(help="The real data, as given to `release`.")]
_PROFILE = "How classifiers are taught: minutes, or as those papers do (hours)."
_EXTRACTOR = "Of features: inception-v3 (91 MB, downloaded once; slow), efficientnet-lite0-64 or scattering."
Panel = Annotated[Literal["default", "full"], typer.Option(help="Minutes on two cores, or everything: attacks too.")]


@app.command(epilog="Example: `sfumato evaluate faces-release --real faces/`")
def evaluate(
    folder: Folder,
    real: Real,
    panel: Panel = "default",
    metric: Annotated[list[str] | None, typer.Option(help="Only these; see `sfumato list metrics`.")] = None,
    profile: Annotated[Literal["cpu", "dpimagebench", "dpac"], typer.Option(help=_PROFILE)] = "cpu",
    extractor: Annotated[str, typer.Option(help=_EXTRACTOR)] = "auto",
    public: Annotated[str | None, typer.Option(help="The public images, as given to `release`.")] = None,
    group: Annotated[str | None, typer.Option(help="The column of a protected attribute, for fairness.")] = None,
    size: Size = None,
    mode: Mode = None,
    label: Label = None,
    classes: Classes = None,
    skip_bad: SkipBad = False,
    as_json: Json = False,
) -> None:
    """Lab side: what the release is worth against real images. Scores are private and go to FOLDER.lab."""
    from sfumato.judging.attack import attack_release
    from sfumato.judging.evaluate import evaluate_release
    from sfumato.report.evaluation import write_page

    reading = parsed_reading(size, mode, label, classes, skip_bad)
    scores = evaluate_release(
        folder,
        real,
        reading=reading,
        metrics=tuple(metric or ()),
        panel=panel,
        profile=profile,
        extractor=extractor,
        public=public,
        group=group,
    )
    if panel == "full" and not metric:
        try:
            scores += attack_release(folder, real, reading=reading, panel="full", public=public)
        except NotApplicable as reason:
            print(f"Attacks were left out. {reason.what}", file=sys.stderr)
    _show(scores, write_page(folder), as_json)


@app.command(epilog="Example: `sfumato attack faces-release --real faces/`")
def attack(
    folder: Folder,
    real: Real,
    panel: Panel = "default",
    attack: Annotated[list[str] | None, typer.Option(help="Only these; see `sfumato list attacks`.")] = None,
    public: Annotated[str | None, typer.Option(help="The public images, for shadow releases.")] = None,
    size: Size = None,
    mode: Mode = None,
    label: Label = None,
    classes: Classes = None,
    skip_bad: SkipBad = False,
    as_json: Json = False,
) -> None:
    """Lab side: can attackers tell training records from others? Exit 6 if they show more than is claimed."""
    from sfumato.judging.attack import attack_release
    from sfumato.report.evaluation import write_page

    reading = parsed_reading(size, mode, label, classes, skip_bad)
    scores = attack_release(folder, real, reading=reading, attacks=tuple(attack or ()), panel=panel, public=public)
    _show(scores, write_page(folder), as_json)
    alarms = [s.name for s in scores if s.details.get("above_claim") or s.details.get("flagged")]
    if alarms:
        print(f"ALARM: {', '.join(alarms)}. Look at the page before anything is published.", file=sys.stderr)
        raise typer.Exit(6)


@app.command(epilog="Example: `sfumato student faces-release --arch resnet18 --real faces/`")
def student(
    folder: Folder,
    real: Real,
    arch: Arch = "small-cnn",
    seeds: Annotated[int, typer.Option(help="How many students; every one counts.")] = 3,
    schedule: Annotated[Literal["short", "paper"], typer.Option(help="Minutes, or 200 epochs.")] = "short",
    loss: Annotated[Literal["logits", "kl", "labels"] | None, typer.Option(help="Default: logits if released.")] = None,
    subset: Annotated[
        Literal["data", "transfer", "all"] | None,
        typer.Option(help="Which images teach; default: transfer if there, but by labels data."),
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="Of the loss kl; default 100.")] = None,
    size: Size = None,
    mode: Mode = None,
    label: Label = None,
    classes: Classes = None,
    skip_bad: SkipBad = False,
    as_json: Json = False,
) -> None:
    """Lab side: train students on the release alone, test them on real images. Results go to FOLDER.lab."""
    from sfumato.judging.student import summary, train_student

    reading = parsed_reading(size, mode, label, classes, skip_bad)
    score = train_student(
        folder,
        real,
        arch=arch,
        seeds=seeds,
        schedule=schedule,
        loss=loss,
        subset=subset,
        temperature=temperature,
        reading=reading,
    )
    if as_json:
        print_json({"lab": True, "score": asdict(score)})
        return
    print(summary(score))
    print(f"Lab material, not for publication: {folder}.lab/student-{arch}.json, {folder}.lab/students.md")


@app.command(epilog="Example: `sfumato select faces-release --real faces/ --epsilon 0.1`")
def select(
    folder: Folder,
    real: Real,
    epsilon: Annotated[float, typer.Option(help="What the choice may cost the private records that make it.")],
    validation: Annotated[str | None, typer.Option(help="Private records kept for it; default: the real data.")] = None,
    label: Label = None,
    classes: Classes = None,
    as_json: Json = False,
) -> None:
    """Lab side: keep one of many classifiers by a charged choice, beside what other rules would have given."""
    from sfumato.judging.selection import select_classifier
    from sfumato.report.evaluation import write_page

    reading = parsed_reading(None, None, label, classes, False)
    score = select_classifier(folder, real, epsilon=epsilon, validation=validation, reading=reading)
    _show([score], write_page(folder), as_json)


@app.command(epilog="Example: `sfumato audit --method dp-merf`")
def audit(
    method: Method = DEFAULT_METHOD,
    epsilon: Annotated[float, typer.Option(help="The budget of the audited runs.")] = 1.0,
    as_json: Json = False,
) -> None:
    """Is our own implementation as private as it claims? Runs on fixture data, never on yours. Exit 6 if not."""
    from sfumato.auditing.audit import audit_method

    _report(audit_method(method, epsilon=epsilon), as_json)


@app.command(epilog="Example: `sfumato selfcheck`")
def selfcheck(as_json: Json = False) -> None:
    """A minute on this machine before private data is opened: noise, bounds, ledger, replay. Exit 6 if one fails."""
    from sfumato.auditing.selfcheck import selfcheck as check

    _report(check(), as_json)


def _show(scores: Iterable[Score], page: Path, as_json: bool) -> None:
    if as_json:
        print_json({"lab": True, "scores": [asdict(s) for s in scores]})
        return
    for s in scores:
        for shown, indent in ((s, ""), *((part, "  ") for part in s.parts)):
            error = "" if shown.standard_error is None else f" +- {shown.standard_error:.4f}"
            better = "higher" if shown.higher_is_better else "lower"
            print(f"  {indent + shown.name:34s} {shown.value:10.4f}{error}  ({better} is better)")
    print(f"Lab material, not for publication: {page} (and .md, .json, .parquet)")


def _report(findings: Iterable[Finding], as_json: bool) -> None:
    found = list(findings)
    if as_json:
        print_json([asdict(f) for f in found])
    else:
        for f in found:
            print(f"  {'ok  ' if f.passed else 'FAIL'} {f.name:28s} {f.detail}")
    raise typer.Exit(0 if all(f.passed for f in found) else 6)

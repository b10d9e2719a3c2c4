"""Commands of the judge: what a release is worth, what attackers get out of it, whether our own core holds."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from sfumato.cli.options import (
    Arch,
    Classes,
    Json,
    Label,
    Mode,
    Size,
    SkipBad,
    app,
    parsed_reading,
    print_json,
)


@app.command(epilog="Example: `sfumato evaluate faces-release --real faces/`")
def evaluate(
    folder: Annotated[Path, typer.Argument(help="A release folder.")],
    real: Annotated[str, typer.Option(help="The real data, as given to `release`.")],
    metric: Annotated[list[str] | None, typer.Option(help="Only these; see `sfumato list metrics`.")] = None,
    public: Annotated[str | None, typer.Option(help="The public images, as given to `release`.")] = None,
    size: Size = None,
    mode: Mode = None,
    label: Label = None,
    classes: Classes = None,
    skip_bad: SkipBad = False,
    as_json: Json = False,
) -> None:
    """Lab side: what the release is worth against real images. Scores are private and go to FOLDER.lab."""
    from sfumato.bench.evaluate import evaluate_release

    reading = parsed_reading(size, mode, label, classes, skip_bad)
    scores = evaluate_release(folder, real, reading=reading, metrics=tuple(metric or ()), public=public)
    if as_json:
        print_json({"lab": True, "scores": [asdict(s) for s in scores]})
        return
    for s in scores:
        error = "" if s.standard_error is None else f" +- {s.standard_error:.4f}"
        print(f"  {s.name:24s} {s.value:.4f}{error}  ({'higher' if s.higher_is_better else 'lower'} is better)")
    print(f"Lab material, not for publication: {folder}.lab/scores.md, {folder}.lab/real_vs_synthetic.png")


@app.command(epilog="Example: `sfumato student faces-release --arch resnet18 --real faces/`")
def student(
    folder: Annotated[Path, typer.Argument(help="A release folder.")],
    real: Annotated[str, typer.Option(help="The real data, as given to `release`.")],
    arch: Arch = "small-cnn",
    seeds: Annotated[int, typer.Option(help="How many students; every one counts.")] = 3,
    schedule: Annotated[Literal["short", "paper"], typer.Option(help="Minutes, or 200 epochs.")] = "short",
    loss: Annotated[Literal["logits", "kl", "labels"] | None, typer.Option(help="Default: logits if released.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Of the loss kl; default 100.")] = None,
    size: Size = None,
    mode: Mode = None,
    label: Label = None,
    classes: Classes = None,
    skip_bad: SkipBad = False,
    as_json: Json = False,
) -> None:
    """Lab side: train students on the release alone, test them on real images. Results go to FOLDER.lab."""
    from sfumato.bench.student import summary, train_student

    score = train_student(folder, real, arch=arch, seeds=seeds, schedule=schedule, loss=loss, temperature=temperature,
                          reading=parsed_reading(size, mode, label, classes, skip_bad))  # fmt: skip
    if as_json:
        print_json({"lab": True, "score": asdict(score)})
        return
    print(summary(score))
    print(f"Lab material, not for publication: {folder}.lab/student-{arch}.json, {folder}.lab/students.md")

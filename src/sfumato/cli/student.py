"""sfumato student: train classifiers on a release alone."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

import typer

from sfumato.cli._command import command
from sfumato.cli._options import Json, ReadingOptions, Real, ReleaseFolder
from sfumato.cli._printing import print_json

_ARCH = "small-cnn, resnet18/34, vgg11, mobilenet-v2, ...; linear: fixed-features, or features (public network)."
_SUBSET = "On which images to train; default: transfer if there, but by labels data."


@command("train_student", example="sfumato student faces-release --arch resnet18 --real faces/", order=11)
def student(
    folder: ReleaseFolder,
    real: Real,
    reading: ReadingOptions,
    arch: Annotated[str, typer.Option(help=_ARCH)] = "small-cnn",
    seeds: Annotated[int, typer.Option(help="How many students; every one counts.")] = 3,
    schedule: Annotated[Literal["short", "paper"], typer.Option(help="Minutes, or 200 epochs.")] = "short",
    loss: Annotated[Literal["logits", "kl", "labels"] | None, typer.Option(help="Default: logits if released.")] = None,
    subset: Annotated[Literal["data", "transfer", "all"] | None, typer.Option(help=_SUBSET)] = None,
    temperature: Annotated[float | None, typer.Option(help="Of the loss kl; default 100.")] = None,
    as_json: Json = False,
) -> None:
    """Lab side: train students on the release alone, test them on real images. Results go to FOLDER.lab."""
    from sfumato import train_student
    from sfumato.judging.student import summary

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

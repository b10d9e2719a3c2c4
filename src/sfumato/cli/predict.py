"""sfumato predict: what a released classifier says of images."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli._command import command
from sfumato.cli._options import Json
from sfumato.cli._printing import print_json

_IMAGES = "A folder of image files in any layout, a zip of them, one image, or a data set as `release` takes it."


@command("predict_images", example="sfumato predict faces-model photos/ --out labels.csv", order=4)
def predict(
    model: Annotated[Path, typer.Argument(help="The folder of a released classifier.")],
    images: Annotated[str, typer.Argument(help=_IMAGES)],
    out: Annotated[Path, typer.Option(help="The new CSV file: file, label, probability, one column per class.")],
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave unreadable files out and list them, instead of stopping.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Label images by a released classifier: the class of each, with probabilities, as a CSV file."""
    from sfumato import predict_images
    from sfumato.errors import printable
    from sfumato.judging.predict import NOTICE

    made = predict_images(model, images, out, skip_bad=skip_bad)
    for name, reason in made.skipped:
        print(f"left out: {printable(name)} ({printable(reason)})", file=sys.stderr)
    if as_json:
        skipped = [{"file": printable(name), "reason": reason} for name, reason in made.skipped]
        print_json({"lab": True, "out": str(made.out), "count": made.count, "skipped": skipped})
        return
    left_out = f"; {len(made.skipped)} left out" if made.skipped else ""
    print(f"Labelled {made.count} images in {made.out}{left_out}. {NOTICE}")

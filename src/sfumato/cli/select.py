"""sfumato select: keep one of many classifiers by a charged choice."""

from __future__ import annotations

from typing import Annotated

import typer

from sfumato.cli._command import command
from sfumato.cli._options import Json, ReadingOptions, Real, ReleaseFolder
from sfumato.cli._printing import print_scores


@command("select_classifier", example="sfumato select faces-release --real faces/ --epsilon 0.1", order=12)
def select(
    folder: ReleaseFolder,
    real: Real,
    epsilon: Annotated[float, typer.Option(help="What the choice may cost the private records that make it.")],
    reading: ReadingOptions,
    validation: Annotated[str | None, typer.Option(help="Private records kept for it; default: the real data.")] = None,
    as_json: Json = False,
) -> None:
    """Lab side: keep one of many classifiers by a charged choice, beside what other rules would have given."""
    from sfumato import select_classifier, write_page

    score = select_classifier(folder, real, epsilon=epsilon, validation=validation, reading=reading)
    print_scores([score], write_page(folder), as_json)

"""sfumato release: make a synthetic data set under a privacy budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from sfumato.cli._command import command
from sfumato.cli._options import ClassFolders, JobOptions, Json, NewRelease
from sfumato.cli._printing import print_release


@command("make_release", example="sfumato release faces/ --epsilon 1 --out faces-release", order=1)
def release(
    job: JobOptions,
    out: NewRelease,
    count: Annotated[int | None, typer.Option(help="How many images; default: as many as there are records.")] = None,
    folders: ClassFolders = False,
    as_json: Json = False,
) -> None:
    """Make a synthetic data set under a privacy budget; the same command resumes a killed run."""
    from sfumato import make_release

    print_release(make_release(replace(job, count=count, folders=folders), out), as_json)

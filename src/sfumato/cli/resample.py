"""sfumato resample: another release from the same noisy answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli._command import command
from sfumato.cli._options import ClassFolders, Json, NewRelease, parsed_settings
from sfumato.cli._printing import print_release

_FREE = "A hyperparameter that changes nothing of what was asked: name=value."


@command("resample_release", example="sfumato resample faces-release --count 10000 --out more-faces", order=2)
def resample(
    folder: Annotated[Path, typer.Argument(help="A release folder whose lab, FOLDER.lab, lies beside it.")],
    out: NewRelease,
    count: Annotated[int | None, typer.Option(help="How many images; default: as many as in the first.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help=_FREE)] = None,
    folders: ClassFolders = False,
    as_json: Json = False,
) -> None:
    """Make another release from the same noisy answers: costs no privacy, and the data need not be there."""
    from sfumato import resample_release

    made = resample_release(folder, out, count=count, settings=parsed_settings(settings), folders=folders)
    print_release(made, as_json, resampled=True)

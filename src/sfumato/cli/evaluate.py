"""sfumato evaluate: what a release is worth."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from sfumato.cli._command import command
from sfumato.cli._options import Json, Panel, ReadingOptions, Real, ReleaseFolder
from sfumato.cli._printing import print_scores

_PROFILE = "How classifiers are trained: minutes, or as those papers do (hours)."
_EXTRACTOR = "Of features: inception-v3 (91 MB, downloaded once; slow), efficientnet-lite0-64 or scattering."


@command("evaluate_release", example="sfumato evaluate faces-release --real faces/", order=8)
def evaluate(
    folder: ReleaseFolder,
    real: Real,
    reading: ReadingOptions,
    panel: Panel = "default",
    metric: Annotated[list[str] | None, typer.Option(help="Only these; see `sfumato list metrics`.")] = None,
    profile: Annotated[Literal["cpu", "dpimagebench", "dpac"], typer.Option(help=_PROFILE)] = "cpu",
    extractor: Annotated[str, typer.Option(help=_EXTRACTOR)] = "auto",
    public: Annotated[str | None, typer.Option(help="The public images, as given to `release`.")] = None,
    group: Annotated[str | None, typer.Option(help="The column of a protected attribute, for fairness.")] = None,
    as_json: Json = False,
) -> None:
    """Lab side: what the release is worth against real images. Scores are private and go to FOLDER.lab."""
    from sfumato import evaluate_release, write_page

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
    print_scores(scores, write_page(folder), as_json)

"""What several commands print: JSON for machines, scores, findings, and where a new release is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from sfumato.auditing.audit import Finding
    from sfumato.privacy import Budget
    from sfumato.values import Score, Spec


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, default=str))


def print_release(folder: Path, as_json: bool, *, resampled: bool = False) -> None:
    """What was made, and what to do next."""
    from sfumato.release import read_image_certificate

    certificate = read_image_certificate(folder)
    guarantee, samples = certificate.guarantee, certificate.samples
    if as_json:
        print_json({"release": str(folder), "lab": f"{folder}.lab", **guarantee.model_dump()})
        return
    further = {"transfer": samples.transfer, "the public network": samples.network}
    images = f"{samples.count} images" + "".join(f" and {count} for {what}" for what, count in further.items() if count)
    if guarantee.level == "certified":
        claim = f"epsilon {guarantee.epsilon:.4g}, delta {guarantee.delta:g}"
        once = ", once together with the release that the answers are from" if resampled else ""
        print(f"Released {images} at {claim}{once}.")
    else:
        print(f"Wrote {images}, NOT PRIVATE: do not publish them.")
    print(f"  open    {folder}/preview.png\n  check   sfumato verify {folder}\n  lab     {folder}.lab (private)")


def print_plan(spec: Spec, budget: Budget, asked: Sequence[dict[str, Any]], epsilon: float, seconds: float) -> None:
    """What would be asked of which data, its cost and its time."""
    from sfumato.experiments.questions import plain_line, technical_line

    print(f"{spec.count} records, {spec.channels} x {spec.height} x {spec.width}, {len(spec.classes)} classes")
    for question in asked:
        typer.echo(plain_line(question))
        typer.secho(technical_line(question), dim=True)
    print(f"  costs   epsilon {epsilon:.4g} of {budget.epsilon:g} at delta {budget.delta:g}")
    print(f"  takes   about {max(1, round(seconds / 60))} min on two laptop cores")


def print_scores(scores: Iterable[Score], page: Path, as_json: bool) -> None:
    """Scores with their parts, and the page that shows them."""
    if as_json:
        print_json({"lab": True, "scores": [asdict(score) for score in scores]})
        return
    for score in scores:
        _print_score(score, indent="  ")
        for part in score.parts:
            _print_score(part, indent="    ")
    print(f"Lab material, not for publication: {page} (and .md, .json, .parquet)")


def _print_score(score: Score, *, indent: str) -> None:
    error = "" if score.standard_error is None else f" +- {score.standard_error:.4f}"
    better = "higher" if score.higher_is_better else "lower"
    print(f"{indent + score.name:36s} {score.value:10.4f}{error}  ({better} is better)")


def print_findings(findings: Iterable[Finding], as_json: bool) -> None:
    """What was checked and whether it holds; exit 6 if something does not."""
    found = list(findings)
    if as_json:
        print_json([asdict(finding) for finding in found])
    else:
        for finding in found:
            print(f"  {'ok  ' if finding.passed else 'FAIL'} {finding.name:28s} {finding.detail}")
    raise typer.Exit(0 if all(finding.passed for finding in found) else 6)

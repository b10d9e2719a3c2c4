"""Commands that make a release and check one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.options import (
    Classes,
    Data,
    Delta,
    Epsilon,
    Json,
    Label,
    Large,
    Method,
    Mode,
    Public,
    Settings,
    Size,
    SkipBad,
    app,
    parsed_epsilon,
    parsed_reading,
    parsed_settings,
    print_json,
)
from sfumato.contracts import DEFAULT_METHOD

Folders = Annotated[bool, typer.Option("--folders", help="Also write the images as class folders.")]
_FREE = "A hyperparameter that changes nothing of what was asked: name=value."


@app.command(epilog="Example: `sfumato release faces/ --epsilon 1 --out faces-release`")
def release(
    data: Data,
    out: Annotated[Path, typer.Option(help="The new folder of the release; lab material goes to OUT.lab.")],
    epsilon: Epsilon,
    method: Method = DEFAULT_METHOD,
    delta: Delta = None,
    public: Public = None,
    count: Annotated[int | None, typer.Option(help="How many images; default: as many as there are records.")] = None,
    size: Size = None,
    mode: Mode = None,
    label: Label = None,
    classes: Classes = None,
    skip_bad: SkipBad = False,
    folders: Folders = False,
    settings: Settings = None,
    i_know: Large = False,
    as_json: Json = False,
) -> None:
    """Make a synthetic data set under a privacy budget; the same command resumes a killed run."""
    from sfumato.making.release import Job, make_release

    job = Job(
        data,
        method,
        parsed_epsilon(epsilon, i_know),
        delta,
        public,
        count,
        parsed_reading(size, mode, label, classes, skip_bad),
        folders,
        parsed_settings(settings),
    )
    _announce(make_release(job, out), as_json)


@app.command(epilog="Example: `sfumato resample faces-release --count 200000 --out more-faces`")
def resample(
    folder: Annotated[Path, typer.Argument(help="A release folder whose lab, FOLDER.lab, lies beside it.")],
    out: Annotated[Path, typer.Option(help="The new folder of the release; lab material goes to OUT.lab.")],
    count: Annotated[int | None, typer.Option(help="How many images; default: as many as in the first.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help=_FREE)] = None,
    folders: Folders = False,
    as_json: Json = False,
) -> None:
    """Make another release from the same noisy answers: costs no privacy, and the data need not be there."""
    from sfumato.making.resample import resample_release

    made = resample_release(folder, out, count=count, settings=parsed_settings(settings), folders=folders)
    _announce(made, as_json, again=True)


def _announce(folder: Path, as_json: bool, *, again: bool = False) -> None:
    from sfumato.release import read_certificate

    certificate = read_certificate(folder)
    guarantee, samples = certificate.guarantee, certificate.samples
    if as_json:
        print_json({"release": str(folder), "lab": f"{folder}.lab", **guarantee.model_dump()})
        return
    images = f"{samples.count} images" + (f" and {samples.transfer} for transfer" if samples.transfer else "")
    if guarantee.level == "certified":
        claim = f"epsilon {guarantee.epsilon:.4g}, delta {guarantee.delta:g}"
        once = ", once together with the release that the answers are from" if again else ""
        print(f"Released {images} at {claim}{once}.")
    else:
        print(f"Wrote {images}, NOT PRIVATE: do not publish them.")
    print(f"  open    {folder}/preview.png\n  check   sfumato verify {folder}\n  lab     {folder}.lab (private)")


@app.command(epilog="Example: `sfumato plan digits --epsilon 1`")
def plan(
    data: Data,
    epsilon: Epsilon,
    method: Method = DEFAULT_METHOD,
    delta: Delta = None,
    public: Public = None,
    size: Size = None,
    mode: Mode = None,
    label: Label = None,
    classes: Classes = None,
    skip_bad: SkipBad = False,
    settings: Settings = None,
    i_know: Large = False,
    as_json: Json = False,
) -> None:
    """Show noise, rounds, cost and expected time; touches no private pixel."""
    from sfumato.making.release import Job, plan_release

    reading = parsed_reading(size, mode, label, classes, skip_bad)
    job = Job(
        data,
        method,
        parsed_epsilon(epsilon, i_know),
        delta,
        public,
        reading=reading,
        settings=parsed_settings(settings),
    )
    planned = plan_release(job)
    spec, budget = planned.task.spec, planned.task.budget
    if as_json:
        print_json(
            {
                "spec": asdict(spec),
                "budget": asdict(budget),
                "epsilon": planned.epsilon,
                "method": method,
                "seconds": planned.seconds,
                "mechanisms": [m.to_dict() for m in planned.mechanisms],
            }
        )
        return
    print(f"{spec.count} records, {spec.channels} x {spec.height} x {spec.width}, {len(spec.classes)} classes")
    for m in planned.mechanisms:
        described = m.to_dict()
        noise = f"noise multiplier {described.pop('noise_multiplier'):.4g}"
        print(f"  asks    {described.pop('kind')}, {noise}, {', '.join(f'{k} {v}' for k, v in described.items())}")
    print(f"  costs   epsilon {planned.epsilon:.4g} of {budget.epsilon:g} at delta {budget.delta:g}")
    print(f"  takes   about {max(1, round(planned.seconds / 60))} min on two laptop cores")


@app.command(epilog="Example: `sfumato verify faces-release`")
def verify(folder: Annotated[Path, typer.Argument(help="A release folder.")], as_json: Json = False) -> None:
    """Check a release from its files alone: exit 0 only if its claim holds, 6 if not."""
    from sfumato.release import verify as check

    verdict = check(folder)
    if as_json:
        print_json({"ok": verdict.ok, "checks": [asdict(c) for c in verdict.checks]})
    else:
        print(verdict.text())
    raise typer.Exit(0 if verdict.ok else 6)

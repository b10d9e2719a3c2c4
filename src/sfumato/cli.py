"""The command line: each command is a few lines around one function of the Python API."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer

from sfumato.errors import EnvironmentProblem, SfumatoError, UsageError

app = typer.Typer(
    help="Turn private images into a synthetic data set that may be published, with a guarantee that anyone can check.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

_DATA = "A folder of class folders, a folder or zip with a CSV, an npz, idx files, Parquet, or a name such as digits."
Data = Annotated[str, typer.Argument(help=_DATA)]
Method = Annotated[str, typer.Option(help="See `sfumato list methods`.")]
_EPSILON = "The privacy budget; smaller is more private, 1 is strong. `inf`: no privacy."
Epsilon = Annotated[str, typer.Option(help=_EPSILON)]
Delta = Annotated[float | None, typer.Option(help="Default: the largest power of ten below 1/records, at most 1e-5.")]
Size = Annotated[int | None, typer.Option(help="Resize to this many pixels a side (centre crop, antialiased).")]
_MODE = "Read as grey or colour; default: as the data is."
Mode = Annotated[Literal["grey", "colour"] | None, typer.Option(help=_MODE)]
Label = Annotated[str | None, typer.Option(help="The column of an attribute table that holds the label.")]
Classes = Annotated[str | None, typer.Option(help="The public list of classes, separated by commas.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Count unreadable files as absent instead of stopping.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="A hyperparameter of the method: name=value.")]
Public = Annotated[str | None, typer.Option(help="Public images that the method may use; they cost no privacy.")]
Large = Annotated[bool, typer.Option("--i-know-epsilon-is-large", help="Needed above epsilon 10.")]
Arch = Annotated[str, typer.Option(help="small-cnn, scattering, resnet18/34, vgg11, mobilenet-v2 or shufflenet-v2.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document for machines.")]


@app.command(epilog="Example: `sfumato release faces/ --epsilon 1 --out faces-release`")
def release(
    data: Data,
    out: Annotated[Path, typer.Option(help="The new folder of the release; lab material goes to OUT.lab.")],
    epsilon: Epsilon,
    method: Method = "dp-merf",
    delta: Delta = None,
    public: Public = None,
    count: Annotated[int | None, typer.Option(help="How many images; default: as many as there are records.")] = None,
    size: Size = None,
    mode: Mode = None,
    label: Label = None,
    classes: Classes = None,
    skip_bad: SkipBad = False,
    folders: Annotated[bool, typer.Option("--folders", help="Also write the images as class folders.")] = False,
    settings: Settings = None,
    i_know: Large = False,
    as_json: Json = False,
) -> None:
    """Make a synthetic data set under a privacy budget; the same command resumes a killed run."""
    from sfumato.bench.run import Job, make_release
    from sfumato.release import read_certificate

    job = Job(data, method, _epsilon(epsilon, i_know), delta, public, count,
              _reading(size, mode, label, classes, skip_bad), folders, _settings(settings))  # fmt: skip
    folder = make_release(job, out)
    certificate = read_certificate(folder)
    guarantee = certificate.guarantee
    if as_json:
        _print_json({"release": str(folder), "lab": f"{folder}.lab", **guarantee.model_dump()})
        return
    if guarantee.level == "certified":
        claim = f"epsilon {guarantee.epsilon:.4g}, delta {guarantee.delta:g}"
        print(f"Released {certificate.samples.count} images at {claim}.")
    else:
        print(f"Wrote {certificate.samples.count} images, NOT PRIVATE: do not publish them.")
    print(f"  open    {folder}/preview.png\n  check   sfumato verify {folder}\n  lab     {folder}.lab (private)")


@app.command(epilog="Example: `sfumato plan digits --epsilon 1`")
def plan(
    data: Data,
    epsilon: Epsilon,
    method: Method = "dp-merf",
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
    from sfumato.bench.run import Job, plan_release

    reading = _reading(size, mode, label, classes, skip_bad)
    job = Job(data, method, _epsilon(epsilon, i_know), delta, public, reading=reading, settings=_settings(settings))
    planned = plan_release(job)
    spec, budget = planned.task.spec, planned.task.budget
    if as_json:
        _print_json({"spec": asdict(spec), "budget": asdict(budget), "epsilon": planned.epsilon, "method": method,
                     "seconds": planned.seconds, "mechanisms": [m.to_dict() for m in planned.mechanisms]})  # fmt: skip
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
        _print_json({"ok": verdict.ok, "checks": [asdict(c) for c in verdict.checks]})
    else:
        print(verdict.text())
    raise typer.Exit(0 if verdict.ok else 6)


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

    reading = _reading(size, mode, label, classes, skip_bad)
    scores = evaluate_release(folder, real, reading=reading, metrics=tuple(metric or ()), public=public)
    if as_json:
        _print_json({"lab": True, "scores": [asdict(s) for s in scores]})
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
                          reading=_reading(size, mode, label, classes, skip_bad))  # fmt: skip
    if as_json:
        _print_json({"lab": True, "score": asdict(score)})
        return
    print(summary(score))
    print(f"Lab material, not for publication: {folder}.lab/student-{arch}.json, {folder}.lab/students.md")


@app.command(epilog="Example: `sfumato run recipes/dp_imgsyn_table2.toml --data images/`")
def run(
    recipe: Annotated[Path, typer.Argument(help="One table or figure as a TOML file.")],
    profile: Annotated[Literal["small", "paper"], typer.Option(help="Minutes, or as published.")] = "small",
    only: Annotated[str, typer.Option(help="Only cells whose name has this text.")] = "",
    out: Annotated[Path | None, typer.Option(help="Default: runs/RECIPE-PROFILE. Private.")] = None,
    data: Annotated[Path | None, typer.Option(envvar="SFUMATO_DATA", help="The folder of the data sets.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show cells, budgets and times, and stop.")] = False,
    as_json: Json = False,
) -> None:
    """Lab side: run a recipe and write its table; what is there already is not run again."""
    from sfumato.bench.experiment import Experiment

    experiment = Experiment.of(recipe, profile=profile, out=out, folder=data)
    made, text = experiment.planned(only) if dry_run else experiment.table(only)
    _print_json(made) if as_json else print(text)


@app.command("list", epilog="Example: `sfumato list methods`")
def list_(kind: Literal["methods", "metrics", "attacks", "datasets"], as_json: Json = False) -> None:
    """Show what there is: methods, metrics, attacks or datasets."""
    from sfumato.contracts import names

    known = names("data" if kind == "datasets" else kind)
    if as_json:
        _print_json(known)
        return
    for name, sentence in known.items():
        print(f"  {name:16s} {sentence}")


@app.command(epilog="Example: `sfumato doctor`")
def doctor(as_json: Json = False) -> None:
    """Look at this machine: versions, known traps, entropy, disk, memory. Exit 5 if something is wrong."""
    from sfumato.bench.doctor import examine

    findings = examine()
    if as_json:
        _print_json([asdict(f) for f in findings])
    else:
        for f in findings:
            print(f"  {'ok  ' if f.ok else 'note' if f.ok is None else 'BAD '} {f.name:14s} {f.detail}")
    raise typer.Exit(5 if any(f.ok is False for f in findings) else 0)


def _epsilon(text: str, large_is_meant: bool) -> float:
    try:
        epsilon = float(text)
    except ValueError:
        what = f"Expected epsilon as a number such as 1 or 0.5, got {text!r}."
        raise UsageError(what, fix="use a point, not a comma") from None
    if 10 < epsilon < math.inf and not large_is_meant:
        raise UsageError(f"Epsilon {epsilon:g} protects very little.",
                         fix="use 10 or less, or add --i-know-epsilon-is-large")  # fmt: skip
    if epsilon == math.inf and any(c.isdigit() for c in text):
        raise UsageError(f"Expected epsilon as a finite number, got {text!r}.", fix="write inf if you mean it")
    if epsilon == math.inf:
        warning = "epsilon inf: no clipping, no noise. The result is NOT PRIVATE and must not be published."
        print(warning, file=sys.stderr)
    return epsilon


def _reading(size: int | None, mode: Any, label: str | None, classes: str | None, skip_bad: bool) -> Any:
    from sfumato.contracts import Reading

    named = None if classes is None else tuple(part.strip() for part in classes.split(","))
    return Reading(size=size, mode=mode, label=label, classes=named, skip_bad=skip_bad)


def _settings(written: list[str] | None) -> tuple[tuple[str, str], ...]:
    pairs = []
    for text in written or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"Expected --set name=value, got {text!r}.")
        pairs.append((name, value))
    return tuple(pairs)


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, default=str))


def main() -> NoReturn:
    """Run a command; a refusal is one to three lines on standard error and an exit code, never a traceback."""
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    try:
        app()
        sys.exit(0)
    except SfumatoError as error:
        _fail(error, error.exit_code)
    except MemoryError:
        _fail(EnvironmentProblem("Memory ran out.", fix="close other programs, or use a smaller --size"), 5)
    except OSError as error:
        _fail(EnvironmentProblem(f"The system refused: {error.strerror or error}.", where=error.filename), 5)
    except Exception as error:  # the last line: a defect of ours must not spill private values
        if os.environ.get("SFUMATO_DEBUG"):
            raise
        what = f"Sfumato has met something it did not expect ({type(error).__name__})."
        _fail(UsageError(what, fix="set SFUMATO_DEBUG=1, run it again and report the traceback"), 1)


def _stop(number: int, _frame: object) -> NoReturn:
    """Leave at once; charges are written ahead, so nothing is forgotten. A second signal is not waited for."""
    signal.signal(number, signal.SIG_DFL)
    print("Stopped. What was charged stays charged; the same command resumes.", file=sys.stderr)
    sys.exit(128 + number)


def _fail(error: SfumatoError, code: int) -> NoReturn:
    print(error.message(), file=sys.stderr)
    sys.exit(code)

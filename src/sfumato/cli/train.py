"""sfumato train: train a classifier under a privacy budget and release it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli._command import Options, command
from sfumato.cli._options import (
    Address,
    Data,
    Delta,
    Engine,
    Epsilon,
    Json,
    LargeEpsilon,
    NewRelease,
    Processes,
    Public,
    ReadingOptions,
    Settings,
    parsed_epsilon,
    parsed_settings,
)
from sfumato.cli._printing import print_json, print_plan
from sfumato.contracts import DEFAULT_LEARNER
from sfumato.errors import UsageError

if TYPE_CHECKING:
    from sfumato.making.model import TrainingJob, TrainingPlan

_NETWORK_LEARNER = "dp-sgd"  # the one that trains an architecture by name
_ARCH = "A network, trained by DP-SGD: wrn-16-4, wrn-16-1, resnet18, cnn, ...; default: a head on fixed features."
_TECHNIQUES = "Techniques of DP-SGD, with commas: obs, gn, ws, am, pa, sat; or none; default: all but sat that fit."


def job_of(
    data: Data,
    epsilon: Epsilon,
    reading: ReadingOptions,
    learner: Annotated[str | None, typer.Option(help="See `sfumato list learners`.")] = None,
    arch: Annotated[str | None, typer.Option(help=_ARCH)] = None,
    techniques: Annotated[str | None, typer.Option("--with", help=_TECHNIQUES)] = None,
    delta: Delta = None,
    public: Public = None,
    settings: Settings = None,
    engine: Engine = "local",
    address: Address = None,
    processes: Processes = 1,
    i_know: LargeEpsilon = False,
) -> Any:  # a TrainingJob; its module is heavy and is imported when a command runs
    """What is to be trained, from the options for it."""
    from sfumato import TrainingJob

    of_networks = {"arch": arch, "techniques": techniques}
    named = tuple((name, value) for name, value in of_networks.items() if value is not None)
    if named and learner not in (None, _NETWORK_LEARNER):
        raise UsageError(
            f"Expected the learner {_NETWORK_LEARNER} with --arch or --with, got {learner}.", fix="leave --learner out"
        )
    return TrainingJob(
        data,
        learner if learner is not None else _NETWORK_LEARNER if named else DEFAULT_LEARNER,
        parsed_epsilon(epsilon, large_is_meant=i_know),
        delta,
        public,
        reading=reading,
        settings=(*named, *parsed_settings(settings)),
        engine=engine,
        address=address,
        processes=processes,
    )


TrainingOptions = Annotated["TrainingJob", Options(job_of)]


@command("train_model", "plan_training", example="sfumato train faces/ --epsilon 8 --out faces-model", order=3)
def train(
    job: TrainingOptions,
    out: NewRelease,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be asked, and touch nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Train a classifier under a privacy budget and release it; the same command resumes a killed run."""
    from sfumato import plan_training, train_model

    if dry_run:
        _print_plan(job, plan_training(job), as_json)
        return
    folder = train_model(job, out)
    from sfumato.release import read_certificate

    guarantee = read_certificate(folder).guarantee
    if as_json:
        print_json({"release": str(folder), "lab": f"{folder}.lab", **guarantee.model_dump()})
        return
    if guarantee.level == "certified":
        print(f"Released a classifier at epsilon {guarantee.epsilon:.4g}, delta {guarantee.delta:g}.")
    else:
        print("Wrote a classifier, NOT PRIVATE: do not publish it.")
    print(f"  use     sfumato predict {folder} IMAGES --out labels.csv")
    print(f"  check   sfumato verify {folder}\n  lab     {folder}.lab (private)")


def _print_plan(job: TrainingJob, planned: TrainingPlan, as_json: bool) -> None:
    from sfumato.experiments.questions import questions

    asked = questions(planned.mechanisms)
    if as_json:
        print_json(
            {
                "spec": asdict(planned.spec),
                "budget": asdict(planned.budget),
                "epsilon": planned.epsilon,
                "learner": job.learner,
                "hyperparameters": asdict(planned.learner),  # type: ignore[call-overload]
                "seconds": planned.seconds,
                "mechanisms": asked,
            }
        )
        return
    print_plan(planned.spec, planned.budget, asked, planned.epsilon, planned.seconds)

"""sfumato plan: what a release would ask, cost and take."""

from __future__ import annotations

from dataclasses import asdict

from sfumato.cli._command import command
from sfumato.cli._options import JobOptions, Json
from sfumato.cli._printing import print_json, print_plan


@command("plan_release", example="sfumato plan digits --epsilon 1", order=6)
def plan(job: JobOptions, as_json: Json = False) -> None:
    """Show what would be asked, what for, its cost and the expected time; touches no private pixel."""
    from sfumato import plan_release
    from sfumato.experiments.questions import questions

    planned = plan_release(job)
    asked = questions(planned.mechanisms)
    spec, budget = planned.task.spec, planned.task.budget
    if as_json:
        print_json(
            {
                "spec": asdict(spec),
                "budget": asdict(budget),
                "epsilon": planned.epsilon,
                "method": job.method,
                "seconds": planned.seconds,
                "expected": [asdict(expected) for expected in planned.expected],
                "mechanisms": asked,
            }
        )
        return
    print_plan(spec, budget, asked, planned.epsilon, planned.seconds)
    for expected in planned.expected:
        print(f"  expect  {expected.text()}")

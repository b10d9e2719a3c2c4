"""sfumato hide: re-generate images so that an attribute can no longer be told."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sfumato.cli._command import command
from sfumato.cli._options import Data, Json, NewRelease, ReadingOptions, Settings, parsed_names, parsed_settings
from sfumato.cli._printing import print_json
from sfumato.contracts import DEFAULT_HIDER
from sfumato.errors import UsageError

if TYPE_CHECKING:
    from sfumato.making.hide import HidingPlan

_ATTRIBUTE = "The attribute to hide, as the table of the images names it; several together as race+gender."
_KEEP = "Attributes to release as labels, with commas; default: all others that can be labels."
_PARTS = "What is re-generated: g was not learnt from; v stopped the training; tr trained."
_SHARES = "Of the parts tr, v, g and test. The part test is not released: `leak` tests on it."
_PERSON = "The attribute that tells persons apart; all images of a person are in one part."
_TRAIN_ON = "Learn from these data sets instead (repeatable)."


@command("hide_attribute", "plan_hiding", example="sfumato hide faces/ --attribute race --out faces-hidden", order=5)
def hide(
    data: Data,
    attribute: Annotated[str, typer.Option(help=_ATTRIBUTE)],
    out: NewRelease,
    reading: ReadingOptions,
    method: Annotated[str, typer.Option(help="See `sfumato list hiding`.")] = DEFAULT_HIDER,
    keep: Annotated[str | None, typer.Option(help=_KEEP)] = None,
    parts: Annotated[Literal["g", "v+g", "tr+v+g"], typer.Option(help=_PARTS)] = "tr+v+g",
    shares: Annotated[str, typer.Option(help=_SHARES)] = "55,6,24,15",
    person: Annotated[str | None, typer.Option(help=_PERSON)] = None,
    train_on: Annotated[list[str] | None, typer.Option(help=_TRAIN_ON)] = None,
    front: Annotated[bool, typer.Option("--front", help="Use front faces alone (needs dlib).")] = False,
    seed: Annotated[int, typer.Option(help="Of the parts; what is drawn for an image cannot be repeated.")] = 0,
    settings: Settings = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and learn nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Re-generate images so that an attribute can no longer be told; there is no epsilon here: `leak` measures."""
    from sfumato import HidingJob, hide_attribute, plan_hiding
    from sfumato.release import read_hidden

    job = HidingJob(
        data,
        attribute,
        method,
        keep=parsed_names(keep),
        parts=parts,
        shares=_numbers(shares),
        person=person,
        train_on=tuple(train_on or ()),
        front=front,
        seed=seed,
        reading=reading,
        settings=parsed_settings(settings),
    )
    if dry_run:
        _print_plan(plan_hiding(job), as_json)
        return
    folder = hide_attribute(job, out)
    if as_json:
        print_json({"release": str(folder), "lab": f"{folder}.lab", "level": "empirical", "hidden": attribute})
        return
    print(f"Released images whose {attribute} is hidden. There is no epsilon here: nothing is proved, so measure it.")
    print(f"  open    {folder}/preview.png\n  measure sfumato leak {folder} --real {data}")
    print(
        f"  labels  {', '.join(sorted(read_hidden(folder).facts.labels)) or 'none'}\n  lab     {folder}.lab (private)"
    )


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"Expected --shares as four numbers, got {text!r}.", fix="write 55,6,24,15") from None


def _print_plan(plan: HidingPlan, as_json: bool) -> None:
    if as_json:
        settings = asdict(plan.hider)  # type: ignore[call-overload]
        print_json(
            {
                "spec": asdict(plan.spec),
                "counts": plan.counts,
                "keep": plan.keep,
                "left_out": plan.left_out,
                "released": plan.released,
                "hyperparameters": settings,
                "seconds": plan.seconds,
            }
        )
        return
    spec = plan.spec
    print(f"hides   one of {len(spec.classes)} values: {', '.join(spec.classes)}")
    print(f"learns  from {spec.count} images of {spec.channels} x {spec.height} x {spec.width}")
    print(f"keeps   {', '.join(plan.keep) or 'no label'}")
    if plan.left_out:
        print(f"without {', '.join(plan.left_out)}: they tell the hidden attribute, or who is on an image")
    print(f"parts   {', '.join(f'{name} {count}' for name, count in plan.counts.items())}; releases {plan.released}")
    print(f"takes   about {max(1, round(plan.seconds / 60))} min on two laptop cores")

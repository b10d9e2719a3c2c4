"""Write what documents list from the code itself, so that it cannot go stale. Run: make docs

docs/commands.md is written whole. In the other pages a table of all methods, metrics, attacks or recipes stands between
`<!-- make docs: NAME -->` and `<!-- end -->`; what is around them is written by hand and stays.
With --check nothing is written, and it fails if a page is not what would be written now.
"""

from __future__ import annotations

import inspect
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

from typer.models import OptionInfo

from sfumato import contracts
from sfumato.cli import commands
from sfumato.cli._command import Command, options_of
from sfumato.judging.attack import plan_attacks
from sfumato.privacy import Budget, Mechanism
from sfumato.values import Spec

HERE = Path(__file__).parent
COMMANDS = "commands.md"
EXAMPLE = Spec(60_000, 1, 28, 28, tuple("0123456789"))  # for what a method would ask; the pages say so
BUDGET = Budget(1.0, 1e-5)
MARKED = re.compile(r"(?<=<!-- make docs: )(\S+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)
HEAD = "# Commands, methods, metrics\n\nWritten by `make docs` from the code; do not edit.\n"


def text() -> str:
    parts = [HEAD, *map(_command, commands())]
    for kind in get_args(contracts.Kind):
        rows = [(f"`{name}`", sentence) for name, sentence in contracts.names(kind).items()]
        parts.append(f"## {kind.capitalize()}\n\n{_table(('name', 'what'), rows)}")
    return "\n".join([*parts, *_settings("methods"), *_settings("learners"), *_settings("hiding")])


def _settings(kind: contracts.Kind) -> Iterator[str]:
    for name in contracts.names(kind):
        rows = [(f"`{field.name}`", f"`{field.default}`") for field in fields(contracts.find(kind, name))]
        yield f"## Settings of {name} (`--set name=value`)\n\n{_table(('name', 'default'), rows)}"


def _command(command: Command) -> str:
    """What `--help` says, as a table."""
    rows = [_row(option) for option in options_of(command.function)]
    sentence = inspect.getdoc(command.function)
    table = _table(("argument or option", "default", "what"), rows)
    return f"## sfumato {command.name}\n\n{sentence}\n\n```\n{command.example}\n```\n\n{table}"


def _row(option: inspect.Parameter) -> tuple[str, str, str]:
    kind, described = option.annotation, None
    if get_origin(kind) is Annotated:
        kind, described = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        kind = next(part for part in get_args(kind) if part is not type(None))
    name = option.name.upper()
    if isinstance(described, OptionInfo):
        given = (described.default, *(described.param_decls or ()))  # typer keeps a first name as the default
        spelled = [name for name in given if isinstance(name, str) and name.startswith("--")]
        name = spelled[0] if spelled else f"--{option.name.replace('_', '-')}"
    repeatable = " (repeatable)" if get_origin(kind) is list else ""
    choices = ", ".join(f"`{choice}`" for choice in get_args(kind)) if get_origin(kind) is Literal else ""
    what = " ".join(filter(None, (described and described.help, choices and f"One of {choices}.")))
    return f"`{name}`{repeatable}", _default(option.default), what


def _default(value: object) -> str:
    if value is inspect.Parameter.empty:
        return "needed"
    return "" if value in (None, False, "") else f"`{value}`"


def _methods() -> str:
    rows = []
    for name, sentence in contracts.names("methods").items():
        method = contracts.find("methods", name).for_task(EXAMPLE, BUDGET)
        asked = "; ".join(map(_question, method.plan(EXAMPLE)))
        rows.append((_linked(name), sentence, asked, method.public_images))
    return _table(("method", "what", "asks", "public images"), rows)


def _question(mechanism: Mechanism) -> str:
    return mechanism.purpose + (f" ({mechanism.rounds} rounds)" if mechanism.rounds > 1 else "")


def _linked(name: str) -> str:
    """A method's name, with a link where it has a page of its own."""
    page = f"{name.replace('-', '_')}.md"
    return f"[`{name}`]({page})" if (HERE / page).exists() else f"`{name}`"


def _metrics(judges: str | None, contract: type[contracts.Metric | contracts.ClassifierMetric]) -> str:
    """The metrics of images or of classifiers, of one kind of judgement or of all."""
    rows, sentences = [], contracts.names("metrics")
    for name in contracts.names_of("metrics", contract):
        metric, sentence = contracts.find("metrics", name), sentences[name]
        if judges in (None, metric.judges):
            better = "higher" if metric.higher_is_better else "lower"
            rows.append((f"`{name}`", sentence, _described(metric), better, metric.panel))
    return _table(("metric", "what", "how", "better", "panel"), rows)


def _attacks() -> str:
    default, full = plan_attacks((), "default"), plan_attacks((), "full")
    attacked = {
        **dict.fromkeys(full.on_release, "the images"),
        **dict.fromkeys(full.on_student, "a classifier"),
        **dict.fromkeys(full.on_shadows, "a classifier, with shadows"),
    }
    in_default = {*default.on_release, *default.on_student, *default.on_shadows}
    rows = []
    for name, sentence in contracts.names("attacks").items():
        how, panel = _described(contracts.find("attacks", name)), "default" if name in in_default else "full"
        rows.append((f"`{name}`", sentence, how, attacked[name], panel))
    return _table(("attack", "what", "how", "attacks", "panel"), rows)


def _described(kind: type) -> str:
    """The first line of a class's docstring; a dataclass without one gets its signature from Python, which is none."""
    text = kind.__doc__ or ""
    return "" if text.startswith(f"{kind.__name__}(") else text.strip().split("\n")[0]


def _recipes() -> str:
    rows = []
    for file in sorted((HERE.parent / "recipes").glob("*.toml"), key=_in_order):
        recipe = tomllib.loads(file.read_text("utf-8"))
        rows.append((f"`{file.stem}`", recipe["title"], recipe["source"]))
    return _table(("recipe", "what", "source"), rows)


def _in_order(file: Path) -> list[tuple[str, int]]:
    """Table 10 comes after table 9."""
    return [(word, int(number or 0)) for word, number in re.findall(r"(\D+)(\d*)", file.stem)]


TABLES: dict[str, Callable[[], str]] = {
    "methods": _methods,
    **{judges: partial(_metrics, judges, contracts.Metric) for judges in get_args(contracts.Judgement)},
    "classifiers": partial(_metrics, None, contracts.ClassifierMetric),
    "attacks": _attacks,
    "recipes": _recipes,
}


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def pages() -> dict[Path, str]:
    """Every page that is written, in whole or in part, as it should be now."""
    made = {HERE / COMMANDS: text()}
    for page in sorted(HERE.glob("*.md")):
        current = page.read_text("utf-8")
        if MARKED.search(current):
            made[page] = MARKED.sub(lambda found: f"{found[1]}{found[2]}{TABLES[found[1]]()}", current)
    return made


def main() -> int:
    stale = {page: made for page, made in pages().items() if page.read_text("utf-8") != made}
    names = ", ".join(f"docs/{page.name}" for page in stale)
    if "--check" in sys.argv[1:]:
        print(f"stale: {names}; run: make docs" if stale else "docs: the pages list what is in the code")
        return 1 if stale else 0
    for page, made in stale.items():
        page.write_text(made, "utf-8")
    print(f"wrote {names}" if stale else "docs: nothing has changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""How a function becomes a command: found by its file, with its place in the help, an example and shared options."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import typer

UNORDERED = 1_000  # a command that names no place stands behind those that do, by its name


@dataclass(frozen=True, slots=True)
class Command:
    """One command: the functions of the public API that it calls, and what its help has beside its docstring."""

    name: str
    function: Callable[..., None]
    api: tuple[str, ...]
    example: str
    order: int


@dataclass(frozen=True, slots=True)
class Options:
    """In an annotation: this parameter is built from several options, the parameters of the function `build`."""

    build: Callable[..., Any]


_registered: dict[str, Command] = {}


def command(*api: str, example: str, order: int = UNORDERED) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register the command of a file; the file's name is the command's."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        name = function.__module__.rpartition(".")[2].replace("_", "-")
        _registered[name] = Command(name, function, api, example, order)
        return function

    return register


def commands() -> tuple[Command, ...]:
    """Every command that has a file in this folder, in the order of the help."""
    package = importlib.import_module(__package__ or "sfumato.cli")
    names = [module.name for module in pkgutil.iter_modules(package.__path__) if not module.name.startswith("_")]
    for name in names:
        importlib.import_module(f"{package.__name__}.{name}")
    found = [_registered[name.replace("_", "-")] for name in names]
    return tuple(sorted(found, key=lambda entry: (entry.order, entry.name)))


def application() -> typer.Typer:
    """The command line with all commands."""
    app = typer.Typer(
        help="Turn private images into a synthetic data set that may be published, "
        "with a guarantee that anyone can check.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
    )
    for entry in commands():
        app.command(entry.name, epilog=f"Example: `{entry.example}`")(_with_all_options(entry.function))
    return app


def _with_all_options(function: Callable[..., None]) -> Callable[..., None]:
    """The same function with a parameter for every option, as typer reads it."""

    @functools.wraps(function)
    def called(**given: Any) -> None:
        _call(function, given)

    parameters = list(options_of(function))
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {option.name: option.annotation for option in parameters}
    return called


def options_of(function: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    """All arguments and options of a command, those in groups too."""
    annotations = inspect.get_annotations(function, eval_str=True)
    for parameter in inspect.signature(function).parameters.values():
        annotation = annotations[parameter.name]
        build = _builder(annotation)
        if build is not None:
            yield from options_of(build)
        else:
            yield parameter.replace(annotation=annotation, kind=inspect.Parameter.KEYWORD_ONLY)


def _call(function: Callable[..., Any], given: dict[str, Any]) -> Any:
    arguments = {}
    for name, annotation in inspect.get_annotations(function, eval_str=True).items():
        if name == "return":
            continue
        build = _builder(annotation)
        arguments[name] = given[name] if build is None else _call(build, given)
    return function(**arguments)


def _builder(annotation: Any) -> Callable[..., Any] | None:
    marks = [mark for mark in getattr(annotation, "__metadata__", ()) if isinstance(mark, Options)]
    return marks[0].build if marks else None

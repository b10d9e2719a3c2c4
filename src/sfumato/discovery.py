"""What is found by its file: the modules of a package of ours, what they register, packages that are optional, and of
which release a package is."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sfumato.errors import EnvironmentProblem


def modules(package: str) -> dict[str, Path]:
    """The files of a package by module name, in order; those that begin with an underscore are its own business."""
    try:
        paths = importlib.import_module(f"sfumato.{package}").__path__
    except ModuleNotFoundError:
        return {}
    found = {m.name: Path(m.module_finder.path) / f"{m.name}.py" for m in pkgutil.iter_modules(paths)}  # type: ignore[union-attr]
    return {name: found[name] for name in sorted(found) if not name.startswith("_")}


def registered(package: str, attribute: str) -> dict[str, Any]:
    """The entries of a dictionary of that name, from every module of a package that has one."""
    found: dict[str, Any] = {}
    for name in modules(package):
        found |= getattr(importlib.import_module(f"sfumato.{package}.{name}"), attribute, {})
    return found


def release_of(package: str) -> str:
    """The number of the release of a package that is installed."""
    return version(package)


def installed(extra: str, *packages: str) -> list[Path]:
    """The folders of packages that an extra of ours installs; none of them is imported."""
    specs = {package: importlib.util.find_spec(package) for package in packages}
    origins = {package: spec.origin for package, spec in specs.items() if spec is not None and spec.origin is not None}
    if lacking := [package for package in packages if package not in origins]:
        raise EnvironmentProblem(
            f"Expected the packages {', '.join(packages)}, got no {', no '.join(lacking)}.",
            fix=f'run `pip install "sfumato[{extra}]"`, or go without',
        )
    return [Path(origin).parent for origin in origins.values()]

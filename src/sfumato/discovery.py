"""What is found by its file: the modules of a package of ours, and what they register; so that nothing keeps a list."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any


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

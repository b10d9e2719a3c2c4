"""Hyperparameters of a method, learner or hider as a user writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from sfumato.errors import UsageError

_A = TypeVar("_A")


def with_settings(asked: _A, settings: Mapping[str, str]) -> _A:
    """The method, learner or hider with some hyperparameters as the user wrote them."""
    kinds = {f.name: type(getattr(asked, f.name)) for f in fields(asked)}  # type: ignore[arg-type]
    changed: dict[str, Any] = {}
    for name, text in settings.items():
        if name not in kinds:
            raise UsageError(
                f"Expected one of the settings {', '.join(kinds)}; got {name!r}.",
                fix="choose one of these, or leave it out",
            )
        try:
            changed[name] = _typed(text, kinds[name])
        except (ValueError, KeyError) as error:
            raise UsageError(
                f"Expected {name} as {kinds[name].__name__}, got {text!r}.", fix="give such a value, or leave it out"
            ) from error
    return replace(asked, **changed)  # type: ignore[type-var]


def _typed(text: str, kind: type[Any]) -> Any:
    if kind is bool:
        return {"true": True, "false": False}[text.lower()]
    if kind is tuple:
        return tuple(_typed(part, float) for part in text.split(","))
    value = kind(text)
    if kind is float and not math.isfinite(value):
        raise ValueError("not finite")
    return value

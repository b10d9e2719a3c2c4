"""The classifiers that one can name: what the files of this package register under CLASSIFIERS."""

from __future__ import annotations

import functools
from collections.abc import Callable

from torch import nn

from sfumato.discovery import registered
from sfumato.errors import UsageError

Builder = Callable[[int, int, int, int], nn.Module]  # channels, height, width, classes


@functools.cache
def architectures() -> dict[str, Builder]:
    """Every classifier by its name."""
    return registered("networks", "CLASSIFIERS")


def build(arch: str, channels: int, height: int, width: int, classes: int) -> nn.Module:
    """A classifier by name, freshly initialised; it takes (b, c, h, w) in [0, 1] and gives (b, classes)."""
    check(arch)
    return architectures()[arch](channels, height, width, classes)


def check(arch: str, *, others: tuple[str, ...] = ()) -> None:
    """Refuse a name that is none of the architectures; the message also names `others` that the caller knows."""
    if arch not in architectures():
        raise UsageError(
            f"Expected one of the architectures {', '.join((*architectures(), *others))}; got {arch!r}.",
            fix="choose one of these",
        )

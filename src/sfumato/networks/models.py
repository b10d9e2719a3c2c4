"""The architectures that a released classifier may have: what the files of this package register under MODELS."""

from __future__ import annotations

import functools
from collections.abc import Callable

from torch import nn

from sfumato.discovery import registered
from sfumato.errors import UsageError

Setting = bool | int | float | str
Shape = tuple[int, int, int]  # channels, height, width of an image
Builder = Callable[..., nn.Module]  # the shape of an image, the number of classes, and settings by name


@functools.cache
def model_architectures() -> dict[str, Builder]:
    """Every architecture by its name."""
    return registered("networks", "MODELS")


def build_model(architecture: str, shape: Shape, classes: int, settings: dict[str, Setting]) -> nn.Module:
    """A network with fresh weights; its parameters and buffers are all that a release of it holds.

    It takes images (b, c, h, w) in [0, 1] and gives logits (b, classes).
    """
    if architecture not in model_architectures():
        raise UsageError(
            f"Expected one of the architectures {', '.join(model_architectures())}; got {architecture!r}.",
            fix="install the version of sfumato that made the model",
        )
    try:
        return model_architectures()[architecture](shape, classes, **settings)
    except (TypeError, ValueError, RuntimeError) as error:  # the last from torch, for a layer of no possible size
        if "allocate memory" in str(error):  # whoever builds a stranger's network has a sentence for that
            raise
        problem = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise UsageError(
            f"Expected settings that {architecture} has, for images of shape {shape}: {problem}.",
            fix="install the version of sfumato that made the model",
        ) from error

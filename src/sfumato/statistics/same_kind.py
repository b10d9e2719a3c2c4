"""Checks that synthetic and real images are of one kind: the same shape, the same classes, labels that are classes."""

from __future__ import annotations

from torch import Tensor

from sfumato.errors import UsageError
from sfumato.values import Images


def check_shape(synthetic: Images, real: Images) -> None:
    """Refuse synthetic images of another shape than the real ones."""
    expected, got = tuple(real.pixels.shape[1:]), tuple(synthetic.pixels.shape[1:])
    if got != expected:
        raise UsageError(
            f"Expected synthetic images of shape {expected}, got {got}.",
            fix="read the real data as for the release: --size and --mode",
        )


def check_classes(synthetic: Images, real: Images) -> None:
    """Refuse synthetic images of other classes than the real ones."""
    if synthetic.classes != real.classes:
        raise UsageError(
            f"Expected the classes {real.classes}, got {synthetic.classes}.",
            fix="give the data that the release was made from, read as for it",
        )


def of_known_class(images: Images) -> Tensor:
    """A mask that is False for a record whose label is none of the classes: it counts as absent."""
    return (images.labels >= 0) & (images.labels < len(images.classes))


def known(images: Images) -> Images:
    """The images whose label is one of the classes."""
    return images.rows(of_known_class(images))

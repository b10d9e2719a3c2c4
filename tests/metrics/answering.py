"""Classifiers of which every answer is known: an image's number is in its pixels, and its logits are looked up."""

from __future__ import annotations

import torch
from torch import Tensor

from sfumato.statistics.answers import Answering
from sfumato.values import Groups, Images, Reference


def numbered(labels: list[int], classes: tuple[str, ...], groups: list[int] | None = None) -> Reference:
    """Grey 2x2 images, each with its number in the pixels, to be judged on."""
    count = len(labels)
    pixels = torch.arange(count, dtype=torch.uint8)[:, None, None, None].expand(-1, 1, 2, 2).contiguous()
    test = Images(pixels, torch.tensor(labels), classes)
    of_test = None if groups is None else Groups(("g", "h"), torch.tensor(groups), torch.tensor(groups))
    return Reference(train=test, test=test, groups=of_test)


def looked_up(logits: Tensor) -> Answering:
    """The classifier that answers image number i with row i."""
    return lambda pixels: logits[pixels[:, 0, 0, 0].long()]


def saying(answers: list[int], *, classes: int) -> Answering:
    """The classifier that is sure of these answers."""
    return looked_up(10 * torch.nn.functional.one_hot(torch.tensor(answers), classes).float())

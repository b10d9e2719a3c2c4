"""Images whose features have given class means: found by gradient descent on the pixels.

DP-MEPF (Harder et al. 2023) trains a generator until the mean of its images in a feature space is a noisy private mean;
here the pixels themselves are moved. The mean over the images of a class is compared, and each image a little, so that
images of a class differ. Total variation is kept low, and images are shifted at random, against noise in the pixels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from sfumato.progress import track

STEPS = 160
RATE = 0.08  # of Adam, on the logits of pixels
SINGLE = 0.1  # weight of the distance of single images from the mean of their class
VARIATION = 2.0  # weight of the total variation
SHIFT = 1 / 10  # of the side, at most
CHUNK = 40  # images at a time


def inverted(
    start: Tensor, labels: Tensor, means: Tensor, features: Callable[[Tensor], Tensor], draw: Generator
) -> Tensor:
    """The images (n, c, h, w) in [0, 1], moved so that the features of each class have the means (k, d).

    Images of a class that are moved together, a chunk at most, share its mean.
    """
    order = torch.argsort(labels, stable=True)
    chunks = torch.split(order, CHUNK)
    made = torch.empty_like(start)
    steps = track(range(len(chunks) * STEPS), what="class images", total=len(chunks) * STEPS)
    for chunk in chunks:
        members = F.one_hot(labels[chunk], len(means)).T.to(start)  # (k, n)
        logits = torch.logit(start[chunk].clamp(0.02, 0.98)).requires_grad_(True)
        optimizer = torch.optim.Adam([logits], lr=RATE)
        for step, _ in zip(range(STEPS), steps, strict=False):
            optimizer.param_groups[0]["lr"] = RATE * min(1.0, 2 - 2 * step / STEPS)
            with torch.enable_grad():
                images = logits.sigmoid()
                rows = features(_shifted(images, draw)).flatten(1)
                loss = _distance(rows, members, means) + VARIATION * _variation(images, members)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        made[chunk] = logits.detach().sigmoid()
    return made


def _distance(rows: Tensor, members: Tensor, means: Tensor) -> Tensor:
    """The squared distance of the mean of each class from the given one, and a little of that of each image."""
    there = members.sum(1) > 0
    own = members.T @ means  # (n, d)
    counts = members.sum(1)[there, None]
    of_classes = (members[there] @ rows / counts - means[there]).square().sum()
    of_images = ((rows - own).square().sum(1) / (members.T @ members.sum(1))).sum()
    return of_classes + SINGLE * of_images


def _variation(images: Tensor, members: Tensor) -> Tensor:
    """Total variation, the mean over the images of each class."""
    down = (images[:, :, 1:] - images[:, :, :-1]).abs().mean((1, 2, 3))
    across = (images[..., 1:] - images[..., :-1]).abs().mean((1, 2, 3))
    return ((down + across) / (members.T @ members.sum(1))).sum()


def _shifted(images: Tensor, draw: Generator) -> Tensor:
    most = max(1, round(SHIFT * min(images.shape[2:])))
    down, across = torch.randint(-most, most + 1, (2,), generator=draw).tolist()
    return images.roll((down, across), dims=(2, 3))

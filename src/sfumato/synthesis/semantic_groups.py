"""Groups of public images that look alike in meaning, and the vote of a private image for those that it is nearest to.

Groups are the classes of labelled public images, told by a classifier that learns from these, or else clusters of
features that need no training. Nothing here has seen a private image.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from sfumato.networks.scattering import ScatteringFeatures
from sfumato.training.student import Schedule, train
from sfumato.values import Images

DIMENSIONS = 64  # of the features that are clustered
LLOYD_ROUNDS = 20
CHUNK = 1_000  # images whose features are computed at a time


@dataclass(frozen=True)
class SemanticGroups:
    """Groups of public images."""

    nearness: Callable[[Tensor], Tensor]  # images (b, c, h, w) in [0, 1] to (b, groups), higher for nearer
    group: Tensor  # int64 (n,), the group of each public image
    count: int

    def votes(self, each: int) -> Callable[[Tensor, Tensor], Tensor]:
        """The row of a record: ones at the groups it is nearest to, `each` of them, so that its norm is sqrt(each)."""
        numbers = torch.arange(self.count)

        def row(image: Tensor, label: Tensor) -> Tensor:
            nearest = self.nearness(image[None])[0].topk(each).indices
            return (numbers[:, None] == nearest).any(1).float()

        return row


def has_classes(public: Images) -> bool:
    """Whether the labels of public images tell them apart."""
    return len(torch.unique(public.labels[public.labels >= 0])) > 1


def groups_of(public: Images, *, clusters: int, seed: int) -> SemanticGroups:
    """The classes of the public images if they have several, otherwise so many clusters."""
    return _by_class(public, seed) if has_classes(public) else _by_cluster(public, clusters, seed)


def _by_class(public: Images, seed: int) -> SemanticGroups:
    """Only classes that some image has are groups; images without a label are in none."""
    known, numbers = torch.unique(public.labels, return_inverse=True)
    without = int((known < 0).sum())  # labels below zero come first
    group, count = (numbers - without).clamp(min=-1), len(known) - without
    names = tuple(str(number) for number in range(count))
    labelled = Images(public.pixels, group, names).rows(group >= 0)
    classifier = train(labelled, Schedule.short(loss="labels"), seed=seed, what="classifier of public images")
    return SemanticGroups(classifier.requires_grad_(False), group, count)


def _by_cluster(public: Images, clusters: int, seed: int) -> SemanticGroups:
    """Clusters of projected scattering features, by Lloyd's algorithm; empty ones are left out."""
    draw = torch.Generator().manual_seed(seed)
    features = ScatteringFeatures(*public.pixels.shape[1:])
    size = math.prod(features.shape)
    project = torch.randn(size, min(DIMENSIONS, size), generator=draw) / math.sqrt(size)

    def embed(images: Tensor) -> Tensor:
        embedded: Tensor = features(images).flatten(1) @ project
        return embedded

    with torch.no_grad():
        points = torch.cat([embed(chunk.float() / 255) for chunk in torch.split(public.pixels, CHUNK)])
    centres = points[torch.randperm(len(points), generator=draw)[:clusters]]
    for _ in range(LLOYD_ROUNDS):
        nearest = _nearness(points, centres).argmax(1)
        used, nearest = torch.unique(nearest, return_inverse=True)
        sizes = torch.bincount(nearest, minlength=len(used))
        centres = torch.zeros(len(used), points.shape[1]).index_add(0, nearest, points) / sizes[:, None]
    used, group = torch.unique(_nearness(points, centres).argmax(1), return_inverse=True)
    centres = centres[used]
    return SemanticGroups(lambda images: _nearness(embed(images), centres), group, len(centres))


def _nearness(points: Tensor, centres: Tensor) -> Tensor:
    """Minus half of the squared distances, up to a number for each point: (n, d) and (k, d) to (n, k)."""
    return points @ centres.T - centres.square().sum(1) / 2


def chosen_groups(counts: Tensor, each: int) -> Tensor:
    """So many groups for each class by noisy counts of votes, (classes, groups) to (classes, each).

    No group serves two classes, if there are enough: otherwise all classes would choose those that are like all private
    images, and their labels would say nothing. All are given out at once, so that the sum of the shares of votes is
    largest; so no class chooses before another, and a large class counts as much as a small one. If there are not
    enough, each class has those with most votes of its own.
    """
    classes, groups = counts.shape
    if classes * each > groups:
        return counts.topk(each, dim=1).indices
    shares = counts / counts.clamp(min=0).sum(1, keepdim=True).clamp(min=1)
    _, given = linear_sum_assignment(shares.repeat_interleave(each, dim=0).numpy(), maximize=True)
    return torch.from_numpy(given).reshape(classes, each)


def images_of_groups(public: Images, groups: SemanticGroups, chosen: Tensor, classes: tuple[str, ...]) -> Images:
    """The images of the groups (classes, each), with the class that the group was chosen for as their label."""
    member = (groups.group[:, None, None] == chosen).any(2)  # (n, classes)
    rows, labels = member.nonzero(as_tuple=True)
    return Images(public.pixels[rows], labels, classes)

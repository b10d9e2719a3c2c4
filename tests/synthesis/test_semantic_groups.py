"""Groups of public images: k votes in a row of norm sqrt(k), a choice that no order of classes changes."""

from __future__ import annotations

import functools
import math

import pytest
import torch

from sfumato.synthesis.semantic_groups import (
    SemanticGroups,
    chosen_groups,
    groups_of,
    has_classes,
    images_of_groups,
)
from sfumato.values import Images

from toys import coloured_squares

LABELLED = coloured_squares(channels=1)
UNLABELLED = Images(LABELLED.pixels, torch.zeros(60).long(), ("x",))


@functools.cache
def found(kind: str) -> SemanticGroups:
    return groups_of(LABELLED if kind == "classes" else UNLABELLED, clusters=6, seed=0)


@pytest.mark.parametrize("kind", ["classes", "clusters"])
def test_images_vote_for_groups_of_images_like_them(kind: str) -> None:
    public, groups = LABELLED, found(kind)
    rows = torch.func.vmap(groups.votes(1))(public.unit(), public.labels)
    assert rows.shape == (60, groups.count)
    assert (rows.argmax(1) == groups.group).float().mean() > 0.9


@pytest.mark.parametrize("kind", ["classes", "clusters"])
@pytest.mark.parametrize("each", [1, 2, 3])
def test_a_row_has_the_norm_that_it_is_bounded_by_whatever_the_record(kind: str, each: int) -> None:
    groups = found(kind)
    images = torch.rand(8, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    images[0], images[1], images[2], images[3] = 0, 1, torch.nan, 1e30
    rows = torch.func.vmap(groups.votes(each))(images, torch.zeros(8).long())
    assert rows.norm(dim=1).tolist() == pytest.approx([math.sqrt(each)] * 8)


def test_classes_of_public_images_are_groups_where_there_are_several() -> None:
    assert has_classes(LABELLED)
    assert not has_classes(UNLABELLED)
    sparse = Images(LABELLED.pixels, torch.tensor([-1, 4, 7]).repeat(20), tuple("abcdefghi"))
    groups = groups_of(sparse, clusters=6, seed=0)
    assert groups.count == 2
    assert groups.group[:3].tolist() == [-1, 0, 1]


def test_groups_do_not_depend_on_global_randomness() -> None:
    for public in (LABELLED, UNLABELLED):
        made = []
        for global_seed in (1, 2):
            torch.manual_seed(global_seed)
            made.append(groups_of(public, clusters=6, seed=0).nearness(public.unit()))
        assert torch.equal(*made)


@pytest.mark.parametrize(("groups", "each"), [(12, 2), (5, 2)])
def test_the_order_of_classes_does_not_matter(groups: int, each: int) -> None:
    counts = 100 * torch.randn(4, groups, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    order = torch.tensor([3, 1, 0, 2])
    first, other = chosen_groups(counts, each).sort(1).values, chosen_groups(counts[order], each).sort(1).values
    assert torch.equal(first[order], other)


def test_classes_that_want_the_same_groups_get_what_is_best_together() -> None:
    counts = torch.tensor([[9.0, 8.0, 0.0, 0.0], [900.0, 0.0, 90.0, 10.0]])
    assert sorted(chosen_groups(counts, 1).flatten().tolist()) == [0, 1]
    assert chosen_groups(counts, 1)[1].tolist() == [0]  # for the second class a group more than for the first
    assert len(set(chosen_groups(counts, 2).flatten().tolist())) == 4
    assert chosen_groups(counts, 3).shape == (2, 3)
    assert torch.equal(chosen_groups(torch.full((2, 3), -5.0), 1).sort(0).values.flatten(), torch.tensor([0, 1]))


def test_chosen_images_have_the_class_that_chose_them() -> None:
    groups = SemanticGroups(lambda images: images, torch.tensor([0, 1, 1, 2, -1]), 3)
    public = Images(torch.arange(5, dtype=torch.uint8)[:, None, None, None], torch.zeros(5).long(), ("x",))
    chosen = images_of_groups(public, groups, torch.tensor([[1], [2], [1]]), ("a", "b", "c"))
    found = sorted(zip(chosen.pixels.flatten().tolist(), chosen.labels.tolist(), strict=True))
    assert found == [(1, 0), (1, 2), (2, 0), (2, 2), (3, 1)]

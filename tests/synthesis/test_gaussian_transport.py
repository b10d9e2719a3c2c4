"""The map between two Gaussians, against its closed form and against what it promises."""

from __future__ import annotations

import torch

from sfumato.synthesis.gaussian_transport import GroupGaussians


def codes_in_two_groups(count: int = 4000) -> tuple[torch.Tensor, torch.Tensor]:
    """Correlated codes, of which the second group is wider and lies elsewhere."""
    generator = torch.Generator().manual_seed(0)
    groups = torch.arange(count) % 2
    codes = torch.randn(count, 3, generator=generator) @ torch.tensor(
        [[1.0, 0.5, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 1.0]]
    )
    codes[groups == 1] = codes[groups == 1] * torch.tensor([2.0, 1.0, 0.5]) + torch.tensor([3.0, -1.0, 0.0])
    return codes, groups


def test_moved_codes_have_the_moments_of_the_target() -> None:
    codes, groups = codes_in_two_groups()
    fitted = GroupGaussians.of(codes, groups, 2, shrinkage=0.0)
    moved = fitted.moved(codes, groups, torch.ones_like(groups), strength=1.0)[groups == 0].double()
    # the covariances that it maps between are shrunk a little, by 3 / (3 + 2000)
    torch.testing.assert_close(moved.mean(0), fitted.means[1], atol=1e-3, rtol=0)
    torch.testing.assert_close(torch.cov(moved.T), fitted.covariances[1], atol=0.01, rtol=0)


def test_the_map_is_that_of_the_closed_form_in_one_dimension() -> None:
    codes = torch.tensor([[-1.0], [1.0], [7.0], [13.0]])
    fitted = GroupGaussians(torch.tensor([[0.0], [10.0]]).double(), torch.tensor([[[1.0]], [[9.0]]]).double())
    moved = fitted.moved(codes, torch.tensor([0, 0, 1, 1]), torch.tensor([1, 1, 0, 0]), strength=1.0)
    torch.testing.assert_close(moved, torch.tensor([[7.0], [13.0], [-1.0], [1.0]]))


def test_there_and_back_is_where_it_began() -> None:
    codes, groups = codes_in_two_groups(400)
    fitted = GroupGaussians.of(codes, groups, 2, shrinkage=0.2)
    there = fitted.moved(codes, groups, 1 - groups, strength=1.0)
    torch.testing.assert_close(fitted.moved(there, 1 - groups, groups, strength=1.0), codes, atol=1e-4, rtol=0)


def test_codes_that_go_to_their_own_group_and_a_strength_of_nothing_move_nothing() -> None:
    codes, groups = codes_in_two_groups(100)
    fitted = GroupGaussians.of(codes, groups, 2, shrinkage=0.2)
    assert fitted.moved(codes, groups, groups, strength=1.0).equal(codes)
    assert fitted.moved(codes, groups, 1 - groups, strength=0.0).equal(codes)


def test_half_the_strength_is_half_the_way() -> None:
    codes, groups = codes_in_two_groups(100)
    fitted = GroupGaussians.of(codes, groups, 2, shrinkage=0.2)
    whole = fitted.moved(codes, groups, 1 - groups, strength=1.0)
    half = fitted.moved(codes, groups, 1 - groups, strength=0.5)
    torch.testing.assert_close(half, (codes + whole) / 2, atol=1e-5, rtol=0)


def test_codes_that_are_drawn_anew_in_part_keep_their_moments_and_so_much_of_themselves() -> None:
    codes, groups = codes_in_two_groups()
    fitted = GroupGaussians.of(codes, groups, 2, shrinkage=0.0)
    made = fitted.redrawn(codes, groups, 0.36, torch.Generator().manual_seed(1))
    for group in (0, 1):
        before, after = codes[groups == group].double(), made[groups == group].double()
        torch.testing.assert_close(after.mean(0), fitted.means[group], atol=0.1, rtol=0)
        torch.testing.assert_close(torch.cov(after.T), fitted.covariances[group], atol=0.25, rtol=0)
        kept = torch.corrcoef(torch.stack([before[:, 0], after[:, 0]]))[0, 1]
        assert abs(float(kept) - 0.8) < 0.02  # the root of 1 - 0.36
    torch.testing.assert_close(fitted.redrawn(codes, groups, 0.0, torch.Generator()), codes)


def test_the_covariance_of_a_small_group_is_mostly_that_of_all() -> None:
    codes, groups = codes_in_two_groups(2000)
    groups = torch.where(torch.arange(2000) < 1996, 0, 1)
    fitted = GroupGaussians.of(codes, groups, 2, shrinkage=0.0)
    weight = 3 / (3 + 4)
    own = codes[groups == 1].double()
    own = (own - own.mean(0)).T @ (own - own.mean(0)) / 4
    away = codes.double() - fitted.means[groups]
    torch.testing.assert_close(fitted.covariances[1], (1 - weight) * own + weight * away.T @ away / 2000)

"""Sources are found where they can be, by hand-made cases whose answers are known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sfumato.statistics.re_identification import matched, small_grey


def codes(count: int, seed: int) -> Tensor:
    return torch.randn(count, 8, generator=torch.Generator().manual_seed(seed))


def test_ranks_counted_by_hand() -> None:
    real = torch.tensor([[0.0], [1.0], [3.0], [7.0]])
    released = torch.tensor([[0.1], [0.2], [6.0], [1.2]])
    # distances of the sources: 0.1 is the nearest; 2.8 the third; 3 the second; 5.8 the fourth
    found = matched(released, real, torch.tensor([0, 2, 2, 3]))
    assert found.first == 0.25
    assert found.median_rank == 2.5
    assert found.real == 4


def test_the_source_is_told_by_its_number_and_not_by_its_place() -> None:
    real = codes(600, 0)
    sources = torch.randperm(600, generator=torch.Generator().manual_seed(1))[:500]
    found = matched(real[sources], real, sources)
    assert found.first == 1
    assert found.median_rank == 1
    assert found.standard_error > 0
    assert matched(real[sources], real, sources.flip(0)).first == 0


@pytest.mark.parametrize("count", [2, 5, 100])
def test_equal_releases_tell_nothing(count: int) -> None:
    """All real images are alike, or all released ones are: by chance, neither better nor worse."""
    alike = matched(codes(count, 0), torch.ones(count, 8), torch.arange(count))
    assert alike.first == pytest.approx(1 / count)
    assert alike.median_rank == (count + 1) / 2
    constant = matched(torch.zeros(count, 8), codes(count, 0), torch.arange(count))
    assert constant.first == pytest.approx(1 / count)
    assert constant.median_rank == (count + 1) / 2


def test_twins_share_the_first_place() -> None:
    """Near copies of a large code, whose distances a product of matrices would round apart."""
    real = (1000 + codes(50, 0)).repeat(2, 1)
    released = real + 0.01 * codes(100, 1)
    found = matched(released, real, torch.arange(100))
    assert found.first == 0.5
    assert found.median_rank == 1.5


def test_codes_that_know_nothing_of_the_source_find_it_by_chance() -> None:
    found = matched(codes(400, 0), codes(400, 1), torch.arange(400))
    assert found.first < 0.02  # seeded
    assert abs(found.median_rank - 200.5) < 50


def test_small_grey_images_are_averages_of_the_luma() -> None:
    pixels = torch.zeros(2, 3, 32, 48, dtype=torch.uint8)
    pixels[1, 1, :2, :3] = 255  # one cell is green
    made = small_grey(pixels)
    assert made.shape == (2, 256)
    assert made[0].abs().max() == 0
    assert made[1, 0] == pytest.approx(150 / 255)
    assert made[1, 1:].abs().max() == 0
    grey = torch.randint(0, 256, (3, 1, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    torch.testing.assert_close(small_grey(grey.expand(-1, 3, -1, -1)), small_grey(grey))
    assert small_grey(grey).shape == (3, 256)


def test_another_image_of_the_same_person_is_a_match_where_persons_are_known() -> None:
    real = torch.tensor([[0.0], [1.0], [3.0], [7.0]])
    released = torch.tensor([[0.9], [2.9], [4.9]])  # the nearest: 1, 3 and 3
    sources = torch.tensor([0, 1, 3])
    assert matched(released, real, sources).first == 0
    found = matched(released, real, sources, torch.tensor([5, 5, 9, 8]))
    # the first person is met in the nearest image; the second in the second, which is the source; the third so, too
    assert found.first == pytest.approx(1 / 3)
    assert found.median_rank == 2
    assert found.chance == pytest.approx((2 + 2 + 1) / 3 / 4)


def test_equal_distances_tell_no_person_either() -> None:
    people = torch.tensor([0, 0, 0, 1, 2, 3])
    found = matched(torch.zeros(6, 8), torch.ones(6, 8), torch.arange(6), people)
    assert found.first == pytest.approx(found.chance) == pytest.approx((3 * 3 + 3) / 36)
    assert found.median_rank == (7 / 4 + 7 / 2) / 2  # of three in six, and of one in six

"""Records are dealt into parts: by shares, by a seed, each value of the attribute alike, a person in one part."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sfumato.errors import UsageError
from sfumato.lab.provenance import PARTS
from sfumato.making.parts import SHARES, split_parts

values = st.lists(st.integers(0, 4), min_size=1, max_size=120).map(torch.tensor)
some_shares = st.lists(
    st.one_of(st.integers(0, 90), st.floats(0, 1, allow_subnormal=False)), min_size=4, max_size=4
).filter(lambda shares: sum(shares) > 1e-9)


def counts(attribute: torch.Tensor, parts: torch.Tensor, value: int) -> list[int]:
    return parts[attribute == value].bincount(minlength=len(PARTS)).tolist()


@given(values, some_shares, st.integers(0, 5))
def test_each_value_is_divided_by_the_shares_to_within_one_record(
    attribute: torch.Tensor, shares: list[float], seed: int
) -> None:
    parts = split_parts(attribute, shares=shares, seed=seed)
    assert parts.dtype == torch.int64
    assert parts.shape == attribute.shape
    whole = sum(map(Fraction, shares))
    for value in attribute.unique().tolist():
        there = int((attribute == value).sum())
        for count, share in zip(counts(attribute, parts, value), shares, strict=True):
            assert abs(count - there * Fraction(share) / whole) < 1


def test_the_shares_of_the_paper() -> None:
    parts = split_parts(torch.arange(5).repeat(2000))
    sizes = parts.bincount()
    assert sizes.tolist() == [5500, 600, 2400, 1500]
    assert sizes[0] / sizes[:2].sum() == pytest.approx(0.9, abs=0.005)  # Tr:V is 9:1
    assert len(SHARES) == len(PARTS)


def test_what_rounding_leaves_goes_round() -> None:
    """A hundred values of three records each: no part may get nothing because each value is too small for it."""
    sizes = split_parts(torch.arange(100).repeat(3)).bincount(minlength=4)
    assert (sizes - torch.tensor(SHARES) * 3).abs().max() <= 1


def test_which_records_they_are_is_random() -> None:
    """Of a value in a row: a deal without shuffling would put its first records into Tr."""
    parts = split_parts(torch.zeros(1000, dtype=torch.int64))
    halves = [int((half == 0).sum()) for half in parts.chunk(2)]
    assert 225 < halves[0] < 325
    assert sum(halves) == 550


@pytest.mark.parametrize("person", [None, torch.arange(300) // 3])
def test_a_seed_decides_and_nothing_else(person: torch.Tensor | None) -> None:
    attribute = torch.arange(300) % 5
    torch.manual_seed(1)
    first = split_parts(attribute, seed=7, person=person)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert split_parts(attribute, seed=7, person=person).equal(first)
    assert torch.get_rng_state().equal(state)
    assert not split_parts(attribute, seed=8, person=person).equal(first)


@given(values, st.data(), some_shares)
def test_a_person_is_in_one_part(attribute: torch.Tensor, data: st.DataObject, shares: list[float]) -> None:
    count = len(attribute)
    person = torch.tensor(data.draw(st.lists(st.integers(-3, 10**12), min_size=count, max_size=count)))
    parts = split_parts(attribute, shares=shares, person=person)
    for each in person.unique().tolist():
        assert len(parts[person == each].unique()) == 1
    assert all(shares[part] > 0 for part in parts.unique().tolist())


@pytest.mark.parametrize("largest", [1, 5, 20])
def test_the_shares_are_met_by_person_too(largest: int) -> None:
    """Each count is off by less than one large person, and the smaller the persons the less."""
    generator = torch.Generator().manual_seed(0)
    person = torch.arange(400).repeat_interleave(torch.randint(1, largest + 1, (400,), generator=generator))
    attribute = torch.randint(0, 3, (400,), generator=generator)[person]
    parts = split_parts(attribute, person=person)
    for value in range(3):
        there = int((attribute == value).sum())
        for count, share in zip(counts(attribute, parts, value), SHARES, strict=True):
            assert abs(count - there * share / 100) <= largest


def test_few_persons_give_small_parts_one_too() -> None:
    sizes = split_parts(torch.zeros(100, dtype=torch.int64), person=torch.arange(100) // 10).bincount(minlength=4)
    assert sizes.tolist() == [60, 10, 20, 10]


def test_a_part_may_have_no_share() -> None:
    attribute = torch.arange(40) % 2
    for person in (None, torch.arange(40) // 4):
        sizes = split_parts(attribute, shares=(1, 0, 0, 1), person=person).bincount(minlength=4)
        assert sizes.tolist() == [20, 0, 0, 20]


@pytest.mark.parametrize(
    "shares",
    [(1, 1, 1), (1, 1, 1, 1, 1), (), (0, 0, 0, 0), (1, -1, 1, 1), (1, float("nan"), 1, 1), (float("inf"),) * 4],
)
def test_bad_shares(shares: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match="Expected 4 shares that are 0 or more and not all 0, for tr, v, g, test"):
        split_parts(torch.zeros(4, dtype=torch.int64), shares=shares)


@pytest.mark.parametrize(
    ("attribute", "person"),
    [
        (torch.zeros(4), None),
        (torch.zeros(4, 2, dtype=torch.int64), None),
        (torch.zeros(4, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)),
        (torch.zeros(4, dtype=torch.int64), torch.zeros(4)),
    ],
)
def test_bad_numbers(attribute: torch.Tensor, person: torch.Tensor | None) -> None:
    with pytest.raises(UsageError, match="Expected a whole number for each of 4 records"):
        split_parts(attribute, person=person)

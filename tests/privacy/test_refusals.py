"""Mechanisms, bounds and charges that the privacy core refuses."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from sfumato.errors import BudgetExceeded, UsageError
from sfumato.privacy import (
    Budget,
    GaussianSum,
    Ledger,
    NoisyChoice,
    PrivateImages,
    ShardedAnswers,
    ShardedSums,
    calibrate,
)

from toys import toy

DRAWS = 8  # of one full-batch round

MECHANISMS: dict[str, Callable[[], object]] = {
    "no rounds": lambda: GaussianSum(rounds=0),
    "negative rounds": lambda: GaussianSum(rounds=-1),
    "a billion rounds": lambda: GaussianSum(rounds=10**9),
    "half a round": lambda: GaussianSum(rounds=1.5),
    "sampling zero": lambda: GaussianSum(sampling=0),
    "sampling above one": lambda: GaussianSum(sampling=1.5),
    "sampling not a number": lambda: GaussianSum(sampling=math.nan),
    "negative noise": lambda: GaussianSum(noise_multiplier=-1),
    "infinite noise": lambda: GaussianSum(noise_multiplier=math.inf),
    "noise not a number": lambda: GaussianSum(noise_multiplier=math.nan),
    "share zero": lambda: GaussianSum(share=0),
    "share negative": lambda: GaussianSum(share=-1),
    "share not a number": lambda: GaussianSum(share=math.nan),
    "one candidate": lambda: NoisyChoice(candidates=1),
    "no shards": lambda: ShardedAnswers(shards=0),
    "no shards to add up": lambda: ShardedSums(shards=0),
    "a budget of nothing": lambda: Budget.of(0, count=10),
    "a charge without noise": lambda: Ledger(Budget(1, 1e-5)).charge(GaussianSum(), purpose="test"),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_mechanism(name: str) -> None:
    with pytest.raises(UsageError, match="Expected"):
        MECHANISMS[name]()


@pytest.mark.parametrize("bound", [0, -1, math.inf, math.nan])
def test_impossible_bound_is_refused_before_the_data_is_touched(bound: float) -> None:
    ledger = Ledger(Budget(1, 1e-5))
    query = PrivateImages.seal(toy(), ledger).open(GaussianSum(noise_multiplier=10), purpose="test")
    with pytest.raises(UsageError, match="l2_bound"):
        query(lambda image, label: image.sum()[None], l2_bound=bound)
    assert ledger.unbegun(ledger.charges[0]) == DRAWS


def test_budget_smaller_than_any_plan() -> None:
    with pytest.raises(BudgetExceeded, match="already spent"):
        calibrate([GaussianSum(rounds=10**8)], epsilon=1e-6, delta=1e-15)


def test_charge_beyond_the_budget_is_not_written(tmp_path: Path) -> None:
    ledger = Ledger(Budget(1, 1e-5), tmp_path / "ledger.jsonl")
    before = (tmp_path / "ledger.jsonl").read_bytes()
    with pytest.raises(BudgetExceeded, match="at most 1"):
        ledger.charge(GaussianSum(noise_multiplier=0.5), purpose="test")
    ledger.close()
    assert (tmp_path / "ledger.jsonl").read_bytes() == before


def test_budget_that_cannot_pay_is_exit_4() -> None:
    assert BudgetExceeded.exit_code == 4


def test_there_are_enough_cases() -> None:
    assert sum(map(len, (MECHANISMS))) >= 17

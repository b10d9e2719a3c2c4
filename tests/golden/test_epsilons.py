"""Published and recomputed privacy figures that the accountant must reproduce."""

from __future__ import annotations

import math

import pytest

from sfumato.privacy import GaussianSum, NoisyChoice, ShardedAnswers, ShardedSums, calibrate, epsilon_pld, epsilon_rdp

DELTA = 1 / (55_000 * math.log(55_000))  # DPImageBench's delta for MNIST and FashionMNIST
SGD = {"rounds": 2100, "sampling": 1 / 14}


# spec 003, section 1.0: noise multipliers by PLD (the analytic Gaussian where there is no sampling)
@pytest.mark.parametrize(
    ("mechanism", "epsilon", "noise"),
    [
        (GaussianSum(), 1, 4.119),
        (GaussianSum(), 10, 0.532),
        (GaussianSum(rounds=10), 1, 13.03),
        (GaussianSum(rounds=11), 1, 13.66),
        (GaussianSum(rounds=10), 10, 1.683),
        (GaussianSum(rounds=11), 10, 1.765),
        (GaussianSum(rounds=5), 10, 1.19),
        (GaussianSum(**SGD), 1, 13.58),
        (GaussianSum(**SGD), 10, 1.898),
    ],
)
def test_calibrated_noise(mechanism: GaussianSum, epsilon: float, noise: float) -> None:
    (calibrated,) = calibrate([mechanism], epsilon=epsilon, delta=DELTA)
    assert calibrated.noise_multiplier == pytest.approx(noise, rel=0.004)


# the same section by RDP: what those multipliers cost
@pytest.mark.parametrize(
    ("mechanisms", "epsilon"),
    [
        ([GaussianSum(noise_multiplier=4.43)], 1),
        ([GaussianSum(noise_multiplier=0.561)], 10),
        ([GaussianSum(**SGD, noise_multiplier=14.55)], 1),
        ([GaussianSum(**SGD, noise_multiplier=1.994)], 10),
        ([GaussianSum(**SGD, noise_multiplier=14.94), GaussianSum(rounds=5, sampling=0.109, noise_multiplier=5.0)], 1),
        ([GaussianSum(**SGD, noise_multiplier=14.61), GaussianSum(noise_multiplier=50.0)], 1),
        ([GaussianSum(rounds=200_002, sampling=1 / 917, noise_multiplier=2.273)], 1),
        ([GaussianSum(rounds=20_000, sampling=1e-3, noise_multiplier=1.030)], 1),
    ],
)
def test_renyi_epsilons(mechanisms: list[GaussianSum], epsilon: float) -> None:
    assert epsilon_rdp(mechanisms, DELTA) == pytest.approx(epsilon, rel=0.01)


def test_what_an_rdp_calibrated_run_really_spends() -> None:
    assert epsilon_pld([GaussianSum(**SGD, noise_multiplier=14.55)], DELTA) == pytest.approx(0.928, abs=0.005)
    assert epsilon_pld([GaussianSum(**SGD, noise_multiplier=1.994)], DELTA) == pytest.approx(9.35, abs=0.03)
    history = [GaussianSum(rounds=5, sampling=0.109, noise_multiplier=5.0)]
    assert epsilon_pld(history, DELTA) == pytest.approx(0.211, abs=0.002)


# spec 001, section 2.5(a): the paper's own accounting, (records, epochs, batch, noise | statistics epochs, batch)
@pytest.mark.parametrize(
    ("row", "total", "training"),
    [
        ((60_000, 4, 128, 0.8, 2, 64), 0.91, 0.86),
        ((60_000, 14, 128, 0.5, 2, 64), 8.15, 7.97),
        ((60_000, 30, 50, 1.0, 2, 64), 0.80, 0.77),
        ((60_000, 20, 128, 0.5, 2, 64), 9.29, 9.13),
        ((162_770, 18, 128, 0.8, 5, 128), 1.03, 0.91),
        ((162_770, 22, 128, 0.45, 3, 128), 10.03, 9.56),
        ((162_770, 18, 128, 0.8, 4, 128), 1.004, 0.91),
        ((162_770, 22, 128, 0.5, 4, 128), 6.41, 6.05),
        ((50_000, 12, 128, 0.5, 5, 128), 9.28, 8.15),
        ((9_469, 57, 8, 0.3, 3, 8), 104.3, 101.4),
    ],
    ids=[
        "mnist-1",
        "mnist-10",
        "fmnist-1",
        "fmnist-10",
        "hair-1",
        "hair-10",
        "gender-1",
        "gender-10",
        "cifar",
        "nette",
    ],
)
def test_dp_imgsyn_table(row: tuple[float, ...], total: float, training: float) -> None:
    records, epochs, batch, noise, stat_epochs, stat_batch = row

    def passes(over: float, size: float) -> GaussianSum:
        steps = math.ceil(records / size)
        return GaussianSum(rounds=int(over * steps), sampling=1 / steps, noise_multiplier=noise)

    learn, statistics = passes(epochs, batch), passes(stat_epochs, stat_batch)
    tolerance = {"abs": 0.05} if total < 50 else {"rel": 0.01}
    assert epsilon_pld([learn], 1e-5) == pytest.approx(training, **tolerance)
    assert epsilon_pld([learn, statistics], 1e-5) == pytest.approx(total, **tolerance)


def test_ecosystem_figures() -> None:
    one, two = (
        GaussianSum(rounds=16, sampling=1 / 8, noise_multiplier=1.0),
        GaussianSum(rounds=2200, sampling=4096 / 60_000, noise_multiplier=5.0),
    )
    assert (epsilon_pld([one], 1e-5), epsilon_pld([two], 1e-5)) == pytest.approx((4.0154, 2.6802), abs=0.002)
    assert (epsilon_rdp([one], 1e-5), epsilon_rdp([two], 1e-5)) == pytest.approx((4.6965, 2.9097), abs=0.01)


# spec 004, section 4.2: De et al. (2022) on CIFAR-10, batches of 4,096 of 50,000 records
@pytest.mark.parametrize(
    ("noise", "rounds", "rdp", "pld"),
    [
        (10.0, 875, 0.988, 0.904),
        (6.0, 1125, 2.00, 1.84),
        (4.0, 1687, 4.00, 3.69),
        (3.0, 1843, 5.95, None),
        (3.0, 3068, 8.00, None),
    ],
)
def test_private_classifiers_of_de_et_al(noise: float, rounds: int, rdp: float, pld: float | None) -> None:
    asked = [GaussianSum(rounds=rounds, sampling=4096 / 50_000, noise_multiplier=noise)]
    assert epsilon_rdp(asked, 1e-5) == pytest.approx(rdp, abs=0.01)
    if pld is not None:
        assert epsilon_pld(asked, 1e-5) == pytest.approx(pld, abs=0.01)


def test_noise_for_epsilon_8_of_de_et_al() -> None:
    (asked,) = calibrate([GaussianSum(rounds=2468, sampling=4096 / 50_000)], epsilon=8.0, delta=1e-5)
    assert asked.noise_multiplier == pytest.approx(2.56, abs=0.01)


# spec 002, section 3.7: GS-WGAN's accounting with per-image routing (design A)
def test_sharded_answers_lie_between_the_worst_pair_and_the_safe_bound() -> None:
    answers = ShardedAnswers(shards=1000, rounds=640_000, noise_multiplier=1.07)
    assert epsilon_rdp([answers], 1e-5) == pytest.approx(9.24, abs=0.03)
    assert 4.4 < epsilon_pld([answers], 1e-5) < 9.24


def test_one_shard_is_the_plain_gaussian() -> None:
    alone = epsilon_pld([ShardedAnswers(shards=1, noise_multiplier=2.0)], 1e-5)
    assert alone == pytest.approx(epsilon_pld([GaussianSum(noise_multiplier=2.0)], 1e-5), rel=1e-4)


def test_sums_over_teachers_are_plain_gaussians() -> None:
    asked = ShardedSums(shards=50, rounds=9, noise_multiplier=6.0)
    assert epsilon_pld([asked], 1e-5) == pytest.approx(epsilon_pld([GaussianSum(noise_multiplier=2.0)], 1e-5), rel=1e-4)
    assert epsilon_rdp([asked], 1e-5) == pytest.approx(epsilon_rdp([GaussianSum(noise_multiplier=2.0)], 1e-5), rel=1e-4)


def test_pure_choices_compose() -> None:
    assert epsilon_pld([NoisyChoice(noise_multiplier=2.0)], 1e-9) == pytest.approx(0.5, abs=2e-4)
    assert epsilon_pld([NoisyChoice(noise_multiplier=2.0, rounds=2)], 1e-9) == pytest.approx(1.0, abs=4e-4)

"""Each Guarantee sentence of the privacy core, and of the public page, as a check that raises when it does not hold.

tests/privacy runs them on the real core; tests/teeth breaks the core on purpose and requires that they notice.

Checks that draw real noise state their probability of a false alarm: RARE for each single test of a law. There are
about 25 of them, so all together ring for nothing less than once in 10^8 runs.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import itertools
import json
import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from sfumato.errors import BudgetExceeded, SfumatoError, UsageError, VerificationFailed
from sfumato.files import unfinished_name
from sfumato.privacy import (
    LATTICE_BITS,
    Budget,
    Descent,
    FinishedLedger,
    GaussianSum,
    Ledger,
    Noise,
    NoisyChoice,
    PrivateImages,
    Recording,
    SeededNoise,
    ShardedAnswers,
    ShardedSums,
    Tape,
    channel,
    descend,
    epsilon_pld,
    noisy_gradient,
    recalled_images,
    shards,
)
from sfumato.privacy import accounting as accounting_module
from sfumato.privacy.rows import bound_rows
from sfumato.report import confined

from toys import ToySource, opened, query_keeps_alive, toy

CHECKS: dict[str, Callable[[], None]] = {}
LOUD = 5.0  # a noise multiplier that leaves the sums readable
RARE = 1e-10  # the probability of a false alarm of one test of a law


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__] = function
    return function


def flat(image: torch.Tensor, _label: torch.Tensor) -> torch.Tensor:
    return image.flatten()


def replayed(run: Callable[[PrivateImages], object], data: ToySource, neighbour: ToySource) -> Recording:
    """Run on data, then on its neighbour with the same answers."""
    recording = Recording()
    for source, (noise, tape) in ((data, recording.recorder()), (neighbour, recording.player())):
        run(PrivateImages.seal(source, Ledger(Budget(math.inf, 1e-5)), noise=noise, tape=tape))
    return recording


def hostile_rows() -> dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]:
    return {
        "plain": flat,
        "huge": lambda image, label: image.flatten() * 1e6,
        "overflowing": lambda image, label: image.flatten() * 1e38 * 1e3,
        "not a number": lambda image, label: torch.where(image.mean() > 0.999, torch.nan, image.flatten()),
        "infinite": lambda image, label: image.flatten() / torch.where(image.mean() > 0.999, 0.0, 1.0),
        "subnormal": lambda image, label: image.flatten() * 1e-42,
    }


@check
def one_record_changes_a_sum_by_at_most_its_bound() -> None:
    data = toy()
    data.pixels[1] = 255  # the one record whose row is not finite
    for name, rows in hostile_rows().items():
        for record in (0, 1, 119):
            for ask in ("plain", "per_class"):

                def run(private: PrivateImages, rows: object = rows, ask: str = ask) -> None:
                    query = private.open(GaussianSum(noise_multiplier=LOUD), purpose="rows")
                    answer = query(rows, l2_bound=0.7) if ask == "plain" else query.per_class(rows, l2_bound=0.7)
                    assert np.isfinite(answer.numpy()).all()

                recording = replayed(run, data, data.without(record))
                assert not recording.violations, (name, record, recording.violations)
                if name in ("plain", "huge"):
                    assert recording.worst > 0.9, "the check must come near the bound to mean something"


@check
def a_row_of_millions_of_values_is_within_its_bound() -> None:
    """Wide rows on which float32 norms come out too small, or whose rounding adds most."""
    width = 4_000_000
    # here each of so many equal values, once clipped, lies just above a step: rounded to nearest it falls, rounded up
    # it would lengthen the row by almost a step each, and only half a step is allowed for
    awkward = int((2.0**LATTICE_BITS / 523.52) ** 2)
    for name, values in {
        # to the square of the large ones, 2^24, a float32 cannot add the 1 of the others
        "eight large values before many small ones": torch.where(torch.arange(width) < 8, 4100.0, 1.0),
        "sixteen of them": torch.where(torch.arange(width) < 16, 3000.0, 1.0),
        "equal values": torch.full((width,), 1.0),
        "equal values, just above a step of the lattice": torch.full((awkward,), 1.0),
    }.items():
        for rows in (values[None], -values[None]):
            kept = bound_rows(rows.clone(), torch.ones(1, dtype=torch.bool), 1.0, clip=True)
            length = float(kept.double().square().sum().sqrt()) / 2.0**LATTICE_BITS
            assert length <= 1, f"{name}: {length:.6f} of the bound"
            assert length > 0.99, f"{name}: the check must come near the bound to mean something"


@check
def bounds_and_noise_beyond_float_precision_are_refused() -> None:
    """Bounds whose squares underflow or overflow in float32, and noise beyond the integers of a float64."""
    for l2_bound in (1e-25, 0.0, -1.0, 1e-10, 1e10, math.inf, math.nan):
        query = opened(toy(6), GaussianSum(noise_multiplier=LOUD))
        with pytest.raises(UsageError, match="l2_bound"):
            query(flat, l2_bound=l2_bound)
        teachers = PrivateImages.seal(toy(6), Ledger(Budget(math.inf, 1e-5))).teach(
            ShardedAnswers(shards=2, noise_multiplier=LOUD), purpose="t", model=ShardSum()
        )
        with pytest.raises(UsageError, match="l2_bound"):
            teachers(torch.ones(1), l2_bound=l2_bound)
    for noise_multiplier in (1e9, 1e13, 1e300):
        with pytest.raises(UsageError, match="noise_multiplier"):
            GaussianSum(noise_multiplier=noise_multiplier)
        with pytest.raises(UsageError, match="float64"):
            Noise().lattice_gaussian(4, noise_multiplier * 2.0**LATTICE_BITS)
    for largest in (GaussianSum(noise_multiplier=1e8), ShardedAnswers(noise_multiplier=1e8)):
        reach = 2.0**LATTICE_BITS * (8**0.5 if isinstance(largest, GaussianSum) else 2)
        drawn = Noise().lattice_gaussian(1000, largest.noise_multiplier * reach)
        assert len(set((drawn % 4).tolist())) == 4, "the last bits are covered"  # else once in 4 * 0.75^1000


@check
def one_record_changes_a_sum_of_features_by_at_most_its_bound() -> None:
    """An absent record has a blank image, whose features need not be blank: they must not count."""
    data = toy()

    def run(private: PrivateImages) -> None:
        features = private.mapped(lambda image: 4 * image - 2)  # of a blank image the opposite of a white one's
        features.open(GaussianSum(noise_multiplier=LOUD), purpose="features")(flat, l2_bound=0.7)

    data.pixels[1] = 255
    for record in (0, 1):
        recording = replayed(run, data, data.without(record))
        assert not recording.violations, (record, recording.violations)
        assert recording.worst > 0.9, "the check must come near the bound to mean something"


@check
def one_record_changes_one_bin_of_a_histogram_by_one() -> None:
    data = toy()

    def run(private: PrivateImages) -> None:
        query = private.open(GaussianSum(noise_multiplier=0.01), purpose="votes")
        votes = query.histogram(lambda image, label: (image.mean() * 20).long() - 8, bins=5)  # some fall outside
        assert votes.shape == (5,)
        inside = (data.pixels.reshape(120, -1).mean(1) / 255 * 20).astype(int) - 8
        expected = [(inside == k).sum() for k in range(5)]
        assert np.abs(votes.numpy() - expected).max() < 1.5

    for record in range(3):
        recording = replayed(run, data, data.without(record))
        assert not recording.violations, recording.violations


@check
def data_is_streamed_and_does_not_fill_the_memory() -> None:
    script = """
import resource, sys
import numpy as np, torch
from pathlib import Path
from sfumato.privacy import Budget, GaussianSum, Ledger, PrivateImages
from sfumato.values import Spec

class Big:
    name, spec = "big", Spec(20_000, 3, 64, 64, ("a",))
    def chunks(self):
        for _ in range(20):
            yield np.full((1000, 3, 64, 64), 7, np.uint8), np.zeros(1000, np.int64)

def peak():
    return next(int(l.split()[1]) for l in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in l) / 1024

torch.set_num_threads(1)
row = lambda image, label: image.mean((1, 2))
warm = PrivateImages.seal(type("Warm", (Big,), {"spec": Spec(10, 3, 64, 64, ("a",)), "chunks": lambda self: iter(
    [(np.zeros((10, 3, 64, 64), np.uint8), np.zeros(10, np.int64))])})(), Ledger(Budget(float("inf"), 1e-6)))
warm.open(GaussianSum(noise_multiplier=1.0), purpose="warm")(row, l2_bound=1.0)
before = peak()
private = PrivateImages.seal(Big(), Ledger(Budget(float("inf"), 1e-6)), folder=Path(sys.argv[1]))
private.open(GaussianSum(noise_multiplier=1.0), purpose="big", microbatch=256)(row, l2_bound=1.0)
print(peak() - before)
"""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-c", script, folder], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 120, f"246 MB of images took {done.stdout.strip()} MB of memory"


@check
def microbatches_do_not_change_the_sum() -> None:
    data = toy()
    sums = []
    for microbatch in (1, 7, 120):
        private = PrivateImages.seal(data, Ledger(Budget(math.inf, 1e-5)))
        query = private.open(GaussianSum(noise_multiplier=0.0), purpose="m", microbatch=microbatch)
        sums.append(query(lambda image, label: torch.tanh(image.flatten()), l2_bound=1.0))
    assert torch.allclose(sums[0], sums[1], atol=1e-4)
    assert torch.allclose(sums[0], sums[2], atol=1e-4)


class InTurn:
    """A crew without workers: the shards of a toy, one after the other."""

    def __init__(self, data: ToySource, cuts: tuple[int, ...]) -> None:
        edges = (0, *cuts, len(data.labels))
        self._shards = [
            ToySource(data.pixels[a:b], data.labels[a:b], data.spec.classes) for a, b in itertools.pairwise(edges)
        ]
        self.spec, self.counts = data.spec, tuple(shard.spec.count for shard in self._shards)

    def add_up(self, question: shards.Question, included: Sequence[np.ndarray]) -> np.ndarray:
        parts = zip(self._shards, included, strict=True)
        return sum(shards.streamed(shard, question, part) for shard, part in parts)  # type: ignore[return-value]

    def close(self) -> None:
        pass


@check
def a_sum_over_shards_equals_the_sum_in_one_place_with_noise_added_once() -> None:
    data = toy()
    for cuts in ((), (50,), (1, 60, 119)):
        for rate in (1.0, 0.5):
            noise = SeededNoise(7)
            crew = InTurn(data, cuts)
            private = PrivateImages.seal(crew, Ledger(Budget(math.inf, 1e-5)), noise=noise)
            query = private.open(GaussianSum(noise_multiplier=LOUD, sampling=rate), purpose="rows")
            answered = query.per_class(flat, l2_bound=0.7)
            whole = PrivateImages.seal(data, Ledger(Budget(math.inf, 1e-5)), noise=SeededNoise(7))
            known = whole.open(GaussianSum(noise_multiplier=LOUD, sampling=rate), purpose="rows")
            assert torch.equal(answered, known.per_class(flat, l2_bound=0.7)), (cuts, rate)
            assert noise._bits(4).tolist() == whole_noise(whole).tolist(), "as much noise was drawn as in one place"


@check
def a_message_is_accepted_only_from_the_other_end_in_this_order_and_meeting() -> None:
    nonces = (channel.fresh_nonce(), channel.fresh_nonce(), channel.fresh_nonce())

    def end(
        *, driver: bool, secret: bytes = b"s" * 16, rank: int = 1, ranks: int = 3, nonces: Sequence[bytes] = nonces
    ) -> channel.Channel:
        return channel.Channel(secret, nonces[0], nonces[1], rank=rank, ranks=ranks, driver=driver)

    driver, worker = end(driver=True), end(driver=False)
    sent = [driver.seal(message) for message in (b"first", b"second")]
    assert b"first" not in sent[0], "what is sent can be read"
    wrong = {
        "another secret": end(driver=True, secret=b"t" * 16).seal(b"first"),
        "another rank": end(driver=True, rank=2).seal(b"first"),
        "another size of crew": end(driver=True, ranks=4).seal(b"first"),
        "another meeting, by the driver's nonce": end(driver=True, nonces=(nonces[2], nonces[1])).seal(b"first"),
        "another meeting, by the worker's nonce": end(driver=True, nonces=(nonces[0], nonces[2])).seal(b"first"),
        "the same end": end(driver=False).seal(b"first"),
        "a later message": sent[1],
        "a changed message": bytes([sent[0][0] ^ 1]) + sent[0][1:],
        "a changed tag": sent[0][:-1] + bytes([sent[0][-1] ^ 1]),
        "a shortened message": sent[0][:-1],
        "nothing": b"",
    }
    for name, sealed in wrong.items():
        with pytest.raises(VerificationFailed):
            pytest.fail(f"{name} was opened: {worker.open(sealed)!r}")
    assert [worker.open(sealed) for sealed in sent] == [b"first", b"second"]
    with pytest.raises(VerificationFailed):
        worker.open(sent[1])  # again
    assert driver.open(worker.seal(b"answer")) == b"answer"


def whole_noise(private: PrivateImages) -> np.ndarray:
    from sfumato.privacy.private import unlock

    return unlock(private).noise._bits(4)


@check
def noise_is_independent_between_rounds_and_between_charges() -> None:
    """Sum and difference of two independent normals of equal spread are so, too: an exact F-test of their spreads."""
    blank = ToySource(np.zeros((10, 1, 16, 16)), np.full(10, -1))
    for mechanism in (
        GaussianSum(rounds=12, noise_multiplier=3.0),
        GaussianSum(rounds=12, noise_multiplier=3.0, sampling=0.5),
    ):
        private = PrivateImages.seal(blank, Ledger(Budget(math.inf, 1e-5)))
        answered = []
        for charge in range(4):
            query = private.open(mechanism, purpose=f"charge {charge}")
            answered.append([query(flat, l2_bound=2.0).numpy() for _ in range(mechanism.rounds)])
        draws = np.array(answered) / 6.0  # (charges, rounds, values)
        for name, first, second in (
            ("round 2k and 2k + 1", draws[:, :-1:2], draws[:, 1::2]),
            ("round 2k + 1 and 2k + 2", draws[:, 1:-1:2], draws[:, 2::2]),
            ("the two halves of the rounds", draws[:, :6], draws[:, 6:]),
            ("charges", draws[::2], draws[1::2]),
        ):
            size = first.size
            ratio = float(np.square(first + second).sum() / max(np.square(first - second).sum(), 1e-300))
            odds = 2 * min(stats.f.cdf(ratio, size, size), stats.f.sf(ratio, size, size))
            assert odds > RARE, f"noise of {name} depends on each other (p = {odds:.1e})"
        assert len({values.tobytes() for rounds in answered for values in rounds}) == 48, "the same noise twice"


@check
def a_query_samples_each_record_once_at_the_declared_rate() -> None:
    """Seen through the answers: each record has a value of its own, and the noise is too small to hide it."""
    count, rate, rounds = 64, 0.25, 400
    data = ToySource(np.arange(count).reshape(count, 1, 1, 1), np.zeros(count), ("a",))
    query = opened(data, GaussianSum(rounds=rounds, sampling=rate, noise_multiplier=0.02))

    def own(image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return (torch.arange(count) == (image.flatten() * 255).round()).float()

    answered = torch.stack([query(own, l2_bound=1.0) for _ in range(rounds)]).numpy()
    uses = np.rint(answered)
    assert np.abs(answered - uses).max() < 0.2, "noise of ten standard deviations"  # 4e-19 for all values together
    assert set(uses.flatten().tolist()) <= {0.0, 1.0}, "a record is in a round once or not at all"
    assert stats.binomtest(int(uses.sum()), uses.size, rate).pvalue > RARE, f"rate {uses.mean():.4f}, not {rate}"
    again = int((uses[:-1:2] * uses[1::2]).sum())  # the same record in two rounds
    assert stats.binomtest(again, uses[::2].size, rate**2).pvalue > RARE, "the samples of two rounds are related"


@check
def the_noise_has_the_declared_size() -> None:
    blank = ToySource(np.zeros((10, 1, 32, 32)), np.full(10, -1))
    for mechanism in (GaussianSum(noise_multiplier=3.0), GaussianSum(noise_multiplier=3.0, sampling=0.5)):
        draws = torch.cat([opened(blank, mechanism)(flat, l2_bound=2.0).flatten() for _ in range(40)]).numpy()
        chi = float(np.sum((draws / 6.0) ** 2))
        p = 2 * min(stats.chi2.cdf(chi, draws.size), stats.chi2.sf(chi, draws.size))
        assert p > RARE, f"noise sd is {draws.std() / 6:.3f} of the declared one (p = {p:.1e})"
        assert stats.kstest(draws / draws.std(), "norm").pvalue > RARE


@check
def answers_lie_on_the_lattice() -> None:
    data = toy()
    answer = opened(data, GaussianSum(noise_multiplier=LOUD))(flat, l2_bound=1.0).numpy()
    steps = answer * 2.0**LATTICE_BITS * 8  # the mean of eight integers
    assert (steps == np.rint(steps)).all()


@check
def records_are_sampled_independently_at_the_declared_rate() -> None:
    count, rate, rounds = 2000, 0.1, 400
    drawn = np.stack([Noise().included(count, rate) for _ in range(rounds)])
    total = int(drawn.sum())
    assert stats.binomtest(total, count * rounds, rate).pvalue > RARE
    sizes = drawn.sum(1)
    spread = float(((sizes - count * rate) ** 2).sum() / (count * rate * (1 - rate)))
    assert 2 * min(stats.chi2.cdf(spread, rounds), stats.chi2.sf(spread, rounds)) > RARE, "not Poisson sampling"
    pairs = int((drawn[:, ::2] & drawn[:, 1::2]).sum())
    assert stats.binomtest(pairs, drawn[:, ::2].size, rate**2).pvalue > RARE


@check
def an_empty_sample_is_pure_noise() -> None:
    query = opened(toy(3), GaussianSum(rounds=200, sampling=1e-12, noise_multiplier=1.0))  # empty but once in 10^9
    answers = torch.stack([query(flat, l2_bound=1.0) for _ in range(200)])
    assert answers.shape == (200, 16)
    means = float(answers.mean(0).square().sum()) * 200  # of 200 standard normals each
    assert stats.chi2.sf(means, 16) > RARE, "some record was let in"
    size = float(answers.square().sum())
    assert 2 * min(stats.chi2.cdf(size, 3200), stats.chi2.sf(size, 3200)) > RARE


@check
def noise_is_fresh_in_every_process_and_after_a_fork() -> None:
    noise = Noise()
    first = noise.lattice_gaussian(4, 1e9)  # equal by chance once in 10^38
    assert not np.array_equal(first, Noise().lattice_gaussian(4, 1e9))
    # a process number that was used before looks, to the copy of a process, like its own
    for number in (os.getpid, lambda: 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "getpid", number)
            noise.lattice_gaussian(4, 1e9)
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                os.write(write, noise.lattice_gaussian(4, 1e9).tobytes())
                os.write(write, noise.included(256, 0.5).tobytes())
                os._exit(0)
            os.waitpid(child, 0)
            theirs = np.frombuffer(os.read(read, 32), dtype=np.int64)
            their_sample = np.frombuffer(os.read(read, 256), dtype=bool)
            os.close(read), os.close(write)
            ours = noise.lattice_gaussian(4, 1e9)
            our_sample = noise.included(256, 0.5)  # equal by chance once in 10^77
        assert not np.array_equal(theirs, ours), "a copy of a process repeats its noise"
        assert not np.array_equal(their_sample, our_sample), "a copy of a process draws the same records"


@check
def a_question_is_charged_before_data_is_read() -> None:
    order: list[str] = []

    class WatchedLedger(Ledger):
        def charge(self, mechanism: object, *, purpose: str) -> object:
            result = super().charge(mechanism, purpose=purpose)
            order.append("charge")
            return result

        def begin(self, charge: object, draws: int) -> None:
            super().begin(charge, draws)
            order.append("begin")

    class WatchedNoise(Noise):
        def included(self, count: int, rate: float) -> np.ndarray:
            order.append("touch")
            return super().included(count, rate)

        def lattice_gaussian(self, count: int, scale: float) -> np.ndarray:
            order.append("noise")
            return super().lattice_gaussian(count, scale)

    private = PrivateImages.seal(toy(), WatchedLedger(Budget(math.inf, 1e-5)), noise=WatchedNoise())
    private.open(GaussianSum(noise_multiplier=LOUD), purpose="order")(flat, l2_bound=1.0)
    assert order == ["charge", "touch", *["begin", "noise"] * 8], order


@check
def a_question_beyond_the_budget_is_refused_before_anything_is_written() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger"
        ledger = Ledger(Budget(1.0, 1e-5), path)
        (fits,) = ledger.calibrate(GaussianSum())
        ledger.charge(fits, purpose="all of it")
        before = path.read_bytes()
        with pytest.raises(BudgetExceeded):
            ledger.charge(GaussianSum(noise_multiplier=100.0), purpose="one more")
        with pytest.raises(BudgetExceeded):
            ledger.charge(GaussianSum(noise_multiplier=0.0), purpose="without noise")
        assert path.read_bytes() == before


@check
def no_more_rounds_than_were_charged() -> None:
    for mechanism in (
        GaussianSum(rounds=3, noise_multiplier=LOUD),
        GaussianSum(rounds=3, noise_multiplier=LOUD, sampling=0.5),
    ):
        query = opened(toy(), mechanism)
        for _ in range(3):
            query(flat, l2_bound=1.0)
        with pytest.raises(BudgetExceeded):
            query(flat, l2_bound=1.0)


@check
def a_ledger_keeps_every_charge_when_its_process_ends() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger"
        ledger = Ledger(Budget(5.0, 1e-5), path)
        charge = ledger.charge(GaussianSum(noise_multiplier=LOUD), purpose="first")
        for _ in range(3):
            ledger.begin(charge, 1)
        ledger.close()
        again = Ledger(Budget(5.0, 1e-5), path)
        assert [c.purpose for c in again.charges] == ["first"]
        assert again.unbegun(charge) == 5
        again.close()


@check
def a_damaged_ledger_is_refused() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger"
        ledger = Ledger(Budget(5.0, 1e-5), path)
        charge = ledger.charge(GaussianSum(noise_multiplier=LOUD), purpose="first")
        for _ in range(3):
            ledger.begin(charge, 1)
        ledger.close()
        whole = path.read_bytes()
        lines = whole.splitlines(keepends=True)
        flipped = [whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :] for i in range(0, len(whole) - 1, 7)]
        dropped = [b"".join(lines[:i] + lines[i + 1 :]) for i in range(len(lines) - 1)]
        swapped = [b"".join([*lines[:2], lines[3], lines[2], *lines[4:]])]
        for damaged in [*flipped, *dropped, *swapped]:
            path.write_bytes(damaged)
            with pytest.raises((VerificationFailed, UsageError)):
                Ledger(Budget(5.0, 1e-5), path)


@check
def a_torn_record_counts_as_begun() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger"
        ledger = Ledger(Budget(5.0, 1e-5), path)
        charge = ledger.charge(GaussianSum(noise_multiplier=LOUD), purpose="first")
        ledger.begin(charge, 1)
        before = path.stat().st_size
        ledger.begin(charge, 1)
        ledger.close()
        whole = path.read_bytes()
        for cut in range(before + 1, len(whole)):
            path.write_bytes(whole[:cut])
            torn = Ledger(Budget(5.0, 1e-5), path)
            assert torn.unbegun(charge) <= 6
            torn.close()


@check
def a_handle_has_no_access_to_records() -> None:
    private = PrivateImages.seal(toy(), Ledger(Budget(1.0, 1e-5)))
    attempts: list[Callable[[], object]] = [
        lambda: len(private),
        lambda: list(private),
        lambda: private[0],
        lambda: np.asarray(private),
        lambda: pickle.dumps(private),
        lambda: copy.copy(private),
        lambda: copy.deepcopy(private),
        lambda: private.pixels,
        lambda: private._pixels,
        lambda: vars(private),
        lambda: private.__dict__,
    ]
    for attempt in attempts:
        with pytest.raises((TypeError, AttributeError)):
            attempt()
    assert {name for name in dir(private) if not name.startswith("__")} == {
        "_refuse",
        "choose",
        "close",
        "ledger",
        "mapped",
        "open",
        "seal",
        "spec",
        "teach",
    }


@check
def a_closed_handle_answers_nothing_and_holds_no_records() -> None:
    with tempfile.TemporaryDirectory() as folder:
        private = PrivateImages.seal(toy(), Ledger(Budget(1e6, 1e-5)), folder=Path(folder))
        query = private.open(GaussianSum(rounds=2, noise_multiplier=LOUD), purpose="before")
        query(flat, l2_bound=1.0)
        mapped = private.mapped(lambda image: image / 2)
        features = mapped.open(GaussianSum(rounds=2, noise_multiplier=LOUD), purpose="features")
        features(flat, l2_bound=1.0)
        assert mapped_copies(folder) == 2, "images and features lie in files of their own"
        assert not list(Path(folder).glob("sealed*")), "a killed process would leave its working copy behind"
        private.close()
        for attempt in (
            lambda: query(flat, l2_bound=1.0),
            lambda: private.open(GaussianSum(noise_multiplier=LOUD), purpose="after"),
            lambda: features(flat, l2_bound=1.0),
            lambda: mapped.open(GaussianSum(noise_multiplier=LOUD), purpose="after"),
            lambda: private.mapped(lambda image: image),
        ):
            with pytest.raises(SfumatoError):
                attempt()
        assert mapped_copies(folder) == 0


def mapped_copies(folder: str) -> int:
    """Files of the folder that this process has mapped, with a name or without."""
    return sum(folder in line for line in Path("/proc/self/maps").read_text().splitlines())


@check
def a_killed_process_leaves_no_pixels_on_disk() -> None:
    """Killed while the working copy is written, and after it."""
    marker = bytes(range(1, 17)) * 4
    for after in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            data = ToySource(np.frombuffer(marker * 60, np.uint8).reshape(60, 1, 8, 8), np.zeros(60))

            def chunks(data: ToySource = data, after: bool = after) -> Iterator[tuple[np.ndarray, np.ndarray]]:
                yield data.pixels[:50], data.labels[:50]
                if not after:
                    os.kill(os.getpid(), signal.SIGKILL)
                yield data.pixels[50:], data.labels[50:]

            data.chunks = chunks
            child = os.fork()
            if child == 0:
                PrivateImages.seal(data, Ledger(Budget(1.0, 1e-5)), folder=Path(folder))
                os.kill(os.getpid(), signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
            left = [p for p in Path(folder).rglob("*") if p.is_file() and marker in p.read_bytes()]
            assert not left, f"pixels were left in {left}"


@check
def a_feature_depends_on_its_own_image_alone() -> None:
    def brighter(image: torch.Tensor) -> torch.Tensor:
        return 2 * image

    data = toy(6)
    data.pixels[3] = 255
    total = np.zeros(16)
    for record in range(6):
        alone = toy(6)
        alone.pixels[:] = data.pixels
        alone.labels[np.arange(6) != record] = -1
        private = PrivateImages.seal(alone, Ledger(Budget(math.inf, 1e-5)))
        query = private.mapped(brighter).open(GaussianSum(noise_multiplier=0.0), purpose="one")
        total += query(flat, l2_bound=1.0).numpy()
        query_keeps_alive.append(private)
    private = PrivateImages.seal(data, Ledger(Budget(math.inf, 1e-5)))
    together = private.mapped(brighter).open(GaussianSum(noise_multiplier=0.0), purpose="all")
    assert np.allclose(together(flat, l2_bound=1.0).numpy(), total, atol=1e-4)
    seen: list[torch.Size] = []
    private.mapped(lambda image: (seen.append(image.shape), image)[1])
    assert set(seen) == {torch.Size((1, 4, 4))}, "a feature map saw a batch"


@check
def a_contribution_sees_one_image_and_cannot_keep_it() -> None:
    kept: list[torch.Tensor] = []

    def greedy(image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        assert image.shape == (1, 4, 4)
        kept.append(image)
        return image.flatten()

    opened(toy(), GaussianSum(noise_multiplier=LOUD))(greedy, l2_bound=1.0)
    with pytest.raises((RuntimeError, ValueError)):
        kept[-1].sum().item()
    with pytest.raises((RuntimeError, ValueError)):
        kept[-1].numpy()


@check
def a_gradient_is_bounded_after_averaging_over_its_multiplicity() -> None:
    data = toy()
    by_fast_path = torch.nn.Sequential(torch.nn.Flatten(0), torch.nn.Linear(16, 3))
    by_reference = torch.nn.Sequential(
        torch.nn.Flatten(0), torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(16, 3))
    )

    def loss(call: Callable[..., torch.Tensor], image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(100 * call(image + torch.randn_like(image)), label)

    for sampling, model in itertools.product((1.0, 0.5), (by_fast_path, by_reference)):

        def run(private: PrivateImages, sampling: float = sampling, model: torch.nn.Module = model) -> None:
            torch.manual_seed(0)  # the rows' own randomness, not the noise
            query = private.open(GaussianSum(noise_multiplier=LOUD, sampling=sampling), purpose="gradients")
            noisy_gradient(query, model, loss, l2_bound=0.5, multiplicity=4)

        recordings = [replayed(run, data, data.without(record)) for record in range(3)]
        assert not [v for r in recordings for v in r.violations]
        if sampling == 1:  # of a sample, any of the three may be left out
            assert max(r.worst for r in recordings) > 0.9


class Beside:
    """A companion whose loss is on a public image."""

    def loss(self, model: torch.nn.Module) -> torch.Tensor:
        return model(torch.ones(1, 16)).square().sum()

    def step(self, model: torch.nn.Module, step: int) -> None:
        pass

    def state(self) -> dict[str, torch.Tensor]:
        return {}

    def restore(self, state: dict[str, torch.Tensor]) -> None:
        pass


@check
def a_model_changes_by_noisy_gradients_alone_and_only_while_rounds_are_left() -> None:
    def trained(data: ToySource, noise: Noise, tape: Tape) -> torch.nn.Linear:
        private = PrivateImages.seal(data, Ledger(Budget(math.inf, 1e-5)), noise=noise, tape=tape)
        model = torch.nn.Linear(16, 3, bias=False)
        torch.nn.init.zeros_(model.weight)
        query = private.open(GaussianSum(rounds=5, noise_multiplier=LOUD, sampling=0.5), purpose="descent")
        loss = lambda call, image, label: call(image.flatten()[None]).square().sum() - call(image.flatten()[None])[0, 0]  # noqa: E731
        descend(query, model, lambda _: loss, Descent(l2_bound=0.5, rate=0.1), what="test", companion=Beside())
        with pytest.raises(BudgetExceeded):
            noisy_gradient(query, model.requires_grad_(), loss, l2_bound=0.5)
        return model

    data, recording = toy(), Recording()
    first = trained(data, *recording.recorder())
    again = trained(data.without(2), *recording.player())
    assert not recording.violations
    assert len(recording.answers) == 5
    assert torch.equal(first.weight, again.weight)  # the same answers, so the same model, whatever the data
    assert first.weight.abs().max() > 0


class ShardSum:
    """A teacher that knows the sum of its shard, pixels and labels, many times over, and answers with it."""

    answers_from = ("sum",)

    def begin(self, number: int) -> dict[str, torch.Tensor]:
        return {"sum": torch.zeros(16)}

    def learn(self, state: dict, images: torch.Tensor, labels: torch.Tensor, present: torch.Tensor, public) -> dict:
        # careless: does not look at `present`
        return {"sum": images.sum(0).flatten() * 100 + (labels * torch.arange(1, len(labels) + 1)).sum() + public.sum()}

    def answer(self, state: dict, query: torch.Tensor) -> torch.Tensor:
        return state["sum"] * query


@check
def an_answer_comes_from_one_independently_drawn_shard() -> None:
    data = toy(41)  # not a multiple of four: some shards have an empty place
    data.labels[0] = 2  # the record that an empty place would show

    def run(private: PrivateImages) -> None:
        teachers = private.teach(
            ShardedAnswers(shards=4, rounds=400, noise_multiplier=LOUD), purpose="t", model=ShardSum()
        )
        teachers.learn(torch.zeros(1))
        teachers(torch.ones(400), l2_bound=1.0)

    recording = replayed(run, data, data.without(7))
    assert not recording.violations, recording.violations
    exact = recording.answers[0][3]
    for record in (0, 7):
        other = Recording()
        noise, tape = recording.player()[0], other.recorder()[1]
        run(PrivateImages.seal(data.without(record), Ledger(Budget(math.inf, 1e-5)), noise=noise, tape=tape))
        changed = (other.answers[0][3] != exact).any(1)
        drawn = dict(recording.draws)["shards"]
        assert len(set(drawn[changed])) == 1, "a record reaches one teacher only"
    distinct = {tuple(row) for row in exact.tolist()}
    assert len(distinct) == 4, "four teachers on disjoint shards give four answers"
    uses = np.array([sum(tuple(row) == d for row in exact.tolist()) for d in distinct])
    assert stats.chisquare(uses).pvalue > RARE, "teachers are not drawn uniformly"
    again = PrivateImages.seal(data, Ledger(Budget(1e6, 1e-5)))
    teachers = again.teach(ShardedAnswers(shards=4, rounds=3, noise_multiplier=LOUD), purpose="t", model=ShardSum())
    teachers.learn(torch.zeros(1))
    with pytest.raises(BudgetExceeded):
        teachers(torch.ones(4), l2_bound=1.0)
    teachers(torch.ones(3), l2_bound=1.0)
    with pytest.raises(BudgetExceeded):
        teachers(torch.ones(1), l2_bound=1.0)


@check
def a_record_moves_one_term_of_a_sum_over_teachers() -> None:
    """Whatever a teacher says, and however long it is: the sum moves by at most twice the bound."""
    data = toy(41)

    def run(private: PrivateImages) -> None:
        asked = ShardedSums(shards=4, rounds=9, noise_multiplier=LOUD)
        teachers = private.teach(asked, purpose="t", model=ShardSum())
        teachers.learn(torch.zeros(1))
        teachers(torch.tensor([1e9, -1.0, 1e-3]), l2_bound=0.5)
        for _ in range(2):
            teachers.learn(torch.zeros(1), records=4)
            teachers(torch.tensor([-1.0, 1e-9, 1.0]), l2_bound=0.5)

    for record in (0, 7, 40):
        recording = replayed(run, data, data.without(record))
        assert not recording.violations, (record, recording.violations)
    assert [len(answer[3]) for answer in recording.answers] == [3, 3, 3]
    sums = recording.answers[0][3].astype(float) / 2.0**LATTICE_BITS
    assert 3.5 < np.linalg.norm(sums[0]) <= 4, "four bounded vectors that nearly agree"
    private = PrivateImages.seal(data, Ledger(Budget(1e6, 1e-5)))
    teachers = private.teach(ShardedSums(shards=4, rounds=3, noise_multiplier=LOUD), purpose="t", model=ShardSum())
    teachers.learn(torch.zeros(1))
    teachers(torch.ones(3), l2_bound=1.0)
    with pytest.raises(BudgetExceeded):
        teachers(torch.ones(1), l2_bound=1.0)


@check
def a_killed_run_of_teachers_goes_on_from_its_checkpoint() -> None:
    """No answer is drawn twice, and those behind a checkpoint stay counted."""
    asked = ShardedAnswers(shards=4, rounds=12, noise_multiplier=LOUD)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for expected in (0, 2):
            ledger = Ledger(Budget(1e6, 1e-5), folder / "ledger")
            private = PrivateImages.seal(toy(), ledger, folder=folder)
            teachers = private.teach(asked, purpose="t", model=ShardSum())
            assert teachers.rounds == 12
            begun, state = teachers.resumed()
            assert begun == expected
            assert state == {} if not begun else torch.equal(state["x"], torch.ones(3))
            for _ in range(begun, 2 if not begun else 4):
                teachers.learn(torch.zeros(1))
                teachers(torch.ones(3), l2_bound=1.0)
            teachers.checkpoint({"x": torch.ones(3)})
            assert not list((folder / "tape").glob("*.npz")), "the answers are replaced"
            private.close()
            ledger.close()
        ledger = Ledger(Budget(1e6, 1e-5), folder / "ledger")
        private = PrivateImages.seal(toy(), ledger, folder=folder)
        teachers = private.teach(asked, purpose="t", model=ShardSum())
        teachers.resumed()
        with pytest.raises(BudgetExceeded):
            teachers(torch.ones(1), l2_bound=1.0)
        private.close()
        ledger.close()


@check
def the_shards_are_disjoint_and_cover_all_records() -> None:
    from sfumato.privacy.teachers import _deal

    for count, teachers in ((40, 4), (41, 4), (3, 5)):
        dealt = _deal(np.random.default_rng(0).permutation(count), teachers).numpy()
        records = dealt[dealt >= 0]
        assert sorted(records) == list(range(count))
        assert dealt.shape[0] == teachers


@check
def a_record_adds_from_zero_to_one_to_every_score() -> None:
    """Whatever `score` returns, and only upwards: scores that could fall by one would double epsilon."""
    data = toy(12)
    data.pixels[5] = 255

    def score(image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        plain = torch.stack([image.mean(), -image.mean(), image.mean() - 0.5, torch.tensor(-1e9), torch.tensor(1e9)])
        return torch.where(image.mean() == 1, torch.tensor([0.25, -1.0, -torch.inf, 7.0, 1.0]), plain)

    def totals(source: ToySource) -> np.ndarray:
        recording = Recording()
        noise, tape = recording.recorder()
        private = PrivateImages.seal(source, Ledger(Budget(math.inf, 1e-5)), noise=noise, tape=tape)
        private.choose(NoisyChoice(candidates=5, noise_multiplier=1.0), purpose="c", score=score)
        return recording.answers[0][3][0] / 2.0**LATTICE_BITS

    whole = totals(data)
    for record in range(12):
        added = whole - totals(data.without(record))
        assert ((added >= 0) & (added <= 1)).all(), f"record {record} adds {added}"
        assert record == 5 or added[4] == 1, "the check must reach the bound to mean something"


@check
def a_noisy_choice_has_the_declared_distribution() -> None:
    data, epsilon = toy(12), 1.0

    def score(image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return torch.stack([torch.where(label == 0, 1e9, 0.0), torch.tensor(0.0)])  # unbounded on purpose

    wins = {}
    only = ToySource(data.pixels[:1], np.zeros(1))
    for name, source in (("with", only), ("without", only.without(0))):
        picks = []
        for _ in range(1500):
            private = PrivateImages.seal(source, Ledger(Budget(1e6, 1e-5)))
            picks.append(
                private.choose(NoisyChoice(candidates=2, noise_multiplier=1 / epsilon), purpose="c", score=score)
            )
        wins[name] = 1500 - sum(picks)
    low = stats.binomtest(wins["with"], 1500).proportion_ci(1 - RARE).low
    high = stats.binomtest(wins["without"], 1500).proportion_ci(1 - RARE).high
    assert low <= math.exp(epsilon) * high, (wins, "one record moves the choice too much")
    expected = math.e / (1 + math.e)  # the exponential mechanism with one unit of score
    assert stats.binomtest(wins["with"], 1500, expected).pvalue > RARE


@check
def epsilon_is_never_below_the_closed_form() -> None:
    for noise in (0.5, 1.0, 4.0, 20.0):
        for delta, rounds in ((1e-5, 1), (1e-8, 1), (1e-5, 4)):
            claimed = accounting_module.epsilon_pld([GaussianSum(noise_multiplier=noise, rounds=rounds)], delta)
            mu = rounds**0.5 / noise
            assert gaussian_delta(claimed, mu) <= delta * (1 + 1e-6), (noise, delta)
            assert gaussian_delta(claimed * 0.999 - 1e-4, mu) > delta, "far from tight"


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Balle and Wang (2018), Theorem 8."""
    return float(stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu))


@check
def a_calibrated_plan_stays_within_the_budget() -> None:
    for epsilon in (1.0, 10.0):
        ledger = Ledger(Budget(epsilon, 1e-5))
        first = ledger.calibrate(GaussianSum(share=1.0), GaussianSum(rounds=50, sampling=0.1, share=3.0))
        assert epsilon * 0.999 <= epsilon_pld(first, 1e-5) <= epsilon
        ledger.charge(first[0], purpose="one")
        (rest,) = ledger.calibrate(GaussianSum(rounds=50, sampling=0.1))
        assert rest.noise_multiplier == pytest.approx(first[1].noise_multiplier, rel=1e-3), "the rest buys the rest"


@check
def invalid_mechanisms_and_budgets_are_refused() -> None:
    for made in (
        lambda: GaussianSum(rounds=0),
        lambda: GaussianSum(rounds=-1),
        lambda: GaussianSum(rounds=10**9),
        lambda: GaussianSum(sampling=0.0),
        lambda: GaussianSum(sampling=1.5),
        lambda: GaussianSum(sampling=math.nan),
        lambda: GaussianSum(noise_multiplier=-1.0),
        lambda: GaussianSum(noise_multiplier=math.inf),
        lambda: GaussianSum(noise_multiplier=1e9),
        lambda: GaussianSum(noise_multiplier=math.nan),
        lambda: GaussianSum(share=0.0),
        lambda: NoisyChoice(candidates=1),
        lambda: ShardedAnswers(shards=0),
        lambda: ShardedSums(shards=0),
        lambda: Budget.of(0, count=100),
        lambda: Budget.of(-1, count=100),
        lambda: Budget.of(math.nan, count=100),
        lambda: Budget.of(1, count=100, delta=0.0),
        lambda: Budget.of(1, count=100, delta=0.01),
        lambda: Budget.of(1, count=100, delta=1.0),
        lambda: Budget.of(1, count=100, delta=math.nan),
        lambda: Budget.of(1, count=100, delta=1e-300),
    ):
        with pytest.raises(UsageError):
            made()
    assert [Budget.of(1, count=n).delta for n in (1, 100, 5000, 60_000, 10**6)] == pytest.approx(
        [1e-5, 1e-5, 1e-5, 1e-5, 1e-7]
    )


@check
def the_tape_holds_no_exact_sums() -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = toy()
        private = PrivateImages.seal(data, Ledger(Budget(1e6, 1e-5)), folder=Path(folder))
        answer = private.open(GaussianSum(noise_multiplier=LOUD), purpose="x")(flat, l2_bound=1.0)
        (path,) = (Path(folder) / "tape").iterdir()
        with np.load(path) as kept:
            on_tape = kept["total"] * 2.0**-LATTICE_BITS / kept["draws"]
        assert np.allclose(on_tape, answer.numpy())
        unit = data.pixels.reshape(120, 16) / 255
        exact = (unit / np.maximum(1, np.linalg.norm(unit, axis=1, keepdims=True))).sum(0)
        size = float(np.square((on_tape - exact) / LOUD).sum())
        assert stats.chi2.cdf(size, 16) > RARE, "what is on the tape lies too near the exact sum"


@check
def a_rolled_back_ledger_is_refused() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ledger = Ledger(Budget(1e6, 1e-5), folder / "ledger")
        private = PrivateImages.seal(toy(), ledger, folder=folder)
        query = private.open(GaussianSum(noise_multiplier=LOUD), purpose="x")
        old = (folder / "ledger").read_bytes()
        query(flat, l2_bound=1.0)
        ledger.close()
        (folder / "ledger").write_bytes(old)
        rolled_back = PrivateImages.seal(toy(), Ledger(Budget(1e6, 1e-5), folder / "ledger"), folder=folder)
        with pytest.raises(VerificationFailed):
            rolled_back.open(GaussianSum(noise_multiplier=LOUD), purpose="x")


@check
def a_checkpoint_counts_the_draws_of_the_answers_that_it_replaces() -> None:
    mechanism = GaussianSum(rounds=40, noise_multiplier=LOUD, sampling=0.5)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ledger = Ledger(Budget(1e6, 1e-5), folder / "ledger")
        query = (private := PrivateImages.seal(toy(), ledger, folder=folder)).open(mechanism, purpose="x")
        for _ in range(16):
            query(flat, l2_bound=1.0)
        old = (folder / "ledger").read_bytes()
        for _ in range(5):
            last = query(flat, l2_bound=1.0)
        query.checkpoint({"last": last})
        assert [path.name for path in (folder / "tape").iterdir()] == ["0000.checkpoint"]
        private.close()
        ledger.close()
        new = (folder / "ledger").read_bytes()

        try:
            resumed = PrivateImages.seal(toy(), Ledger(Budget(1e6, 1e-5), folder / "ledger"), folder=folder)
            query = resumed.open(mechanism, purpose="x")
        except VerificationFailed as refusal:
            raise AssertionError("ledger and checkpoint of an honest run do not agree on what was drawn") from refusal
        assert query.rounds == 21 + 8  # 32 draws were begun: eleven are lost, eight are left
        rounds, state = query.resumed()
        assert rounds == 21
        assert torch.equal(state["last"], last)
        for _ in range(8):
            assert not torch.equal(query(flat, l2_bound=1.0), last)  # a new question, with noise of its own
        with pytest.raises(BudgetExceeded):
            query(flat, l2_bound=1.0)
        resumed.ledger.close()

        for path in (folder / "tape").glob("*.npz"):
            path.unlink()
        for rolled_back, refused in ((old, True), (new, False)):  # the checkpoint alone shows what was drawn
            (folder / "ledger").write_bytes(rolled_back)
            private = PrivateImages.seal(toy(), Ledger(Budget(1e6, 1e-5), folder / "ledger"), folder=folder)
            with pytest.raises(VerificationFailed) if refused else contextlib.nullcontext():
                private.open(mechanism, purpose="x")
            private.ledger.close()


@check
def a_resumed_query_repeats_its_answers_and_counts_what_was_lost() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, mechanism = Path(name), GaussianSum(rounds=40, sampling=0.5, noise_multiplier=LOUD)

        def start() -> tuple[Ledger, object]:
            ledger = Ledger(Budget(math.inf, 1e-5), folder / "ledger")
            private = PrivateImages.seal(toy(), ledger, folder=folder)
            query_keeps_alive.append(private)
            return ledger, private.open(mechanism, purpose="rounds")

        ledger, query = start()
        assert query.rounds == 40
        first = [query(flat, l2_bound=1.0) for _ in range(20)]  # two blocks of sixteen are begun by now
        ledger.close()  # as if killed here
        ledger, query = start()
        assert query.rounds == 28, "twenty answers on the tape, twelve lost with their block, eight left"
        again = [query(flat, l2_bound=1.0) for _ in first[:8]]
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=False))
        again += [query(flat, l2_bound=1.0) for _ in first[8:]]
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
        again += [query(flat, l2_bound=1.0) for _ in range(8)]
        assert len({tuple(a.tolist()) for a in again}) == 28
        with pytest.raises(BudgetExceeded):
            query(flat, l2_bound=1.0)
        ledger.close()


ASKED = (GaussianSum(noise_multiplier=LOUD), GaussianSum(rounds=20, sampling=0.5, noise_multiplier=LOUD))


def best_of_two(image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    return torch.stack([image.mean(), 1 - image.mean()])


def ask_everything(private: PrivateImages) -> list[torch.Tensor]:
    """Every kind of question, one after the other."""
    answers = [private.open(ASKED[0], purpose="whole").per_class(flat, l2_bound=1.0)]
    sampled = private.open(ASKED[1], purpose="sampled")
    answers += [sampled(flat, l2_bound=1.0) for _ in range(sampled.rounds)]
    features = private.mapped(lambda image: image[:, :2] / 2).open(ASKED[0], purpose="features")
    answers.append(features(flat, l2_bound=1.0))
    choice = private.choose(NoisyChoice(candidates=2, noise_multiplier=LOUD), purpose="choice", score=best_of_two)
    teachers = private.teach(
        ShardedAnswers(shards=4, rounds=3, noise_multiplier=LOUD), purpose="teachers", model=ShardSum()
    )
    teachers.learn(torch.zeros(1))
    drawn = teachers(torch.ones(3), l2_bound=1.0)
    summing = private.teach(
        ShardedSums(shards=4, rounds=3, noise_multiplier=LOUD), purpose="all teachers", model=ShardSum()
    )
    summing.learn(torch.zeros(1))
    summed = summing(torch.ones(3), l2_bound=1.0)
    return [*answers, torch.tensor(choice), drawn, summed]


def recorded(folder: Path) -> tuple[list[torch.Tensor], Callable[[], PrivateImages], dict[str, bytes]]:
    """A finished run: the answers it got, a handle on its answers alone, and its files."""
    budget, ledger = Budget(math.inf, 1e-5), Ledger(Budget(math.inf, 1e-5), folder / "ledger")
    private = PrivateImages.seal(toy(), ledger, folder=folder)
    answered = ask_everything(private)
    private.close()
    ledger.close()

    def again() -> PrivateImages:
        return recalled_images(toy().spec, FinishedLedger(budget, folder / "ledger"), Tape(folder / "tape"))

    return answered, again, {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@check
def recalled_answers_are_the_recorded_ones_alone() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        answered, again, files = recorded(folder)
        repeated = ask_everything(again())
        assert all(torch.equal(a, b) for a, b in zip(answered, repeated, strict=True))

        def walked() -> PrivateImages:
            private = again()
            ask_everything(private)
            return private

        def other_size(private: PrivateImages) -> object:
            return private.open(ASKED[0], purpose="whole")(flat, l2_bound=1.0)  # was asked for each class

        attempts: list[Callable[[], object]] = [
            lambda: walked().open(ASKED[0], purpose="one more"),
            lambda: walked().choose(NoisyChoice(candidates=2, noise_multiplier=9.0), purpose="c", score=best_of_two),
            lambda: again().open(GaussianSum(noise_multiplier=2 * LOUD), purpose="whole"),
            lambda: again().open(ASKED[0], purpose="something else"),
            lambda: other_size(again()),
            lambda: again().ledger.assume("Something new."),
            lambda: again().ledger.begin(again().ledger.charges[0], 1),
        ]
        for attempt in attempts:
            with pytest.raises(SfumatoError):
                attempt()
        assert {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()} == files


@check
def an_answer_that_was_not_recorded_is_refused() -> None:
    for missing in (
        "0000-00000000",
        "0001-00000007",
        "0002-00000000",
        "0003-00000000",
        "0004-00000000",
        "0005-00000000",
    ):
        with tempfile.TemporaryDirectory() as name:
            _, again, _ = recorded(Path(name))
            (Path(name) / "tape" / f"{missing}.npz").unlink()
            private = again()
            begun = [private.ledger.unbegun(charge) for charge in private.ledger.charges]
            with pytest.raises(VerificationFailed, match="was not asked"):
                ask_everything(private)
            assert private.ledger._requested == int(missing[:4]) + 1, "refused later than it was asked"
            assert [private.ledger.unbegun(charge) for charge in private.ledger.charges] == begun


@check
def an_unfinished_ledger_is_recognised_and_a_torn_one_refused_unchanged() -> None:
    with tempfile.TemporaryDirectory() as name:
        path, budget = Path(name) / "ledger", Budget(5.0, 1e-5)
        ledger = Ledger(budget, path)
        charge = ledger.charge(GaussianSum(noise_multiplier=LOUD), purpose="first")
        assert not closed_and_read(ledger, path).finished
        for _ in range(8):
            ledger = Ledger(budget, path)
            ledger.begin(charge, 1)
            assert closed_and_read(ledger, path).finished == (ledger.unbegun(charge) == 0)
        whole = path.read_bytes()
        for damaged in (whole[:-9], b"", whole[:40]):
            path.write_bytes(damaged)
            with pytest.raises(VerificationFailed):
                FinishedLedger(budget, path)
            assert path.read_bytes() == damaged


def closed_and_read(ledger: Ledger, path: Path) -> FinishedLedger:
    ledger.close()
    return FinishedLedger(ledger.budget, path)


@check
def a_public_page_is_built_from_its_release_alone() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        release, lab, page = folder / "r", folder / "r.lab", folder / "page.html"
        (release / "data").mkdir(parents=True)
        lab.mkdir()
        for path, text in ((release / "inside", "public"), (lab / "ledger", "private"), (folder / "list", "private")):
            path.write_text(text)
        (release / "link").symlink_to(lab / "ledger")
        (release / "data" / "lab").symlink_to(lab)
        forbidden: dict[str, Callable[[], object]] = {
            "a file of the lab": lambda: (lab / "ledger").read_bytes(),
            "a file beside": lambda: (folder / "list").read_bytes(),
            "a link": lambda: (release / "link").read_bytes(),
            "a file behind a linked folder": lambda: (release / "data" / "lab" / "ledger").read_bytes(),
            "a way up": lambda: (release / ".." / "r.lab" / "ledger").read_bytes(),
            "a handle": lambda: os.open(os.fsencode(lab / "ledger"), os.O_RDONLY),
            "the names in the lab": lambda: list(lab.iterdir()),
            "the names here": os.listdir,
            "the release, to write": lambda: (release / "inside").write_text("other"),
            "another page": lambda: (folder / "other.html").write_text("public"),
            "a moved file": lambda: (folder / "list").rename(page),
            "a second name": lambda: os.link(lab / "ledger", page),
            "a removed file": lambda: (lab / "ledger").unlink(),
            "a socket": socket.socket,
            "a program": lambda: subprocess.run([sys.executable, "-c", ""], check=False),
            "a shell": lambda: os.system("true"),
            "a fork": lambda: os.fork() or os._exit(0),
            "a foreign library": lambda: ctypes.CDLL(None),
        }
        allowed: dict[str, Callable[[], object]] = {
            "a file of the release": lambda: (release / "inside").read_bytes(),
            "the names in the release": lambda: list(release.iterdir()),
            "a template": lambda: Path(confined.__file__).with_name("public.html.jinja").read_bytes(),
            "the page": lambda: unfinished_name(page).write_text("public"),
            "its name": lambda: unfinished_name(page).replace(page),
        }
        came = shut_in(release, page, forbidden | allowed)
        assert came == dict.fromkeys(forbidden, "refused") | dict.fromkeys(allowed, "done"), came
        assert page.read_text() == "public"
        assert sorted(p.name for p in folder.iterdir()) == ["list", "page.html", "r", "r.lab"]


def shut_in(release: Path, page: Path, attempts: dict[str, Callable[[], object]]) -> dict[str, str]:
    """What becomes of attempts in a process that is confined for ever; a fork has our mutants, too."""

    def outcome(attempt: Callable[[], object]) -> str:
        try:
            attempt()
        except VerificationFailed as error:
            return "refused" if error.what.startswith("Expected a page made of its release alone") else error.what
        except BaseException as error:
            return repr(error)
        return "done"

    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        confined.confine(release, page)
        os.write(write, json.dumps({name: outcome(attempt) for name, attempt in attempts.items()}).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        came: dict[str, str] = json.loads(pipe.read() or "{}")
    os.waitpid(child, 0)
    return came

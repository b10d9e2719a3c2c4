"""Checks in a minute, before private data is opened, whether the core behaves on this machine as in its tests.

Everything runs on made-up data. Some checks are then repeated with a noise source that is broken on purpose, for that
check alone, to show that the check can fail.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.auditing.audit import audit_method, reference_findings
from sfumato.auditing.canaries import REFERENCE, Claim, audit_sums
from sfumato.auditing.observer import (
    Finding,
    RunObserver,
    independent_finding,
    normal_finding,
    sampling_finding,
    verdict,
)
from sfumato.errors import BudgetExceeded
from sfumato.privacy import (
    LATTICE_BITS,
    Budget,
    Charge,
    GaussianSum,
    Ledger,
    Mechanism,
    Noise,
    PrivateImages,
    Recording,
    SeededNoise,
    epsilon_pld,
)
from sfumato.release.recount import gaussian_epsilon, recount
from sfumato.values import Spec

CONFIDENCE = 0.999


def selfcheck() -> list[Finding]:
    """Check everything that the guarantee depends on; nothing private is opened and nothing is left behind."""
    found: list[Finding] = []
    for check in (_entropy, _noise, _independence, _lattice, _bounds, _sampler, _order, _ledger, _accountants):
        found.append(_tried(check))
    found += reference_findings(CONFIDENCE)
    found += audit_method("dp-merf", parts=("replay", "noise", "ledger"), kinds=("the last record", "a white outlier"))
    planted = (_halved_noise, _shuffled_batches, _repeated_noise, _repeated_rounds)
    return [*found, *(_tried(check) for check in planted)]


def _tried(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - whatever a broken core raises, the other checks still run
        return Finding(check.__name__.strip("_"), False, f"it failed: {type(error).__name__}: {error}")


class _Records:
    """Sixty-four random pictures in two classes; some can be turned into others, or into nothing."""

    name, spec = "selfcheck", Spec(64, 1, 4, 4, ("a", "b"))

    def __init__(self, changed: dict[int, tuple[int, int]] | None = None) -> None:
        self.pixels = np.random.default_rng(0).integers(0, 256, (64, 1, 4, 4), np.uint8)
        self.labels = np.arange(64) % 2
        for record, (grey, label) in (changed or {}).items():
            self.pixels[record], self.labels[record] = grey, label

    def chunks(self):  # type: ignore[no-untyped-def]
        yield self.pixels, self.labels


def _sealed(
    source: _Records, *, epsilon: float = math.inf, ledger: Ledger | None = None, observer: RunObserver | None = None
) -> PrivateImages:
    noise, tape = (observer or RunObserver()).pair()
    return PrivateImages.seal(source, ledger or Ledger(Budget(epsilon, 1e-5)), noise=noise, tape=tape)


def _flat(image: Tensor, label: Tensor) -> Tensor:
    return image.flatten()


def _wide(image: Tensor, label: Tensor) -> Tensor:
    return image.flatten().repeat(32)


def _entropy(make: Callable[[], Noise] = Noise) -> Finding:
    """Two sources never agree, and a forked process does not continue its parent's stream."""
    noise = make()
    problems: list[str] = []
    noise.lattice_gaussian(4, 1e6)
    if np.array_equal(make().lattice_gaussian(4, 1e6), make().lattice_gaussian(4, 1e6)):
        problems.append("two sources of noise give the same numbers")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, noise.lattice_gaussian(4, 1e6).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = np.frombuffer(os.read(read, 32), dtype=np.int64)
    os.close(read)
    os.close(write)
    if np.array_equal(theirs, noise.lattice_gaussian(4, 1e6)):
        problems.append("a forked process repeats our noise")
    return verdict("entropy", problems, "fresh in every source and after a fork", {})


def _noise() -> Finding:
    """Pure noise has the size and the shape that were charged, sampled or not."""
    nobody = _Records(dict.fromkeys(range(64), (0, -1)))
    drawn = []
    for mechanism in (
        GaussianSum(rounds=60, noise_multiplier=3.0),
        GaussianSum(rounds=60, sampling=0.5, noise_multiplier=3.0),
    ):
        private = _sealed(nobody)
        query = private.open(mechanism, purpose="noise")
        drawn += [query(_wide, l2_bound=2.0).numpy() / 6.0 for _ in range(60)]
    return normal_finding("noise size", np.concatenate(drawn))


def _independence(make: Callable[[], Noise] = Noise) -> Finding:
    """Rounds and charges share no noise, sampled or not."""
    nobody = _Records(dict.fromkeys(range(64), (0, -1)))
    drawn = []
    for mechanism in (
        GaussianSum(rounds=12, noise_multiplier=3.0),
        GaussianSum(rounds=12, sampling=0.5, noise_multiplier=3.0),
    ):
        private = _sealed(nobody, observer=RunObserver(make()))
        for charge in range(2):
            query = private.open(mechanism, purpose=f"independence {charge}")
            drawn.append([query(_wide, l2_bound=2.0).numpy() / 6.0 for _ in range(mechanism.rounds)])
    return independent_finding("independent rounds", drawn)


def _lattice() -> Finding:
    """Answers are whole numbers of lattice steps, so that their low-order bits leak nothing."""
    private = _sealed(_Records())
    answer = private.open(GaussianSum(noise_multiplier=5.0), purpose="lattice")(_flat, l2_bound=1.0)
    steps = answer.numpy() * 2.0**LATTICE_BITS * GaussianSum().draws
    off = int((steps != np.rint(steps)).sum())
    return verdict("lattice", [f"{off} answers lie off the lattice"] if off else [], "every answer lies on it", {})


def _bounds() -> Finding:
    """Whatever a record and its row are, a sum moves by at most the bound."""
    rows: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "plain": _flat,
        "huge": lambda image, label: image.flatten() * 1e6,
        "overflowing": lambda image, label: image.flatten() * 1e38 * 1e3,
        "not a number": lambda image, label: torch.where(image.mean() > 0.999, torch.nan, image.flatten()),
        "infinite": lambda image, label: image.flatten() / torch.where(image.mean() > 0.999, 0.0, 1.0),
        "subnormal": lambda image, label: image.flatten() * 1e-42,
    }
    problems, worst = list[str](), 0.0
    for name, row in rows.items():
        recording = Recording()
        for label, pair in ((0, recording.recorder()), (-1, recording.player())):
            private = _sealed(_Records({5: (255, label)}), observer=RunObserver(*pair))
            answer = private.open(GaussianSum(noise_multiplier=5.0), purpose="rows").per_class(row, l2_bound=0.7)
            problems += [] if bool(torch.isfinite(answer).all()) else [f"{name} rows: an answer is not finite"]
        problems += [f"{name} rows: {v}" for v in recording.violations]
        worst = max(worst, recording.worst)
    if worst < 0.9:
        problems.append("no record moved a sum by nearly its bound, so this check shows nothing")
    return verdict("bounded rows", problems, f"{worst:.4f} of the bound at most, {len(rows)} kinds of row", {})


def _sampler(make: Callable[[], Noise] = Noise) -> Finding:
    noise = make()
    return sampling_finding("sampler", np.stack([noise.included(2_000, 0.1) for _ in range(300)]), 0.1)


class _WatchedLedger(Ledger):
    def __init__(self, budget: Budget, path: Path, order: list[str]) -> None:
        super().__init__(budget, path)
        self._order = order
        self._path = path

    def charge(self, mechanism: Mechanism, *, purpose: str = "") -> Charge:
        charge = super().charge(mechanism, purpose=purpose)
        self._order.append("charge" if purpose in self._path.read_text() else "charge in memory only")
        return charge

    def begin(self, charge: Charge, draws: int) -> None:
        before = self._path.stat().st_size
        super().begin(charge, draws)
        self._order.append("begin" if self._path.stat().st_size > before else "begin in memory only")


class _WatchedNoise(Noise):
    def __init__(self, order: list[str]) -> None:
        super().__init__()
        self._order = order

    def included(self, count: int, rate: float) -> NDArray[np.bool_]:
        self._order.append("touch")
        return super().included(count, rate)

    def lattice_gaussian(self, count: int, scale: float) -> NDArray[np.int64]:
        self._order.append("noise")
        return super().lattice_gaussian(count, scale)


def _order() -> Finding:
    """On disk: charged before data is touched, marked before noise is drawn."""
    order: list[str] = []
    with tempfile.TemporaryDirectory(prefix="sfumato-selfcheck-") as folder:
        ledger = _WatchedLedger(Budget(math.inf, 1e-5), Path(folder) / "ledger", order)
        private = PrivateImages.seal(_Records(), ledger, noise=_WatchedNoise(order))
        private.open(GaussianSum(noise_multiplier=5.0), purpose="order")(_flat, l2_bound=1.0)
        ledger.close()
    expected = ["charge", "touch", *["begin", "noise"] * 8]
    problems = [] if order == expected else [f"the order was {', '.join(order)}"]
    return verdict("charge before touch", problems, "on disk before data is touched, marked before noise is drawn", {})


def _ledger() -> Finding:
    """A ledger outlives its process, counts what was begun, and refuses what it cannot pay."""
    problems: list[str] = []
    with tempfile.TemporaryDirectory(prefix="sfumato-selfcheck-") as folder:
        path, budget = Path(folder) / "ledger", Budget(2.0, 1e-5)
        ledger = Ledger(budget, path)
        charge = ledger.charge(GaussianSum(noise_multiplier=3.0), purpose="first")
        for _ in range(3):
            ledger.begin(charge, 1)
        ledger.close()
        again = Ledger(budget, path)
        if [c.purpose for c in again.charges] != ["first"] or again.unbegun(charge) != 5:
            problems.append("a reopened ledger has forgotten what was spent")
        try:
            again.charge(again.charges[0].mechanism, purpose="first")  # a resumed run asks again for what it has
            again.charge(GaussianSum(noise_multiplier=1.0), purpose="too much")
            problems.append("a charge beyond the budget was taken")
        except BudgetExceeded:
            pass
        finally:
            again.close()
    return verdict("ledger", problems, "remembers across processes and refuses what it cannot pay", {})


def _accountants() -> Finding:
    """The accountant is never below the closed form, and the second accountant agrees."""
    problems, worst = list[str](), 0.0
    for noise, rounds in ((0.7, 1), (1.0, 4), (4.0, 1), (20.0, 9)):
        mechanism = GaussianSum(noise_multiplier=noise, rounds=rounds)
        claimed, exact = epsilon_pld([mechanism], 1e-5), gaussian_epsilon(math.sqrt(rounds) / noise, 1e-5)
        worst = max(worst, claimed / exact - 1)
        if not exact * (1 - 1e-9) <= claimed <= exact * 1.002 + 1e-3:
            problems.append(f"epsilon {claimed:.5f} where the closed form says {exact:.5f}")
    sampled = GaussianSum(noise_multiplier=1.5, rounds=40, sampling=0.1)
    claimed, again = epsilon_pld([sampled], 1e-5), recount([sampled.to_dict()], 1e-5)
    if abs(claimed - again) > 0.01 * again + 3e-3:
        problems.append(f"epsilon {claimed:.4f}, by the second accountant {again:.4f}")
    fine = f"within {worst:.1e} of the closed form, and {claimed:.4f} against {again:.4f} for a sampled sum"
    return verdict("accountants", problems, fine, {"claimed": claimed, "recounted": again})


class _Halved(Noise):
    def lattice_gaussian(self, count: int, scale: float) -> NDArray[np.int64]:
        return super().lattice_gaussian(count, scale / 2)


class _Repeating(Noise):
    """Every second draw repeats the one before."""

    def __init__(self) -> None:
        self._last: NDArray[np.int64] | None = None

    def lattice_gaussian(self, count: int, scale: float) -> NDArray[np.int64]:
        last, self._last = self._last, None
        if last is None or last.size != count:
            last = self._last = super().lattice_gaussian(count, scale)
        return last


class _Shuffled(Noise):
    def included(self, count: int, rate: float) -> NDArray[np.bool_]:
        return self.permutation(count) < round(count * rate)


def _halved_noise() -> Finding:
    seen = audit_sums(REFERENCE, claim=Claim.of(REFERENCE), confidence=CONFIDENCE, noise=_Halved())
    return _noticed("halved noise", seen.passed, seen.detail)


def _shuffled_batches() -> Finding:
    seen = _sampler(_Shuffled)
    return _noticed("shuffled batches", seen.passed, seen.detail)


def _repeated_noise() -> Finding:
    seen = _entropy(lambda: SeededNoise(0))
    return _noticed("repeated noise", seen.passed, seen.detail)


def _repeated_rounds() -> Finding:
    seen = _independence(_Repeating)
    return _noticed("repeated rounds", seen.passed, seen.detail)


def _noticed(bug: str, passed: bool, detail: str) -> Finding:
    return Finding(f"notices {bug}", not passed, f"planted, and {'not seen' if passed else 'seen'}: {detail}")

"""Checks on what a certificate claims: its epsilon counted again by two accountants that share no code.

A check that holds says what was counted here and never what the certificate states: a number that is only stated
appears where a check fails, and nowhere else.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Decimal
from importlib.metadata import version
from typing import Any

from sfumato.errors import printable
from sfumato.release.certificate import PrivacyCertificate
from sfumato.release.contents import attempt
from sfumato.release.recount import recount
from sfumato.release.verdict import Check

SAME = 1e-6  # relative difference of one version of one accountant between machines, at most
SMALL = 1e-9  # below such a delta, rounding in the accountant's Fourier transforms matters more
DRIFT = 1e-3  # relative difference between versions of one accountant, at most
SECOND = 0.01  # the second accountant overestimates by up to this much
TINY = 1e-12  # a delta that is understated by less than this is accepted
_FAR_OFF = 1.5  # if the second accountant finds this many times the claim, the slower first one is not run


def rounded_up(value: float, digits: int = 4) -> float:
    """To so many significant digits: what is guaranteed may be shown weaker than it is, not stronger.

    Most epsilons are slightly below a round budget. A value that exceeds a round number by less than the accountant's
    own repeatability is rounded to that number; otherwise a negligible change would change the last digit.
    """
    exact = Decimal(repr(value)) * (1 - 2 * Decimal(repr(SAME)))
    return float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), ROUND_CEILING))


class Claim:
    """Level, noise, budget and delta; then epsilon by both accountants, and the curve.

    `epsilon` and `epsilon_rdp` are what the first accountant counted, rounded up, once `checks` has been asked; None
    where nothing could be counted. Rounded, because edits of a certificate that are too small to notice (the order of
    the mechanisms, one more with enormous noise) change digits that say nothing.
    """

    def __init__(self, certificate: PrivacyCertificate) -> None:
        self._certificate = certificate
        self._guarantee = certificate.guarantee
        self._asked = [m.described() for m in certificate.mechanisms]
        self._claimed = self._guarantee.epsilon or 0.0
        self._second = math.inf  # decides whether the first accountant is asked
        self.epsilon: float | None = None
        self.epsilon_rdp: float | None = None

    def checks(self) -> list[Check]:
        certificate = self._certificate
        checks = [
            attempt("level", lambda: _level(certificate)),
            attempt("noise", lambda: _noise(certificate)),
            attempt("budget", lambda: _budget(certificate)),
            attempt("delta", lambda: _delta(certificate)),
        ]
        if not certificate.certified:
            return checks
        if any(not m["noise_multiplier"] for m in self._asked):  # `noise` has failed: nothing can be counted
            return [*checks, Check("epsilon", False, "not counted: a mechanism without noise has no epsilon")]
        checks.append(attempt("second accountant", self._recount))
        if not self._second <= _FAR_OFF * self._claimed + 0.1:
            return [*checks, Check("epsilon", False, "far below the second accountant's; the first was not asked")]
        return [
            *checks,
            attempt("epsilon", self._first),
            attempt("renyi", self._renyi),
            attempt("curve", self._curve),
        ]

    def _recount(self) -> str | list[str]:
        self._second = recount(self._asked, self._guarantee.delta)
        if self._claimed < self._second * (1 - SECOND) - 1e-3:
            return [f"epsilon is {self._second:.4f} by closed form and FFT where {self._claimed:.4f} is claimed"]
        return f"closed form and FFT find no larger epsilon than is claimed (within {SECOND:.0%})"

    def _first(self) -> str | list[str]:
        from sfumato.privacy import epsilon_pld

        counted = epsilon_pld(self._mechanisms(), self._guarantee.delta)
        if not self._agree(self._claimed, counted):
            return [f"epsilon is {counted:.7g} by privacy-loss distributions where {self._claimed:.7g} is claimed"]
        self.epsilon = rounded_up(counted)
        return f"{self.epsilon:.4g} by privacy-loss distributions from the mechanisms, as claimed"

    def _renyi(self) -> str | list[str]:
        from sfumato.privacy import epsilon_rdp

        claimed = self._guarantee.epsilon_rdp
        counted = epsilon_rdp(self._mechanisms(), self._guarantee.delta)
        if claimed is None or not self._agree(claimed, counted):
            return [f"the Renyi bound is {counted:.7g} where {claimed} is claimed"]
        self.epsilon_rdp = rounded_up(counted)
        return f"the looser bound of {self.epsilon_rdp:.4g} holds, as claimed"

    def _curve(self) -> str | list[str]:
        from sfumato.privacy import profile

        points = self._certificate.profile
        if not points:
            return ["the certificate has no points of the privacy curve"]
        counted = profile(self._mechanisms(), [epsilon for epsilon, _ in points])
        low = [
            f"delta at epsilon {epsilon:.4g} is {true:.3g} where {stated:.3g} is claimed"
            for (epsilon, stated), true in zip(points, counted, strict=True)
            if stated < true * (1 - 10 * DRIFT) - TINY
        ]
        return low or "no stated point of delta(epsilon) is too low"

    def _mechanisms(self) -> list[Any]:
        from sfumato.privacy import mechanism_from_dict

        return [mechanism_from_dict(asked) for asked in self._asked]

    def _agree(self, claimed: float, counted: float) -> bool:
        """Whether a claim is what was counted, as nearly as this accountant repeats itself."""
        repeats = self._guarantee.accounting_version == version("dp-accounting") and self._guarantee.delta >= SMALL
        # an infinite count never agrees, although its tolerance would be infinite too
        return math.isfinite(counted) and abs(claimed - counted) <= (SAME if repeats else DRIFT) * counted


def _level(certificate: PrivacyCertificate) -> str | list[str]:
    if certificate.certified:
        return "certified"
    return ["not-private: the release claims no guarantee"]


def _noise(certificate: PrivacyCertificate) -> str | list[str]:
    problems = [
        f"mechanism {i} ({printable(m.purpose)}) has noise multiplier {m.noise_multiplier}"
        for i, m in enumerate(certificate.mechanisms)
        if not m.noise_multiplier
    ]
    if not certificate.noise.private:
        problems.append(f"the noise can be drawn again (source: {certificate.noise.source})")
    if not certificate.mechanisms:
        problems.append("no mechanism is listed, so nothing was learnt from private data or not all is said")
    return problems or f"positive everywhere; source stated: {certificate.noise.source}"


def _budget(certificate: PrivacyCertificate) -> str | list[str]:
    budget = certificate.budget
    guarantee = certificate.guarantee
    problems = []
    if budget.epsilon is None or guarantee.epsilon is None:
        problems.append("epsilon without limit")
    elif guarantee.epsilon > budget.epsilon * (1 + 1e-6):
        problems.append(f"epsilon {guarantee.epsilon:.6g} is above the budget of {budget.epsilon:.6g}")
    if guarantee.delta != budget.delta:  # delta is chosen and not computed, so the two must be equal
        problems.append(f"delta {guarantee.delta:.7g} is not that of the budget, {budget.delta:.7g}")
    return problems or "the claim is within the budget that is stated"


def _delta(certificate: PrivacyCertificate) -> str | list[str]:
    delta = certificate.guarantee.delta
    count = certificate.public.count
    if delta * count >= 1:
        return [f"delta {delta:.3g} is not below 1/{count}: it would allow publishing whole records"]
    return f"{rounded_up(delta, 3):.3g}, below one over the number of records that is stated"

"""Checks on what a certificate claims: its epsilon counted again by two accountants that share no code."""

from __future__ import annotations

from sfumato.release.certificate import Certificate
from sfumato.release.contents import attempt
from sfumato.release.recount import recount
from sfumato.release.verdict import Check

DRIFT = 1e-3  # versions of one accountant may differ by this much, relatively
SECOND = 0.01  # the second accountant is on the safe side by up to this much
TINY = 1e-12  # a delta understated by less is no news
_HOPELESS = 1.5  # a claim further off than this is not worth the first accountant's time and memory


def check_claim(certificate: Certificate) -> list[Check]:
    """Level, noise, budget and delta; then epsilon by both accountants, and the curve."""
    checks = [
        attempt("level", lambda: _level(certificate)),
        attempt("noise", lambda: _noise(certificate)),
        attempt("budget", lambda: _budget(certificate)),
        attempt("delta", lambda: _delta(certificate)),
    ]
    if not certificate.certified:
        return checks
    asked = [m.described() for m in certificate.mechanisms]
    if any(not m["noise_multiplier"] for m in asked):  # `noise` has failed: no accountant has anything to count
        return [*checks, Check("epsilon", False, "not counted: a mechanism without noise has no epsilon")]
    claimed, second = certificate.guarantee.epsilon or 0.0, _Second(certificate)
    checks.append(attempt("second accountant", second.answer))
    if not second.epsilon <= _HOPELESS * claimed + 0.1:
        return [*checks, Check("epsilon", False, "far below the second accountant's; the first was not asked")]
    return [
        *checks,
        attempt("epsilon", lambda: _first(certificate)),
        attempt("renyi", lambda: _renyi(certificate)),
        attempt("curve", lambda: _curve(certificate)),
    ]


def _level(certificate: Certificate) -> str | list[str]:
    if certificate.certified:
        return "certified"
    return ["not-private: the release claims no guarantee"]


def _noise(certificate: Certificate) -> str | list[str]:
    problems = [
        f"mechanism {i} ({m.purpose}) has noise multiplier {m.noise_multiplier}"
        for i, m in enumerate(certificate.mechanisms)
        if not m.noise_multiplier
    ]
    if not certificate.noise.private:
        problems.append(f"the noise can be drawn again (source: {certificate.noise.source})")
    if not certificate.mechanisms:
        problems.append("no mechanism is listed, so nothing was learnt from private data or not all is said")
    return problems or f"positive everywhere; source stated: {certificate.noise.source}"


def _budget(certificate: Certificate) -> str | list[str]:
    budget, guarantee = certificate.budget, certificate.guarantee
    problems = []
    if budget.epsilon is None or guarantee.epsilon is None:
        problems.append("epsilon without limit")
    elif guarantee.epsilon > budget.epsilon * (1 + 1e-6):
        problems.append(f"epsilon {guarantee.epsilon:.6g} is above the budget of {budget.epsilon:.6g}")
    if guarantee.delta > budget.delta * (1 + 1e-6):
        problems.append(f"delta {guarantee.delta:.3g} is above the budget of {budget.delta:.3g}")
    return problems or f"within epsilon {budget.epsilon:.4g}, delta {budget.delta:.2g}"


def _delta(certificate: Certificate) -> str | list[str]:
    delta, count = certificate.guarantee.delta, certificate.public.count
    if delta * count >= 1:
        return [f"delta {delta:.3g} is not below 1/{count}: it would allow publishing whole records"]
    return f"{delta:.2g}, below one in {count:,} records"


class _Second:
    """The answer of the second accountant, kept because it decides whether the first is asked."""

    def __init__(self, certificate: Certificate) -> None:
        self._guarantee, self._asked = certificate.guarantee, [m.described() for m in certificate.mechanisms]
        self.epsilon = float("inf")

    def answer(self) -> str | list[str]:
        claimed = self._guarantee.epsilon or 0.0
        self.epsilon = recount(self._asked, self._guarantee.delta)
        if claimed < self.epsilon * (1 - SECOND) - 1e-3:
            return [f"epsilon is {self.epsilon:.4f} by closed form and FFT where {claimed:.4f} is claimed"]
        return f"epsilon {self.epsilon:.4f} by closed form and FFT, at most {claimed:.4f} as claimed"


def _first(certificate: Certificate) -> str | list[str]:
    from sfumato.privacy import epsilon_pld, mechanism_from_dict

    mechanisms = [mechanism_from_dict(m.described()) for m in certificate.mechanisms]
    claimed, delta = certificate.guarantee.epsilon or 0.0, certificate.guarantee.delta
    counted = epsilon_pld(mechanisms, delta)
    if abs(claimed - counted) > DRIFT * counted:
        return [f"epsilon is {counted:.4f} by privacy-loss distributions where {claimed:.4f} is claimed"]
    return f"{counted:.4f} by privacy-loss distributions from the mechanisms, {claimed:.4f} claimed"


def _renyi(certificate: Certificate) -> str | list[str]:
    from sfumato.privacy import epsilon_rdp, mechanism_from_dict

    mechanisms = [mechanism_from_dict(m.described()) for m in certificate.mechanisms]
    claimed = certificate.guarantee.epsilon_rdp
    counted = epsilon_rdp(mechanisms, certificate.guarantee.delta)
    if claimed is None or abs(claimed - counted) > DRIFT * counted:
        return [f"the Renyi bound is {counted:.4f} where {claimed} is claimed"]
    return f"the looser bound of {counted:.4f} holds as stated"


def _curve(certificate: Certificate) -> str | list[str]:
    from sfumato.privacy import mechanism_from_dict, profile

    points = certificate.profile
    if not points:
        return ["the certificate has no points of the privacy curve"]
    mechanisms = [mechanism_from_dict(m.described()) for m in certificate.mechanisms]
    counted = profile(mechanisms, [epsilon for epsilon, _ in points])
    low = [
        f"delta at epsilon {epsilon:.4g} is {true:.3g} where {stated:.3g} is claimed"
        for (epsilon, stated), true in zip(points, counted, strict=True)
        if stated < true * (1 - 10 * DRIFT) - TINY
    ]
    return low or f"{len(points)} points of delta(epsilon) hold"

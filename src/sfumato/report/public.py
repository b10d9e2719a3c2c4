"""The public page of one release: what was protected, what that means and how to use it, from its folder alone.

The page is a function of the bytes of the release: no clock, no host, no path and no lab goes in, so that it may lie
wherever the release may. It repeats what the certificate states and checks only that the files hold together;
`sfumato verify` is the check of the claim.
"""

from __future__ import annotations

import json
import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any

from sfumato.errors import EnvironmentProblem, UsageError
from sfumato.files import write_whole

# The modules and not the package, whose `verify` imports the accountants, which this page must not need.
from sfumato.release import layout
from sfumato.release.certificate import Certificate, read_image_certificate
from sfumato.release.contents import check_files, check_pictures
from sfumato.report.public_hidden import hidden_page
from sfumato.report.release_files import refuse_broken, shown_files, template

LARGEST_FACTOR = 1_000_000  # above this a factor is not shown
WEAK = 5.0  # an epsilon above which the page warns that the guarantee is weak
LISTED, NAMED = 100, 50  # classes on the page, class folders in a snippet; more make neither clearer


def write_page_here(release: Path, out: Path) -> Path:
    """Write the page of a release to the file `out`, at once or not at all; the release is read and never changed.

    This is for the confined process alone (`confined.write_public_page`); everything else starts that.
    """
    page = _page(release)
    home = out.absolute().parent.resolve()
    if release.resolve() in (home, *home.parents):
        raise UsageError(
            "Expected a place outside of the release for its page, which is no part of it.",
            where=out,
            fix="choose another file",
        )
    if out.is_dir() or not home.is_dir():
        raise UsageError(
            "Expected the name of a file in a folder that exists for the page.",
            where=out,
            fix="choose another file, such as release.html",
        )
    _write(out, page.encode())
    return out


def _write(out: Path, contents: bytes) -> None:
    try:
        write_whole(out, contents)
    except OSError as error:
        raise EnvironmentProblem(
            f"Expected to write the page, got: {error.strerror or error}.", where=out, fix="check space and permissions"
        ) from error


def _page(release: Path) -> str:
    if not release.is_dir():
        raise UsageError("Expected a release folder, got none.", where=release, fix="check the path")
    return hidden_page(release) if layout.holds_hidden_images(release) else _page_of_certificate(release)


def _page_of_certificate(release: Path) -> str:
    certificate = _certificate(release)
    folders = layout.class_folders(certificate.public.classes)
    return template("public.html.jinja").render(
        **shown_files(release),
        c=certificate,
        title=f"Synthetic images by {certificate.method.name}",
        promise=_promise(certificate) if certificate.certified else None,
        asked=[_asked(asked.model_dump()) for asked in certificate.mechanisms],
        curve=_curve(certificate),
        listed=LISTED,
        folders=json.dumps(folders) if len(folders) <= NAMED else None,
    )


def _certificate(release: Path) -> Certificate:
    """The certificate of a folder that is a release: its files as listed, no others, and a card and picture of it."""
    certificate = read_image_certificate(release)
    refuse_broken(release, (*check_files(release, certificate.kind), *check_pictures(release, certificate)))
    return certificate


def _promise(certificate: Certificate) -> dict[str, Any]:
    """Epsilon and delta in the words of odds; whatever is rounded is rounded against the release."""
    guarantee, budget = certificate.guarantee, certificate.budget
    epsilon = guarantee.epsilon or 0.0
    factor = math.exp(min(epsilon, 300.0))
    rarity = (1 / Decimal(repr(max(guarantee.delta, 1e-18)))).quantize(Decimal(1), ROUND_FLOOR)
    spent = None if not budget.epsilon else min(1.0, epsilon / budget.epsilon)
    return {
        "epsilon": _up(epsilon, 4),
        "factor": _up(factor, 3) if factor <= LARGEST_FACTOR else None,
        "twice": _up(factor**2, 3) if factor**2 <= LARGEST_FACTOR else None,
        "delta": _up(guarantee.delta, 3),
        "rarity": f"1 in {rarity:,}" if guarantee.delta else None,
        "guess": _best_guess([*certificate.profile, (epsilon, guarantee.delta)]),
        "weak": epsilon > WEAK,
        "allowed": None if budget.epsilon is None else _up(budget.epsilon, 4),
        "spent": None if spent is None else round(100 * spent, 1),
    }


def _best_guess(curve: list[tuple[float, float]]) -> str:
    """How often in 100 trials an attacker guesses rightly whether a record was there, at best (Kairouz et al. 2015).

    Every point of the curve bounds it by (e^epsilon + delta) / (e^epsilon + 1); the least bound holds.
    """
    least = min((1 + delta * math.exp(-e)) / (1 + math.exp(-e)) for e, delta in curve)
    return str(min(Decimal(100), Decimal(repr(100 * least)).quantize(Decimal("0.1"), ROUND_CEILING)))


def _up(value: float, digits: int) -> str:
    """Rounded up to so many significant digits: a promise may be shown weaker than it is, never stronger."""
    exact = Decimal(repr(value))
    place = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    rounded = exact.quantize(place, ROUND_CEILING).normalize()
    return f"{rounded:,f}" if rounded == 0 or Decimal("1e-6") <= rounded < Decimal("1e9") else f"{rounded:e}"


def _asked(asked: dict[str, Any]) -> dict[str, str]:
    noise, rounds = asked["noise_multiplier"], asked["rounds"]
    if asked["kind"] == "noisy-choice":
        what = f"The best of {asked['candidates']:,} candidates"
    elif asked["kind"] == "sharded-answers":
        what = f"The answer of one of {asked['shards']:,} models, each trained on a part of its own"
    elif asked["kind"] == "sharded-sums":
        what = f"The sum of the answers of {asked['shards']:,} models, each trained on a part of its own"
    else:
        rate = asked["sampling"]
        what = "A sum over all images" if rate == 1 else f"A sum over a random {100 * rate:.3g} % of the images"
    return {
        "purpose": asked["purpose"],
        "what": what,
        "times": "once" if rounds == 1 else f"{rounds:,} times" + (", each time others" if "random" in what else ""),
        "noise": f"{noise:.4g}" if noise else "",
    }


def _curve(certificate: Certificate) -> dict[str, Any] | None:
    """Where delta(epsilon) runs in a drawing of 380 by 280: the chance to fail falls by powers of ten."""
    guarantee = certificate.guarantee
    stated = [] if guarantee.epsilon is None else [(guarantee.epsilon, guarantee.delta)]
    points = [(e, d) for e, d in sorted([*certificate.profile, *stated]) if d > 1e-30]
    if len(points) < 2 or points[-1][0] < 1e-9:
        return None
    furthest, lowest = points[-1][0], min(-1, math.floor(math.log10(min(d for _, d in points))))

    def across(epsilon: float) -> float:
        return round(70 + 296 * (epsilon / furthest), 1)

    def down(delta: float) -> float:
        return round(28 + 204 * math.log10(delta) / lowest, 1)

    powers = range(0, -lowest + 1, max(1, math.ceil(-lowest / 6)))
    return {
        "points": [(across(e), down(d)) for e, d in points],
        "across": [(across(tick), f"{tick:g}") for tick in _ticks(furthest)],
        "down": [(down(10.0**-power), "1" if power == 0 else f"1 in 10{_raised(power)}") for power in powers],
        "claim": [(across(e), down(d)) for e, d in stated if d > 1e-30],
        "table": [(f"{e:.4g}", _up(d, 3)) for e, d in sorted(certificate.profile)],
    }


def _ticks(furthest: float) -> list[float]:
    rough = furthest / 6
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * nice for nice in (1, 2, 5, 10) if power * nice >= rough)
    return [step * k for k in range(int(furthest / step + 1e-9) + 1)]


def _raised(power: int) -> str:
    return str(power).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))

"""The table of an attack for people: `attacks.md` in the lab folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sfumato.judging.near_duplicates import NEAR_DUPLICATES, describe
from sfumato.lab.folder import NOTICE
from sfumato.values import Score

LIMITS = (
    "Every number here was measured on real records outside the ledger, so all of them are for the lab alone. "
    "They can show copying or memorisation and are not a test of differential privacy: "
    "an attack that fails proves nothing."
)


def attack_table(scores: list[Score], left_out: Mapping[str, str], false_positive_rates: Iterable[float]) -> str:
    """The scores of all attacks as a Markdown table, and a sentence on near duplicates."""
    head = [
        "attack",
        "AUC",
        *(f"TPR at {100 * rate:g} % FPR" for rate in false_positive_rates),
        "epsilon at least",
        "epsilon claimed",
        "above the claim",
    ]
    attacks = [score for score in scores if score.name != NEAR_DUPLICATES]
    body = [_cells(score) for score in attacks]
    lines = [NOTICE, LIMITS, "", _row(head), _row(["---"] * len(head)), *map(_row, body), ""]
    if attacks:
        details = attacks[0].details
        largest = max(score.details["largest_measurable_epsilon"] for score in attacks)
        lines.append(
            "AUC with its standard error, rates with 95 % intervals, "
            f"epsilon at {100 * details['confidence']:g} % confidence and delta {details['claimed_delta']:g}; "
            f"this many candidates cannot show an epsilon above {largest:.2f}."
        )
    if any("*" in cell for cells in body for cell in cells):
        lines.append(
            "\\* Too few records that are not members to measure this: the rate is at no false positive at all."
        )
    for score in scores:
        if score.name == NEAR_DUPLICATES:
            lines += ["", f"Near duplicates: {describe(score)}", ""]
    lines += [f"Left out: {name}, because: {reason}" for name, reason in left_out.items()]
    return "\n".join(lines) + "\n"


def _cells(score: Score) -> list[str]:
    details = score.details
    rates = []
    for rate in details["rates"]:
        shown = f"{100 * rate['value']:.1f} % ({100 * rate['low']:.1f} to {100 * rate['high']:.1f})"
        rates.append(shown if rate["measurable"] else f"{shown} \\*")
    claimed = details["claimed_epsilon"]
    return [
        score.name.removeprefix("attack-"),
        f"{score.value:.3f} ± {score.standard_error:.3f}",
        *rates,
        f"{details['epsilon_lower_bound']:.3f}",
        "none: not private" if claimed is None else f"{claimed:.3f}",
        "YES" if details["above_claim"] else "no",
    ]


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"

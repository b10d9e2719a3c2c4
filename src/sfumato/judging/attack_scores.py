"""What attacks found: the scores of members and of others, judged, and written to the lab as a table and curves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from sfumato.judging.attack_figures import draw_curves
from sfumato.judging.attack_table import attack_table
from sfumato.lab.folder import Lab
from sfumato.lab.scores import Entry, add_scores
from sfumato.statistics.roc import Rate, area, epsilon_bound, rate_at
from sfumato.values import Score

FALSE_POSITIVE_RATES = (0.01, 0.001)


@dataclass(frozen=True, slots=True)
class AttackScores:
    """The scores that an attack gave to members and to others."""

    members: Tensor
    others: Tensor
    settings: Mapping[str, Any]
    details: Mapping[str, Any]


@dataclass
class Results:
    """Scores by attack, and for each attack that does not apply the reason."""

    scores: dict[str, AttackScores]
    left_out: dict[str, str]

    def entries(self, guarantee: Mapping[str, Any]) -> list[Entry]:
        """A score for each attack."""
        return [
            Entry(attack_score(name, found, guarantee), name, "privacy", found.settings)
            for name, found in self.scores.items()
        ]


def write_attacks(lab: Lab, entries: list[Entry], results: Results) -> None:
    """Put the entries into the lab's table, and write `attacks.md` and `attacks.png`."""
    add_scores(lab, entries, judged_on="training records against test records", left_out=results.left_out)
    scores = [entry.score for entry in entries]
    lab.write("attacks.md", attack_table(scores, results.left_out, FALSE_POSITIVE_RATES))
    if results.scores:
        curves = {name: (found.members, found.others) for name, found in results.scores.items()}
        draw_curves(curves, lab.folder / "attacks.png")


def attack_score(name: str, found: AttackScores, guarantee: Mapping[str, Any]) -> Score:
    """The area under the curve, true positive rates at low false positive rates, and a lower bound on epsilon.

    The bound is compared with the epsilon that the certificate's guarantee claims.
    """
    members, others = found.members, found.others
    value, error = area(members, others)
    rates = [rate_at(members, others, false_alarms=rate) for rate in FALSE_POSITIVE_RATES]
    bound = epsilon_bound(members, others, delta=guarantee["delta"])
    claimed = guarantee["epsilon"]
    details = {
        "members": len(members),
        "others": len(others),
        "rates": [asdict(rate) for rate in rates],
        "epsilon_lower_bound": bound.epsilon,
        "confidence": bound.confidence,
        "largest_measurable_epsilon": bound.largest,
        "bound_from": bound.direction,
        "claimed_epsilon": claimed,
        "claimed_delta": guarantee["delta"],
        "above_claim": claimed is not None and bound.epsilon > claimed,
        **found.details,
    }
    parts = tuple(_part(name, rate, len(members)) for rate in rates)
    return Score(f"attack-{name}", value, error, higher_is_better=False, seeds=(0,), details=details, parts=parts)


def _part(name: str, rate: Rate, count: int) -> Score:
    error = (rate.value * (1 - rate.value) / count) ** 0.5
    return Score(
        f"attack-{name}-tpr-at-fpr-{rate.false_alarms:g}",
        rate.value,
        error,
        higher_is_better=False,
        details=asdict(rate),
    )

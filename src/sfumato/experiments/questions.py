"""What a plan asks of private data, for machines and for people: the purpose of each question and its share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sfumato.privacy import Mechanism


def shares(mechanisms: Sequence[Mechanism]) -> list[float | None]:
    """Which part of the budget each question takes: its mu^2 over the sum; None where there is no noise."""
    if any(not mechanism.noise_multiplier for mechanism in mechanisms):
        return [None] * len(mechanisms)
    costs = [(m.unit_noise / m.noise_multiplier) ** 2 for m in mechanisms if m.noise_multiplier]
    return [cost / sum(costs) for cost in costs]


def questions(mechanisms: Sequence[Mechanism]) -> list[dict[str, Any]]:
    """Each question with its purpose, its share of the budget and how it is asked."""
    return [
        {"purpose": mechanism.purpose, "share_of_budget": share, **mechanism.to_dict()}
        for mechanism, share in zip(mechanisms, shares(mechanisms), strict=True)
    ]


def plain_line(question: dict[str, Any]) -> str:
    """Purpose and share, as in `sfumato plan`."""
    share = question["share_of_budget"]
    part = "no noise" if share is None else f"{100 * share:.3g} %"
    return f"  asks    {part:>8s}  {question['purpose'] or question['kind']}"


def technical_line(question: dict[str, Any]) -> str:
    """Mechanism, noise and rounds, for those who want to recount it."""
    details = {k: v for k, v in question.items() if k not in ("purpose", "share_of_budget", "kind", "noise_multiplier")}
    noise = f"noise multiplier {question['noise_multiplier']:.4g}"
    return f"{'':20s}{question['kind']}, {noise}, {', '.join(f'{name} {value}' for name, value in details.items())}"

"""Remove the training records at the highest risk, train again, and measure what remains, in rounds; lab side.

Carlini et al. (2022) call it the privacy onion: when the most vulnerable records are gone, the next become vulnerable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from sfumato import contracts
from sfumato.errors import DataError, NotApplicable, UsageError
from sfumato.judging.exposure import expose_trained, halves, membership_probability
from sfumato.judging.lineup import FEWEST
from sfumato.judging.near_duplicates import without_copies
from sfumato.judging.refitting import joined
from sfumato.lab.folder import NOTICE
from sfumato.metrics.accuracy import Accuracy
from sfumato.metrics.classifier_bias import ClassifierBias
from sfumato.statistics.outputs import log_probability
from sfumato.statistics.roc import area
from sfumato.training.student import outputs
from sfumato.values import Exposed, Images, Reference, Score

Train = Callable[[Images, int], nn.Module]  # records and a seed in, a trained network in eval mode out
Risk = Callable[[nn.Module, Images, Images], Tensor]  # network, members, others -> a number per member, higher: riskier

NOT_PRIVATE = (
    "Removing records by their risk is not private: which records are removed depends on the private data, outside of "
    "any ledger. A network that is trained on the remaining records has no guarantee, whatever its training guarantees "
    "for them, and must not be published under one."
)


@dataclass(frozen=True, slots=True)
class Onion:
    """The mean risk of the records next in rank, before the records ranked above them were removed, and after."""

    records: int
    before: float
    after: float

    @property
    def rise(self) -> float:
        """Above 0: records became more vulnerable because others were removed."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class Round:
    """What a network is worth, and gives away, after some records were removed and it was trained again."""

    removed: int  # records so far
    records: int  # that it was trained on
    accuracy: Score
    bias: Score | None  # None where these images cannot be judged so
    auc: float  # of the attack by loss threshold: all remaining training records against the others
    auc_error: float
    mean_risk: float  # of all remaining training records
    onion: Onion | None  # None before anything was removed


@dataclass(frozen=True, slots=True)
class OutlierStudy:
    """One round without removal and one after each removal; `limit` must be shown with it."""

    rounds: tuple[Round, ...]
    removed: Tensor  # the row numbers of the removed training records, riskiest first within a round
    limit: str = NOT_PRIVATE

    def text(self) -> str:
        """The rounds as a Markdown table, with what they must not be taken for."""
        head = ["removed", "trained on", "accuracy", "bias", "AUC", "mean risk", "next records, before", "after"]
        rows = [_row(head), _row(["---"] * len(head)), *(_row(_cells(done)) for done in self.rounds)]
        return "\n".join([NOTICE, self.limit, "", *rows]) + "\n"


def remove_outliers(
    real: Reference, train: Train, *, each: int, rounds: int = 1, risk: Risk | None = None, seed: int = 0
) -> OutlierStudy:
    """Rank the training records by risk, remove the `each` riskiest, train again, measure all that remain; in rounds.

    Every round trains from scratch with the same seed, so that what changes is due to the records. `risk` is the
    membership probability unless given; see `lira_risk`. A rank by noisy risks is a selection: the risk of the next
    records may also change because it was over- or underestimated.
    """
    others = _check(real, each, rounds)
    risk = risk or membership_risk
    kept = torch.arange(len(real.train))
    gone: list[Tensor] = []
    done: list[Round] = []
    following = kept[:0]  # the records next in rank, and their mean risk, when the last records were removed
    before = 0.0
    for number in range(rounds + 1):
        remaining = real.train.rows(kept)
        network = train(remaining, seed).eval()
        risks = risk(network, remaining, others)
        onion = None
        if number:
            onion = Onion(len(following), before, _mean(risks[torch.isin(kept, following)]))
        done.append(_measured(network, replace(real, train=remaining), others, risks, onion, len(real.train)))
        if number < rounds:
            order = risks.argsort(descending=True, stable=True)
            following, before = kept[order[each : 2 * each]], _mean(risks[order[each : 2 * each]])
            gone.append(kept[order[:each]])
            kept = kept[order[each:].sort().values]
    return OutlierStudy(tuple(done), torch.cat(gone))


def membership_risk(network: nn.Module, members: Images, others: Images) -> Tensor:
    """The membership probability of each member: the share of members among the records of like loss."""
    return membership_probability(expose_trained(network, members, others))[: len(members)]


def lira_risk(train: Train, *, shadows: int = 8, seed: int = 0) -> Risk:
    """LiRA scores of all members, with shadows trained on random halves of members and others, in pairs."""
    if shadows < 2 or shadows % 2:
        raise UsageError(f"Expected an even number of shadows from 2 on, got {shadows}.")

    def risk(network: nn.Module, members: Images, others: Images) -> Tensor:
        exposed = expose_trained(network, members, others)
        pool = joined(members, torch.arange(len(members)), others, torch.arange(len(others)))
        trained_on = halves(len(pool), shadows, torch.Generator().manual_seed(seed))
        answers = [
            outputs(train(pool.rows(half), seed + 1 + number).eval(), pool.pixels)
            for number, half in enumerate(trained_on)
        ]
        exposed = replace(exposed, shadow_logits=torch.stack(answers), shadow_members=trained_on)
        scores: Tensor = contracts.find("attacks", "lira")().score(exposed)
        return scores[: len(members)]

    return risk


def _check(real: Reference, each: int, rounds: int) -> Images:
    """The others: test records that are no training records."""
    if real.test is None:
        raise NotApplicable("Expected a data set with a test split, because risk is judged on records not trained on.")
    if each < 1 or rounds < 1:
        raise UsageError(f"Expected at least 1 round and 1 record to remove in each, got {rounds} and {each}.")
    left = len(real.train) - (rounds + 1) * each  # after the last removal there must be records next in rank
    others = real.test.rows(without_copies(real.test, real.train))
    if min(left, len(others)) < FEWEST:
        raise DataError(
            f"Expected {FEWEST} records beside those removed and those next in rank, and as many test records "
            f"that are no training records; got {max(left, 0)} and {len(others)}.",
            fix="remove fewer records, in fewer rounds, or give more data",
        )
    return others


def _measured(
    network: nn.Module, real: Reference, others: Images, risks: Tensor, onion: Onion | None, all_records: int
) -> Round:
    exposed = expose_trained(network, real.train, others)
    auc, error = area(*_confidences(exposed))
    try:
        bias = ClassifierBias()(lambda pixels: outputs(network, pixels), real)
    except NotApplicable:
        bias = None
    return Round(
        removed=all_records - len(real.train),
        records=len(real.train),
        accuracy=Accuracy()(lambda pixels: outputs(network, pixels), real),
        bias=bias,
        auc=auc,
        auc_error=error,
        mean_risk=_mean(risks),
        onion=onion,
    )


def _confidences(exposed: Exposed) -> tuple[Tensor, Tensor]:
    likely = log_probability(exposed.logits, exposed.labels)
    return likely[exposed.members], likely[~exposed.members]


def _cells(done: Round) -> list[str]:
    def shown(score: Score | None) -> str:
        if score is None:
            return ""
        error = "" if score.standard_error is None else f" ± {score.standard_error:.3f}"
        return f"{score.value:.3f}{error}"

    onion = ["", ""] if done.onion is None else [f"{done.onion.before:.3f}", f"{done.onion.after:.3f}"]
    area_and_risk = [f"{done.auc:.3f} ± {done.auc_error:.3f}", f"{done.mean_risk:.3f}"]
    return [str(done.removed), str(done.records), shown(done.accuracy), shown(done.bias), *area_and_risk, *onion]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _mean(values: Tensor) -> float:
    return float(values.double().mean())

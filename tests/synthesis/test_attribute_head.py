"""The cross-entropy objective by hand, in both readings."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from sfumato.synthesis.attribute_head import AttributeHead

LABELS = torch.tensor([0, 0, 0, 1])
DRAW = torch.Generator()


def head(reading: str) -> AttributeHead:
    made = AttributeHead(2, LABELS, 2, reading=reading, seed=0)
    made.head = nn.Identity()  # features are the logits
    return made


def test_what_adapters_want_is_lowest_where_the_answers_are_the_shares() -> None:
    shares = torch.tensor([[0.75, 0.25]]).log()
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    removing = head("remove")
    assert float(removing.for_adapters(shares, LABELS[:1], DRAW)) == pytest.approx(entropy)
    for other in ([[0.9, 0.1]], [[0.5, 0.5]]):
        assert float(removing.for_adapters(torch.tensor(other).log(), LABELS[:1], DRAW)) > entropy + 0.01
    assert torch.equal(
        removing.for_validation(shares, LABELS[:1], DRAW), removing.for_adapters(shares, LABELS[:1], DRAW)
    )


def test_when_it_only_predicts_adapters_want_nothing_and_validation_looks_at_the_head() -> None:
    predicting, logits = head("predict"), torch.tensor([[0.8, 0.2], [0.4, 0.6]]).log()
    assert float(predicting.for_adapters(logits, LABELS[2:], DRAW)) == 0
    wanted = -(math.log(0.8) + math.log(0.6)) / 2
    assert float(predicting.for_validation(logits, LABELS[2:], DRAW)) == pytest.approx(wanted)
    assert float(predicting.for_head(logits, LABELS[2:])) == pytest.approx(wanted)


def test_the_head_comes_from_its_seed_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    weights = [AttributeHead(2, LABELS, 2, reading="remove", seed=seed).head.state_dict() for seed in (0, 0, 1)]
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(weights[0]["1.weight"], weights[1]["1.weight"])
    assert not torch.equal(weights[0]["1.weight"], weights[2]["1.weight"])

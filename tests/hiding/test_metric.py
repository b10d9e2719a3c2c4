"""Metric learning: the triplet loss by hand, who is in a triplet under both policies (checklist 7)."""

from __future__ import annotations

import math

import pytest
import torch

from sfumato.errors import UsageError
from sfumato.hiding.metric import Metric, triplet_loss, triplets

from toys import CheckpointsInMemory, coloured_squares

LABELS = torch.tensor([0, 0, 1, 1, 2, 1])


def test_a_case_by_hand() -> None:
    """Distances 5 and 1 lose 5 - 1 + 0.3; distances 1 and 5 lose nothing; 1 and 1.2 lose 0.1."""
    origin = torch.zeros(3, 2)
    near = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, 1.0]])
    far = torch.tensor([[0.0, 1.0], [3.0, 4.0], [1.2, 0.0]])
    assert float(triplet_loss(origin, near, far, 0.3)) == pytest.approx((4.3 + 0 + 0.1) / 3)


def test_features_that_are_the_same_have_a_finite_gradient() -> None:
    features = torch.ones(2, 3, requires_grad=True)
    loss = triplet_loss(features[:1], features[1:], features[1:], 0.3)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(0.3)
    assert features.grad is not None
    assert features.grad.isfinite().all()


def test_mixing_takes_positives_of_another_value_and_negatives_of_the_same() -> None:
    draw = torch.Generator().manual_seed(0)
    for _ in range(20):
        rows, positives, negatives = triplets(LABELS, "mix", draw)
        assert rows.tolist() == [0, 1, 2, 3, 5]  # nothing is like image 4
        assert (LABELS[positives] != LABELS[rows]).all()
        assert (LABELS[negatives] == LABELS[rows]).all()
        assert (negatives != rows).all()


def test_separating_is_the_other_way_round() -> None:
    rows, positives, negatives = triplets(LABELS, "separate", torch.Generator().manual_seed(0))
    assert (LABELS[positives] == LABELS[rows]).all()
    assert (positives != rows).all()
    assert (LABELS[negatives] != LABELS[rows]).all()


def test_every_candidate_is_drawn_sometime() -> None:
    """Four candidates in 60 draws: one is missed with probability 4 (3/4)^60 < 1e-6, and the seed is fixed."""
    draw = torch.Generator().manual_seed(0)
    drawn = {int(triplets(LABELS, "mix", draw)[1][0]) for _ in range(60)}
    assert drawn == {2, 3, 4, 5}


@pytest.mark.parametrize("labels", [torch.zeros(4, dtype=torch.int64), torch.arange(4)])
def test_without_triplets_the_loss_is_zero(labels: torch.Tensor) -> None:
    rows, positives, negatives = triplets(labels, "mix", torch.Generator().manual_seed(0))
    features = torch.rand(4, 2)
    assert float(triplet_loss(features[rows], features[positives], features[negatives], 0.3)) == 0


def test_it_knows_nothing_of_the_attribute_afterwards() -> None:
    images = coloured_squares()
    hider = Metric(steps=4, batch=16, width=8, updates=3, epochs=1)
    rewriter = hider.fit(images, images.rows(torch.arange(12)), checkpoints=CheckpointsInMemory())
    assert rewriter.tells is None


def test_the_published_settings() -> None:
    found = Metric.paper("w")
    assert (found.rate, found.margin, found.epochs, found.batch) == (1e-4, 0.3, 15, 128)
    assert not math.isclose(found.rate, Metric().rate)


@pytest.mark.parametrize("settings", [{"margin": -1.0}, {"policy": "swap"}])
def test_settings_out_of_range_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=f"Expected {next(iter(settings))}"):
        Metric(**settings)  # type: ignore[arg-type]

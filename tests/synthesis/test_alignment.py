"""Algorithm 1: its losses in both forms against hand formulas, and what moves."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from sfumato.networks.linear_teacher import LinearHead
from sfumato.networks.resnet import resnet18
from sfumato.networks.scattering import ScatteringFeatures
from sfumato.synthesis.alignment import (
    GroupNormTeacher,
    ScatteringTeacher,
    TargetStatistics,
    Weights,
    align,
    balanced_targets,
    feature_loss,
    size_loss,
    variation_loss,
)


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def teacher() -> ScatteringTeacher:
    head = LinearHead(9 * 16, 3)
    head.linear.weight.data = torch.randn(head.linear.weight.shape, generator=draw())
    return ScatteringTeacher(ScatteringFeatures(1, 8, 8), head).requires_grad_(False)


def test_statistics_are_over_images_and_places() -> None:
    layer = torch.randn(6, 4, 9, generator=draw())
    goal = TargetStatistics.of([layer])
    assert torch.allclose(goal.means[0], layer.transpose(0, 1).flatten(1).mean(1), atol=1e-6)
    assert torch.allclose(goal.variances[0], layer.transpose(0, 1).flatten(1).var(1, unbiased=False), atol=1e-5)


def test_the_feature_loss_in_both_forms() -> None:
    layers = [torch.tensor([[[1.0], [2.0]], [[3.0], [2.0]]])]  # means 2, 2; variances 1, 0
    goal = TargetStatistics((torch.tensor([2.0, 5.0]),), (torch.tensor([1.0, 4.0]),))
    assert feature_loss(layers, goal, "paper").item() == pytest.approx(9 + 16)
    assert feature_loss(layers, goal, "code").item() == pytest.approx(3 + 4)


def test_the_variation_loss_in_both_forms() -> None:
    image = torch.tensor([[[[0.0, 3.0], [4.0, 0.0]]]])
    assert variation_loss(image, "paper").item() == pytest.approx(5.0)  # sqrt(3^2 + 4^2) at the one inner place
    right, down, slash, backslash = (3 + 4) / 2, (4 + 3) / 2, 0.0, 1.0
    assert variation_loss(image, "code").item() == pytest.approx(right + down + slash + backslash)


def test_the_size_loss_in_both_forms() -> None:
    image = torch.full((2, 1, 2, 2), 0.5)
    assert size_loss(image, "paper").item() == pytest.approx(2.0)
    assert size_loss(image, "code").item() == pytest.approx(math.sqrt(2.0))


def test_the_label_generator_goes_round_the_classes() -> None:
    assert balanced_targets(80, 10).tolist() == list(range(10)) * 8
    assert balanced_targets(80, 10).bincount().tolist() == [8] * 10
    assert balanced_targets(7, 3).tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert balanced_targets(2, 3).tolist() == [0, 1]


@pytest.mark.parametrize("form", ["paper", "code"])
def test_alignment_lowers_its_loss_and_moves_pixels_alone(teacher: ScatteringTeacher, form: str) -> None:
    before = [p.clone() for p in teacher.parameters()]
    wanted = torch.rand(40, 1, 8, 8, generator=draw(1)).round()
    goal = TargetStatistics.of(teacher(wanted)[1])
    images = torch.rand(40, 1, 8, 8, generator=draw(2)) * 2 - 1
    kept = images.clone()
    made, history = align(images, balanced_targets(40, 3), teacher, goal, steps=15, form=form, rate=0.05, draw=draw())
    assert len(history) == 16
    assert set(history[0]) == {"feature", "classify", "variation", "size", "total"}
    losses = [step["total"] for step in history]
    assert min(losses) < 0.8 * losses[0]
    assert min(step["feature"] for step in history) < history[0]["feature"]
    assert made.abs().max() <= 1
    assert torch.equal(images, kept), "the images that it started from were changed"
    assert all(torch.equal(a, b) for a, b in zip(before, teacher.parameters(), strict=True))


def test_the_terms_are_weighted_and_add_up(teacher: ScatteringTeacher) -> None:
    images = torch.zeros(6, 1, 8, 8)
    goal = TargetStatistics.of(teacher(torch.rand(6, 1, 8, 8, generator=draw()))[1])

    def first(weights: Weights) -> dict[str, float]:
        return align(images, balanced_targets(6, 3), teacher, goal, steps=0, weights=weights, draw=draw())[1][0]

    plain, heavy = first(Weights(1, 1, 1, 1)), first(Weights(2, 0, 3, 1))
    assert heavy["feature"] == pytest.approx(2 * plain["feature"])
    assert heavy["classify"] == 0
    assert plain["total"] == pytest.approx(sum(v for name, v in plain.items() if name != "total"))


def test_no_steps_change_nothing(teacher: ScatteringTeacher) -> None:
    images = torch.rand(4, 1, 8, 8, generator=draw())
    goal = TargetStatistics.of(teacher(images)[1])
    made, history = align(images, balanced_targets(4, 3), teacher, goal, steps=0, draw=draw())
    assert torch.equal(made, images)
    assert len(history) == 1


def test_an_observed_network_shows_the_inputs_of_its_norm_layers() -> None:
    network = resnet18(1, 3, width=4, norm="group")
    logits, layers = GroupNormTeacher(network)(torch.rand(2, 1, 16, 16, generator=draw()))
    norms = [m for m in network.modules() if isinstance(m, nn.GroupNorm)]
    assert logits.shape == (2, 3)
    assert len(layers) == len(norms) == 20
    assert sum(layer.shape[1] for layer in layers) == sum(m.num_channels for m in norms)
    assert sum(m.num_channels for m in resnet18(3, 10, norm="group").modules() if isinstance(m, nn.GroupNorm)) == 4800

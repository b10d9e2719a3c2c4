"""The fast path broken on purpose, one bug at a time: a named check must notice each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sfumato.privacy.gradients import fast_path, layers
from sfumato.standardised_convolution import StandardisedConv2d

from privacy.gradients import checks
from privacy.gradients.models import (
    BIG,
)


def norms_omit_the_bias(m: pytest.MonkeyPatch) -> None:
    change_gradients(m, lambda name, gradient: gradient if name == "weight" else without_norms(gradient))


def norms_omit_convolutions(m: pytest.MonkeyPatch) -> None:
    original = layers._convolution
    m.setattr(layers, "_convolution", lambda *given: without_norms(original(*given)))


def norms_omit_further_calls(m: pytest.MonkeyPatch) -> None:
    original = fast_path.parameter_gradients

    def of_the_first_call(layer: nn.Module, a: list[Tensor], g: list[Tensor], trained: set[str]) -> Any:
        first, whole = original(layer, a[:1], g[:1], trained), original(layer, a, g, trained)
        return {k: layers.ParameterGradients(first[k].squared_norms, whole[k].weighted_sum) for k in whole}

    m.setattr(fast_path, "parameter_gradients", of_the_first_call)


def norms_before_the_standardisation(m: pytest.MonkeyPatch) -> None:
    original = layers._through_standardisation

    def earlier(layer: StandardisedConv2d, rows: Tensor) -> Any:
        norms = layers._made(rows).squared_norms / 2
        return {k: layers.ParameterGradients(norms, v.weighted_sum) for k, v in original(layer, rows).items()}

    m.setattr(layers, "_through_standardisation", earlier)


def a_table_counts_each_row_apart(m: pytest.MonkeyPatch) -> None:
    original = layers._of_weight

    def apart(layer: nn.Module, a: Tensor, g: Tensor) -> layers.ParameterGradients:
        whole = original(layer, a, g)
        if not isinstance(layer, nn.Embedding):
            return whole
        return layers.ParameterGradients(g.double().square().sum((1, 2)) + 1e-30, whole.weighted_sum)

    m.setattr(layers, "_of_weight", apart)


def only_one_version_is_looked_at(m: pytest.MonkeyPatch) -> None:
    original = fast_path.mean_loss
    m.setattr(fast_path, "mean_loss", lambda *given: original(*given[:-1], 1))


def norms_are_halved(m: pytest.MonkeyPatch) -> None:
    change_gradients(
        m, lambda name, gradient: layers.ParameterGradients(gradient.squared_norms / 4, gradient.weighted_sum)
    )


def norms_without_their_margin(m: pytest.MonkeyPatch) -> None:
    m.setattr(layers, "FLOAT32_UNIT", 0.0)


def float32_norms(m: pytest.MonkeyPatch) -> None:
    m.setattr(layers, "row_norms", lambda r: torch.linalg.vector_norm(r, dim=1).double())


def squares_may_underflow(m: pytest.MonkeyPatch) -> None:
    m.setattr(layers, "FLOOR", 0.0)


def biases_are_summed_unclipped(m: pytest.MonkeyPatch) -> None:
    def unweighted(name: str, gradient: layers.ParameterGradients) -> layers.ParameterGradients:
        if name == "weight":
            return gradient
        return layers.ParameterGradients(gradient.squared_norms, lambda w: gradient.weighted_sum((w > 0).float() * BIG))

    change_gradients(m, unweighted)


def absent_records_are_summed(m: pytest.MonkeyPatch) -> None:
    original = fast_path.FastPathRows._scales
    everyone = torch.tensor(True)
    m.setattr(
        fast_path.FastPathRows, "_scales", lambda self, norms, _, clip: original(self, norms, everyone, clip=clip)
    )


def infinities_are_multiplied_by_zero(m: pytest.MonkeyPatch) -> None:
    m.setattr(layers, "_without_zero_weights", lambda values, weights: values)


def nothing_is_clipped(m: pytest.MonkeyPatch) -> None:
    original = fast_path.FastPathRows._scales
    m.setattr(
        fast_path.FastPathRows, "_scales", lambda self, norms, here, clip: original(self, norms, here, clip=False)
    )


def the_bound_is_of_the_mean(m: pytest.MonkeyPatch) -> None:
    original = fast_path.FastPathRows._scales

    def together(self: fast_path.FastPathRows, norms: Tensor, here: Tensor, *, clip: bool) -> Tensor:
        return original(self, torch.full_like(norms, float(norms[norms.isfinite()].mean())), here, clip=clip)

    m.setattr(fast_path.FastPathRows, "_scales", together)


def change_gradients(
    m: pytest.MonkeyPatch, change: Callable[[str, layers.ParameterGradients], layers.ParameterGradients]
) -> None:
    original = fast_path.parameter_gradients
    m.setattr(fast_path, "parameter_gradients", lambda *given: {k: change(k, v) for k, v in original(*given).items()})


def without_norms(gradient: layers.ParameterGradients) -> layers.ParameterGradients:
    return layers.ParameterGradients(torch.zeros_like(gradient.squared_norms), gradient.weighted_sum)


MUTANTS = [
    (norms_omit_the_bias, checks.one_record_changes_a_fast_path_sum_by_at_most_its_bound),
    (norms_omit_convolutions, checks.one_record_changes_a_fast_path_sum_by_at_most_its_bound),
    (norms_omit_further_calls, checks.one_record_changes_a_fast_path_sum_by_at_most_its_bound),
    (norms_before_the_standardisation, checks.one_record_changes_a_fast_path_sum_by_at_most_its_bound),
    (a_table_counts_each_row_apart, checks.one_record_changes_a_fast_path_sum_by_at_most_its_bound),
    (only_one_version_is_looked_at, checks.several_versions_of_a_record_are_one_row),
    (norms_are_halved, checks.one_record_changes_a_fast_path_sum_by_at_most_its_bound),
    (norms_without_their_margin, checks.a_ghost_norm_is_never_too_small),
    (norms_without_their_margin, checks.a_standardised_norm_is_never_too_small),
    (float32_norms, checks.a_wide_gradient_keeps_its_bound),
    (squares_may_underflow, checks.one_record_changes_a_fast_path_sum_by_at_most_its_bound),
    (biases_are_summed_unclipped, checks.one_record_changes_a_fast_path_sum_by_at_most_its_bound),
    (absent_records_are_summed, checks.absent_or_infinite_records_count_as_nothing),
    (infinities_are_multiplied_by_zero, checks.absent_or_infinite_records_count_as_nothing),
    (nothing_is_clipped, checks.a_fast_path_round_replays_on_a_neighbour),
    (the_bound_is_of_the_mean, checks.one_record_changes_a_fast_path_sum_by_at_most_its_bound),
]


@pytest.mark.parametrize(("mutant", "check"), MUTANTS, ids=[m.__name__ for m, _ in MUTANTS])
def test_a_check_notices(
    mutant: Callable[[pytest.MonkeyPatch], None], check: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        check()

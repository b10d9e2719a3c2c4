"""Trainings by DP-SGD: what optimizer, schedule, average and DP-SAT do with noisy gradients, against plain formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from sfumato.errors import UsageError
from sfumato.privacy import Budget, Descent, GaussianSum, Ledger, PrivateImages, SeededNoise, descend, noisy_gradient
from sfumato.privacy.gradients import training
from sfumato.privacy.private import Query

from privacy.gradients.models import cross_entropy, small_cnn
from toys import toy

PLAIN = Descent(l2_bound=1.0, rate=0.5, momentum=0.0, schedule="constant", averaging=0.0)


def opened(rounds: int, *, microbatch: int | None = None) -> Query:
    """Rounds with seeded noise, so that two trainings get the same."""
    private = PrivateImages.seal(toy(40, side=8), Ledger(Budget(math.inf, 1e-5)), noise=SeededNoise(0))
    keep.append(private)
    mechanism = GaussianSum(rounds=rounds, noise_multiplier=0.3, sampling=0.5)
    return private.open(mechanism, purpose="training", microbatch=microbatch)


keep: list[PrivateImages] = []


def trained(descent: Descent, rounds: int = 6, *, microbatch: int | None = None) -> nn.Module:
    model = small_cnn()
    descend(opened(rounds, microbatch=microbatch), model, lambda _: cross_entropy, descent, what="test")
    return model


def weights(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def by_hand(rounds: int, step: Callable[[nn.Module, int], None], model: nn.Module | None = None) -> nn.Module:
    """A training in which `step` does what is done with each noisy gradient."""
    model, query = model or small_cnn(), opened(rounds)
    for number in range(rounds):
        noisy_gradient(query, model, cross_entropy, l2_bound=1.0)
        step(model, number)
    return model


def test_plain_steps_are_gradients_times_the_rate() -> None:
    @torch.no_grad()
    def step(model: nn.Module, number: int) -> None:
        for parameter in model.parameters():
            parameter -= 0.5 * parameter.grad

    torch.testing.assert_close(weights(trained(PLAIN)), weights(by_hand(6, step)))


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_momentum_and_adam_are_those_of_torch(optimizer: str) -> None:
    model = small_cnn()
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
    settings = {"sgd": {"momentum": 0.8}, "adam": {"betas": (0.8, 0.999)}}[optimizer]
    theirs = kinds[optimizer](model.parameters(), 0.01, weight_decay=0.1, **settings)
    expected = by_hand(6, lambda *_: theirs.step(), model)
    ours = trained(replace(PLAIN, optimizer=optimizer, rate=0.01, momentum=0.8, weight_decay=0.1))
    torch.testing.assert_close(weights(ours), weights(expected))


def test_rates_fall_to_a_tenth_or_stay() -> None:
    cosine, constant = replace(PLAIN, schedule="cosine"), PLAIN
    assert cosine.rate_at(0, 10) == pytest.approx(0.5)
    assert cosine.rate_at(5, 10) == pytest.approx(0.5 * 0.55)
    assert cosine.rate_at(10, 10) == pytest.approx(0.05)
    assert {constant.rate_at(step, 10) for step in range(10)} == {0.5}


def test_the_average_is_a_mean_that_fades_or_the_one_with_a_slow_start() -> None:
    mean, slow = replace(PLAIN, averaging=0.9), replace(PLAIN, averaging=0.9999, warm_up="slow")
    values = [1.0, 4.0, 2.0, 8.0]
    got = 100.0  # what an average begins with has no part in it
    for step, value in enumerate(values):
        got = mean.staying(step) * got + (1 - mean.staying(step)) * value
    shares = [0.9 ** (3 - step) for step in range(4)]
    assert got == pytest.approx(sum(s * v for s, v in zip(shares, values, strict=True)) / sum(shares))
    assert [slow.staying(step) for step in (0, 1, 90)] == pytest.approx([1 / 10, 2 / 11, 91 / 100])
    assert slow.staying(10**6) == 0.9999
    assert PLAIN.staying(0) == PLAIN.staying(7) == 0.0


def test_averaged_weights_are_the_result() -> None:
    history: list[Tensor] = []

    @torch.no_grad()
    def step(model: nn.Module, number: int) -> None:
        for parameter in model.parameters():
            parameter -= 0.5 * parameter.grad
        history.append(weights(model).clone())

    by_hand(6, step)
    shares = [0.9 ** (5 - number) for number in range(6)]
    expected = sum(share * past for share, past in zip(shares, history, strict=True)) / sum(shares)
    torch.testing.assert_close(weights(trained(replace(PLAIN, averaging=0.9))), expected)


def test_dp_sat_without_ascent_is_dp_sgd_bit_by_bit() -> None:
    assert torch.equal(weights(trained(replace(PLAIN, ascent=0.0))), weights(trained(PLAIN)))


def test_dp_sat_takes_each_gradient_uphill_of_the_weights_and_steps_from_the_weights() -> None:
    rho, model, query = 0.3, small_cnn(), opened(4)
    last: list[Tensor] | None = None
    for _ in range(4):
        here = [parameter.data.clone() for parameter in model.parameters()]
        if last is not None:
            length = torch.cat([gradient.flatten() for gradient in last]).norm()
            for parameter, gradient in zip(model.parameters(), last, strict=True):
                parameter.data += rho * gradient / length
        noisy_gradient(query, model, cross_entropy, l2_bound=1.0)
        last = [parameter.grad.clone() for parameter in model.parameters()]
        for parameter, data in zip(model.parameters(), here, strict=True):
            parameter.data = data - 0.5 * parameter.grad
    ours = trained(replace(PLAIN, ascent=rho), rounds=4)
    torch.testing.assert_close(weights(ours), weights(model))
    assert not torch.allclose(weights(ours), weights(trained(PLAIN, rounds=4)))


def test_dp_sat_perturbs_once_for_a_batch_whatever_the_microbatches() -> None:
    whole, small = (trained(replace(PLAIN, ascent=0.3), microbatch=microbatch) for microbatch in (40, 3))
    torch.testing.assert_close(weights(whole), weights(small), rtol=1e-3, atol=1e-5)


def test_weights_are_what_they_were_even_if_a_round_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    model, calls = small_cnn(), []
    original = training.noisy_gradient

    def failing(*given: object, **named: object) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise UsageError("no")
        original(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(training, "noisy_gradient", failing)
    with pytest.raises(UsageError):
        descend(opened(3), model, lambda _: cross_entropy, replace(PLAIN, ascent=5.0), what="test")
    monkeypatch.undo()
    torch.testing.assert_close(weights(model), weights(trained(PLAIN, rounds=1)), rtol=1e-3, atol=1e-4)


def test_frozen_weights_stay() -> None:
    model = small_cnn()
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    descend(opened(3), model, lambda _: cross_entropy, replace(PLAIN, averaging=0.9, weight_decay=0.1), what="test")
    assert torch.equal(model[0].weight, before)


@pytest.mark.parametrize(
    "wrong", [{"momentum": 1.0}, {"averaging": -0.1}, {"multiplicity": 0}, {"ascent": -1.0}, {"optimizer": "lion"}]
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        replace(PLAIN, **wrong)  # type: ignore[arg-type]


def test_a_callback_is_shown_the_model_as_it_would_be_returned_and_changes_nothing() -> None:
    seen: list[tuple[float, list[Tensor]]] = []

    def look(done: float, model: nn.Module) -> None:
        seen.append((done, [weight.clone() for weight in model.parameters()]))
        assert not model.training
        for weight in model.parameters():
            weight.zero_()

    averaging = replace(PLAIN, averaging=0.5)
    model = small_cnn()
    descend(opened(6), model, lambda _: cross_entropy, averaging, what="test", callback=look, calls=3)
    assert [done for done, _ in seen] == [2 / 6, 4 / 6, 1.0]
    assert all(map(torch.equal, seen[-1][1], model.parameters()))
    assert all(map(torch.equal, trained(averaging).parameters(), model.parameters()))
    # after the same answers, an earlier end has the same weights
    assert all(map(torch.equal, seen[0][1], trained(averaging, rounds=2).parameters()))

"""DP-SGD's fast path: equal to the reference, bounded on hostile records, and taken only where it may be."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato import progress
from sfumato.errors import UsageError
from sfumato.privacy import Budget, GaussianSum, Ledger, PrivateImages, noisy_gradient
from sfumato.privacy.gradients import fast_path

from privacy.gradients.checks import CHECKS
from privacy.gradients.models import (
    batch,
    both,
    cross_entropy,
    small_cnn,
    summed,
)
from toys import ToySource, opened, toy


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_guarantee(check: Callable[[], None]) -> None:
    check()


CASES = (
    "layer at two sizes",
    "weight around its layer",
    "tied weight before",
    "tied weight between",
    "tied layers",
    "bare parameter",
    "groups",
)


@pytest.mark.parametrize("case", CASES)
def test_other_models_take_the_reference(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(1, 4, 3, padding=1)
            self.second = nn.Conv2d(4, 4, 3, padding=1, groups=2 if case == "groups" else 1)
            self.head, self.scale = (
                nn.Linear(64, 3),
                nn.Parameter(torch.ones(3), requires_grad=case == "bare parameter"),
            )
            self.again = nn.Conv2d(4, 4, 3, padding=1)
            if case == "tied layers":
                self.again.weight, self.again.bias = self.second.weight, self.second.bias
            else:
                self.again.requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            if case == "tied weight before":  # used upstream of its own layer, and nowhere else
                x = x * self.head.weight.square().mean()
            x = torch.tanh(self.first(x))
            x = self.again(x) if case == "tied layers" else x
            x = torch.tanh(self.second(x))
            x = x + self.first.weight.sum() if case == "tied weight between" else x
            if case == "layer at two sizes":
                x = x + torch.tanh(self.second(x[..., ::2, ::2])).mean((2, 3), keepdim=True)
            decay = self.head.weight.square().sum() if case == "weight around its layer" else 0.0
            return self.head(x.flatten(1)) * self.scale + decay * torch.arange(3.0)

    torch.manual_seed(0)
    model = Odd()
    monkeypatch.setattr(fast_path.FastPathRows, "add_to", lambda *_, **__: pytest.fail("took the fast path"))
    noisy_gradient(opened(toy(6), GaussianSum(noise_multiplier=0.0)), model, cross_entropy, l2_bound=1.0)
    pixels, labels = torch.from_numpy(toy(6).pixels).float() / 255, torch.from_numpy(toy(6).labels)
    F.cross_entropy(model(pixels), labels).backward(
        inputs=(found := [p for p in model.parameters() if p.requires_grad])
    )
    again = [p.grad.clone() for p in found]  # twice the mean gradient: ours and autograd's have been added
    model.zero_grad()
    F.cross_entropy(model(pixels), labels).backward()
    for ours, theirs in zip(again, found, strict=True):
        assert torch.allclose(ours, 2 * theirs.grad, atol=2e-5), case


def test_the_slow_way_is_said_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_SAID", set())
    slow = nn.Sequential(nn.Flatten(), nn.utils.parametrizations.weight_norm(nn.Linear(16, 3)))
    for model, sentences in ((nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), 0), (slow, 1), (slow, 0)):
        noisy_gradient(opened(toy(6), GaussianSum(noise_multiplier=0.0)), model, cross_entropy, l2_bound=1.0)
        assert capsys.readouterr().err.count("several times as long") == sentences


def test_layers_are_given_back_as_they_were() -> None:
    model = small_cnn()
    noisy_gradient(opened(toy(6, side=8), GaussianSum(noise_multiplier=0.0)), model, cross_entropy, l2_bound=1.0)
    assert not any("forward" in vars(layer) for layer in model.modules())


def test_batch_norm_is_refused() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
    with pytest.raises(UsageError, match="batch norm"):
        noisy_gradient(opened(toy(6), GaussianSum(noise_multiplier=1.0)), model, cross_entropy, l2_bound=1.0)


def test_a_linear_head_trains_on_stored_features() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    pixels = rng.integers(0, 60, (300, 1, 4, 4))
    pixels[np.arange(300), 0, labels] += 150
    private = PrivateImages.seal(ToySource(pixels, labels), Ledger(Budget(math.inf, 1e-5)))
    query = private.mapped(lambda x: x * 2).open(
        GaussianSum(rounds=30, sampling=0.5, noise_multiplier=0.5), purpose="head"
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), 2.0)
    for _ in range(30):
        noisy_gradient(query, model, cross_entropy, l2_bound=1.0)
        optimizer.step()
    right = model(torch.from_numpy(pixels / 127.5).float()).argmax(1).numpy() == labels
    assert right.mean() > 0.95


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_convolution_equals_the_reference(data: st.DataObject) -> None:
    def pick(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    channels = pick(1, 5)
    depthwise = data.draw(st.booleans())
    out = channels * pick(1, 2) if depthwise else data.draw(st.sampled_from([1, 3, 64]))
    layer = nn.Conv2d(
        channels,
        out,
        (pick(1, 3), pick(1, 3)),
        stride=(pick(1, 3), pick(1, 2)),
        padding=(pick(0, 2), pick(0, 2)),
        dilation=(pick(1, 2), pick(1, 2)),
        groups=channels if depthwise else 1,
        bias=data.draw(st.booleans()),
    )
    shape = (channels, pick(5, 9), pick(5, 9))
    if data.draw(st.booleans()):
        layer = layer.to(memory_format=torch.channels_last)
    model = nn.Sequential(layer, nn.Tanh())

    def loss(call: Callable[..., Tensor], image: Tensor, label: Tensor) -> Tensor:
        return call(image[None]).square().mean()

    fast, reference = (summed(rows, *batch(shape, 4), clip=False) for rows in both(model, shape, loss))
    assert float((fast - reference).norm()) <= 1e-4 * float(reference.norm()) + 1

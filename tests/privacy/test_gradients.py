"""DP-SGD's fast path: equal to the reference, bounded on hostile records, and watched by checks that have teeth."""

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

from sfumato.errors import UsageError
from sfumato.privacy import (
    LATTICE_BITS,
    Budget,
    GaussianSum,
    Ledger,
    PrivateImages,
    Recording,
    gradients,
    layers,
    noisy_gradient,
)
from sfumato.privacy.rows import Rows
from sfumato.values import Spec

from toys import ToySource, opened, toy

BIG = 2.0**LATTICE_BITS
Loss = Callable[[Callable[..., Tensor], Tensor, Tensor], Tensor]


def closed_forms_equal_the_reference() -> None:
    for name, (model, shape) in models().items():
        data = batch(shape, 9)
        for clip in (True, False):
            fast, reference = (summed(rows, *data, clip=clip) for rows in both(model, shape))
            if clip:  # the fast path cuts a little shorter
                width = fast.numel()
                reference *= (1 - width**0.5 / BIG - gradients.SLACK) / (1 - width**0.5 / BIG / 2 - 1e-5)
            assert float((fast - reference).norm() / reference.norm()) < 1e-4, (name, clip)


def a_record_moves_a_closed_sum_by_at_most_its_bound() -> None:
    """Over hostile records whose inputs and output gradients are both theirs to choose."""
    worst = 0.0
    for seed in range(8):
        for name, (model, shape, loss) in chosen_by_the_record().items():
            for rows in both(model, shape, loss, l2_bound=(1.0, 1e-6)[seed % 2]):
                images, labels, present = hostile(shape, seed)
                whole = summed(rows, images, labels, present, clip=True)
                assert torch.isfinite(whole).all()
                for record in range(len(images)):
                    kept = present.clone()
                    kept[record] = False
                    moved = float((whole - summed(rows, images, labels, kept, clip=True)).norm()) / BIG
                    assert moved <= 1, (name, seed, record, moved)
                    worst = max(worst, moved)
    assert worst > 0.99, "the check must come near the bound to mean something"


def a_ghost_norm_is_never_too_small() -> None:
    """Where terms cancel, what is summed after scaling must still be within the bound."""
    for seed in range(200):
        generator = torch.Generator().manual_seed(seed)
        positions, wide = int(torch.randint(2, 9, (), generator=generator)) * 2, 200
        a = torch.randn(1, 1, wide, generator=generator).repeat(1, positions, 1) * 10.0 ** (seed % 7 - 3)
        a = a * (1 + 1e-7 * (seed % 3) * torch.randn(a.shape, generator=generator))
        g = torch.randn(1, 1, wide, generator=generator) * torch.tensor([1.0, -1.0]).repeat(positions // 2)[:, None]
        share = layers._ghost(a, g)
        assert float(share.summed((1 / share.squares.sqrt()).float()).norm()) < 1 + gradients.SLACK / 2, seed
        a, g = (
            torch.randn(1, positions, wide, generator=generator),
            torch.randn(1, positions, wide, generator=generator),
        )
        true = float((g.double().transpose(1, 2) @ a.double()).square().sum())
        assert 1 <= float(layers._ghost(a, g).squares) / true < 1.001, seed


def a_wide_gradient_keeps_its_bound() -> None:
    """Layers of millions of weights, and records on which one float32 sum of their squares comes out too small."""
    for name, (layer, shape, loss) in wide_layers().items():
        images = torch.ones(3, *shape)
        images[0].view(-1)[:8] = 4100.0  # to its square, 2^24, a float32 cannot add the 1 of the others
        images[1].view(-1)[:16] = 3000.0
        images[2] = 0.01
        rows, _ = both(layer, shape, loss, l2_bound=1e-3)
        for record in range(3):
            one = images[record : record + 1], torch.zeros(1, dtype=torch.int64), torch.ones(1, dtype=torch.bool)
            moved = float(summed(rows, *one, clip=True).norm()) / BIG
            assert moved <= 1, (name, record, moved)
            assert moved > 0.99, (name, record, moved)


def absent_or_infinite_records_count_as_nothing() -> None:
    for name, (model, shape) in models().items():
        images, labels, present = batch(shape, 8)
        rows, _ = both(model, shape)
        expected = summed(rows, images[:5], labels[:5], present[:5], clip=True)
        images[5], images[6, 0, 0, 0], present[7] = torch.inf, torch.nan, False
        for clip in (True, False):
            alone = expected if clip else summed(rows, images[:5], labels[:5], present[:5], clip=False)
            got = summed(rows, images, labels, present, clip=clip)
            assert float((got - alone).norm()) <= 1e-5 * float(alone.norm()), name


def microbatches_do_not_change_a_closed_sum() -> None:
    data = toy(60, side=8)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.Tanh(), nn.Flatten(), nn.Linear(36, 3))
    found = []
    for microbatch in (1, 7, 60):
        private = PrivateImages.seal(data, Ledger(Budget(math.inf, 1e-5)))
        query = private.open(GaussianSum(noise_multiplier=0.0), purpose="m", microbatch=microbatch)
        noisy_gradient(query, model, cross_entropy, l2_bound=1.0)
        found.append(flat_gradient(model))
    assert torch.allclose(found[0], found[1], rtol=1e-4, atol=1e-7)
    assert torch.allclose(found[0], found[2], rtol=1e-4, atol=1e-7)


def a_closed_round_replays_on_a_neighbour() -> None:
    data = toy(40, side=8)
    data.pixels[3] = 255
    for record in (0, 3):
        recording = Recording()
        for source, (noise, tape) in ((data, recording.recorder()), (data.without(record), recording.player())):
            private = PrivateImages.seal(source, Ledger(Budget(math.inf, 1e-5)), noise=noise, tape=tape)
            query = private.open(GaussianSum(noise_multiplier=5.0), purpose="gradients")
            model = small_cnn()
            noisy_gradient(query, model, lambda call, x, y: 100 * cross_entropy(call, x, y), l2_bound=0.5)
        assert not recording.violations, recording.violations
        assert recording.worst > 0.9


CHECKS = [
    closed_forms_equal_the_reference,
    a_record_moves_a_closed_sum_by_at_most_its_bound,
    a_ghost_norm_is_never_too_small,
    a_wide_gradient_keeps_its_bound,
    absent_or_infinite_records_count_as_nothing,
    microbatches_do_not_change_a_closed_sum,
    a_closed_round_replays_on_a_neighbour,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_guarantee(check: Callable[[], None]) -> None:
    check()


# the models and records that the checks run on


def cross_entropy(call: Callable[..., Tensor], image: Tensor, label: Tensor) -> Tensor:
    return F.cross_entropy(call(image[None]), label[None])


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(4, 8)
        self.down = nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False)
        self.second = nn.GroupNorm(4, 16)
        self.short = nn.Conv2d(8, 16, 1, stride=2)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.norm(self.stem(x)))
        return self.head(F.silu(self.second(self.down(x)) + self.short(input=x)).mean((2, 3)))


class Sequence(nn.Module):
    """Rows of the image as tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Linear(8, 24), nn.LayerNorm(24)
        self.mix, self.head = nn.Linear(24, 24, bias=False), nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.mix(self.norm(self.embed(x[:, 0])))).mean(1))


def small_cnn() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 4, stride=2, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(6, 12, 2, bias=False),
        nn.Tanh(),
        nn.Conv2d(12, 24, 2, groups=12, padding=1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(216, 3),
    )


def models() -> dict[str, tuple[nn.Module, tuple[int, int, int]]]:
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Conv2d(2, 32, 3), nn.Tanh(), nn.Conv2d(32, 64, 3, stride=2), nn.Tanh(), nn.Flatten())
    odd = nn.Conv2d(2, 5, (3, 2), dilation=(1, 2), padding="same", padding_mode="circular")
    partly = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(144, 3))
    partly[0].weight.requires_grad_(False)
    scaled = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten(), nn.Linear(144, 3))
    for norm in (scaled[1],):
        nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
    return {
        "mlp": (nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 3, bias=False)), (1, 8, 8)),
        "linear": (nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), (1, 8, 8)),
        "cnn": (small_cnn(), (1, 8, 8)),
        "channels last": (small_cnn().to(memory_format=torch.channels_last), (1, 8, 8)),
        "ghost": (nn.Sequential(*wide, nn.Linear(256, 3)), (2, 8, 8)),
        "odd": (nn.Sequential(odd, nn.Tanh(), nn.Flatten(), nn.Linear(320, 3)), (2, 8, 8)),
        "residual": (Residual(), (1, 8, 8)),
        "residual channels last": (Residual().to(memory_format=torch.channels_last), (1, 8, 8)),
        "sequence": (Sequence(), (1, 8, 8)),
        "partly frozen": (partly, (1, 8, 8)),
        "scaled": (scaled, (1, 8, 8)),
    }


def chosen_by_the_record() -> dict[str, tuple[nn.Module, tuple[int, int, int], Loss]]:
    """Models with a loss that is bilinear, so that a record holds a layer's input and the gradient at its output."""

    def tokens(call: Callable[..., Tensor], image: Tensor, label: Tensor) -> Tensor:
        return (call(image[0, :, :48]) * image[0, :, 48:]).sum()

    def pixels(call: Callable[..., Tensor], image: Tensor, label: Tensor) -> Tensor:
        out = call(image[None, :-1])
        return (
            out * image[-1:, : out.shape[2], : out.shape[3]] * torch.linspace(-1, 1, out.shape[1])[:, None, None]
        ).sum()

    torch.manual_seed(0)
    return {
        "vector": (nn.Linear(48, 48), (1, 1, 96), tokens),
        "few tokens": (nn.Linear(48, 48), (1, 8, 96), tokens),
        "many tokens": (nn.Linear(48, 48, bias=False), (1, 40, 96), tokens),
        "many pixels": (nn.Conv2d(1, 16, 3, padding=1), (2, 8, 8), pixels),
        "few pixels": (nn.Conv2d(24, 32, 3, bias=False), (25, 5, 5), pixels),
        "two layers": (nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.Conv2d(8, 8, 3, groups=8)), (3, 6, 6), pixels),
    }


def wide_layers() -> dict[str, tuple[nn.Module, tuple[int, int, int], Loss]]:
    """Over two million weights each, in every way that a norm is found."""

    def vector(call: Callable[..., Tensor], image: Tensor, label: Tensor) -> Tensor:
        return call(image.flatten()).sum()

    def tokens(call: Callable[..., Tensor], image: Tensor, label: Tensor) -> Tensor:
        return (call(image[0]) * image[0, :, :2]).sum()

    def scaled(call: Callable[..., Tensor], image: Tensor, label: Tensor) -> Tensor:
        return (call(image[0]) * image[0]).sum()

    torch.manual_seed(0)
    wide = 2_400_000
    return {
        "a vector": (nn.Linear(wide, 1, bias=False), (1, 1, wide), vector),
        "tokens by ghost norms": (nn.Linear(wide // 2, 2, bias=False), (1, 2, wide // 2), tokens),
        "a norm's weights": (nn.LayerNorm(wide), (1, 1, wide), scaled),
    }


def hostile(shape: tuple[int, int, int], seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Ordinary, huge, tiny, mixed, cancelling, infinite records."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(10, *shape, generator=generator)
    images[1] *= 1e12
    images[2] *= 1e-20
    images[3, :, :, shape[2] // 2 :] *= 1e18  # huge gradients of tiny inputs, and the other way round
    images[3, :, :, : shape[2] // 2] *= 1e-24
    images[4, -1:] *= 1e18
    images[4, :-1] *= 1e-24
    images[5] = torch.randn(shape[0], 1, 1, generator=generator)  # equal positions whose gradients cancel
    images[5, -1, ::2, shape[2] // 2 :] *= -1
    images[6] = images[5] * (1 + 1e-6 * torch.randn(shape, generator=generator)) * 1e4
    images[7].view(-1)[seed % images[7].numel()] = torch.inf
    images[8].view(-1)[-1 - seed % 7] = torch.nan
    images[9] = 3e38
    return images, torch.zeros(10, dtype=torch.int64), torch.ones(10, dtype=torch.bool)


def batch(shape: tuple[int, int, int], count: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(count, *shape, generator=generator) * torch.logspace(-1, 1, count)[:, None, None, None]
    return images, torch.arange(count) % 3, torch.ones(count, dtype=torch.bool)


def both(
    model: nn.Module, shape: tuple[int, int, int], loss: Loss = cross_entropy, l2_bound: float = 1.0
) -> tuple[Rows, Rows]:
    """The fast rows and the reference, bounded so that some records are cut and some are not."""
    weights = gradients._Weights(model)
    taps = gradients._taps(weights, loss, Spec(10, *shape, ("a", "b", "c")))
    assert taps is not None, "the fast path must be taken here"
    return gradients.ClosedRows(weights, loss, taps, l2_bound), Rows(gradients._reference(weights, loss, 1), l2_bound)


@torch.no_grad()
def summed(rows: Rows, images: Tensor, labels: Tensor, present: Tensor, *, clip: bool) -> Tensor:
    width = rows.shape(Spec(10, *images.shape[1:], ("a", "b", "c"))).numel()
    total = torch.zeros(1, width, dtype=torch.float64)
    rows.add_to(total, images.clone(), labels, present, clip=clip)
    return total[0].round()


def flat_gradient(model: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


# what the fast path must leave alone


CASES = (
    "layer twice",
    "weight around its layer",
    "tied weight before",
    "tied weight between",
    "tied layers",
    "bare parameter",
    "multiplicity",
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
            x = torch.tanh(self.second(x)) if case == "layer twice" else x
            decay = self.head.weight.square().sum() if case == "weight around its layer" else 0.0
            return self.head(x.flatten(1)) * self.scale + decay * torch.arange(3.0)

    torch.manual_seed(0)
    model, draws = Odd(), 2 if case == "multiplicity" else 1
    monkeypatch.setattr(gradients.ClosedRows, "add_to", lambda *_, **__: pytest.fail("took the fast path"))
    noisy_gradient(
        opened(toy(6), GaussianSum(noise_multiplier=0.0)), model, cross_entropy, l2_bound=1.0, multiplicity=draws
    )
    pixels, labels = torch.from_numpy(toy(6).pixels).float() / 255, torch.from_numpy(toy(6).labels)
    F.cross_entropy(model(pixels), labels).backward(
        inputs=(found := [p for p in model.parameters() if p.requires_grad])
    )
    again = [p.grad.clone() for p in found]  # twice the mean gradient: ours and autograd's have been added
    model.zero_grad()
    F.cross_entropy(model(pixels), labels).backward()
    for ours, theirs in zip(again, found, strict=True):
        assert torch.allclose(ours, 2 * theirs.grad, atol=2e-5), case


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


# the core broken on purpose


def norms_forget_the_bias(m: pytest.MonkeyPatch) -> None:
    change_shares(m, lambda name, share: share if name == "weight" else forgotten(share))


def norms_forget_convolutions(m: pytest.MonkeyPatch) -> None:
    original = layers._convolution
    m.setattr(layers, "_convolution", lambda *given: forgotten(original(*given)))


def norms_are_halved(m: pytest.MonkeyPatch) -> None:
    change_shares(m, lambda name, share: layers.Share(share.squares / 4, share.summed))


def ghost_norms_without_their_margin(m: pytest.MonkeyPatch) -> None:
    m.setattr(layers, "UNIT", 0.0)


def float32_norms(m: pytest.MonkeyPatch) -> None:
    m.setattr(layers, "row_norms", lambda r: torch.linalg.vector_norm(r, dim=1).double())


def squares_may_underflow(m: pytest.MonkeyPatch) -> None:
    m.setattr(layers, "FLOOR", 0.0)


def biases_are_summed_unclipped(m: pytest.MonkeyPatch) -> None:
    def unweighted(name: str, share: layers.Share) -> layers.Share:
        if name == "weight":
            return share
        return layers.Share(share.squares, lambda w: share.summed((w > 0).float() * BIG))

    change_shares(m, unweighted)


def absent_records_are_summed(m: pytest.MonkeyPatch) -> None:
    original = gradients.ClosedRows._scales
    everyone = torch.tensor(True)
    m.setattr(gradients.ClosedRows, "_scales", lambda self, norms, _, clip: original(self, norms, everyone, clip=clip))


def infinities_are_multiplied_by_zero(m: pytest.MonkeyPatch) -> None:
    m.setattr(layers, "_kept", lambda values, weights: values)


def nothing_is_clipped(m: pytest.MonkeyPatch) -> None:
    original = gradients.ClosedRows._scales
    m.setattr(gradients.ClosedRows, "_scales", lambda self, norms, here, clip: original(self, norms, here, clip=False))


def the_bound_is_of_the_mean(m: pytest.MonkeyPatch) -> None:
    original = gradients.ClosedRows._scales

    def together(self: gradients.ClosedRows, norms: Tensor, here: Tensor, *, clip: bool) -> Tensor:
        return original(self, torch.full_like(norms, float(norms[norms.isfinite()].mean())), here, clip=clip)

    m.setattr(gradients.ClosedRows, "_scales", together)


def change_shares(m: pytest.MonkeyPatch, change: Callable[[str, layers.Share], layers.Share]) -> None:
    original = gradients.shares
    m.setattr(gradients, "shares", lambda *given: {k: change(k, v) for k, v in original(*given).items()})


def forgotten(share: layers.Share) -> layers.Share:
    return layers.Share(torch.zeros_like(share.squares), share.summed)


MUTANTS = [
    (norms_forget_the_bias, a_record_moves_a_closed_sum_by_at_most_its_bound),
    (norms_forget_convolutions, a_record_moves_a_closed_sum_by_at_most_its_bound),
    (norms_are_halved, a_record_moves_a_closed_sum_by_at_most_its_bound),
    (ghost_norms_without_their_margin, a_ghost_norm_is_never_too_small),
    (float32_norms, a_wide_gradient_keeps_its_bound),
    (squares_may_underflow, a_record_moves_a_closed_sum_by_at_most_its_bound),
    (biases_are_summed_unclipped, a_record_moves_a_closed_sum_by_at_most_its_bound),
    (absent_records_are_summed, absent_or_infinite_records_count_as_nothing),
    (infinities_are_multiplied_by_zero, absent_or_infinite_records_count_as_nothing),
    (nothing_is_clipped, a_closed_round_replays_on_a_neighbour),
    (the_bound_is_of_the_mean, a_record_moves_a_closed_sum_by_at_most_its_bound),
]


@pytest.mark.parametrize(("mutant", "check"), MUTANTS, ids=[m.__name__ for m, _ in MUTANTS])
def test_a_check_notices(
    mutant: Callable[[pytest.MonkeyPatch], None], check: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        check()

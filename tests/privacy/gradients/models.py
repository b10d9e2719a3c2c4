"""Models, and records that may be hostile, for the checks of the fast path."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.privacy import LATTICE_BITS
from sfumato.privacy.gradients import fast_path
from sfumato.privacy.gradients.reference import ModelWeights, reference_rows
from sfumato.privacy.rows import Rows
from sfumato.standardised_convolution import StandardisedConv2d
from sfumato.values import Spec

BIG = 2.0**LATTICE_BITS
Loss = Callable[[Callable[..., Tensor], Tensor, Tensor], Tensor]


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


def standardised(inputs: int, outputs: int) -> StandardisedConv2d:
    layer = StandardisedConv2d(inputs, outputs, 3)
    with torch.no_grad():  # gains that differ, and weights that are far from their standardised ones
        layer.gain.copy_(torch.linspace(0.5, 3, outputs))
        layer.weight.mul_(torch.linspace(0.5, 2, outputs)[:, None, None, None]).add_(0.3)
    return layer


class LowRank(nn.Module):
    """LoRA (Hu et al. 2022): a frozen network whose linear map gets a trained product of two thin ones."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten()).eval()
        self.map = nn.Linear(144, 24)
        for parameter in (*self.frozen.parameters(), *self.map.parameters()):
            parameter.requires_grad_(False)
        self.down, self.up = nn.Linear(144, 2, bias=False), nn.Linear(2, 24, bias=False)
        self.head = nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        features = self.frozen(x)
        return self.head(torch.tanh(self.map(features) + 0.5 * self.up(self.down(features))))


class Twice(nn.Module):
    """Layers that are called more than once, with other inputs each time."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.again = nn.Conv2d(1, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
        self.norm, self.head = nn.GroupNorm(2, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.stem(x))
        for _ in range(3):
            x = x + torch.tanh(self.norm(self.again(x)))
        return self.head(x.mean((2, 3)))


class Embedded(nn.Module):
    """Tokens from a table, several of them alike; queries, keys and values of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(4, 12), nn.Linear(12, 3)
        self.query, self.key, self.value = (nn.Linear(12, 12, bias=False) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.table((x[:, 0].sum(-1) > 0).long() + 2 * (x[:, 0, :, 0] > 0).long())
        seen = F.scaled_dot_product_attention(self.query(tokens), self.key(tokens), self.value(tokens))
        return self.out(seen.mean(1) + x.mean((1, 2, 3))[:, None])


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
    standardising = (standardised(1, 8), nn.Tanh(), standardised(8, 64), nn.Tanh(), nn.Flatten(), nn.Linear(1024, 3))
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
        "standardised": (nn.Sequential(*standardising), (1, 8, 8)),
        "low rank": (LowRank(), (1, 8, 8)),
        "twice": (Twice(), (1, 8, 8)),
        "embedded": (Embedded(), (1, 8, 8)),
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

    def twice(call: Callable[..., Tensor], image: Tensor, label: Tensor) -> Tensor:
        first, second = call(image[0, :, :48]), call(image[0, :, :48].flip(0))
        return ((first - 2 * second) * image[0, :, 48:]).sum()

    def from_a_table(call: Callable[..., Tensor], image: Tensor, label: Tensor) -> Tensor:
        return (call((image[0, :, 0] > 0).long()) * image[0, :, 48:]).sum()

    torch.manual_seed(0)
    return {
        "called twice": (nn.Linear(48, 48), (1, 8, 96), twice),
        "a table": (nn.Embedding(2, 48), (1, 8, 96), from_a_table),
        "standardised": (standardised(1, 16), (2, 8, 8), pixels),
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
    model: nn.Module,
    shape: tuple[int, int, int],
    loss: Loss = cross_entropy,
    l2_bound: float = 1.0,
    *,
    multiplicity: int = 1,
) -> tuple[Rows, Rows]:
    """The fast rows and the reference, bounded so that some records are cut and some are not."""
    weights = ModelWeights(model)
    recorded = fast_path.record_layers(weights, loss, Spec(10, *shape, ("a", "b", "c")), multiplicity=multiplicity)
    assert recorded is not None, "the fast path must be taken here"
    fast = fast_path.FastPathRows(weights, loss, recorded, l2_bound, multiplicity=multiplicity)
    return fast, reference_rows(weights, loss, l2_bound=l2_bound, multiplicity=multiplicity)


@torch.no_grad()
def summed(rows: Rows, images: Tensor, labels: Tensor, present: Tensor, *, clip: bool) -> Tensor:
    width = rows.shape(Spec(10, *images.shape[1:], ("a", "b", "c"))).numel()
    total = torch.zeros(1, width, dtype=torch.float64)
    torch.manual_seed(3)  # the same augmentation for all kinds of rows
    rows.add_to(total, images.clone(), labels, present, clip=clip)
    return total[0].round()


def flat_gradient(model: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

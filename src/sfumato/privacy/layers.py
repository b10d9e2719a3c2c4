"""What each record gives to a layer's parameters, from the layer's input and the gradient at its output alone.

A layer's gradient is a product of the two, so its norm needs no gradient: ghost norms (Goodfellow 2015; Li et al.
2022) where positions are few, rows made by one product where they are many (the mixed rule of Bu et al. 2022).

Guarantee: `squares` is at least the squared L2 norm of what `summed` adds for that record, up to float32 rounding
of the sum, for any finite input; a record of weight zero adds exactly nothing, even where its values are not finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.privacy.rows import row_norms

UNIT = 2.0**-23  # twice the rounding error of float32: a product of n terms errs by n / 2 of these, and its error's
LOOSE = 2.0**-10  # a relative error of products beyond which they are made in float64
FLOOR = 2.0**-100  # per value, far above what squares lose to underflow and far below any gradient that matters
GHOST = 10  # a made row costs about as much per value, written and read twice, as this many multiplications
WIDE = 48  # output channels from which on copying patches is cheaper than a convolution with a group for each record
MADE = 1 << 18  # values made at a time: fresh memory is slow, what was used just now is in the cache
TOGETHER = 256  # records added in float32; their sums are then added in float64, so that errors do not grow


@dataclass(frozen=True, slots=True)
class Share:
    """One parameter's part of every record's row: its squared norms, and its sum under weights."""

    squares: Tensor  # (records,) float64
    summed: Callable[[Tensor], Tensor]  # weights (records,) to the weighted sum, flat, float64


def shares(layer: nn.Module, a: Tensor, g: Tensor, trained: set[str]) -> dict[str, Share]:
    """By parameter name; `a` is what the parameters saw and `g` the gradient at the output, record by record."""
    a, g = a.float(), g.float()
    make: Callable[[Tensor, Tensor], Share] = _product
    beside: tuple[int, ...] = (1,)  # what a bias is summed over
    if isinstance(layer, nn.Conv2d):
        a, g = (x.reshape(len(x), -1, *x.shape[-3:]) for x in (a, g))  # (records, images, channels, height, width)
        make, beside = partial(_convolution, layer), (1, 3, 4)
    elif isinstance(layer, nn.GroupNorm):
        a, g = (x.reshape(*x.shape[:3], -1) for x in (a, g))  # (records, images, channels, positions)
        make, beside = partial(_scale, over=(1, 3)), (1, 3)
    elif isinstance(layer, nn.LayerNorm):
        a, g = (x.reshape(len(x), -1, math.prod(layer.normalized_shape)) for x in (a, g))
        make = partial(_scale, over=(1,))
    else:
        a, g = (x.reshape(len(x), -1, x.shape[-1]) for x in (a, g))  # (records, positions, values)
    return {name: make(a, g) if name == "weight" else _made(g.sum(beside)) for name in trained}


def probed_output(layer: nn.Module, given: Tensor, probe: Tensor) -> tuple[Tensor, Tensor]:
    """What the layer's parameters see, and its output plus a probe (zero) for the gradient to arrive at."""
    if isinstance(layer, nn.GroupNorm):
        # as layer norm, whose backward pass stays one kernel under vmap
        groups = given.reshape(len(given), layer.num_groups, -1)
        seen = F.layer_norm(groups, groups.shape[2:], eps=layer.eps).reshape(given.shape)
        weight, bias = (p.reshape(-1, *[1] * (given.dim() - 2)) for p in (layer.weight, layer.bias))
        return seen, torch.addcmul(bias + probe, seen, weight)
    if isinstance(layer, nn.LayerNorm):
        seen = F.layer_norm(given, layer.normalized_shape, eps=layer.eps)
        return seen, torch.addcmul(probe if layer.bias is None else layer.bias + probe, seen, layer.weight)
    output: Tensor = type(layer).forward(layer, given)
    return given, output.add_(probe)


def supports(layer: nn.Module) -> bool:
    """Whether this very kind of layer, without hooks or re-made weights, has a closed form here."""
    if type(layer) is nn.Conv2d and layer.groups not in (1, layer.in_channels):
        return False
    if layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer):
        return False
    own = {name for name, _ in layer.named_parameters()}
    return type(layer) in (nn.Linear, nn.Conv2d, nn.GroupNorm, nn.LayerNorm) and own <= {"weight", "bias"}


def _made(rows: Tensor, order: Callable[[Tensor], Tensor] = torch.flatten) -> Share:
    """Rows as they are (records, ...); `order` puts their sum into the parameter's own order."""
    flat = rows.flatten(1)
    squares = row_norms(flat).square() + FLOOR * flat.shape[1]
    return Share(squares, lambda weights: order(_added(weights, lambda part, w: w @ _kept(flat[part], w))))


def _scale(a: Tensor, g: Tensor, over: tuple[int, ...]) -> Share:
    return _made((a * g).sum(over))


def _product(a: Tensor, g: Tensor) -> Share:
    """Gradient sum_p g_p a_p^T of a matrix, from a (records, positions, in) and g (records, positions, out)."""
    if _ghost_is_cheaper(a.shape[1], a.shape[2], g.shape[2]):
        return _ghost(a, g)
    return _made(torch.bmm(g.transpose(1, 2), a))


def _ghost(a: Tensor, g: Tensor, order: Callable[[Tensor], Tensor] = torch.flatten) -> Share:
    """The same gradient, never made."""

    def total(part: slice, w: Tensor) -> Tensor:
        scaled = _kept(g[part], w) * w[:, None, None]
        return scaled.flatten(0, 1).T @ _kept(a[part], w).flatten(0, 1)

    return Share(_ghost_squares(a, g), lambda weights: order(_added(weights, total)))


def _ghost_is_cheaper(positions: int, width: int, out: int) -> bool:
    return positions == 1 or positions**2 * (width + out) < GHOST * width * out


def _ghost_squares(a: Tensor, g: Tensor) -> Tensor:
    """|sum_p g_p a_p^T|^2 = sum_pq <a_p, a_q><g_p, g_q>, made too large rather than too small."""
    lengths = [
        row_norms(x.flatten(0, 1)).reshape(x.shape[:2]).square() + FLOOR * x.shape[2] for x in (a, g)
    ]  # (records, positions)
    if a.shape[1] == 1:
        return torch.mul(*lengths)[:, 0]
    error = UNIT * (a.shape[2] + g.shape[2] + 4)
    if error > LOOSE:  # wide layers, which are cheap here because their positions are few
        a, g, error = a.double(), g.double(), LOOSE**2
    alike = torch.bmm(a, a.transpose(1, 2)) * torch.bmm(g, g.transpose(1, 2))
    # every rounding error above is at most this share of the magnitude, however much the terms cancel
    magnitude = torch.sum((lengths[0] * lengths[1]).sqrt(), 1).square()
    squares: Tensor = alike.sum((1, 2), dtype=torch.float64).clamp_min(0) + error * magnitude
    return squares


def _convolution(layer: nn.Conv2d, a: Tensor, g: Tensor) -> Share:
    a, border = _padded(layer, a)
    positions, kernel = math.prod((a.shape[1], *g.shape[3:])), math.prod(layer.kernel_size)
    width = kernel * layer.in_channels

    def order(total: Tensor) -> Tensor:
        return total.reshape(-1, kernel, layer.in_channels).transpose(1, 2).flatten()

    if layer.groups == 1 and _ghost_is_cheaper(positions, width, layer.out_channels):
        return _ghost(_patches(layer, a, border), _positions(g), order)
    in_order = a.is_contiguous() and g.is_contiguous()  # or else channels are last, where patches are cheaper still
    grouped = layer.groups > 1 or (layer.out_channels < WIDE and in_order)
    rows = a.new_empty(len(a), *(layer.weight.shape if grouped else (layer.out_channels, width)))
    step = max(1, MADE // (a.shape[1] * layer.weight.numel() if grouped else positions * width))
    for x, y, part in zip(*(torch.split(whole, step) for whole in (a, g, rows)), strict=True):
        if grouped:
            part.copy_(_kernel_gradients(layer, x, y, border))
        else:
            torch.bmm(_positions(y).transpose(1, 2), _patches(layer, x, border), out=part)
    return _made(rows, torch.flatten if grouped else order)


def _positions(g: Tensor) -> Tensor:
    """(records, images, out, height, width) to (records, positions, out)."""
    return g.flatten(3).transpose(2, 3).flatten(1, 2)


def _padded(layer: nn.Conv2d, a: Tensor) -> tuple[Tensor, tuple[int, int]]:
    """The input, and how many zeros (high, wide) it still needs on either side."""
    if layer.padding_mode == "zeros" and not isinstance(layer.padding, str):
        return a, (layer.padding[0], layer.padding[1])
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    padded = F.pad(a.flatten(0, 1), layer._reversed_padding_repeated_twice, mode=mode)
    return padded.reshape(*a.shape[:2], *padded.shape[1:]), (0, 0)


def _kernel_gradients(layer: nn.Conv2d, a: Tensor, g: Tensor, border: tuple[int, int]) -> Tensor:
    """Each record's gradient of the kernel: every image of every record is a group of channels of one image."""
    records, images = len(a), a.shape[0] * a.shape[1]
    weight = layer.weight.detach().expand(images, *layer.weight.shape).flatten(0, 1)
    a, g = a.reshape(1, -1, *a.shape[3:]), g.reshape(1, -1, *g.shape[3:])
    stretch = (layer.stride, border, layer.dilation, False, (0, 0), images * layer.groups)
    made: Tensor = torch.ops.aten.convolution_backward(g, a, weight, None, *stretch, (False, True, False))[1]
    return made.reshape(records, -1, *layer.weight.shape).sum(1)


def _patches(layer: nn.Conv2d, a: Tensor, border: tuple[int, int]) -> Tensor:
    """The inputs under the kernel at each of its positions: (records, positions, kernel * channels)."""
    # channels last, so that a patch is copied in long runs
    a = F.pad(a.permute(0, 1, 3, 4, 2), (0, 0, border[1], border[1], border[0], border[0])).contiguous()
    (n, m, h, w, c), (kh, kw), (dh, dw), (sh, sw) = a.shape, layer.kernel_size, layer.dilation, layer.stride
    high, wide = (h - dh * (kh - 1) - 1) // sh + 1, (w - dw * (kw - 1) - 1) // sw + 1
    at, under = (sh * w * c, sw * c), (dh * w * c, dw * c)
    if c == 1:  # then runs are longer along the positions
        view = a.as_strided((n, m, kh, kw, high, wide), (m * h * w, h * w, *under, *at))
        return view.reshape(n, m, kh * kw, high * wide).transpose(2, 3).flatten(1, 2)
    view = a.as_strided((n, m, high, wide, kh, kw, c), (m * h * w * c, h * w * c, *at, *under, 1))
    return view.reshape(n, m * high * wide, kh * kw * c)


def _added(weights: Tensor, total: Callable[[slice, Tensor], Tensor]) -> Tensor:
    """The sum over all records of what `total` sums in float32 over a few."""
    parts = [slice(start, start + TOGETHER) for start in range(0, len(weights), TOGETHER)]
    added = total(parts[0], weights[parts[0]]).double()
    for part in parts[1:]:
        added += total(part, weights[part])
    return added


def _kept(values: Tensor, weights: Tensor) -> Tensor:
    """Values of records that count; zero times infinity would not be nothing."""
    left_out = weights == 0
    return values.masked_fill(left_out.reshape(-1, *[1] * (values.dim() - 1)), 0) if left_out.any() else values

"""Per-example gradients of a layer's parameters, from the layer's input and the gradient at its output alone.

A layer's gradient is a product of the two. Its norm is found by ghost norms, without the gradient, where positions are
few (Goodfellow 2015; Li et al. 2022), and from rows made by one product where they are many (the mixed rule of Bu et
al. 2022).

Names below: `a` is a layer's input, `g` the gradient at its output; the first dimension of both is records.

Guarantee: `squared_norms` is at least the squared L2 norm of what `weighted_sum` adds for that record, up to float32
rounding of the sum, for any finite input; a record of weight zero adds exactly nothing, even where its values are not
finite.
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

FLOAT32_UNIT = 2.0**-23  # twice float32's rounding error; a product of n terms errs by n / 2 of these, and the product
# of two such products by the sum of both
LARGEST_ERROR = 2.0**-10  # a relative error of products beyond which they are made in float64
FLOOR = 2.0**-100  # per value, far above what squares lose to underflow and far below any gradient that matters
COST_OF_A_MADE_VALUE = 10  # in multiplications: a row that is made is written once and read twice
MANY_CHANNELS = (
    48  # output channels from which on copying patches is cheaper than a convolution with a group per record
)
MADE_AT_ONCE = 1 << 18  # values: fresh memory is slow, what was used just now is in the cache
FLOAT32_RECORDS = 256  # records added in float32; their sums are then added in float64, so that errors do not grow

Reorder = Callable[[Tensor], Tensor]  # a gradient's sum into the order of the parameter's own values


@dataclass(frozen=True, slots=True)
class ParameterGradients:
    """Every record's gradient of one parameter, never made as such: squared norms, and the sum under weights."""

    squared_norms: Tensor  # (records,) float64
    weighted_sum: Callable[[Tensor], Tensor]  # weights (records,) to the weighted sum, flat, float64


def parameter_gradients(layer: nn.Module, a: Tensor, g: Tensor, trained: set[str]) -> dict[str, ParameterGradients]:
    """By parameter name. `a` is what the parameters saw (see `probed_output`), `g` the gradient at the output."""
    a = a.float()
    g = g.float()
    of_weight: Callable[[Tensor, Tensor], ParameterGradients]
    bias_dimensions: tuple[int, ...]  # what a bias's gradient is summed over
    if isinstance(layer, nn.Conv2d):
        a, g = (x.reshape(len(x), -1, *x.shape[-3:]) for x in (a, g))  # (records, images, channels, height, width)
        of_weight = partial(_convolution, layer)
        bias_dimensions = (1, 3, 4)
    elif isinstance(layer, nn.GroupNorm):
        a, g = (x.reshape(*x.shape[:3], -1) for x in (a, g))  # (records, images, channels, positions)
        of_weight = partial(_elementwise_scale, over=(1, 3))
        bias_dimensions = (1, 3)
    elif isinstance(layer, nn.LayerNorm):
        a, g = (x.reshape(len(x), -1, math.prod(layer.normalized_shape)) for x in (a, g))
        of_weight = partial(_elementwise_scale, over=(1,))
        bias_dimensions = (1,)
    else:
        a, g = (x.reshape(len(x), -1, x.shape[-1]) for x in (a, g))  # (records, positions, values)
        of_weight = _matrix
        bias_dimensions = (1,)
    return {name: of_weight(a, g) if name == "weight" else _made(g.sum(bias_dimensions)) for name in trained}


def probed_output(layer: nn.Module, given: Tensor, probe: Tensor) -> tuple[Tensor, Tensor]:
    """What the layer's parameters see, and its output plus a probe of zeros, whose gradient is the output's."""
    if isinstance(layer, nn.GroupNorm):
        # as layer norm, whose backward pass stays one kernel under vmap
        groups = given.reshape(len(given), layer.num_groups, -1)
        seen = F.layer_norm(groups, groups.shape[2:], eps=layer.eps).reshape(given.shape)
        weight, bias = (p.reshape(-1, *[1] * (given.dim() - 2)) for p in (layer.weight, layer.bias))
        return seen, torch.addcmul(bias + probe, seen, weight)
    if isinstance(layer, nn.LayerNorm):
        seen = F.layer_norm(given, layer.normalized_shape, eps=layer.eps)
        shift = probe if layer.bias is None else layer.bias + probe
        return seen, torch.addcmul(shift, seen, layer.weight)
    output: Tensor = type(layer).forward(layer, given)
    return given, output.add_(probe)


def supports(layer: nn.Module) -> bool:
    """Whether this is exactly a kind of layer known here, without hooks or parametrized weights."""
    if type(layer) is nn.Conv2d and layer.groups not in (1, layer.in_channels):
        return False
    if layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer):
        return False
    own = {name for name, _ in layer.named_parameters()}
    return type(layer) in (nn.Linear, nn.Conv2d, nn.GroupNorm, nn.LayerNorm) and own <= {"weight", "bias"}


def _made(rows: Tensor, reorder: Reorder = torch.flatten) -> ParameterGradients:
    """From gradients that were made after all: (records, ...)."""
    flat = rows.flatten(1)
    squared_norms = row_norms(flat).square() + FLOOR * flat.shape[1]

    def few(part: slice, weights: Tensor) -> Tensor:
        return weights @ _without_zero_weights(flat[part], weights)

    return ParameterGradients(squared_norms, lambda weights: reorder(_sum_over_records(weights, few)))


def _elementwise_scale(a: Tensor, g: Tensor, over: tuple[int, ...]) -> ParameterGradients:
    return _made((a * g).sum(over))


def _matrix(a: Tensor, g: Tensor) -> ParameterGradients:
    """Gradient sum_p g_p a_p^T of a matrix, from a (records, positions, in) and g (records, positions, out)."""
    if _ghost_is_cheaper(a.shape[1], a.shape[2], g.shape[2]):
        return _ghost(a, g)
    return _made(torch.bmm(g.transpose(1, 2), a))


def _ghost(a: Tensor, g: Tensor, reorder: Reorder = torch.flatten) -> ParameterGradients:
    """The same gradient, never made."""

    def few(part: slice, weights: Tensor) -> Tensor:
        scaled = _without_zero_weights(g[part], weights) * weights[:, None, None]
        return scaled.flatten(0, 1).T @ _without_zero_weights(a[part], weights).flatten(0, 1)

    return ParameterGradients(_ghost_squares(a, g), lambda weights: reorder(_sum_over_records(weights, few)))


def _ghost_is_cheaper(positions: int, width: int, out: int) -> bool:
    return positions == 1 or positions**2 * (width + out) < COST_OF_A_MADE_VALUE * width * out


def _ghost_squares(a: Tensor, g: Tensor) -> Tensor:
    """|sum_p g_p a_p^T|^2 = sum_pq <a_p, a_q><g_p, g_q>, made too large rather than too small."""
    a_squares = _squares_by_position(a)
    g_squares = _squares_by_position(g)
    if a.shape[1] == 1:
        return (a_squares * g_squares)[:, 0]
    error = FLOAT32_UNIT * (a.shape[2] + g.shape[2] + 4)
    if error > LARGEST_ERROR:  # wide layers, which are cheap here because their positions are few
        a = a.double()
        g = g.double()
        error = LARGEST_ERROR**2
    products = torch.bmm(a, a.transpose(1, 2)) * torch.bmm(g, g.transpose(1, 2))
    # every rounding error above is at most this share of the magnitude, however much the terms cancel
    magnitude = torch.sum((a_squares * g_squares).sqrt(), 1).square()
    squares: Tensor = products.sum((1, 2), dtype=torch.float64).clamp_min(0) + error * magnitude
    return squares


def _squares_by_position(x: Tensor) -> Tensor:
    """(records, positions, values) to squared norms (records, positions)."""
    norms = row_norms(x.flatten(0, 1)).reshape(x.shape[:2])
    return norms.square() + FLOOR * x.shape[2]


def _convolution(layer: nn.Conv2d, a: Tensor, g: Tensor) -> ParameterGradients:
    a, border = _padded(layer, a)
    positions = math.prod((a.shape[1], *g.shape[3:]))
    kernel = math.prod(layer.kernel_size)
    width = kernel * layer.in_channels

    def channels_first(total: Tensor) -> Tensor:
        return total.reshape(-1, kernel, layer.in_channels).transpose(1, 2).flatten()

    if layer.groups == 1 and _ghost_is_cheaper(positions, width, layer.out_channels):
        return _ghost(_patches(layer, a, border), _positions(g), channels_first)
    contiguous = a.is_contiguous() and g.is_contiguous()  # or else channels are last, where patches are cheaper still
    if layer.groups > 1 or (layer.out_channels < MANY_CHANNELS and contiguous):
        return _made(_kernels_by_grouped_convolution(layer, a, g, border))
    return _made(_kernels_by_patches(layer, a, g, border, positions * width), channels_first)


def _kernels_by_grouped_convolution(layer: nn.Conv2d, a: Tensor, g: Tensor, border: tuple[int, int]) -> Tensor:
    """Each record's gradient of the kernel, a few records at a time."""
    rows = a.new_empty(len(a), *layer.weight.shape)
    step = max(1, MADE_AT_ONCE // (a.shape[1] * layer.weight.numel()))
    for few_a, few_g, few_rows in zip(*(torch.split(x, step) for x in (a, g, rows)), strict=True):
        few_rows.copy_(_kernel_gradients(layer, few_a, few_g, border))
    return rows


def _kernels_by_patches(layer: nn.Conv2d, a: Tensor, g: Tensor, border: tuple[int, int], patch_values: int) -> Tensor:
    """The same as (records, out, kernel * channels); `patch_values` is how many values a record's patches have."""
    rows = a.new_empty(len(a), layer.out_channels, math.prod(layer.kernel_size) * layer.in_channels)
    step = max(1, MADE_AT_ONCE // patch_values)
    for few_a, few_g, few_rows in zip(*(torch.split(x, step) for x in (a, g, rows)), strict=True):
        torch.bmm(_positions(few_g).transpose(1, 2), _patches(layer, few_a, border), out=few_rows)
    return rows


def _positions(g: Tensor) -> Tensor:
    """(records, images, out, height, width) to (records, positions, out)."""
    return g.flatten(3).transpose(2, 3).flatten(1, 2)


def _padded(layer: nn.Conv2d, a: Tensor) -> tuple[Tensor, tuple[int, int]]:
    """The input, and how many zeros (vertically, horizontally) it still needs on either side."""
    if layer.padding_mode == "zeros" and not isinstance(layer.padding, str):
        return a, (layer.padding[0], layer.padding[1])
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    padded = F.pad(a.flatten(0, 1), layer._reversed_padding_repeated_twice, mode=mode)
    return padded.reshape(*a.shape[:2], *padded.shape[1:]), (0, 0)


def _kernel_gradients(layer: nn.Conv2d, a: Tensor, g: Tensor, border: tuple[int, int]) -> Tensor:
    """Each record's gradient of the kernel: every image of every record is a group of channels of one image."""
    records = len(a)
    images = a.shape[0] * a.shape[1]
    weight = layer.weight.detach().expand(images, *layer.weight.shape).flatten(0, 1)
    a = a.reshape(1, -1, *a.shape[3:])
    g = g.reshape(1, -1, *g.shape[3:])
    _, of_weight, _ = torch.ops.aten.convolution_backward(
        g,
        a,
        weight,
        None,  # bias sizes
        layer.stride,
        border,
        layer.dilation,
        False,  # not transposed
        (0, 0),  # output padding
        images * layer.groups,
        (False, True, False),  # of input, weight and bias, only the weight's gradient
    )
    made: Tensor = of_weight.reshape(records, -1, *layer.weight.shape)
    return made.sum(1)


def _patches(layer: nn.Conv2d, a: Tensor, border: tuple[int, int]) -> Tensor:
    """The inputs under the kernel at each of its positions: (records, positions, kernel * channels)."""
    # channels last, so that a patch is copied in long runs
    a = F.pad(a.permute(0, 1, 3, 4, 2), (0, 0, border[1], border[1], border[0], border[0])).contiguous()
    records, images, height, width, channels = a.shape
    kernel_height, kernel_width = layer.kernel_size
    dilation_y, dilation_x = layer.dilation
    stride_y, stride_x = layer.stride
    out_height = (height - dilation_y * (kernel_height - 1) - 1) // stride_y + 1
    out_width = (width - dilation_x * (kernel_width - 1) - 1) // stride_x + 1
    line = width * channels  # values from one line of pixels to the next
    image = height * line
    between_positions = (stride_y * line, stride_x * channels)
    within_kernel = (dilation_y * line, dilation_x * channels)
    if channels == 1:  # then runs are longer along the positions
        view = a.as_strided(
            (records, images, kernel_height, kernel_width, out_height, out_width),
            (images * image, image, *within_kernel, *between_positions),
        )
        by_kernel = view.reshape(records, images, kernel_height * kernel_width, out_height * out_width)
        return by_kernel.transpose(2, 3).flatten(1, 2)
    view = a.as_strided(
        (records, images, out_height, out_width, kernel_height, kernel_width, channels),
        (images * image, image, *between_positions, *within_kernel, 1),
    )
    return view.reshape(records, images * out_height * out_width, kernel_height * kernel_width * channels)


def _sum_over_records(weights: Tensor, few: Callable[[slice, Tensor], Tensor]) -> Tensor:
    """The float64 sum over all records of what `few` sums in float32 over some."""
    parts = [slice(start, start + FLOAT32_RECORDS) for start in range(0, len(weights), FLOAT32_RECORDS)]
    total = few(parts[0], weights[parts[0]]).double()
    for part in parts[1:]:
        total += few(part, weights[part])
    return total


def _without_zero_weights(values: Tensor, weights: Tensor) -> Tensor:
    """The values, with zeros for records of weight zero: zero times infinity would not be zero."""
    left_out = weights == 0
    if not left_out.any():
        return values
    return values.masked_fill(left_out.reshape(-1, *[1] * (values.dim() - 1)), 0)

"""Per-example gradients of a layer's parameters, from the layer's input and the gradient at its output alone.

A layer's gradient is a product of the two. Its norm is found by ghost norms, without the gradient, where positions are
few (Goodfellow 2015; Li et al. 2022), and from rows made by one product where they are many (the mixed rule of Bu et
al. 2022).

Names below: `a` is a layer's input, `g` the gradient at its output; the first dimension of both is records. A layer
that is called several times, as for several versions of an image, has several of both.

Guarantee: `squared_norms` is at least the squared L2 norm of what `weighted_sum` adds for that record, up to float32
rounding of the sum, for any finite input; a record of weight zero adds exactly nothing, even where its values are not
finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.privacy.rows import row_norms
from sfumato.standardised_convolution import StandardisedConv2d

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


def parameter_gradients(
    layer: nn.Module, inputs: list[Tensor], output_gradients: list[Tensor], trained: set[str]
) -> dict[str, ParameterGradients]:
    """By parameter name, from every call of the layer: what its parameters saw (`probed_output`), and the gradient."""
    calls = [_by_position(layer, *call) for call in zip(inputs, output_gradients, strict=True)]
    # Further calls are further positions: a parameter's gradient is the sum over all of them.
    a, g = (torch.cat(part, dim=1) if len(part) > 1 else part[0] for part in zip(*calls, strict=True))
    found: dict[str, ParameterGradients] = {}
    if isinstance(layer, StandardisedConv2d):
        found = _standardised(layer, a, g, trained - {"bias"})
    if isinstance(layer, nn.Conv2d):
        bias_dimensions: tuple[int, ...] = (1, 3, 4)  # what a bias's gradient is summed over
    else:
        bias_dimensions = (1, 3) if isinstance(layer, nn.GroupNorm) else (1,)
    for name in trained - set(found):
        found[name] = _of_weight(layer, a, g) if name == "weight" else _made(g.sum(bias_dimensions))
    return found


def _by_position(layer: nn.Module, a: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Input and output gradient of one call, with the positions that share the parameters in the second dimension."""
    g = g.float()
    if isinstance(layer, nn.Embedding):  # a row of the table is a position's input times the table
        one_hot = F.one_hot(a.flatten(1).long(), layer.num_embeddings).float()
        return one_hot, g.reshape(len(g), -1, layer.embedding_dim)
    a = a.float()
    if isinstance(layer, nn.Conv2d):  # (records, images, channels, height, width)
        return a.reshape(len(a), -1, *a.shape[-3:]), g.reshape(len(g), -1, *g.shape[-3:])
    if isinstance(layer, nn.GroupNorm):  # (records, images, channels, positions)
        return a.reshape(*a.shape[:3], -1), g.reshape(*g.shape[:3], -1)
    width = math.prod(layer.normalized_shape) if isinstance(layer, nn.LayerNorm) else None
    return a.reshape(len(a), -1, width or a.shape[-1]), g.reshape(len(g), -1, width or g.shape[-1])


def _of_weight(layer: nn.Module, a: Tensor, g: Tensor) -> ParameterGradients:
    if isinstance(layer, nn.Conv2d):
        return _convolution(layer, a, g)
    if isinstance(layer, nn.GroupNorm):
        return _elementwise_scale(a, g, over=(1, 3))
    if isinstance(layer, nn.LayerNorm):
        return _elementwise_scale(a, g, over=(1,))
    if isinstance(layer, nn.Embedding):
        return _matrix(g, a)  # the table is (rows, values), a linear layer's matrix (values out, values in)
    return _matrix(a, g)


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
    if isinstance(layer, nn.Conv2d) and layer.groups not in (1, layer.in_channels):
        return False
    if layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer):
        return False
    if type(layer) is StandardisedConv2d:
        return layer.groups == 1
    if type(layer) is nn.Embedding:
        return layer.max_norm is None and layer.padding_idx is None and not layer.scale_grad_by_freq
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


def _standardised(layer: StandardisedConv2d, a: Tensor, g: Tensor, trained: set[str]) -> dict[str, ParameterGradients]:
    """Gradients of the weights and of the gain, from those of the kernel that is derived from them."""
    a, border = _padded(layer, a)
    if layer.out_channels < MANY_CHANNELS and a.is_contiguous() and g.is_contiguous():
        rows = _kernels_by_grouped_convolution(layer, a, g, border)
    else:
        patch_values = math.prod((a.shape[1], *g.shape[3:], *layer.kernel_size, layer.in_channels))
        rows = _kernels_by_patches(layer, a, g, border, patch_values)
        rows = rows.reshape(*rows.shape[:2], -1, layer.in_channels).transpose(2, 3)
    found = _through_standardisation(layer, rows.flatten(2))
    return {name: found[name] for name in trained}


def _through_standardisation(layer: StandardisedConv2d, rows: Tensor) -> dict[str, ParameterGradients]:
    """From each record's gradient of the kernel, (records, out, fan-in): those of the weights and of the gain.

    The derivation is linear in the kernel's gradient and the same for all records, so norms follow from three sums for
    each record and output channel, and the weighted sum is derived once, after it was added up.
    """
    channels, fan_in = rows.shape[1:]
    standardised, scale = layer.standardised(layer.weight.detach().double())
    kernel = standardised.flatten(1)
    factor = layer.gain.detach().double() * scale.flatten()
    directions = torch.stack([torch.ones_like(kernel), kernel], dim=2).float()
    along = torch.bmm(rows.transpose(0, 1), directions).transpose(0, 1).double()  # (records, out, 2)
    squares = _squares_by_position(rows)
    # |g - mean(g) - <g, k> k|^2 where k has mean zero; every rounding error above is at most the share that is added
    left = squares - along[..., 0].square() / fan_in - along[..., 1].square() * (2 - kernel.square().sum(1))
    left = left.clamp_min(0) + FLOAT32_UNIT * (2 * fan_in + 8) * squares
    squared_norms = (factor.square() * left).sum(1) + FLOOR * channels * fan_in
    of_kernel = _made(rows)

    def weighted_sum(weights: Tensor) -> Tensor:
        total = of_kernel.weighted_sum(weights).reshape(channels, fan_in)
        centred = total - total.mean(1, keepdim=True) - (total * kernel).sum(1, keepdim=True) * kernel
        return (factor[:, None] * centred).flatten()

    return {"weight": ParameterGradients(squared_norms, weighted_sum), "gain": _made(along[..., 1].float())}


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

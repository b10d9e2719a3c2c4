"""Procedural images in colour: layered leaves, random decoders, coordinate networks and noise; no data at all.

A network that has only ever been trained on such images still extracts useful features of photographs (Baradad et al.
2021; Tang et al. 2023). The kinds differ in what they have of photographs: leaves have edges, occlusion and shading,
decoders and coordinate networks have shapes at several scales, and noise has the power spectrum.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from sfumato.synthesis.dead_leaves import bernoulli, clouds, leaf_masks, sharpened, textures, uniform

CHUNK = 64  # images of one kind at a time
LAYERS = 16  # of leaves in an image, at most
FILLINGS = 4  # sets of textures that the leaves of a chunk share: making textures takes most of the time
DECODER_WIDTH = 24  # channels
COORDINATE_WIDTH, COORDINATE_DEPTH = 16, 4


def procedural_images(count: int, shape: tuple[int, int, int], draw: Generator) -> Tensor:
    """Images (count, c, h, w) in [0, 1], in random order of their kinds; grey ones are colour images without colour."""
    side = max(shape[1:])
    weights = torch.tensor([weight for _, weight in KINDS])
    made = [torch.zeros(0, 3, side, side)]
    for start in range(0, count, CHUNK):
        make, _ = KINDS[int(torch.multinomial(weights, 1, generator=draw))]
        made.append(make(min(CHUNK, count - start), side, draw))
    images = torch.cat(made)[:, :, : shape[1], : shape[2]]
    return images if shape[0] == 3 else images.mean(1, keepdim=True).expand(-1, shape[0], -1, -1)


def layered_leaves(count: int, side: int, draw: Generator) -> Tensor:
    """Dead leaves, the largest at the back, filled with textures or other kinds of image, each with its own shading."""
    shape = (3, side, side)
    fillings = torch.cat([_filling(count, side, draw) for _ in range(FILLINGS)])
    slope_x, slope_y = _coordinates(side)
    made = _recoloured(fillings, count, draw)
    layers = torch.randint(1, LAYERS + 1, (count, 1, 1, 1), generator=draw)
    for layer in range(LAYERS):
        mask = leaf_masks(count, shape, draw, largest=0.75 * 0.88**layer)
        angle = uniform(0, 2 * math.pi, count, draw)
        slope = angle.cos() * slope_x + angle.sin() * slope_y
        shading = 1 + uniform(0, 0.6, count, draw) * bernoulli(count, 0.5, draw) * slope
        made = torch.where(mask & (layer < layers), _recoloured(fillings, count, draw) * shading, made)
    shadow = uniform(0, 0.6, count, draw) * bernoulli(count, 0.5, draw) * clouds(count, shape, draw)
    made = made * (1 - shadow)
    made = torch.lerp(made.mean(1, keepdim=True), made, uniform(0.2, 1.0, count, draw))
    return sharpened(made.clamp(0, 1), -uniform(0, 1.0, count, draw))


def random_decoder(count: int, side: int, draw: Generator) -> Tensor:
    """What an untrained generator draws: noise through random convolutions, from coarse to fine."""
    width, size = DECODER_WIDTH, 4
    maps = torch.randn(count, width, size, size, generator=draw)
    while size < side:
        size = min(2 * size, side)
        maps = F.interpolate(maps, size=(size, size), mode="bilinear")
        filters = torch.randn(width, width, 3, 3, generator=draw) / math.sqrt(9 * width)
        style = 1 + 0.7 * torch.randn(count, width, 1, 1, generator=draw)
        maps = F.conv2d(F.pad(maps * style, (1, 1, 1, 1), mode="replicate"), filters)
        strength = 0.25 * uniform(0, 1, count, draw) * torch.randn(1, width, 1, 1, generator=draw)
        maps = maps + strength * torch.randn(count, 1, size, size, generator=draw)
        maps = F.leaky_relu(maps + 0.6 * torch.randn(count, width, 1, 1, generator=draw), 0.1)
        maps = maps / maps.square().mean((1, 2, 3), keepdim=True).sqrt().clamp(min=1e-4)
    return _toned(torch.einsum("oc,nchw->nohw", torch.randn(3, width, generator=draw), maps), draw)


def coordinate_network(count: int, side: int, draw: Generator) -> Tensor:
    """Colours as random functions of the place: small networks with sines, bumps, folds and steps (Stanley 2007)."""
    width = COORDINATE_WIDTH
    places = torch.stack(_coordinates(side)).flatten(1)  # (2, s)
    offsets = places - 0.5 * torch.randn(count, 2, 1, generator=draw)
    inputs = torch.cat([offsets, torch.linalg.vector_norm(offsets, dim=1, keepdim=True)], dim=1)  # (n, 3, s)
    scale = uniform(0.5, 4.0, count, draw)[:, :, :, 0]
    units = torch.randn(count, width, 3, generator=draw) * scale @ inputs + 2 * _biases(count, draw)
    for _ in range(COORDINATE_DEPTH):
        sines, bumps, folds, steps = units.chunk(4, dim=1)
        units = torch.cat([(2 * sines).sin(), (-bumps.square()).exp(), folds.abs() - 1, (3 * steps).tanh()], dim=1)
        units = torch.randn(count, width, width, generator=draw) / 2 @ units + 0.5 * _biases(count, draw)
    return _toned(units[:, :3].reshape(count, 3, side, side), draw)


def coloured_noise(count: int, side: int, draw: Generator) -> Tensor:
    """Noise with a power-law spectrum of random exponent, its channels mixed."""
    waves = torch.fft.rfft2(torch.randn(count, 3, side, side, generator=draw))
    frequency = (torch.fft.fftfreq(side)[:, None].square() + torch.fft.rfftfreq(side).square()).sqrt()
    frequency[0, 0] = 1
    noise = torch.fft.irfft2(waves * frequency.pow(-uniform(0.7, 2.2, count, draw)), s=(side, side))
    mixed = torch.einsum("noc,nchw->nohw", torch.randn(count, 3, 3, generator=draw), noise)
    return _toned(mixed, draw)


Kind = Callable[[int, int, Generator], Tensor]
KINDS: tuple[tuple[Kind, float], ...] = (
    (layered_leaves, 0.4),
    (random_decoder, 0.3),
    (coordinate_network, 0.2),
    (coloured_noise, 0.1),
)


def _coordinates(side: int) -> tuple[Tensor, Tensor]:
    """x and y of every pixel, from -1 to 1."""
    along = torch.linspace(-1, 1, side)
    y, x = torch.meshgrid(along, along, indexing="ij")
    return x, y


def _biases(count: int, draw: Generator) -> Tensor:
    return torch.randn(count, COORDINATE_WIDTH, 1, generator=draw)


def _filling(count: int, side: int, draw: Generator) -> Tensor:
    """A texture for each image; some are whole images of another kind."""
    made = textures(count, (3, side, side), draw)
    kind = torch.rand(count, generator=draw)
    decoded, noisy = (kind < 0.25).nonzero()[:, 0], ((kind >= 0.25) & (kind < 0.4)).nonzero()[:, 0]
    if len(decoded):
        made[decoded] = random_decoder(len(decoded), side, draw)
    if len(noisy):
        made[noisy] = coloured_noise(len(noisy), side, draw)
    return made


def _recoloured(fillings: Tensor, count: int, draw: Generator) -> Tensor:
    """Some of the fillings, half of them mirrored, most of them in another colour."""
    chosen = fillings[torch.randint(len(fillings), (count,), generator=draw)]
    mirrored = torch.where(bernoulli(count, 0.5, draw) > 0, chosen.flip(3), chosen)
    tint = 0.25 * torch.randn(count, 3, 1, 1, generator=draw) * bernoulli(count, 0.7, draw)
    return (mirrored + tint).clamp(0, 1)


def _toned(fields: Tensor, draw: Generator) -> Tensor:
    """Three fields of any scale as the colours of an image of random lightness, tint, contrast and saturation."""
    count = len(fields)
    centred = fields - fields.mean((2, 3), keepdim=True)
    unit = centred / centred.std((1, 2, 3), keepdim=True).clamp(min=1e-4)
    coloured = torch.lerp(unit.mean(1, keepdim=True), unit, uniform(0.1, 1, count, draw))
    lightness = uniform(0.25, 0.75, count, draw) + 0.15 * torch.randn(count, 3, 1, 1, generator=draw)
    return (lightness + uniform(0.08, 0.35, count, draw) * coloured).clamp(0, 1)

"""Procedural images: the dead-leaves model with textures (Lee, Mumford and Huang 2001), alone or as detail on images.

Images from noisy moments have shapes and shades but no fine patterns. A student needs training images with some fine
patterns, of whatever kind (Baradad et al. 2021); these do not depend on any data.
"""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

CHUNK = 256  # images at a time: they fit the processor's cache
LEAVES = 11  # in a procedural image, at most
DETAILS = 3  # leaves added to an image as detail, at most
GROUND = 0.06  # darker pixels are background, which gets no detail
SHARPNESS = 1.5  # at most; images from moments have softer edges than real ones


def uniform(low: float, high: float, count: int, draw: Generator) -> Tensor:
    """One uniform number for each image, of shape (n, 1, 1, 1)."""
    return low + (high - low) * torch.rand(count, 1, 1, 1, generator=draw)


def bernoulli(count: int, probability: float, draw: Generator) -> Tensor:
    """1.0 for some of the images and 0.0 for the others."""
    return (uniform(0, 1, count, draw) < probability).float()


def dead_leaves(count: int, shape: tuple[int, int, int], draw: Generator) -> Tensor:
    """Procedural images (count, c, h, w) in [0, 1], half of them on a black background."""
    sizes = [min(CHUNK, count - start) for start in range(0, count, CHUNK)]
    return torch.cat([_picture(size, shape, draw) for size in sizes]) if sizes else torch.zeros(0, *shape)


def detailed(images: Tensor, draw: Generator) -> Tensor:
    """The images (n, c, h, w) in [0, 1] with texture, leaves, sharper edges, tone or grain, except the background."""
    return torch.cat([_detailed(part, draw) for part in torch.split(images, CHUNK)])


def sharpened(images: Tensor, amount: Tensor | float) -> Tensor:
    """Sharpened where the amount is above 0, blurred where it is below."""
    smooth = F.avg_pool2d(F.pad(images, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
    return (images + amount * (images - smooth)).clamp(0, 1)


def _picture(count: int, shape: tuple[int, int, int], draw: Generator) -> Tensor:
    picture = textures(count, shape, draw) * bernoulli(count, 0.5, draw)
    leaves = torch.randint(1, LEAVES + 1, (count, 1, 1, 1), generator=draw)
    for number in range(LEAVES):
        paint = textures(count, shape, draw) * bernoulli(count, 0.9, draw)
        picture = torch.where(leaf_masks(count, shape, draw) & (number < leaves), paint, picture)
    return sharpened(picture, -uniform(0.2, 1.0, count, draw) * bernoulli(count, 0.3, draw))


def _detailed(images: Tensor, draw: Generator) -> Tensor:
    count, shape = len(images), (images.shape[1], images.shape[2], images.shape[3])
    ground = images.amax(1, keepdim=True) <= GROUND
    over = uniform(0.1, 0.9, count, draw) * bernoulli(count, 0.35, draw)
    made = torch.lerp(images, textures(count, shape, draw) * images.clamp(min=0.25), over)
    leaves = torch.randint(0, DETAILS + 1, (count, 1, 1, 1), generator=draw)
    for number in range(DETAILS):
        paint = torch.lerp(made, textures(count, shape, draw), uniform(0, 1, count, draw))
        shade = made * uniform(0, 1, count, draw)
        paint = torch.where(bernoulli(count, 0.7, draw) > 0, paint, shade)
        made = torch.where(leaf_masks(count, shape, draw) & (number < leaves), paint, made)
    made = torch.where(ground, 0.5 * made * bernoulli(count, 0.1, draw), made)
    tone = torch.where(bernoulli(count, 0.3, draw) > 0, uniform(0.5, 1.8, count, draw), 1.0)
    made = sharpened(made, uniform(0, SHARPNESS, count, draw) * bernoulli(count, 0.5, draw))
    grain = 0.08 * bernoulli(count, 0.3, draw) * torch.randn(made.shape, generator=draw)
    return (made.clamp(min=1e-6).pow(tone) + torch.where(ground, 0.0, grain)).clamp(0, 1)


def _places(shape: tuple[int, int, int]) -> tuple[Tensor, Tensor]:
    y, x = torch.meshgrid(torch.arange(shape[1]), torch.arange(shape[2]), indexing="ij")
    return y.float(), x.float()


def textures(count: int, shape: tuple[int, int, int], draw: Generator) -> Tensor:
    """(n, c, h, w): plain, striped, wavy, shaded, grainy or cloudy, in one or two colours."""
    y, x = _places(shape)
    side = max(shape[1:])
    angle = uniform(0, math.pi, count, draw)
    straight = math.pi / 2 * bernoulli(count, 0.5, draw)  # many patterns run along a side
    angle = torch.where(bernoulli(count, 0.3, draw) > 0, straight, angle)
    across = x * angle.cos() + y * angle.sin()  # (n, 1, h, w)
    wave = torch.sin(across * (2 * math.pi) / (uniform(0.07, 0.65, count, draw) * side) + uniform(0, 6.3, count, draw))
    first, second = _colours(count, shape[0], draw), _colours(count, shape[0], draw)
    low, high = across.amin((2, 3), keepdim=True), across.amax((2, 3), keepdim=True)
    kind = torch.randint(6, (count,), generator=draw)
    made = first + 0.5 * (second - 0.5) * wave
    made = torch.where(_are(kind, 0), first, made)
    made = torch.where(_are(kind, 1), torch.where(wave > 0, first, second), made)
    made = torch.where(_are(kind, 2), torch.lerp(first, second, (across - low) / (high - low + 1e-9)), made)
    grainy, cloudy = (
        (kind == 3).nonzero()[:, 0],
        (kind == 4).nonzero()[:, 0],
    )  # expensive, so computed only where needed
    grain = torch.randn(len(grainy), 1, *shape[1:], generator=draw)
    made[grainy] = first[grainy] + uniform(0.02, 0.3, len(grainy), draw) * grain
    made[cloudy] = clouds(len(cloudy), shape, draw) + first[cloudy] - first[cloudy].mean(1, keepdim=True)
    return made.clamp_(0, 1)


def _are(kind: Tensor, wanted: int) -> Tensor:
    return (kind == wanted)[:, None, None, None]


def _colours(count: int, channels: int, draw: Generator) -> Tensor:
    lightness = uniform(0, 1, count, draw).expand(-1, channels, -1, -1)
    return lightness if channels == 1 else lightness + 0.5 * (torch.rand(count, channels, 1, 1, generator=draw) - 0.5)


def clouds(count: int, shape: tuple[int, int, int], draw: Generator) -> Tensor:
    """Noise with a power-law spectrum of random exponent, scaled to [0, 1]: (n, 1, h, w)."""
    if not count:  # rfft2 does not accept an empty batch
        return torch.zeros(0, 1, *shape[1:])
    waves = torch.fft.rfft2(torch.randn(count, 1, *shape[1:], generator=draw))
    frequency = (torch.fft.fftfreq(shape[1])[:, None].square() + torch.fft.rfftfreq(shape[2]).square()).sqrt()
    frequency[0, 0] = 1
    clouds: Tensor = torch.fft.irfft2(waves * frequency.pow(-uniform(0.5, 2.5, count, draw)), s=shape[1:])
    low, high = clouds.amin((2, 3), keepdim=True), clouds.amax((2, 3), keepdim=True)
    return (clouds - low) / (high - low + 1e-9)


def leaf_masks(count: int, shape: tuple[int, int, int], draw: Generator, *, largest: float = 0.5) -> Tensor:
    """The mask of one leaf for each image, (n, 1, h, w): an ellipse, a box, a bar or a noise region."""
    y, x = _places(shape)
    side, angle = max(shape[1:]), uniform(0, math.pi, count, draw)
    along, down = x - uniform(0, shape[2], count, draw), y - uniform(0, shape[1], count, draw)
    u, v = along * angle.cos() + down * angle.sin(), down * angle.cos() - along * angle.sin()
    long, short = (side * uniform(math.log(1 / 28), math.log(largest), count, draw).exp() for _ in range(2))
    thin = side * uniform(0.02, 0.07, count, draw)
    kind = torch.randint(4, (count,), generator=draw)
    bars = (u.abs() < thin) & (v.abs() < 2 * short)
    made = torch.where(_are(kind, 0), (u / long).square() + (v / short).square() < 1, bars)
    made = torch.where(_are(kind, 1), (u.abs() < long) & (v.abs() < short), made)
    cloudy = (kind == 2).nonzero()[:, 0]
    made[cloudy] = clouds(len(cloudy), shape, draw) > uniform(0.4, 0.75, len(cloudy), draw)
    return made

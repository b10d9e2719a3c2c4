"""How much coarse and fine detail images have, by colour: what procedural images can be given of the private ones.

The statistic is small and of all classes together, so it costs hardly any budget. It is asked relative to the power
that the procedural images have themselves, because the power of photographs falls steeply with the frequency.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

BANDS = 10  # of frequencies
MOST_GAIN = 3.0  # of an amplitude, and its inverse the least
MEAN_SCALE = 0.15  # about how much the mean colours of images differ
# Brightness, blue against orange, green against violet: an orthonormal basis of colours, about as photographs vary.
AXES = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [1.0, -2.0, 1.0]]) / torch.tensor([[3.0], [2.0], [6.0]]).sqrt()


class Spectrum:
    """Power of images by bands of frequencies and colour axes, relative to that of example images.

    `row` is what one image contributes to the sum over all images; `matching` is what is done with their mean.
    """

    def __init__(self, examples: Tensor) -> None:
        """From example images (n, c, h, w) in [0, 1]."""
        channels, height, width = examples.shape[1:]
        self.axes = AXES if channels == 3 else torch.ones(1, 1)
        frequencies = (torch.fft.fftfreq(height)[:, None].square() + torch.fft.rfftfreq(width).square()).sqrt()
        lowest = 1 / max(height, width)
        place = (frequencies.clamp(min=lowest) / lowest).log() / math.log(0.5 * math.sqrt(2) / lowest) * (BANDS - 1)
        self.weights = (1 - (place[None] - torch.arange(BANDS)[:, None, None]).abs()).clamp(min=0)  # (bands, h, w')
        self.weights[:, 0, 0] = 0  # the mean has no frequency
        powers, means = self._parts(examples)
        self.powers = powers.mean(0).clamp(min=1e-9)  # (axes, bands)
        self.means, self.deviations = means.mean(0), means.std(0, correction=0).clamp(min=1e-3)

    @property
    def bound(self) -> float:
        """A bound on the norm of rows that hardly any photograph exceeds."""
        return 3 * math.sqrt(self.powers.numel())

    def row(self, image: Tensor) -> Tensor:
        """One image (c, h, w): its relative powers, and its mean colour with the squares."""
        powers, means = (part[0] for part in self._parts(image[None]))
        away = (means - self.means) / MEAN_SCALE
        return torch.cat([(powers / self.powers).flatten(), away, away.square()])

    def matching(self, mean_row: Tensor, *, deviation: float) -> Callable[[Tensor], Tensor]:
        """What gives images the powers and mean colours of a noisy mean of rows, whose noise has this deviation."""
        count, axes = self.powers.numel(), len(self.axes)
        ratios = 1 + _shrunk(mean_row[:count] - 1, deviation)
        gains = ratios.clamp(min=MOST_GAIN**-2, max=MOST_GAIN**2).sqrt().reshape(self.powers.shape)
        by_frequency = torch.einsum("ab,bhw->ahw", gains, self.weights)
        first, second = mean_row[count : count + axes], mean_row[count + axes :]
        shift = MEAN_SCALE * _shrunk(first, deviation)
        wanted = MEAN_SCALE * (second - first.square()).clamp(min=0).sqrt()
        spread = (wanted / self.deviations).clamp(1 / MOST_GAIN, MOST_GAIN)
        spread = torch.where(second > 3 * deviation, spread, torch.ones(axes))  # where it is more than noise

        def match(images: Tensor) -> Tensor:
            coloured = torch.einsum("ac,nchw->nahw", self.axes, images)
            means = self.means + shift + spread * (coloured.mean((2, 3)) - self.means)
            detail = torch.fft.irfft2(torch.fft.rfft2(coloured) * by_frequency, s=images.shape[2:])
            return torch.einsum("ac,nahw->nchw", self.axes, detail + means[:, :, None, None]).clamp(0, 1)

        return match

    def _parts(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Powers (n, axes, bands) and means (n, axes)."""
        coloured = torch.einsum("ac,nchw->nahw", self.axes, images)
        power = torch.fft.rfft2(coloured).abs().square() / coloured[0, 0].numel() ** 2
        return torch.einsum("nahw,bhw->nab", power, self.weights), coloured.mean((2, 3))


def _shrunk(values: Tensor, deviation: float) -> Tensor:
    """Values whose noise has this deviation, each reduced by the part that noise has in its square."""
    return values * (1 - deviation**2 / values.square().clamp(min=1e-12)).clamp(min=0)

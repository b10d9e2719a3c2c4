"""A generator that corrects painted images: what others painted, and a small convolutional network on top of it.

Refining simulated images by a network that a discriminator guides is due to Shrivastava et al. (2017). Here the images
are painted from noisy answers, so that training begins with images that already have the shapes of their classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from sfumato.networks.generator import ConditionalGenerator

Paint = Callable[[Tensor, torch.Generator], Tensor]  # labels (b,) to images (b, c, h, w) in [0, 1]
EDGE = 0.02  # so far from black and white the correction is made, so that it has a gradient there


class Refiner(ConditionalGenerator):
    """Painted images and noise at half size to corrected images; before training the correction is zero."""

    def __init__(
        self, paint: Paint, shape: tuple[int, int, int], classes: int, *, width: int, draw: torch.Generator
    ) -> None:
        super().__init__()
        channels, height, width_of_image = shape
        self._paint = paint
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**31, (), generator=draw)))
            self.first = nn.Conv2d(channels + 1, width, 3, padding=1)
            self.down = nn.Conv2d(width, 2 * width, 4, stride=2, padding=1)
            self.of_class = nn.Embedding(classes, 2 * width)
            self.middle = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
            self.last = nn.Conv2d(3 * width, channels, 3, padding=1)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(cast(Tensor, self.last.bias))
        self.enlarge = nn.Upsample((height, width_of_image), mode="nearest")

    def inputs(self, labels: Tensor, draw: torch.Generator) -> Tensor:
        painted = self._paint(labels, draw)
        noise = torch.randn(len(painted), 1, *painted.shape[2:], generator=draw)
        return torch.cat([painted, noise], dim=1)

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        fine = nn.functional.leaky_relu(self.first(inputs), 0.2)  # (b, w, h, w)
        coarse = nn.functional.leaky_relu(self.down(fine) + self.of_class(labels)[..., None, None], 0.2)
        coarse = nn.functional.leaky_relu(self.middle(coarse), 0.2)
        correction = self.last(torch.cat([fine, self.enlarge(coarse)], dim=1))
        inside = inputs[:, :-1] * (1 - 2 * EDGE) + EDGE
        corrected = (torch.logit(inside) + correction).sigmoid()
        return cast(Tensor, ((corrected - EDGE) / (1 - 2 * EDGE)).clamp(0, 1))

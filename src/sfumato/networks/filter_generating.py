"""The filter generating network of DISCO (Singh et al. 2021): which channels of an image's features may go on."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

RATIO = 0.6  # of the channels, that are masked
TEMPERATURE = 1 / 30


class ChannelFilter(nn.Module):
    """Scores s of the channels of features z, and the features times sigmoid((s - tau) / temperature).

    tau is the score of rank floor(ratio * channels) from the lowest, so that exactly so many channels get less than
    half, and the gradient flows through scores and tau. Scores are a linear layer over the means of the channels.
    """

    def __init__(
        self, channels: int, *, ratio: float = RATIO, temperature: float = TEMPERATURE, draw: torch.Generator
    ) -> None:
        super().__init__()
        self.temperature = temperature
        # 0.29 * 100 is a little below 29 in binary; ratio 1 would leave nothing to compare with
        self.masked = min(channels - 1, math.floor(ratio * channels + 1e-9))
        self.scores = nn.Linear(channels, channels, device="meta").to_empty(device="cpu")  # draws nothing of its own
        with torch.no_grad():
            self.scores.weight.copy_(torch.randn(channels, channels, generator=draw) / math.sqrt(channels))
            self.scores.bias.zero_()

    def mask(self, features: Tensor) -> Tensor:  # (n, c, a, b) -> (n, c)
        scores = self.scores(features.mean(dim=(2, 3)))
        threshold = scores.sort(dim=1).values[:, self.masked, None]
        return torch.sigmoid((scores - threshold) / self.temperature)

    def forward(self, features: Tensor) -> Tensor:  # (n, c, a, b) -> (n, c, a, b)
        return self.mask(features)[:, :, None, None] * features

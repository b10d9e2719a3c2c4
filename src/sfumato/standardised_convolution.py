"""Convolution with standardised weights: Qiao et al. (2019), scaled by fan-in and with a gain, as De et al. (2022).

Architectures are built with it, and DP-SGD has a rule for its gradients, so it belongs to neither's room.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

EPSILON = 1e-4  # keeps the division finite where all weights of a channel are equal


class StandardisedConv2d(nn.Conv2d):
    """The kernel of each output channel is centred, brought to unit norm and multiplied by a trained gain.

    With independent inputs of unit variance the outputs have a variance near the squared gain, whatever the weights
    are, so that the noise which DP-SGD adds to the weights does not make activations grow.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, groups=groups, bias=bias)
        if self.fan_in < 2:
            raise ValueError("Expected at least 2 weights per output channel, got 1, which is zero once it is centred.")
        self.gain = nn.Parameter(torch.ones(out_channels))
        # the kernel in use does not depend on this scale, but the size of a step relative to the weights does
        nn.init.normal_(self.weight, std=self.fan_in**-0.5)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @property
    def fan_in(self) -> int:
        """How many weights an output channel has."""
        return self.weight[0].numel()

    def kernel(self, weight: Tensor, gain: Tensor) -> Tensor:
        """The kernel in use, as a function of the parameters alone."""
        standardised, _ = self.standardised(weight)
        return standardised * gain.reshape(-1, 1, 1, 1)

    def standardised(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The weights of each output channel, centred and divided by their norm, and one over that norm.

        Guarantee: for a gradient g of the kernel, the gradient of the gain is <g, k>, and that of the weights is
        gain * scale * (g - mean(g) - <g, k> k), in each output channel, where k and scale are what is returned here.
        """
        variance, mean = torch.var_mean(weight, (1, 2, 3), correction=0, keepdim=True)
        scale = torch.rsqrt(variance * self.fan_in + EPSILON)
        return (weight - mean) * scale, scale

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (torch's name)
        return cast(Tensor, self._conv_forward(input, self.kernel(self.weight, self.gain), self.bias))

"""Our own small diffusion model of images: a fixed block transform as its latents, and a U-Net.

The noise prediction is preconditioned as in EDM (Karras et al. 2022). Latents are whitened, so for them EDM's factors
are those of data of unit variance: with noisy = sqrt(abar) x + sqrt(1 - abar) noise, the network gives an output f of
unit variance at every step, and noise = sqrt(1 - abar) noisy - sqrt(abar) f. A plain prediction of the noise would
have to be divided by sqrt(abar) to see the image, which magnifies its error most where SDEdit begins. The schedule is
the cosine one (Nichol and Dhariwal 2021): a linear one leaves nothing of the latents of a small image for a third of
its steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from sfumato.errors import UsageError
from sfumato.networks.block_cosines import BlockCosines
from sfumato.networks.unet import UNet

STEPS = 1000  # of the schedule
LAST_ANGLE = 0.98  # of a quarter of the cosine's wave: a little of the image is left at the last step
SMALLEST, LARGEST, MULTIPLE = 16, 128, 8  # sides of images
FEW_BLOCKS = 16  # along a side: larger images have larger blocks


class Denoiser(nn.Module):
    """A diffusion model of images of one shape; it follows `Regenerator`.

    It has no prompt: the unprompted prediction is the prompted one, so that guidance changes nothing.
    """

    mean: Tensor
    deviation: Tensor
    signal: Tensor

    def __init__(self, shape: tuple[int, int, int], *, width: int) -> None:
        super().__init__()
        expect_shape(shape)
        channels, height, breadth = shape
        self._blocks = BlockCosines(block_side(height, breadth))
        latents = channels * self._blocks.kept
        self.unet = UNet(latents, width=width)
        self.unet.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.register_buffer("mean", torch.zeros(latents, 1, 1))
        self.register_buffer("deviation", torch.ones(latents, 1, 1))
        angles = (torch.arange(STEPS, dtype=torch.float64) + 1) / STEPS * LAST_ANGLE * math.pi / 2
        self.register_buffer("signal", angles.cos().square().float(), persistent=False)

    def whiten(self, pixels: Tensor) -> None:
        """Take each coefficient's mean and standard deviation from these images."""
        self.mean, self.deviation = torch.zeros_like(self.mean), torch.ones_like(self.deviation)
        total, squares, count = torch.zeros_like(self.mean.double()), torch.zeros_like(self.mean.double()), 0
        for batch in torch.split(pixels, 256):
            latents = self.encode(batch).double()
            total = total + latents.sum((0, 2, 3))[:, None, None]
            squares = squares + latents.square().sum((0, 2, 3))[:, None, None]
            count += len(latents) * latents.shape[2] * latents.shape[3]
        self.mean = (total / count).float()
        self.deviation = (squares / count - (total / count).square()).clamp(min=1e-6).sqrt().float()

    def encode(self, pixels: Tensor) -> Tensor:  # uint8 (n, c, h, w) -> (n, latents, a, b)
        return (self._blocks.encode(pixels.float() / 127.5 - 1) - self.mean) / self.deviation

    def decode(self, latents: Tensor) -> Tensor:  # (n, latents, a, b) -> uint8 (n, c, h, w)
        images = self._blocks.decode(latents * self.deviation + self.mean)
        return ((images + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)

    def preconditioned(
        self, noisy: Tensor, steps: Tensor, through: Callable[[Tensor], Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """The network's own output, which has unit variance, and the middle block's features."""
        found: tuple[Tensor, Tensor] = self.unet(
            noisy.contiguous(memory_format=torch.channels_last), (steps + 1) / STEPS, through
        )
        return found

    def denoise(
        self,
        noisy: Tensor,
        steps: Tensor,
        *,
        prompted: bool = True,
        through: Callable[[Tensor], Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        output, features = self.preconditioned(noisy, steps, through)
        signal = self.signal[steps][:, None, None, None]
        return (1 - signal).sqrt() * noisy - signal.sqrt() * output, features

    @property
    def network(self) -> nn.Module:
        return self.unet

    @property
    def adaptable(self) -> tuple[str, ...]:
        return self.unet.attention_projections


def block_side(height: int, breadth: int) -> int:
    return 4 if max(height, breadth) <= 4 * FEW_BLOCKS else 8


def expect_shape(shape: tuple[int, int, int]) -> None:
    """Refuse images that the model cannot take."""
    _, height, breadth = shape
    if any(side % MULTIPLE or not SMALLEST <= side <= LARGEST for side in (height, breadth)):
        raise UsageError(
            f"Expected images whose sides are multiples of {MULTIPLE} from {SMALLEST} to {LARGEST}, "
            f"got {height} x {breadth}.",
            fix="read them at another size, such as 64",
        )

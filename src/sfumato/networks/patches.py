"""Fixed features of patches (Coates, Lee and Ng 2011) whose filters come from procedural images: no real image in them.

Every patch is normalised for brightness and contrast and compared with a few hundred filters; the responses above a
threshold are averaged over a coarse grid. An image and its mirror image count as one, which halves the noise of the
features; what is read from left to right, as letters are, needs other features. The filters are whitened patches of
procedural images, which `pretraining/patches.py` makes and `patches.safetensors` beside this file holds.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import torch
from safetensors.torch import load
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.errors import DataError

FILE = Path(__file__).with_name("patches.safetensors")
SHA256 = "91b991a195bb03d22a03dc69ae6ea0e3cc22fb6d166c2ac93dbef9068cc81f54"
PATCH = 6  # pixels, the side of a patch
CONTRAST = 0.01  # added to the variance of a patch, so that flat patches stay flat
THRESHOLD = 0.25  # responses below it count as none
STRIDE = 2  # pixels between two patches; the mirror image fills the gaps
CELLS = 2  # the side of the grid over which responses are averaged
SEEN_SIDE = 32  # pixels; larger images are made smaller, because filters fit patterns of a certain size
SMALLEST = PATCH + STRIDE  # pixels, the shortest side that has enough patches
BATCH = 64  # images at a time: responses of more do not fit the processor's cache


class PatchFeatures(nn.Module):
    """Averaged responses of the filters, of unit length: (b, c, h, w) in [0, 1] -> (b, filters, 2, 2)."""

    weights: Tensor
    biases: Tensor

    def __init__(self, channels: int, height: int, width: int) -> None:
        super().__init__()
        side = max(height, width)
        coarser = round(side / SEEN_SIDE) if side > 40 else 1
        self.coarser = max(1, min(coarser, min(height, width) // SMALLEST))
        filters = _filters("grey" if channels == 1 else "colour")
        self.register_buffer("weights", filters["weights"])  # (k, c, PATCH, PATCH), each of mean zero
        self.register_buffer("biases", filters["biases"])
        self.shape = torch.Size((len(self.biases), CELLS, CELLS))

    def forward(self, images: Tensor) -> Tensor:
        seen = F.avg_pool2d(images, self.coarser) if self.coarser > 1 else images
        pooled = torch.cat([self._pooled(part) + self._pooled(part.flip(3)) for part in torch.split(seen, BATCH)])
        unit: Tensor = pooled / torch.linalg.vector_norm(pooled.flatten(1), dim=1).clamp(min=1e-6)[:, None, None, None]
        return unit

    def _pooled(self, images: Tensor) -> Tensor:
        # The filters have mean zero, so the mean of a patch needs no subtraction; its variance is needed.
        means = F.avg_pool2d(images.mean(1, keepdim=True), PATCH, stride=STRIDE)
        squares = F.avg_pool2d(images.square().mean(1, keepdim=True), PATCH, stride=STRIDE)
        contrast = ((squares - means.square()).clamp(min=0) + CONTRAST).sqrt()
        responses = F.conv2d(images, self.weights, stride=STRIDE) / contrast + (self.biases - THRESHOLD)[:, None, None]
        return F.adaptive_avg_pool2d(F.relu(responses), CELLS)


@functools.cache
def _filters(kind: str) -> dict[str, Tensor]:
    content = FILE.read_bytes()
    got = hashlib.sha256(content).hexdigest()
    if got != SHA256:
        raise DataError(
            f"Expected the filters with SHA-256 {SHA256[:16]}..., got {got[:16]}...",
            where=FILE,
            fix="install sfumato again",
        )
    held = load(content)
    return {name: held[f"{kind}.{name}"] for name in ("weights", "biases")}

"""Images by their low cosine frequencies, an orthonormal part: what small networks on few records look at."""

from __future__ import annotations

from torch import Tensor

from sfumato.networks.cosines import cosines


class LowFrequencies:
    """The lowest `side` x `side` frequencies of each channel of images of one shape, and directions back in pixels."""

    def __init__(self, shape: tuple[int, int, int], side: int) -> None:
        self.shape = shape
        channels, height, width = shape
        self._down, self._across = cosines(min(side, height), height), cosines(min(side, width), width)
        self.length = channels * len(self._down) * len(self._across)

    def encode(self, images: Tensor) -> Tensor:  # (..., c, h, w) in [0, 1] -> (..., length)
        return (self._down @ (images - 0.5) @ self._across.T).flatten(-3)

    def directions(self, coefficients: Tensor) -> Tensor:  # (b, length) -> (b, c, h, w)
        """Directions in pixels from directions in frequencies; being orthonormal, the transform is its own adjoint."""
        parts = coefficients.reshape(len(coefficients), self.shape[0], len(self._down), len(self._across))
        return self._down.T @ parts @ self._across

"""The one source of privacy randomness: ChaCha20, keyed from the operating system's entropy.

Guarantee: every draw has a fresh key of its own, which is written nowhere, so noise can be neither predicted nor
repeated: not in another process, after a fork, under a process number that was used before, or in a copy of this
process's memory that runs again. Only `SeededNoise`, which says that it is not private, repeats itself.
"""

from __future__ import annotations

import os
import struct
from typing import ClassVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms
from numpy.typing import NDArray
from scipy.special import ndtri

from sfumato.errors import EnvironmentProblem, UsageError

LATTICE_BITS = 20  # answers lie on a public grid: the bound times 2^-20
_CHUNK = 1 << 22  # numbers drawn at a time, so that memory does not grow
_FARTHEST = 12  # standard deviations; the sum of two normals from 53 bits each is at most 11.7


class Noise:
    """Uniform bits from a keyed stream, and the distributions that privacy needs."""

    private: ClassVar[bool] = True
    source: ClassVar[str] = "ChaCha20 keyed from OS entropy"

    def _key(self) -> bytes:
        try:
            return os.urandom(32)
        except (OSError, NotImplementedError) as error:
            raise EnvironmentProblem(
                "Expected the operating system to give entropy, got none.", fix="run on a machine with /dev/urandom"
            ) from error

    def _bits(self, count: int) -> NDArray[np.uint64]:
        # a key for each draw costs microseconds, and leaves no state that a fork or a snapshot could repeat
        return np.frombuffer(_stream(self._key()).update(bytes(8 * count)), dtype="<u8")

    def _uniform(self, count: int) -> NDArray[np.float64]:
        """In the open interval (0, 1), on 53 bits."""
        return ((self._bits(count) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53

    def lattice_gaussian(self, count: int, scale: float) -> NDArray[np.int64]:
        """Rounded N(0, scale^2), as integers.

        Added to an integer, this is the exact Gaussian mechanism followed by rounding, so the float
        attacks of Mironov (2012) and Jin et al. (2022) do not apply. Two normals are added so that every
        integer of the far tail can be drawn, although each normal comes from 53 bits. A scale at which a float64 could
        not hold every integer is refused: such noise would leave the last bits of a sum uncovered.
        """
        if not 0 <= scale * _FARTHEST < 2.0**53:
            raise UsageError(
                f"Expected noise whose integers a float64 can hold, got a scale of {scale:.3g}.",
                fix="use a noise multiplier of at most 1e8",
            )
        drawn = np.empty(count, dtype=np.int64)
        for start in range(0, count, _CHUNK):
            part = drawn[start : start + _CHUNK]
            normal = ndtri(self._uniform(part.size)) + ndtri(self._uniform(part.size))
            part[:] = np.rint(normal * (scale * 0.5**0.5)).astype(np.int64)
        return drawn

    def gumbel(self, count: int) -> NDArray[np.float64]:
        return -np.log(-np.log(self._uniform(count)))

    def included(self, count: int, rate: float) -> NDArray[np.bool_]:
        """Poisson sampling: each of `count` records is included with probability `rate`, independently."""
        if rate >= 1:
            return np.ones(count, dtype=bool)
        return self._bits(count) < np.uint64(min(int(rate * 2.0**64), 2**64 - 1))

    def drawn_shards(self, count: int, shards: int) -> NDArray[np.int64]:
        """`count` independent uniform draws from 0..shards-1 (the bias of a 64-bit modulus is below 1e-12)."""
        return (self._bits(count) % np.uint64(shards)).astype(np.int64)

    def permutation(self, count: int) -> NDArray[np.int64]:
        """A uniformly random order, by sorting random numbers."""
        return np.argsort(self._bits(count), kind="stable").astype(np.int64)


class SeededNoise(Noise):
    """Repeatable noise, for tests of determinism. Whoever knows the seed can subtract the noise: NOT PRIVATE."""

    private = False
    source = "SEEDED, NOT PRIVATE"

    def __init__(self, seed: int) -> None:
        self._stream = _stream(struct.pack(">32s", str(seed).encode()))

    def _bits(self, count: int) -> NDArray[np.uint64]:
        return np.frombuffer(self._stream.update(bytes(8 * count)), dtype="<u8")


def _stream(key: bytes) -> CipherContext:
    return Cipher(algorithms.ChaCha20(key, b"\0" * 16), mode=None).encryptor()

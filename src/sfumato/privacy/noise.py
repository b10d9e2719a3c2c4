"""The one source of privacy randomness: ChaCha20, keyed from the operating system's entropy.

Guarantee: a key is drawn anew in every process and after every fork and is written nowhere, so noise can
be neither predicted nor repeated; only `SeededNoise`, which says that it is not private, can be.
"""

from __future__ import annotations

import os
import struct
from typing import ClassVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray
from scipy.special import ndtri

from sfumato.errors import EnvironmentProblem

LATTICE_BITS = 20  # answers lie on a public grid: the bound times 2^-20
_CHUNK = 1 << 22  # numbers drawn at a time, so that memory stays flat


class Noise:
    """Uniform bits from a keyed stream, and the distributions that privacy needs."""

    private: ClassVar[bool] = True
    source: ClassVar[str] = "ChaCha20 keyed from OS entropy"

    def __init__(self) -> None:
        self._process = -1

    def _key(self) -> bytes:
        try:
            return os.urandom(32)
        except (OSError, NotImplementedError) as error:
            raise EnvironmentProblem(
                "Expected the operating system to give entropy, got none.", fix="run on a machine with /dev/urandom"
            ) from error

    def _bits(self, count: int) -> NDArray[np.uint64]:
        if self._process != os.getpid():  # a forked copy must not continue its parent's stream
            self._process = os.getpid()
            self._stream = Cipher(algorithms.ChaCha20(self._key(), b"\0" * 16), mode=None).encryptor()
        return np.frombuffer(self._stream.update(bytes(8 * count)), dtype="<u8")

    def _uniform(self, count: int) -> NDArray[np.float64]:
        """In the open interval (0, 1), on 53 bits."""
        return ((self._bits(count) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53

    def lattice_gaussian(self, count: int, scale: float) -> NDArray[np.int64]:
        """Rounded N(0, scale^2), as integers.

        Added to an integer, this is the exact Gaussian mechanism followed by rounding, so the float
        attacks of Mironov (2012) and Jin et al. (2022) have nothing to hold on to. Two normals are added
        so that no integer of the far tail is out of reach of a 53-bit inverse.
        """
        drawn = np.empty(count, dtype=np.int64)
        for start in range(0, count, _CHUNK):
            part = drawn[start : start + _CHUNK]
            normal = ndtri(self._uniform(part.size)) + ndtri(self._uniform(part.size))
            part[:] = np.rint(normal * (scale * 0.5**0.5)).astype(np.int64)
        return drawn

    def gumbel(self, count: int) -> NDArray[np.float64]:
        return -np.log(-np.log(self._uniform(count)))

    def included(self, count: int, rate: float) -> NDArray[np.bool_]:
        """Poisson sampling: each of `count` records is in with probability `rate`, on its own."""
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
    """Repeatable noise, for tests of determinism. Whoever knows the seed can take the noise off: NOT PRIVATE."""

    private = False
    source = "SEEDED, NOT PRIVATE"

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed

    def _key(self) -> bytes:
        return struct.pack(">32s", str(self._seed).encode())

"""Sealed messages between the driver of a crew and one of its workers, authenticated by a shared secret.

Both draw a fresh nonce for every meeting; the secret, both nonces and the rank determine one key for each direction.
A message is encrypted and authenticated (AES-256-GCM); its nonce is the number of messages before it.

Guarantee: what is opened was sealed by a holder of the secret, at this meeting, for this rank, in this direction and
at this position in the sequence; anything else raises VerificationFailed, and none of its bytes are returned.

All workers of a crew have the same secret and trust each other; an outsider still sees when and how much is sent.
"""

from __future__ import annotations

import secrets
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from sfumato.errors import UsageError, VerificationFailed

SHORTEST_SECRET = 16  # bytes; it must be random, because what is sent at a meeting allows offline guessing
NONCE = 32  # bytes
TAG = 16  # bytes that sealing adds
_KEY = 32


def fresh_secret() -> bytes:
    return secrets.token_bytes(_KEY)


def fresh_nonce() -> bytes:
    return secrets.token_bytes(NONCE)


def checked_secret(secret: bytes | None) -> bytes:
    """The secret, if it is long enough to be one."""
    if not isinstance(secret, bytes) or len(secret) < SHORTEST_SECRET:
        got = f"{len(secret)} bytes" if isinstance(secret, bytes) else type(secret).__name__
        raise UsageError(
            f"Expected a secret of at least {SHORTEST_SECRET} bytes for a meeting with other machines, got {got}.",
            fix="draw one by secrets.token_bytes(32) and give it to GlooCrew(..., secret=) and serve(..., secret=)",
        )
    return secret


class Channel:
    """One end of the connection between the driver and one worker; each end counts the messages it sent and opened."""

    def __init__(self, secret: bytes, driver_nonce: bytes, worker_nonce: bytes, *, rank: int, ranks: int, driver: bool):
        if (len(driver_nonce), len(worker_nonce)) != (NONCE, NONCE):
            raise VerificationFailed(f"Expected nonces of {NONCE} bytes, got {len(driver_nonce)}, {len(worker_nonce)}.")
        about = b"sfumato crew 1" + struct.pack("<QQ", rank, ranks)
        keys = HKDF(SHA256(), length=2 * _KEY, salt=driver_nonce + worker_nonce, info=about).derive(secret)
        to_worker = AESGCM(keys[:_KEY])
        to_driver = AESGCM(keys[_KEY:])
        self._out = to_worker if driver else to_driver
        self._in = to_driver if driver else to_worker
        self._peer = f"rank {rank}" if driver else "the driver"
        self._sent = 0
        self._opened = 0

    def seal(self, message: bytes | memoryview) -> bytes:
        sealed = self._out.encrypt(_place(self._sent), message, None)
        self._sent += 1
        return sealed

    def open(self, sealed: bytes | memoryview) -> bytes:
        """The message, if it is the next one that the other end sealed."""
        try:
            message = self._in.decrypt(_place(self._opened), sealed, None)
        except InvalidTag:
            raise VerificationFailed(
                f"Expected message {self._opened} sealed by {self._peer}, got one that does not verify.",
                fix="give all ranks the same secret, keep strangers off the network, and run again: it resumes",
            ) from None
        self._opened += 1
        return message


def _place(number: int) -> bytes:
    """A nonce that no other message under the same key has."""
    return number.to_bytes(12, "little")

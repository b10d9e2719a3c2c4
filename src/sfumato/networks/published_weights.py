"""Published weights of public networks: a file with a known checksum into a network."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import torch
from torch import nn

from sfumato.errors import DataError


def load_published(network: nn.Module, file: Path, sha256: str) -> None:
    """The weights into the network, if the file is the published one; nothing in it is run."""
    content = published_content(file, sha256)
    weights = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    missing, unexpected = network.load_state_dict(weights, strict=False)
    # Files from before 2018 do not count the batches of batch norm, which nothing here reads.
    lacking = [key for key in missing if not key.endswith("num_batches_tracked")]
    if lacking or unexpected:
        raise DataError(f"Expected the weights of this network, got others: {(lacking + unexpected)[0]}.", where=file)
    network.eval().requires_grad_(False)


def published_content(file: Path, sha256: str) -> bytes:
    """What is in the file, if it is the published one."""
    content = file.read_bytes()
    got = hashlib.sha256(content).hexdigest()
    if not got.startswith(sha256):
        raise DataError(
            f"Expected weights with SHA-256 {sha256[:16]}..., got {got[:16]}...", where=file, fix="remove that file"
        )
    return content

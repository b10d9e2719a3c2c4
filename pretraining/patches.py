"""Make src/sfumato/networks/patches.safetensors: filters from procedural images, without a single real image.

Run: python pretraining/patches.py [FILE]. It takes a minute on one core. Another machine may round differently, so the
file is shipped with its checksum, and nobody needs to make it.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import torch
from safetensors.torch import save

from sfumato.files import write_whole
from sfumato.networks.patches import FILE
from sfumato.synthesis.procedural_images import procedural_images
from sfumato.training.patch_filters import patch_filters

FILTERS = 512  # of each kind
IMAGES, SIDE = 6_000, 32
NOTE = "Whitened patches of procedural images, by pretraining/patches.py of Sfumato. No real image was used."


def made() -> bytes:
    tensors = {}
    for kind, channels in (("colour", 3), ("grey", 1)):
        draw = torch.Generator().manual_seed(0)
        images = procedural_images(IMAGES, (channels, SIDE, SIDE), draw)
        weights, biases = patch_filters(images, FILTERS, draw)
        tensors |= {f"{kind}.weights": weights.contiguous(), f"{kind}.biases": biases}
    content: bytes = save(tensors, metadata={"note": NOTE})
    return content


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    content = made()
    write_whole(target, content)
    print(f"{target}: {len(content)} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}")

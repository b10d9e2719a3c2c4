"""Features of images by a public network: EfficientNet-Lite0, or a network of the user's own in a file.

What a public network knows costs no privacy. Teachers and students that see through the same network agree on the
features, and a linear teacher is a linear function of them, which a student finds exactly.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.errors import DataError, UsageError
from sfumato.networks.efficientnet_lite0 import LITE0_SHA256, lite0

LITE0 = "efficientnet-lite0"
LITE0_SIDES = (64, 96)  # pixels that it sees of small images, and of those beyond forty pixels
LITE0_ROWS = (3, 5, 7)  # rows of blocks whose maps are used: edges, parts, and what they are parts of
CELLS = 2  # the side of the grid over which maps are averaged
EXPORTED = ".pt2"  # how files of `torch.export.save` end
CACHE = Path("~/.cache/sfumato")


class NetworkFeatures(nn.Module):
    """Features of an image and its mirror image by a public network, of unit length: (b, c, h, w) -> (b, d, 1, 1)."""

    def __init__(self, network: nn.Module, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.network = network
        with torch.no_grad():
            self.shape = self(torch.zeros(2, *shape)).shape[1:]

    def forward(self, images: Tensor) -> Tensor:
        colour = images.expand(-1, 3, -1, -1)
        made: Tensor = self.network(colour) + self.network(colour.flip(3))
        unit: Tensor = made / torch.linalg.vector_norm(made, dim=1, keepdim=True).clamp(min=1e-6)
        return unit[:, :, None, None]


class Lite0Maps(nn.Module):
    """Maps of several rows of EfficientNet-Lite0, averaged over a coarse grid; each row counts as much as another."""

    def __init__(self) -> None:
        super().__init__()
        self.network = lite0()

    def forward(self, images: Tensor) -> Tensor:  # (b, 3, h, w) in [0, 1] -> (b, d)
        side = LITE0_SIDES[max(images.shape[2:]) > 40]
        seen = F.interpolate(images, size=(side, side), mode="bilinear", antialias=True)
        maps = self.network.maps(seen, rows=max(LITE0_ROWS))
        pooled = [F.adaptive_avg_pool2d(maps[row - 1], CELLS).flatten(1) for row in LITE0_ROWS]
        return torch.cat([F.normalize(row, dim=1) for row in pooled], dim=1)


def public_features(network: str, shape: tuple[int, int, int]) -> NetworkFeatures:
    """The features by a network: "efficientnet-lite0", or the path of a file that `torch.export.save` wrote."""
    made = Lite0Maps() if network == LITE0 else _exported(_file(network), shape)
    return NetworkFeatures(made, shape)


def named_features(name: str, shape: tuple[int, int, int]) -> NetworkFeatures:
    """The features by the network that a certificate names; another network of that name is refused."""
    network = name.partition(",")[0]
    if (got := certified_name(network)) != name:
        raise DataError(
            f"Expected the public network {_short(name)}, got {_short(got)}.",
            fix="get the network from the publisher of the release",
        )
    return public_features(network, shape)


def certified_name(network: str) -> str:
    """Name and checksum of a network, as a certificate states them; raises where there is no such network."""
    if network == LITE0:
        return f"{LITE0}, SHA-256 {LITE0_SHA256}"
    file = _file(network)
    return f"{file.name}, SHA-256 {hashlib.sha256(file.read_bytes()).hexdigest()}"


def _short(name: str) -> str:
    """Enough of a checksum to compare it by eye."""
    return f"{name[:-48]}..."


def _file(network: str) -> Path:
    """A network's file, by its path, or by its name in the cache folder."""
    for path in (Path(network), CACHE.expanduser() / network):
        if path.suffix == EXPORTED and path.is_file():
            return path
    raise UsageError(
        f"Expected the network {LITE0}, or a file *{EXPORTED} that torch.export.save wrote, got {network!r}.",
        fix=f"give the path of such a file, put it in {CACHE}, or name no network",
    )


def _exported(path: Path, shape: tuple[int, int, int]) -> nn.Module:
    """A user's own network; it takes (b, 3, h, w) in [0, 1] and gives (b, d)."""
    try:
        program = torch.export.load(io.BytesIO(path.read_bytes()))
        network = cast(nn.Module, program.module())
        with torch.no_grad():
            made = network(torch.zeros(2, 3, *shape[1:]))
    except Exception as error:  # a file that anyone may have written can make the loader raise anything
        raise DataError(
            f"Expected a network that takes images (b, 3, {shape[1]}, {shape[2]}), got: {error}.",
            where=path,
            fix="export it with torch.export.export and a dynamic batch size, for images of this size",
        ) from error
    if not isinstance(made, Tensor) or made.ndim != 2 or not made.isfinite().all():
        raise DataError(
            "Expected a network that gives one row of finite features (b, d) for each image, got something else.",
            where=path,
            fix="export a network that does",
        )
    return network

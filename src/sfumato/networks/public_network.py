"""Features of images by a public network: EfficientNet-Lite0, or a network of the user's own in a file.

What a public network knows costs no privacy. Teachers and students that see through the same network agree on the
features, and a linear teacher is a linear function of them, which a student finds exactly.
"""

from __future__ import annotations

import hashlib
import io
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, cast

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from sfumato.errors import DataError, UsageError, printable
from sfumato.networks.efficientnet_lite0 import LITE0_SHA256, expect_lite0, lite0

NO_NETWORK = "none"  # a method's setting where it uses no public network
LITE0 = "efficientnet-lite0"
LITE0_SIDES = (64, 96)  # pixels that it sees of small images, and of those beyond forty pixels
LITE0_ROWS = (3, 5, 7)  # rows of blocks whose maps are used: edges, parts, and what they are parts of
CELLS = 2  # the side of the grid over which maps are averaged
EXPORTED = ".pt2"  # how files of `torch.export.save` end
CACHE = Path("~/.cache/sfumato")
CHUNK = 64  # images at a time: the maps of more would fill memory


class NetworkFeatures(nn.Module):
    """Features of an image and its mirror image by a public network, of unit length: (b, c, h, w) -> (b, d, 1, 1)."""

    def __init__(self, network: nn.Module, shape: Sequence[int], name: str) -> None:
        super().__init__()
        self.network = network
        self.name = name  # as a certificate states it
        with torch.no_grad():
            self.shape = self(torch.zeros(2, *shape)).shape[1:]

    def forward(self, images: Tensor) -> Tensor:
        colour = images.expand(-1, 3, -1, -1)
        parts = torch.split(colour, CHUNK)
        made = torch.cat([self.network(part) + self.network(part.flip(3)) for part in parts])
        unit: Tensor = made / torch.linalg.vector_norm(made, dim=1, keepdim=True).clamp(min=1e-6)
        return unit[:, :, None, None]


class Lite0Maps(nn.Module):
    """Maps of several rows of EfficientNet-Lite0, averaged over a coarse grid; each row counts as much as another."""

    def __init__(self) -> None:
        super().__init__()
        self.network = lite0()

    def forward(self, images: Tensor) -> Tensor:  # (b, 3, h, w) in [0, 1] -> (b, d)
        maps = self.network.maps(seen_by_lite0(images), rows=max(LITE0_ROWS))
        pooled = [F.adaptive_avg_pool2d(maps[row - 1], CELLS).flatten(1) for row in LITE0_ROWS]
        return torch.cat([F.normalize(row, dim=1) for row in pooled], dim=1)


def seen_by_lite0(images: Tensor) -> Tensor:
    """Images in the size that the network sees them in."""
    side = LITE0_SIDES[max(images.shape[2:]) > 40]
    return F.interpolate(images, size=(side, side), mode="bilinear", antialias=True)


class ExportedNetwork(nn.Module):
    """A network that was exported; it has one mode alone, that of its export."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        super().__init__()
        network: fx.GraphModule = program.module()
        for node in network.graph.nodes:
            if node.target is torch.ops.aten.sym_size.int:
                node.target = _side  # vmap, which private records are mapped by, does not know the operator
        network.recompile()
        self.network = network.requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        return cast(Tensor, self.network(images))

    def train(self, mode: bool = True) -> Self:
        return self  # an exported module raises an error when it is asked for a mode


def public_features(network: str, shape: Sequence[int]) -> NetworkFeatures:
    """The features by a network: "efficientnet-lite0", or the path of a file that `torch.export.save` wrote."""
    if network == LITE0:
        return NetworkFeatures(Lite0Maps(), shape, certified_name(LITE0))
    file = _file(network)
    content = file.read_bytes()  # once, so that what is named is what is used
    return NetworkFeatures(_exported(file, content, shape), shape, _name_of(file, content))


def named_features(name: str, shape: Sequence[int]) -> NetworkFeatures:
    """The features by the network that a certificate names; another network of that name is refused.

    A file is looked for in the cache folder alone, where its owner put it: loading one can run code, so a publisher
    must not be able to put one beside a release.
    """
    stated = name.partition(",")[0]
    network = stated if stated == LITE0 else str(CACHE.expanduser() / stated)
    if (got := certified_name(network)) != name:  # before it is loaded, which can run code
        raise DataError(
            f"Expected the public network {_short(name)}, got another ({_short(got)}).",
            fix="get the network from the publisher of the release",
        )
    return public_features(network, shape)


def certified_name(network: str) -> str:
    """Name and checksum of a network, as a certificate states them; raises where there is no such network."""
    if network == LITE0:
        expect_lite0()
        return f"{LITE0}, SHA-256 {LITE0_SHA256}"
    file = _file(network)
    return _name_of(file, file.read_bytes())


def _name_of(file: Path, content: bytes) -> str:
    return f"{file.name}, SHA-256 {hashlib.sha256(content).hexdigest()}"


def _short(name: str) -> str:
    """Enough of a checksum to compare it by eye."""
    return f"{name[:-48]}..."


def _file(network: str) -> Path:
    path = Path(network)
    if path.suffix == EXPORTED and path.is_file():
        return path
    raise UsageError(
        f"Expected the network {LITE0}, or a file *{EXPORTED} that torch.export.save wrote, got {network!r}.",
        fix=f"give the path of such a file (to judge a release: put it in {CACHE}), or name no network",
    )


def _exported(path: Path, content: bytes, shape: Sequence[int]) -> nn.Module:
    """A user's own network; it takes (b, 3, h, w) in [0, 1] and gives (b, d).

    The file is a program, and loading it can run anything: whoever names it trusts its author.
    """
    try:
        with _silent_loader():
            network = ExportedNetwork(torch.export.load(io.BytesIO(content)))
    except Exception as error:  # a file that anyone may have written can make the loader raise anything
        raise DataError(
            f"Expected a network that torch.export.save wrote, got a file that is none ({_first_line(error)}).",
            where=path,
            fix="write it with torch.export.save",
        ) from error
    _check_network(network, path, shape)
    return network


def _check_network(network: nn.Module, path: Path, shape: Sequence[int]) -> None:
    """Refuse a network that cannot be used, before any privacy is spent on what it sees."""
    images = torch.rand(3, 3, *shape[1:], generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        try:
            made: Any = [network(images[:count]) for count in (1, 2, 3)][-1]
        except Exception as error:
            raise DataError(
                f"Expected a network that takes any number of images (b, 3, {shape[1]}, {shape[2]}), "
                f"got: {_first_line(error)}.",
                where=path,
                fix="export it with torch.export.export and a dynamic batch size, for images of this size",
            ) from error
        got = f"{made.dtype} {tuple(made.shape)}" if isinstance(made, Tensor) else type(made).__name__
        if not isinstance(made, Tensor) or made.dtype != torch.float32 or made.ndim != 2 or len(made) != len(images):
            raise DataError(
                f"Expected a network that gives torch.float32 (3, d) for 3 images, got {got}.",
                where=path,
                fix="export a network that gives one row of features for each image",
            )
        if not made.isfinite().all():
            raise DataError(
                "Expected a network that gives finite features, got others.", where=path, fix="export one that does"
            )
        try:
            alone = torch.func.vmap(lambda image: network(image[None])[0])(images)
        except Exception as error:
            raise DataError(
                f"Expected a network that torch.func.vmap can map over images, got: {_first_line(error)}.",
                where=path,
                fix="call eval() on the network before torch.export.export, and use operators that vmap knows",
            ) from error
    if not torch.allclose(alone, made, rtol=1e-2, atol=1e-3 * float(made.abs().max())):
        raise DataError(
            "Expected a network that gives an image the same features alone and among others, got different ones.",
            where=path,
            fix="call eval() on the network before torch.export.export",
        )


def _side(images: Tensor, dim: int) -> int:
    return images.shape[dim]


def _first_line(error: Exception) -> str:
    return printable((str(error).splitlines() or [""])[0][:200].rstrip(" .") or type(error).__name__)


@contextmanager
def _silent_loader() -> Iterator[None]:
    """The loader logs a traceback of what it raises as well; one sentence is enough."""
    logger = logging.getLogger("torch.export")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before

"""Features of images by a fixed public network, computed once for all metrics that compare them."""

from __future__ import annotations

import functools
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.weak import WeakIdKeyDictionary

from sfumato.errors import EnvironmentProblem, NotApplicable, UsageError
from sfumato.networks.efficientnet_lite0 import has_lite0, lite0
from sfumato.networks.inception import InceptionV3
from sfumato.networks.published_weights import load_published
from sfumato.networks.scattering import Scattering
from sfumato.progress import track
from sfumato.statistics.same_kind import check_shape, of_known_class
from sfumato.values import Images, Score

INCEPTION_FILE = "pt_inception-2015-12-05-6726825d.pth"
INCEPTION_SHA256 = "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2"
NAMES = ("inception-v3", "efficientnet-lite0-64", "scattering")  # in order of preference
# Folders that are searched for weights; code that downloads weights elsewhere inserts its folder first.
FOLDERS = [Path("~/.cache/sfumato"), Path("~/.cache/torch/hub/checkpoints")]


@dataclass(frozen=True, eq=False)
class Extractor:
    """A fixed network that makes features; its name goes into every score, so that two are never compared."""

    name: str
    network: nn.Module  # (b, 3, side, side) in [0, 1] -> (b, d)
    side: int  # pixels that the network sees
    head: Callable[[Tensor], Tensor] | None = None  # (b, d) -> (b, k) logits
    antialias: bool = True
    batch: int = 32  # small maps stay in the processor's cache, which doubles the speed

    def __call__(self, pixels: Tensor) -> Tensor:  # uint8 (n, c, h, w) -> float32 (n, d)
        batches = torch.split(pixels, self.batch)
        what = f"features of {len(pixels)} images ({self.name})"
        with torch.inference_mode():
            made = [self.network(self._seen(batch)) for batch in track(batches, what=what, total=len(batches))]
        return torch.cat(made).clone()  # a clone outside of inference mode is an ordinary tensor

    def _seen(self, pixels: Tensor) -> Tensor:
        size = (self.side, self.side)
        images = F.interpolate(pixels.float() / 255, size=size, mode="bilinear", antialias=self.antialias)
        return images.expand(-1, 3, -1, -1).contiguous(memory_format=torch.channels_last)


def extractor(name: str = "auto") -> Extractor:
    """The extractor of that name; "auto" is the first of `NAMES` that this machine has the weights of."""
    folders = tuple(folder.expanduser() for folder in FOLDERS)
    if name == "auto":
        if _inception_file(folders) is not None:
            name = "inception-v3"
        else:
            name = "efficientnet-lite0-64" if has_lite0() else "scattering"
    return _build(name, folders)


@functools.cache
def _build(name: str, folders: tuple[Path, ...]) -> Extractor:
    if name == "inception-v3":
        return _inception(folders)
    if name == "scattering":
        return Extractor(name, PooledScattering().eval(), side=32)
    stem, _, side = name.rpartition("-")
    if stem == "efficientnet-lite0" and side.isdigit() and 32 <= int(side) <= 300:
        return _lite0(name, int(side))
    raise UsageError(
        f"Expected one of the extractors auto, {', '.join(NAMES)}; got {name!r}.", fix="leave it out for auto"
    )


def _inception(folders: tuple[Path, ...]) -> Extractor:
    file = _inception_file(folders)
    if file is None:
        raise EnvironmentProblem(
            f"Expected the weights {INCEPTION_FILE}, got no such file.",
            where=folders[0],
            fix="name it with --extractor, which downloads it, or use another extractor",
        )
    network = InceptionV3()
    load_published(network, file, INCEPTION_SHA256)
    # The published scores resize without antialiasing.
    return Extractor("inception-v3", network, side=299, head=network.logits, antialias=False)


def _inception_file(folders: tuple[Path, ...]) -> Path | None:
    return next((folder / INCEPTION_FILE for folder in folders if (folder / INCEPTION_FILE).is_file()), None)


def _lite0(name: str, side: int) -> Extractor:
    network = lite0()
    return Extractor(name, network, side=side, head=network.logits)


class PooledScattering(nn.Module):
    """The logarithm of scattering coefficients, averaged over quarters of the image and over colours' pixels alike."""

    def __init__(self) -> None:
        super().__init__()
        self.scattering = Scattering(scales=2)

    def forward(self, images: Tensor) -> Tensor:  # (b, 3, h, w) in [0, 1] -> (b, 4 * 81 + 3)
        colours = images.mean((2, 3))
        maps = self.scattering(images.mean(1, keepdim=True))
        quarters = F.adaptive_avg_pool2d(maps, 2).flatten(1)
        return torch.cat([(quarters + 0.01).log(), (colours + 0.01).log()], dim=1)


def chosen(images: Images, *, most: int, seed: int) -> Tensor:
    """The rows that every metric uses: a seeded draw among the images whose label is one of the classes."""
    known = of_known_class(images).nonzero().flatten()
    draw = torch.Generator().manual_seed(seed)
    return known[torch.randperm(len(known), generator=draw)[:most]]


def features(images: Images, by: Extractor, *, most: int, seed: int) -> Tensor:
    """Features of the chosen rows, (n, d); computed once for as long as the tensor of pixels exists.

    The same tensor is returned each time, so that results computed from it can be cached, too.
    """
    rows = chosen(images, most=most, seed=seed)
    remembered = _MADE.setdefault(images.pixels, {})
    key = (by.name, most, seed)
    if key not in remembered or not torch.equal(remembered[key][0], rows):  # labels may differ for the same pixels
        remembered[key] = (rows, by(images.pixels[rows]))
    return remembered[key][1]


# Pixels -> (extractor, most, seed) -> rows and their features.
_MADE: MutableMapping[Tensor, dict[tuple[str, int, int], tuple[Tensor, Tensor]]] = WeakIdKeyDictionary()


@dataclass(frozen=True, eq=False)
class Compared:
    """Features of synthetic and of real images by one extractor."""

    by: Extractor
    ours: Tensor  # (n, d)
    theirs: Tensor  # (m, d)
    seed: int

    def score(
        self, name: str, value: float, standard_error: float, *, higher_is_better: bool, error_is: str, **details: Any
    ) -> Score:
        """A score against training images, named after the extractor; the details say of how many images."""
        sizes = {
            "compared_with": "training images",
            "synthetic_images": len(self.ours),
            "real_images": len(self.theirs),
        }
        all_details = {**sizes, **details, "standard_error_is": error_is}
        return Score(f"{name}[{self.by.name}]", value, standard_error, higher_is_better, (self.seed,), all_details)


def compared(synthetic: Images, real: Images, extract: str, *, most: int, seed: int, fewest: int = 2) -> Compared:
    """Features of both sides; images of another shape, or too few, are refused."""
    refuse_other_kind(synthetic, real, most=most, seed=seed, fewest=fewest)
    by = extractor(extract)
    ours, theirs = (features(side, by, most=most, seed=seed) for side in (synthetic, real))
    return Compared(by, ours, theirs, seed)


def refuse_other_kind(synthetic: Images, real: Images, *, most: int, seed: int, fewest: int) -> None:
    """Refuse synthetic images that are not of the real ones' shape, and too few of either."""
    check_shape(synthetic, real)
    counts = [len(chosen(side, most=most, seed=seed)) for side in (synthetic, real)]
    if min(counts) < fewest:
        raise NotApplicable(f"Expected at least {fewest} synthetic and real images, got {counts[0]} and {counts[1]}.")


def logits(made: Tensor, by: Extractor) -> Tensor:
    """The logits of the network's own classifier, from features that the network computed."""
    if by.head is None:
        raise UsageError(f"Expected an extractor with a classifier, got {by.name}.")
    with torch.inference_mode():
        found = torch.cat([by.head(part) for part in torch.split(made, 1000)])
    return found.clone()

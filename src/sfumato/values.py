"""The frozen values that are passed between the packages; none of them holds private and public records together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

if TYPE_CHECKING:  # torch costs a second to import, and an auditor's `verify` does not need it
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor, nn

ReleaseKind = Literal["images", "model", "hidden-images"]
"""What a release holds: images to look at and to train on; a classifier; or images with a hidden attribute."""

GuaranteeLevel = Literal["certified", "empirical", "not-private"]
"""What a release promises: an epsilon that anyone can check; resistance to attacks, without an epsilon; or nothing."""

LEVELS: tuple[str, ...] = get_args(GuaranteeLevel)  # from the strongest to none

CertificateLevel = Literal["certified", "not-private"]
"""The levels that a certificate can state. `empirical` is none of them: a certificate states an epsilon or none."""


@dataclass(frozen=True, slots=True)
class Spec:
    """The public facts of a data set: what anyone may know before any privacy is spent."""

    count: int
    channels: int
    height: int
    width: int
    classes: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.channels, self.height, self.width)

    @property
    def pixels(self) -> int:
        return self.channels * self.height * self.width


class Source(Protocol):
    """An opened data set: its public facts, and its records in chunks that fit in memory.

    A pixel chunk is uint8 (b, c, h, w); labels are int64 (b,), and a label outside
    0..len(classes)-1 marks a record that must count as absent.
    """

    @property
    def spec(self) -> Spec: ...
    @property
    def name(self) -> str: ...
    def chunks(self) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]: ...


@dataclass(frozen=True, slots=True)
class Images:
    """Images that anyone may see: public data, or synthetic data."""

    pixels: Tensor  # uint8 (n, c, h, w)
    labels: Tensor  # int64 (n,)
    classes: tuple[str, ...]
    logits: Tensor | None = None  # float32 (n, k), where a method has a teacher
    transfer: Images | None = None  # further images, with logits, to train students on and not to look at
    # further images, with logits of a teacher that sees through a public network, for students that use it
    network: Images | None = None
    seen_through: str | None = None  # the public network whose teacher gave the logits, as a certificate names it

    def __len__(self) -> int:
        return int(self.labels.shape[0])

    def unit(self) -> Tensor:
        """Pixels as float32 in [0, 1]."""
        return self.pixels.float() / 255

    def rows(self, rows: Tensor) -> Images:
        """Some of the images, by number or by a mask; further images are not among them."""
        soft = None if self.logits is None else self.logits[rows]
        return Images(self.pixels[rows], self.labels[rows], self.classes, soft, seen_through=self.seen_through)


@dataclass(frozen=True, slots=True)
class Attributed:
    """Images in the clear of which several attributes are known, such as race, age and gender of faces."""

    pixels: Tensor  # uint8 (n, c, h, w)
    attributes: Mapping[str, Tensor]  # int64 (n,) each
    classes: Mapping[str, tuple[str, ...]]  # what the values of each attribute are called

    def __len__(self) -> int:
        return int(self.pixels.shape[0])

    def labelled(self, attribute: str) -> Images:
        """The images with one attribute as their label."""
        return Images(self.pixels, self.attributes[attribute], self.classes[attribute])

    def rows(self, rows: Tensor) -> Attributed:
        """Some of the images, by number or by a mask."""
        return Attributed(self.pixels[rows], {k: v[rows] for k, v in self.attributes.items()}, self.classes)

    def with_pixels(self, pixels: Tensor) -> Attributed:
        """Other images with the same attributes."""
        return Attributed(pixels, self.attributes, self.classes)


@dataclass(frozen=True, slots=True)
class Rewriter:
    """What hides an attribute of images, and what it knows of that attribute."""

    # images whose labels are the attribute to hide -> pixels uint8 (n, c, h, w), one image for one image
    rewrite: Callable[[Images, torch.Generator], Tensor]
    # pixels -> logits (n, k) of that attribute, by the method's own trained head; None where it has none
    tells: Callable[[Tensor], Tensor] | None = None


class Checkpoints(Protocol):
    """Where a long training keeps its state on the owner's side, so that a killed one goes on."""

    def restore(self, name: str) -> dict[str, Tensor] | None:
        """What was kept last under this name; None where nothing was."""

    def keep(self, name: str, state: dict[str, Tensor]) -> None:
        """Keep this in the place of what was kept before."""


@dataclass(frozen=True, slots=True)
class Groups:
    """To which group (of people, of scanners, ...) each real image belongs, for judgements of fairness."""

    names: tuple[str, ...]
    train: Tensor  # int64 (n,); a number outside 0..len(names)-1: not known
    test: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """Real images in the clear, for judges only; made after the release is on disk."""

    train: Images
    test: Images | None = None
    public: Images | None = None  # what the release was made from beside them, where it is given
    groups: Groups | None = None  # a protected attribute of the same records, where it is given

    @property
    def held_out(self) -> Images:
        """The test split, or the training records where there is no test split."""
        return self.train if self.test is None else self.test

    @property
    def held_out_groups(self) -> Tensor | None:
        """The groups of the held-out images."""
        if self.groups is None:
            return None
        return self.groups.train if self.test is None else self.groups.test


@dataclass(frozen=True, slots=True)
class Release:
    """A release as read back from its folder."""

    path: Path
    certificate: dict[str, Any]
    images: Images


@dataclass(frozen=True, slots=True)
class Classifier:
    """A trained classifier, and what it takes to build it again: an architecture of `networks` by name, and settings.

    The parameters and buffers of the network are all that was learnt; what is fixed (a wavelet transform, a public
    network) is not among them.
    """

    architecture: str
    settings: dict[str, bool | int | float | str]
    network: nn.Module  # images (b, c, h, w) in [0, 1] -> logits (b, k)


@dataclass(frozen=True, slots=True)
class ModelRelease:
    """A released classifier as read back from its folder, in eval mode."""

    path: Path
    certificate: dict[str, Any]
    classifier: Classifier
    classes: tuple[str, ...]
    shape: tuple[int, int, int]  # channels, height, width of the images that it takes


@dataclass(frozen=True, slots=True)
class Score:
    """One judgement with its uncertainty; lab material, because real data was looked at."""

    name: str
    value: float
    standard_error: float | None
    higher_is_better: bool
    seeds: tuple[int, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)
    parts: tuple[Score, ...] = ()  # further numbers of the same judgement, with rows of their own in the table


@dataclass(frozen=True, slots=True)
class Exposed:
    """What a classifier says about records that did and did not train it, and what shadow classifiers say."""

    logits: Tensor  # (n, k), the target's
    labels: Tensor  # int64 (n,)
    members: Tensor  # bool (n,): trained the target; an attack may use it only across folds
    shadow_logits: Tensor  # (m, n, k), of m classifiers that were trained like the target on random halves
    shadow_members: Tensor  # bool (m, n)

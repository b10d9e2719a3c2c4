"""Optimal transport of each image's codes to those of a value that was drawn at random (ours).

An image becomes coordinates along the principal axes of the training images. For each value of the attribute these are
taken for a Gaussian; the codes of an image are moved from the Gaussian of its own value to that of a value drawn from
the shares of all, by the map that moves them least, and the fine structure that has no code is added again in part.
Then what an image shows of the attribute does not depend on what its source had, as far as Gaussians can say it: an
eraser of directions alone (Belrose et al. 2023) leaves what differs in the covariances, which a network finds.

A share of the codes' variance is drawn anew, for two reasons. An image whose drawn value is its own would otherwise
stay as it is, and show its own value to whoever can tell that it was not moved; and what Gaussians do not say of an
attribute is drowned a little. People are recognised less often, too, and kept attributes lose a little.

The values are drawn at random, and not all set to one: a classifier that is trained on the release finds the attribute
of the sources in no image more often than in others. `strength` gives a trade-off: 0 leaves the codes as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from sfumato.contracts import Checkpoints, Hider
from sfumato.errors import expect_within
from sfumato.synthesis.gaussian_transport import GroupGaussians
from sfumato.synthesis.principal_codes import PrincipalCodes
from sfumato.values import Images, Rewriter, Spec

IMAGES_FOR_A_CODE = 4  # at least: with 256 codes of 170 faces most images became black and white spots


@dataclass(frozen=True)
class Transport(Hider):
    """Settings; those of the default were chosen on images cut from the training part (docs/hiding.md)."""

    codes: int = 256  # principal axes
    strength: float = 1.0  # of the way to the other value
    redrawn: float = 0.1  # share of the codes' variance that is drawn anew
    detail: float = 0.5  # share of the fine structure, which has no code, that stays
    shrinkage: float = 0.15  # of the covariance of a value towards that of all; small groups get more
    seed: int = 0

    def __post_init__(self) -> None:
        expect_within(
            self,
            codes=(1, 4_096),
            strength=(0, 1),
            redrawn=(0, 1),
            detail=(0, 1),
            shrinkage=(0, 1),
            seed=(0, 2**31 - 2),
        )

    @classmethod
    def for_task(cls, spec: Spec) -> Self:
        return cls(codes=max(1, min(cls.codes, spec.count // IMAGES_FOR_A_CODE)))

    def fit(self, train: Images, validation: Images, *, checkpoints: Checkpoints) -> Rewriter:
        """The codes and their Gaussians; validation images stop nothing here, so they are learnt from, too."""
        pixels, labels = torch.cat([train.pixels, validation.pixels]), torch.cat([train.labels, validation.labels])
        codes = PrincipalCodes.of(pixels, self.codes, torch.Generator().manual_seed(self.seed))
        count = len(train.classes)
        gaussians = GroupGaussians.of(codes.encode(pixels), labels, count, shrinkage=self.shrinkage)
        shares = labels.bincount(minlength=count).double()

        def rewrite(images: Images, generator: torch.Generator) -> Tensor:
            if not len(images):
                return images.pixels.clone()
            targets = torch.multinomial(shares, len(images), replacement=True, generator=generator)
            moved = gaussians.moved(codes.encode(images.pixels), images.labels, targets, strength=self.strength)
            # With less strength the codes are less those of the target, so less is drawn from its Gaussian.
            anew = gaussians.redrawn(moved, targets, self.redrawn * self.strength, generator)
            return codes.moved(images.pixels, anew, detail=self.detail)

        return Rewriter(rewrite)

    def seconds(self, spec: Spec) -> float:
        images = min(spec.count, 20_000)
        return 10 + images * min(spec.pixels, 3 * 64 * 64) * self.codes * 1e-10 + spec.count * 2e-4

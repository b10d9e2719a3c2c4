"""CE + mask (DECO-Bench): as CE, and a network masks the channels of the middle block that tell the attribute most.

The masking network is the filter generating network of DISCO (Singh et al. 2021): 60 % of the channels get less than
half of their weight, which ones depends on the image, and a sigmoid of temperature 1/30 lets the gradient through. Its
linear layer is frozen at random weights and learns by a low-rank adapter.

What the supplement leaves open, and what is done here:

- Where the mask is: at the output of the middle block, between the features that the head sees and what follows.
- By what it is trained: DISCO trains the filter against an adversary; here its adapter learns with the others, by the
  denoising loss and against the head (`reading` as in CE).
- The published head answers one class whatever it is shown, so that its accuracy is the share of that class. Judges
  must look at balanced accuracy.

There is no epsilon here: what is hidden is measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sfumato.contracts import Checkpoints, Hider
from sfumato.errors import expect_one_of, expect_within
from sfumato.networks.filter_generating import RATIO, TEMPERATURE, ChannelFilter
from sfumato.synthesis.attribute_head import READINGS, AttributeHead
from sfumato.synthesis.decoupled_regeneration import DecoupledRegeneration
from sfumato.values import Images, Rewriter


@dataclass(frozen=True)
class CEMask(DecoupledRegeneration, Hider):
    """Hyperparameters: those of `DecoupledRegeneration`, which way the cross-entropy goes, and the mask's."""

    reading: str = "remove"  # or "predict"
    ratio: float = RATIO  # of the channels, that are masked
    temperature: float = TEMPERATURE  # of the mask's sigmoid

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_one_of(self, reading=READINGS)
        expect_within(self, ratio=(0, 1), temperature=(1e-6, 1e6))

    def fit(self, train: Images, validation: Images, *, checkpoints: Checkpoints) -> Rewriter:
        model, features = self.begun(train, validation, checkpoints)
        head = AttributeHead(features, train.labels, len(train.classes), reading=self.reading, seed=self.seed)
        draw = torch.Generator().manual_seed(self.seed)
        mask = ChannelFilter(features, ratio=self.ratio, temperature=self.temperature, draw=draw)
        return self.rewriter(model, head, train, validation, checkpoints, name="ce-mask", mask=mask)

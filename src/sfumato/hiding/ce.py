"""CE (DECO-Bench): a diffusion model re-generates the image, adapted so that a head cannot tell the attribute from it.

Low-rank adapters on the attention of a frozen model learn to denoise, while a head on the pooled features of the
middle block learns the attribute by cross-entropy. The image comes from SDEdit: noised to 0.75, and denoised.

What the supplement leaves open, and what is done here:

- Which way the cross-entropy goes: the setting `reading`. "remove" (default): the adapters make the head's answers
  equal to the shares of the classes. "predict": the head learns, and the adapters only denoise.
- Which features, and which head: means of the middle block's channels, and a perceptron with one hidden layer.
- What it stops early on: the sum of both losses on validation images.
- Its rate of 1e-5 is for Stable Diffusion (`paper`); our own model is some hundred times smaller.

There is no epsilon here: what is hidden is measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.contracts import Checkpoints, Hider
from sfumato.errors import expect_one_of
from sfumato.synthesis.attribute_head import READINGS, AttributeHead
from sfumato.synthesis.decoupled_regeneration import DecoupledRegeneration
from sfumato.values import Images, Rewriter


@dataclass(frozen=True)
class CE(DecoupledRegeneration, Hider):
    """Hyperparameters: those of `DecoupledRegeneration`, and which way the cross-entropy goes."""

    reading: str = "remove"  # or "predict"

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_one_of(self, reading=READINGS)

    def fit(self, train: Images, validation: Images, *, checkpoints: Checkpoints) -> Rewriter:
        model, features = self.begun(train, validation, checkpoints)
        head = AttributeHead(features, train.labels, len(train.classes), reading=self.reading, seed=self.seed)
        return self.rewriter(model, head, train, validation, checkpoints, name="ce")

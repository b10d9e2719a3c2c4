"""What the methods of DECO-Bench have in common: their settings, the model that they adapt, and re-generation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from sfumato.errors import DataError, UsageError, expect_within
from sfumato.networks.filter_generating import ChannelFilter
from sfumato.synthesis.attribute_head import AttributeHead
from sfumato.synthesis.decoupling import Adaptation, Objective, decouple, pooled_features
from sfumato.synthesis.denoiser import block_side, expect_shape
from sfumato.synthesis.denoiser_training import DenoiserTraining, train_denoiser
from sfumato.synthesis.regeneration import BATCH, Regenerator, regenerate
from sfumato.values import Checkpoints, Images, Rewriter, Spec

TOLD_AT = 0.05  # of the schedule: how noisy the images are that a head is asked about


@dataclass(frozen=True)
class DecoupledRegeneration:
    """The hyperparameters of re-generation by an adapted diffusion model; methods inherit them.

    The defaults are for our own small model and were chosen on validation images; `paper` has those of DECO-Bench,
    which are for Stable Diffusion.
    """

    published_rate: ClassVar[float] = 1e-5

    weights: str = ""  # a folder with the weights of Stable Diffusion; "": our own model, trained on the images
    strength: float = 0.75  # how far into the schedule an image is noised: 0 keeps it, 1 forgets it
    guidance: float = 7.5  # by the prompt of Stable Diffusion; our own model has none, so it changes nothing there
    steps: int = 20  # of the whole schedule, of which int(strength * steps) are done
    rank: int = 4  # of the adapters
    epochs: int = 4  # of the adapters, at most
    batch: int = 64  # of the adapters
    rate: float = 1e-3  # of the adapters
    weight: float = 0.1  # of the method's objective beside the denoising loss
    width: int = 64  # channels of our own model's first level
    updates: int = 4000  # steps in which our own model is trained
    seed: int = 0

    def __post_init__(self) -> None:
        most = 10**6
        expect_within(
            self,
            strength=(0, 1),
            guidance=(0, 1000),
            steps=(1, 1000),
            rank=(1, 1024),
            epochs=(1, most),
            batch=(2, most),
            rate=(1e-9, 10),
            weight=(0, 1e6),
            width=(8, 1024),
            updates=(1, 10**9),
            seed=(0, 2**31 - 2),
        )
        if self.width % 8:
            raise UsageError(f"Expected width as a multiple of 8, got {self.width}.", fix="give such a number")

    @classmethod
    def for_task(cls, spec: Spec) -> Self:
        # A model that sees few images more often learns them by heart.
        return cls(updates=round(min(4000.0, max(200.0, 0.8 * spec.count))))

    @classmethod
    def paper(cls, weights: str) -> Self:
        """The settings of DECO-Bench's supplement, for Stable Diffusion v1.5; hours on a GPU.

        It names neither the weight of the objective nor the number of steps: 1 and 50 are our choice.
        """
        return cls(weights=weights, guidance=7.5, steps=50, epochs=15, batch=128, rate=cls.published_rate, weight=1.0)

    def public_weights(self) -> str | None:
        if not self.weights:
            return None
        from sfumato.synthesis.stable_diffusion import named_weights

        return named_weights(self.weights)

    def seconds(self, spec: Spec) -> float:
        """Of our own model, from its time on one core; Stable Diffusion takes hours without a GPU."""
        places = spec.height * spec.width / block_side(spec.height, spec.width) ** 2
        prediction = 1.9e-3 * float((self.width / 64) ** 1.8) * places / 16**2
        learnt_from = 3 * self.updates * DenoiserTraining.batch + 2.5 * (self.epochs + 1) * spec.count
        return 2 + prediction * (learnt_from + int(self.strength * self.steps) * spec.count)

    def check(self, spec: Spec) -> None:
        if not self.weights:
            expect_shape(spec.shape)

    def begun(self, train: Images, validation: Images, checkpoints: Checkpoints) -> tuple[Regenerator, int]:
        """The model before it is adapted, and how many features its middle block has."""
        if len(train) < 2:
            raise DataError(f"Expected at least 2 images to train on, got {len(train)}.")
        if not len(validation):
            raise DataError(
                "Expected images that say when to stop the training, got none.", fix="give the part v a larger share"
            )
        model = self._model(train.pixels, checkpoints)
        with torch.no_grad():
            latents = model.encode(train.pixels[:1])
            _, features = model.denoise(latents, torch.zeros(1, dtype=torch.int64))
        return model, features.shape[1]

    def rewriter(
        self,
        model: Regenerator,
        objective: Objective,
        train: Images,
        validation: Images,
        checkpoints: Checkpoints,
        *,
        name: str,
        mask: ChannelFilter | None = None,
    ) -> Rewriter:
        """Train the adapters, fuse them into the model, and re-generate by it."""
        settings = Adaptation(self.rank, self.epochs, self.batch, self.rate, self.weight, self.seed)
        for adapters in decouple(model, objective, settings, train, validation, checkpoints, name=name, mask=mask):
            adapters.fuse(1.0)
        shape = train.pixels.shape[1:]

        def rewrite(images: Images, generator: torch.Generator) -> Tensor:
            if images.pixels.shape[1:] != shape:
                raise DataError(
                    f"Expected images of the shape {tuple(shape)} that the model was trained on, "
                    f"got {tuple(images.pixels.shape[1:])}."
                )
            return regenerate(
                model,
                images.pixels,
                strength=self.strength,
                steps=self.steps,
                guidance=self.guidance if self.weights else 1.0,
                generator=generator,
                through=mask,
            )

        if not isinstance(objective, AttributeHead):
            return Rewriter(rewrite)
        return Rewriter(rewrite, lambda pixels: self._told(model, objective, pixels, mask))

    def _model(self, pixels: Tensor, checkpoints: Checkpoints) -> Regenerator:
        _, channels, height, breadth = pixels.shape
        shape = (channels, height, breadth)
        if self.weights:
            from sfumato.synthesis.stable_diffusion import StableDiffusion  # its libraries take seconds to import

            return StableDiffusion(self.weights, shape=shape)
        expect_shape(shape)
        settings = DenoiserTraining(width=self.width, steps=self.updates, seed=self.seed)
        return train_denoiser(pixels, settings, checkpoints)

    def _told(self, model: Regenerator, head: AttributeHead, pixels: Tensor, mask: ChannelFilter | None) -> Tensor:
        """The head's logits of images under a little noise, the same for each, so that it does not depend on others."""
        draw = torch.Generator().manual_seed(self.seed)
        step = math.floor(TOLD_AT * len(model.signal))
        logits: list[Tensor] = []
        with torch.no_grad():
            noise = torch.randn(model.encode(pixels[:1]).shape, generator=draw)
            for batch in torch.split(pixels, BATCH):
                latents, steps = model.encode(batch), torch.full((len(batch),), step)
                _, pooled = pooled_features(model, latents, steps, noise.expand_as(latents), mask)
                logits.append(head.head(pooled))
        return torch.cat(logits)

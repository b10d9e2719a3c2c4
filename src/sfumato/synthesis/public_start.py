"""A diffusion model that begins with weights which were trained on the public images of `--public`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import torch

from sfumato.errors import UsageError
from sfumato.networks.latents import Latents
from sfumato.privacy import Budget
from sfumato.synthesis.edm import ClassDenoiser
from sfumato.synthesis.pretrained_diffusion import PretrainedDiffusion
from sfumato.values import Images, Spec

FEWEST_STEPS = 400


def expect_public(public: Images | None, spec: Spec) -> Images:
    """The public images, of the shape of the private ones; refused before anything is charged."""
    if public is None or not len(public):
        raise UsageError("Expected public images to begin with.", fix="name some with --public")
    if tuple(public.pixels.shape[1:]) != spec.shape:
        raise UsageError(
            f"Expected public images of {spec.shape}, as the private ones, got {tuple(public.pixels.shape[1:])}.",
            fix="read them in that size and colour",
        )
    return public


@dataclass(frozen=True)
class PublicStart(PretrainedDiffusion):
    """The hyperparameters are those of `PretrainedDiffusion`."""

    public_images: ClassVar[Literal["unused", "welcome", "needed"]] = "needed"

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        few = min(1.0, spec.pixels * spec.count / 4e6)  # small tasks should take seconds
        return cls(steps=round(max(FEWEST_STEPS, cls.steps * few)), **cls.for_rounds(spec))

    @classmethod
    def publicly_trained_as_published(cls) -> dict[str, Any]:
        """The settings of DPImageBench (Gong et al. 2025) for the training on public images: days without a GPU."""
        return {"steps": 200_000, "batch": 1_024, "plain_rate": 3e-4, "plain_averaging": 0.999}

    def publicly_trained(self, public: Images, spec: Spec, latents: Latents | None = None) -> ClassDenoiser:
        """A network for the private classes that has learnt from public images.

        It learns with public labels if each private class can then begin as a public one, that of the same number, as
        published. Public images of fewer classes are shown without labels, and weights of private classes begin as
        random numbers: if all began alike, as "no label", far more rounds would be needed to tell them apart.
        """
        classes = len(spec.classes)
        labelled = len(public.classes) >= classes
        network = self.untrained(replace(spec, classes=public.classes) if labelled else spec, latents)
        if not labelled:
            public = Images(public.pixels, torch.full_like(public.labels, network.no_label), public.classes)
        self.pretrain(network, public, spec, images_are_public=True, latents=latents)
        network.keep_labels(classes)
        return network

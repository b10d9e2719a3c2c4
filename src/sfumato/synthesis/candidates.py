"""Where candidates come from: sources that make random images, and images like some that they are given.

Each has two verbs. `random(count, spec, draw)` makes images out of nothing, and `vary(images, degree, draw)` makes
one image like each given one, of any origin; a degree of 1 keeps little of it and 0 nearly all. All randomness is
the caller's generator. Three sources: public images with augmentations, a simulator that paints leaf upon leaf
(as a source: Lin et al. 2025), and a diffusion pipeline on disk.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from sfumato.errors import EnvironmentProblem, UsageError
from sfumato.synthesis.dead_leaves import bernoulli, dead_leaves, random_leaf, sharpened, uniform
from sfumato.values import Images, Spec

CHUNK = 256  # images painted at a time: their maps stay in the processor's cache
SOURCES = ("auto", "public", "simulator", "pipeline")


class CandidateSource(Protocol):
    """A source; images are float32 (n, c, h, w) in [0, 1]."""

    def random(self, count: int, spec: Spec, draw: Generator) -> Tensor: ...
    def vary(self, images: Tensor, degree: float, draw: Generator) -> Tensor: ...


def candidate_source(source: str, public: Images | None, weights: str = "") -> CandidateSource:
    """The source of that name; "auto" is the public images where there are some, else the simulator."""
    if source == "pipeline":
        return Pipeline(load_pipeline(weights))
    there = public is not None and len(public) > 0
    if source == "simulator" or (source == "auto" and not there):
        return Simulator()
    if public is None or not there:
        raise UsageError("Expected public images as candidates, got none.", fix="name some with --public")
    return PublicImages(public.pixels)


class PublicImages:
    """Public images as they are; their variations are moved, mirrored, toned and blended with each other."""

    def __init__(self, pixels: Tensor) -> None:
        self.pixels = pixels  # uint8 (n, c, h, w)

    def random(self, count: int, spec: Spec, draw: Generator) -> Tensor:
        if tuple(self.pixels.shape[1:]) != spec.shape:
            raise UsageError(f"Expected public images of shape {spec.shape}, got {tuple(self.pixels.shape[1:])}.")
        orders = [torch.randperm(len(self.pixels), generator=draw) for _ in range(-(-count // len(self.pixels)))]
        images = self.pixels[torch.cat(orders)[:count]].float() / 255
        if len(orders) > 1:  # an image that is dealt again should not be the same one
            images[len(self.pixels) :] = self.vary(images[len(self.pixels) :], 0.5, draw)
        return images

    def vary(self, images: Tensor, degree: float, draw: Generator) -> Tensor:
        images = blended(images, degree, draw)
        images = mirrored(images, degree, draw)
        return recoloured(warped(images, degree, draw), degree, draw)


class Simulator:
    """Dead leaves, one upon the other.

    A variation bends the picture smoothly, which moves, turns and sizes its leaves, paints a leaf more or wipes one
    out, and changes tone and sharpness; so it varies pictures that were not simulated just as well.
    """

    def random(self, count: int, spec: Spec, draw: Generator) -> Tensor:
        return dead_leaves(count, spec.shape, draw)

    def vary(self, images: Tensor, degree: float, draw: Generator) -> Tensor:
        return torch.cat([self._varied(part, degree, draw) for part in torch.split(images, CHUNK)])

    def _varied(self, images: Tensor, degree: float, draw: Generator) -> Tensor:
        count, shape = len(images), (images.shape[1], images.shape[2], images.shape[3])
        images = warped(blended(images, degree, draw), degree, draw)
        cover, paint = random_leaf(count, shape, draw, largest=0.05 + 0.2 * degree)
        # Wiping out is painting with what is around: the picture without its detail.
        wiped = sharpened(sharpened(images, -1.0), -1.0)
        paint = torch.where(bernoulli(count, 0.5, draw) > 0, paint, wiped)
        images = torch.where(cover & (bernoulli(count, 0.7 * degree, draw) > 0), paint, images)
        images = sharpened(images, degree * uniform(-1.0, 1.0, count, draw))
        return recoloured(images, degree, draw)


class Pipeline:
    """An image-to-image pipeline with the call of diffusers: strength for degree, noise as what random images show."""

    def __init__(self, pipeline: Any, *, side: int = 512, steps: int = 20, batch: int = 8, prompt: str = "") -> None:
        self.pipeline, self.side, self.steps, self.batch, self.prompt = pipeline, side, steps, batch, prompt

    def random(self, count: int, spec: Spec, draw: Generator) -> Tensor:
        return self.vary(torch.rand(count, *spec.shape, generator=draw), 1.0, draw)

    def vary(self, images: Tensor, degree: float, draw: Generator) -> Tensor:
        made = [self._called(part, degree, draw) for part in torch.split(images, self.batch)]
        shown = F.interpolate(torch.cat(made).float(), size=images.shape[2:], mode="bilinear", antialias=True)
        return (shown if images.shape[1] == 3 else shown.mean(1, keepdim=True)).clamp(0, 1)

    def _called(self, images: Tensor, degree: float, draw: Generator) -> Tensor:
        large = F.interpolate(images.expand(-1, 3, -1, -1), size=(self.side, self.side), mode="bilinear")
        seed = int(torch.randint(2**31, (1,), generator=draw))
        answer = self.pipeline(
            prompt=[self.prompt] * len(images),
            image=large,
            strength=min(1.0, max(degree, 1 / self.steps)),
            num_inference_steps=self.steps,
            generator=Generator().manual_seed(seed),
            output_type="pt",
        )
        made: Tensor = answer.images
        return made


def load_pipeline(weights: str) -> Any:
    """The pipeline in a folder; nothing is downloaded, and no file that could run code is read."""
    if not weights or not Path(weights).is_dir():
        raise UsageError(f"Expected weights as the folder of a diffusers pipeline, got {weights!r}.")
    try:
        from diffusers import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
            AutoPipelineForImage2Image,
        )
    except ImportError as error:
        raise EnvironmentProblem(
            "Expected the package diffusers for a pipeline, got none.", fix="pip install diffusers transformers"
        ) from error
    return AutoPipelineForImage2Image.from_pretrained(weights, local_files_only=True, use_safetensors=True)


def warped(images: Tensor, degree: float, draw: Generator) -> Tensor:
    """Shifted, turned, sheared and zoomed, and bent by a smooth random field; the border is repeated."""
    if not len(images):
        return images
    count = len(images)
    turn = torch.eye(2) + 0.35 * degree * (2 * torch.rand(count, 2, 2, generator=draw) - 1)
    shift = 0.3 * degree * (2 * torch.rand(count, 2, 1, generator=draw) - 1)
    grid = F.affine_grid(torch.cat([turn, shift], dim=2), list(images.shape), align_corners=False)
    field = 0.15 * degree * torch.randn(count, 2, 4, 4, generator=draw)
    bend = F.interpolate(field, size=images.shape[2:], mode="bicubic", align_corners=True)
    return F.grid_sample(images, grid + bend.movedim(1, 3), padding_mode="border", align_corners=False)


def mirrored(images: Tensor, degree: float, draw: Generator) -> Tensor:
    """Some of them left for right; a small degree keeps the side, which may be what matters."""
    return torch.where(bernoulli(len(images), 0.5 if degree >= 0.5 else 0.0, draw) > 0, images.flip(3), images)


def recoloured(images: Tensor, degree: float, draw: Generator) -> Tensor:
    """Brightness, contrast and, of colours, their balance."""
    count, channels = images.shape[:2]
    gain = (0.6 * degree * uniform(-1, 1, count, draw)).exp()
    shift = 0.2 * degree * uniform(-1, 1, count, draw)
    if channels > 1:
        gain = gain * (0.3 * degree * (2 * torch.rand(count, channels, 1, 1, generator=draw) - 1)).exp()
    curve = (0.5 * degree * uniform(-1, 1, count, draw)).exp()
    return (gain * images.clamp(0, 1).pow(curve) + shift).clamp(0, 1)


def blended(images: Tensor, degree: float, draw: Generator) -> Tensor:
    """Some of them mixed with another of them: half and half at degree 1."""
    other = images[torch.randperm(len(images), generator=draw)]
    return torch.lerp(images, other, bernoulli(len(images), 0.5, draw) * uniform(0, 0.5 * degree, len(images), draw))

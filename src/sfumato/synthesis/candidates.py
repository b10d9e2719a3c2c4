"""Sources of candidate images for Private Evolution: random images, and variations of given images.

`random(count, spec, draw)` returns random images. `vary(images, degree, draw)` returns a variation of each image, from
nearly the same (degree 0) to very different (degree 1). All randomness is from the caller's generator. Three sources:
public images with augmentations, a dead-leaves simulator (as a source: Lin et al. 2025), and a diffusion pipeline.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from sfumato.errors import EnvironmentProblem, UsageError
from sfumato.synthesis.dead_leaves import bernoulli, dead_leaves, leaf_masks, sharpened, textures, uniform
from sfumato.values import Images, Spec

CHUNK = 256  # images at a time: they fit the processor's cache
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
    """Public images; variations are warped, mirrored, recoloured and blended with each other."""

    def __init__(self, pixels: Tensor) -> None:
        self.pixels = pixels  # uint8 (n, c, h, w)

    def random(self, count: int, spec: Spec, draw: Generator) -> Tensor:
        if tuple(self.pixels.shape[1:]) != spec.shape:
            raise UsageError(
                f"Expected public images of shape {spec.shape}, got {tuple(self.pixels.shape[1:])}.",
                fix="give public images of this shape",
            )
        orders = [torch.randperm(len(self.pixels), generator=draw) for _ in range(-(-count // len(self.pixels)))]
        images = self.pixels[torch.cat(orders)[:count]].float() / 255
        if len(orders) > 1:  # repeated images are varied
            images[len(self.pixels) :] = self.vary(images[len(self.pixels) :], 0.5, draw)
        return images

    def vary(self, images: Tensor, degree: float, draw: Generator) -> Tensor:
        images = blended(images, degree, draw)
        images = mirrored(images, degree, draw)
        return recoloured(warped(images, degree, draw), degree, draw)


class Simulator:
    """Procedural images of the dead-leaves model.

    A variation warps the image smoothly, adds a leaf or blurs a region of that shape, and changes tone and sharpness;
    it can be applied to any image.
    """

    def random(self, count: int, spec: Spec, draw: Generator) -> Tensor:
        return dead_leaves(count, spec.shape, draw)

    def vary(self, images: Tensor, degree: float, draw: Generator) -> Tensor:
        return torch.cat([self._varied(part, degree, draw) for part in torch.split(images, CHUNK)])

    def _varied(self, images: Tensor, degree: float, draw: Generator) -> Tensor:
        count, shape = len(images), (images.shape[1], images.shape[2], images.shape[3])
        images = warped(blended(images, degree, draw), degree, draw)
        cover = leaf_masks(count, shape, draw, largest=0.05 + 0.2 * degree)
        paint = textures(count, shape, draw)
        # To remove detail, the leaf is filled with the blurred image.
        wiped = sharpened(sharpened(images, -1.0), -1.0)
        paint = torch.where(bernoulli(count, 0.5, draw) > 0, paint, wiped)
        images = torch.where(cover & (bernoulli(count, 0.7 * degree, draw) > 0), paint, images)
        images = sharpened(images, degree * uniform(-1.0, 1.0, count, draw))
        return recoloured(images, degree, draw)


class Pipeline:
    """An image-to-image pipeline as in diffusers: degree is its strength; random images start from noise."""

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
        raise UsageError(
            f"Expected weights as the folder of a diffusers pipeline, got {weights!r}.",
            fix="give the folder by --set weights=FOLDER",
        )
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
    """A random affine transform and a smooth random deformation; the border is repeated."""
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
    """Half of them mirrored; none at a degree below 0.5, as orientation may distinguish classes."""
    return torch.where(bernoulli(len(images), 0.5 if degree >= 0.5 else 0.0, draw) > 0, images.flip(3), images)


def recoloured(images: Tensor, degree: float, draw: Generator) -> Tensor:
    """Random brightness, contrast and, for colour images, colour balance."""
    count, channels = images.shape[:2]
    gain = (0.6 * degree * uniform(-1, 1, count, draw)).exp()
    shift = 0.2 * degree * uniform(-1, 1, count, draw)
    if channels > 1:
        gain = gain * (0.3 * degree * (2 * torch.rand(count, channels, 1, 1, generator=draw) - 1)).exp()
    curve = (0.5 * degree * uniform(-1, 1, count, draw)).exp()
    return (gain * images.clamp(0, 1).pow(curve) + shift).clamp(0, 1)


def blended(images: Tensor, degree: float, draw: Generator) -> Tensor:
    """Half of them blended with another image of the batch, at degree 1 with a weight of up to one half."""
    other = images[torch.randperm(len(images), generator=draw)]
    return torch.lerp(images, other, bernoulli(len(images), 0.5, draw) * uniform(0, 0.5 * degree, len(images), draw))

"""Stable Diffusion v1 (Rombach et al. 2022), read from a folder on disk, as a model that re-generates images."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.discovery import installed
from sfumato.errors import DataError, UsageError, printable

EXTRA, PACKAGES = "diffusion", ("diffusers", "transformers", "accelerate")
PIPELINES = ("StableDiffusionPipeline", "StableDiffusionImg2ImgPipeline")
NETWORKS, OTHERS = ("vae", "unet", "text_encoder"), ("tokenizer", "scheduler")  # its parts, a folder each
PICKLED = (".bin", ".ckpt", ".pt", ".pth")
PROJECTIONS = (".to_q", ".to_k", ".to_v", ".to_out.0")  # of every attention; how the names of the modules end
CHUNK = 16  # images at a time: the maps of more would fill memory


class StableDiffusion:
    """A `Regenerator` whose U-Net is told a prompt. All weights are fixed; what goes in and comes out is on the CPU.

    The first stage sees images whose sides are multiples of 8. For others give `shape` (channels, height, width): they
    are enlarged on the way in and reduced on the way out.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        prompt: str = "a photo of a face",
        shape: tuple[int, int, int] | None = None,
        device: str = "cpu",
    ) -> None:
        installed(EXTRA, *PACKAGES)
        folder = Path(folder)
        _expect_pipeline(folder)
        self.network: nn.Module
        self.network, self._first_stage, scheduler = _networks(folder)
        self.signal: Tensor = scheduler.alphas_cumprod
        self._prompted, self._unprompted = (text.to(device) for text in _embedded(folder, prompt))  # (1, t, d) each
        self._shape, self._device = shape, device
        self._factor = 2 ** (len(self._first_stage.config.block_out_channels) - 1)  # sides of images over latents'
        self._scale = float(self._first_stage.config.scaling_factor)
        for network in (self.network, self._first_stage):
            network.eval().requires_grad_(False).to(device)
        modules = self.network.named_modules()
        self.adaptable = tuple(n for n, m in modules if n.endswith(PROJECTIONS) and isinstance(m, nn.Linear))

    @torch.no_grad()
    def encode(self, pixels: Tensor) -> Tensor:  # uint8 (n, c, h, w) -> float32 (n, 4, h / 8, w / 8)
        """The mean latents of the first stage, scaled to a variance of about one."""
        self._expect_shape(pixels)
        latents = []
        for part in torch.split(pixels, CHUNK):
            images = 2 * part.expand(-1, 3, -1, -1).float() / 255 - 1
            seen = _resized(images, [-(-side // self._factor) * self._factor for side in images.shape[2:]])
            latents.append(self._scale * self._first_stage.encode(seen.to(self._device)).latent_dist.mode().cpu())
        return torch.cat(latents)

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:  # -> uint8 (n, c, h, w)
        """Images of latents, in the shape of those that were encoded."""
        pixels = []
        for part in torch.split(latents, CHUNK):
            images = self._first_stage.decode(part.to(self._device) / self._scale).sample.cpu()
            if self._shape is not None:
                images = _resized(images, list(self._shape[1:]))
                images = images.mean(1, keepdim=True) if self._shape[0] == 1 else images
            pixels.append((255 * (images / 2 + 0.5)).round().clamp(0, 255).to(torch.uint8))
        return torch.cat(pixels)

    def denoise(
        self, noisy: Tensor, steps: Tensor, *, prompted: bool = True, through: Callable[[Tensor], Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """The predicted noise, and the features of the middle block after `through`; gradients flow through both."""
        text = (self._prompted if prompted else self._unprompted).expand(len(noisy), -1, -1)
        features: list[Tensor] = []

        def hook(_module: nn.Module, _inputs: object, made: Tensor) -> Tensor:  # (n, f, a, b)
            features.append(made.cpu() if through is None else through(made.cpu()))
            return features[0].to(self._device)

        handle = cast(nn.Module, self.network.mid_block).register_forward_hook(hook)
        try:
            noise = self.network(noisy.to(self._device), steps.to(self._device), text, return_dict=False)[0].cpu()
        finally:
            handle.remove()
        return noise, features[0]

    def _expect_shape(self, pixels: Tensor) -> None:
        got = tuple(pixels.shape[1:])
        if self._shape is not None and got != self._shape:
            raise UsageError(f"Expected images of shape {self._shape}, got {got}.")
        if self._shape is None and (got[0] != 3 or any(side % self._factor for side in got[1:])):
            raise UsageError(
                f"Expected images of 3 channels whose sides are multiples of {self._factor}, got {got}.",
                fix="name the shape of the images, and they are enlarged",
            )


def _expect_pipeline(folder: Path) -> None:
    """Refuse a folder that is not a pipeline of Stable Diffusion v1 with its weights as safetensors."""
    if not folder.is_dir():
        raise UsageError(
            "Expected the folder of a Stable Diffusion v1 pipeline, got no such folder.",
            where=folder,
            fix="download one (such as stable-diffusion-v1-5) and name its folder",
        )
    try:
        named = json.loads((folder / "model_index.json").read_text("utf-8"))["_class_name"]
    except (OSError, ValueError, KeyError, TypeError):
        named = "no model_index.json that names one"
    if named not in PIPELINES:
        raise UsageError(
            f"Expected the folder of a {PIPELINES[0]}, got {printable(named)}.",
            where=folder,
            fix="name the folder that has model_index.json in it",
        )
    for part in (*NETWORKS, *OTHERS):
        if not (folder / part).is_dir():
            raise UsageError(f"Expected a pipeline with the folder {part}, got none.", where=folder)
    for part in NETWORKS:
        files = [file.suffix for file in sorted((folder / part).iterdir())]
        if ".safetensors" not in files:
            got = "pickled ones, which can run code" if set(PICKLED) & set(files) else "none"
            raise UsageError(
                f"Expected the weights of {part} as *.safetensors, got {got}.",
                where=folder / part,
                fix="save the pipeline with save_pretrained(folder, safe_serialization=True)",
            )


def _networks(folder: Path) -> tuple[Any, Any, Any]:
    """U-Net, first stage and noise schedule."""
    from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel

    unet, first_stage = _read(UNet2DConditionModel, folder / "unet"), _read(AutoencoderKL, folder / "vae")
    scheduler = _read(DDIMScheduler, folder / "scheduler", weights=False)
    alike = unet.config.in_channels == first_stage.config.latent_channels and unet.mid_block is not None
    if scheduler.config.prediction_type != "epsilon" or not alike:
        raise UsageError(
            "Expected a U-Net that takes latents and predicts their noise, got one of another kind.",
            where=folder / "unet",
            fix="use a pipeline of Stable Diffusion v1; others (v2, inpainting) have other U-Nets",
        )
    return unet, first_stage, scheduler


@torch.no_grad()
def _embedded(folder: Path, prompt: str) -> tuple[Tensor, Tensor]:  # (1, t, d) each
    """What CLIP makes of the prompt, and of no words."""
    from transformers import CLIPTextModel, CLIPTokenizer

    encoder = _read(CLIPTextModel, folder / "text_encoder").eval()
    tokenizer = _read(CLIPTokenizer, folder / "tokenizer", weights=False)
    if len(tokenizer) != encoder.config.vocab_size:
        raise DataError(
            f"Expected a tokenizer of {encoder.config.vocab_size} tokens, got {len(tokenizer)}.",
            where=folder / "tokenizer",
            fix="get the pipeline again",
        )
    most, length = encoder.config.max_position_embeddings, len(tokenizer(prompt).input_ids)
    if length > most:
        raise UsageError(f"Expected a prompt of at most {most} tokens, got {length}.", fix="give a shorter one")
    tokens = tokenizer([prompt, ""], padding="max_length", max_length=most, return_tensors="pt").input_ids  # (2, t)
    prompted, unprompted = encoder(tokens)[0].split(1)
    return prompted, unprompted


def _read(kind: Any, folder: Path, *, weights: bool = True) -> Any:
    """One part of a pipeline, from its folder alone."""
    _silence()
    options = {"use_safetensors": True, "output_loading_info": True, "dtype": torch.float32} if weights else {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what will change in later versions
            made = kind.from_pretrained(str(folder), local_files_only=True, **options)
    except Exception as error:  # files that anyone may have written can make the loader raise anything
        raise DataError(
            f"Expected the {folder.name} of a Stable Diffusion v1 pipeline, got files that cannot be read "
            f"({_first_line(error)}).",
            where=folder,
            fix="get the pipeline again",
        ) from error
    if not weights:
        return made
    network, read = made
    if read["missing_keys"]:
        raise DataError(
            f"Expected the weights of the whole {folder.name}, got none of {sorted(read['missing_keys'])[0]}.",
            where=folder,
            fix="get the pipeline again",
        )
    return network


def _silence() -> None:
    """The loaders' remarks and progress bars are off; what is wrong is raised."""
    from diffusers.utils import logging as of_diffusers
    from transformers.utils import logging as of_transformers

    for logging in (of_diffusers, of_transformers):
        logging.set_verbosity_error()
        logging.disable_progress_bar()


def _resized(images: Tensor, sides: list[int]) -> Tensor:
    if list(images.shape[2:]) == sides:
        return images
    return F.interpolate(images, size=sides, mode="bilinear", antialias=True)


def _first_line(error: Exception) -> str:
    return printable((str(error).splitlines() or [""])[0][:200].rstrip(" .") or type(error).__name__)

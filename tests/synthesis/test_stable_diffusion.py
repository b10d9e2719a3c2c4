"""Stable Diffusion from a folder: a tiny pipeline that is made here does what diffusers' own pipeline does."""

from __future__ import annotations

import json
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sfumato.errors import DataError, EnvironmentProblem, SfumatoError, UsageError
from sfumato.synthesis.stable_diffusion import StableDiffusion

NEEDED = "needs the packages of the extra `diffusion`"
WORDS = ["a", "face", "of", "photo"]


def diffusers() -> Any:
    for package in ("transformers", "accelerate"):
        pytest.importorskip(package, reason=NEEDED)
    return pytest.importorskip("diffusers", reason=NEEDED)


def tokenizer(folder: Path) -> Any:
    """One token for each of the few words, and for each letter; as CLIP's, with an end of word."""
    from transformers import CLIPTokenizer

    letters = sorted({letter for word in WORDS for letter in word})
    merges = [("o", "f</w>"), ("f", "a"), ("fa", "c"), ("fac", "e</w>")]
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), *("".join(pair) for pair in merges)]
    vocabulary = {token: number for number, token in enumerate([*tokens, "<|startoftext|>", "<|endoftext|>"])}
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
    return CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=20)


def tiny(folder: Path) -> Any:
    """A pipeline with the parts of Stable Diffusion v1, a few channels wide."""
    package = diffusers()
    from transformers import CLIPTextConfig, CLIPTextModel

    words = tokenizer(folder / "words")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        unet = package.UNet2DConditionModel(
            sample_size=4,
            in_channels=4,
            out_channels=4,
            block_out_channels=(8, 16),
            layers_per_block=1,
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
            cross_attention_dim=8,
            attention_head_dim=4,
            norm_num_groups=4,
        )
        first_stage = package.AutoencoderKL(
            block_out_channels=(4, 4, 8, 8),
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            latent_channels=4,
            norm_num_groups=2,
        )
        text = CLIPTextConfig(
            vocab_size=len(words),
            hidden_size=8,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=20,
            bos_token_id=words.bos_token_id,
            eos_token_id=words.eos_token_id,
            pad_token_id=words.pad_token_id,
        )
        encoder = CLIPTextModel(text).eval()
    scheduler = package.DDIMScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", clip_sample=False, steps_offset=1
    )
    return package.StableDiffusionImg2ImgPipeline(
        first_stage, encoder, words, unet, scheduler, None, None, requires_safety_checker=False
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny pipeline on disk; no test changes it."""
    folder = tmp_path_factory.mktemp("pipeline")
    pipeline = tiny(folder)
    pipeline.set_progress_bar_config(disable=True)
    pipeline.save_pretrained(folder / "tiny", safe_serialization=True)
    return folder / "tiny"


@pytest.fixture(scope="module")
def model(saved: Path) -> StableDiffusion:
    return StableDiffusion(saved)


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    """The pipeline in a place where it may be changed."""
    return Path(shutil.copytree(saved, tmp_path / "copy"))


def faces(count: int = 3, shape: tuple[int, int, int] = (3, 32, 24)) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, *shape), generator=draw, dtype=torch.uint8)


def noise(like: Tensor, seed: int = 0) -> Tensor:
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(seed))


def test_images_become_latents_and_images_again(model: StableDiffusion) -> None:
    latents = model.encode(faces())
    assert latents.dtype == torch.float32
    assert latents.shape == (3, 4, 4, 3)
    pixels = model.decode(latents)
    assert pixels.dtype == torch.uint8
    assert pixels.shape == (3, 3, 32, 24)


def test_latents_are_the_scaled_mean_of_the_first_stage(model: StableDiffusion, saved: Path) -> None:
    first_stage = diffusers().AutoencoderKL.from_pretrained(saved / "vae")
    with torch.no_grad():
        mean = first_stage.encode(faces().float() / 127.5 - 1).latent_dist.mean
        made = first_stage.decode(model.encode(faces()) / 0.18215).sample
    torch.testing.assert_close(model.encode(faces()), 0.18215 * mean)
    expected = ((made + 1) * 127.5).clamp(0, 255)
    assert (model.decode(model.encode(faces())).float() - expected).abs().max() <= 0.501


def test_more_images_than_go_in_at_once_are_the_same_images(model: StableDiffusion) -> None:
    many = faces(19)
    torch.testing.assert_close(model.encode(many)[17:], model.encode(many[17:]))
    latents = model.encode(many)
    assert (model.decode(latents)[17:].int() - model.decode(latents[17:]).int()).abs().max() <= 1


@pytest.mark.parametrize("shape", [(3, 30, 20), (1, 28, 28)])
def test_images_of_another_shape_come_back_in_it(saved: Path, shape: tuple[int, int, int]) -> None:
    resizing = StableDiffusion(saved, shape=shape)
    latents = resizing.encode(faces(2, shape))
    assert latents.shape[2:] == (4, 4 if shape[0] == 1 else 3)
    assert resizing.decode(latents).shape == (2, *shape)


@pytest.mark.parametrize("shape", [(3, 30, 24), (1, 32, 24)])
def test_images_of_a_shape_that_was_not_named_are_refused(model: StableDiffusion, shape: tuple[int, int, int]) -> None:
    with pytest.raises(UsageError, match="multiples of 8"):
        model.encode(faces(2, shape))


def test_images_of_another_shape_than_the_named_one_are_refused(saved: Path) -> None:
    with pytest.raises(UsageError, match="Expected images of shape"):
        StableDiffusion(saved, shape=(3, 30, 20)).encode(faces())


def test_the_signal_falls_from_almost_all_to_almost_nothing(model: StableDiffusion) -> None:
    assert model.signal.shape == (1000,)
    assert (model.signal.diff() < 0).all()
    assert model.signal[0] > 0.99
    assert model.signal[-1] < 0.01


def test_features_pass_through_what_is_given_and_what_was_hooked_in_is_gone(model: StableDiffusion) -> None:
    latents, steps = noise(torch.empty(2, 4, 4, 4)), torch.tensor([10, 700])
    plain, features = model.denoise(latents, steps)
    assert features.shape == (2, 16, 2, 2)
    masked, seen = model.denoise(latents, steps, through=lambda made: 0 * made)
    assert (seen == 0).all()
    assert not torch.allclose(plain, masked)
    torch.testing.assert_close(model.denoise(latents, steps)[0], plain)

    def fails(_features: Tensor) -> Tensor:
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        model.denoise(latents, steps, through=fails)
    assert not model.network.mid_block._forward_hooks
    torch.testing.assert_close(model.denoise(latents, steps)[0], plain)


def test_gradients_reach_what_the_features_pass_through_and_no_weight(model: StableDiffusion) -> None:
    mask = torch.ones(16, 1, 1, requires_grad=True)
    predicted, features = model.denoise(
        noise(torch.empty(2, 4, 4, 4)), torch.tensor([10, 700]), through=lambda made: mask * made
    )
    (from_noise,) = torch.autograd.grad(predicted.square().sum(), mask, retain_graph=True)
    (from_features,) = torch.autograd.grad(features.square().sum(), mask)
    assert from_noise.abs().min() > 0
    assert from_features.abs().min() > 0
    assert not any(weight.requires_grad for weight in model.network.parameters())


def test_the_prompt_makes_a_difference(model: StableDiffusion, saved: Path) -> None:
    latents, steps = noise(torch.empty(2, 4, 4, 4)), torch.tensor([10, 700])
    prompted, unprompted = (model.denoise(latents, steps, prompted=value)[0] for value in (True, False))
    assert not torch.allclose(prompted, unprompted)
    empty = StableDiffusion(saved, prompt="")
    torch.testing.assert_close(empty.denoise(latents, steps)[0], unprompted)


def test_adaptable_modules_are_the_projections_of_every_attention(model: StableDiffusion) -> None:
    modules = dict(model.network.named_modules())
    assert all(isinstance(modules[name], nn.Linear) for name in model.adaptable)
    blocks = sum(name.endswith((".attn1", ".attn2")) for name in modules)
    assert blocks > 0
    assert len(model.adaptable) == 4 * blocks


def regenerated(model: StableDiffusion, latents: Tensor, drawn: Tensor, *, strength: float, steps: int) -> Tensor:
    """SDEdit by DDIM without noise, with guidance 7.5; the steps are those of Stable Diffusion, one later than even."""
    gap = len(model.signal) // steps
    times = [gap * k + 1 for k in range(int(strength * steps))][::-1]
    start = model.signal[times[0]]
    noisy = start.sqrt() * latents + (1 - start).sqrt() * drawn
    for time in times:
        here, there = model.signal[time], model.signal[time - gap] if time >= gap else torch.tensor(1.0)
        at = torch.full((len(noisy),), time)
        with torch.no_grad():
            with_prompt, without = (model.denoise(noisy, at, prompted=value)[0] for value in (True, False))
        predicted = without + 7.5 * (with_prompt - without)
        clean = (noisy - (1 - here).sqrt() * predicted) / here.sqrt()
        noisy = there.sqrt() * clean + (1 - there).sqrt() * predicted
    return noisy


def test_images_regenerated_by_our_parts_are_those_of_the_pipeline_of_diffusers(
    model: StableDiffusion, saved: Path
) -> None:
    pipeline = diffusers().StableDiffusionImg2ImgPipeline.from_pretrained(saved)
    pipeline.set_progress_bar_config(disable=True)
    latents = model.encode(faces())
    ours = regenerated(model, latents, noise(latents, 3), strength=0.75, steps=8)
    options = {"strength": 0.75, "num_inference_steps": 8, "guidance_scale": 7.5, "eta": 0.0, "output_type": "latent"}
    draw = torch.Generator().manual_seed(3)
    theirs = pipeline(["a photo of a face"] * 3, latents, generator=draw, **options).images
    assert not torch.allclose(ours, latents, atol=0.1)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_the_network_is_not_used(
    saved: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    StableDiffusion(saved)
    assert capfd.readouterr() == ("", "")


def without_weights(folder: Path) -> None:
    (folder / "unet" / "diffusion_pytorch_model.safetensors").unlink()


def pickled_weights(folder: Path) -> None:
    without_weights(folder)
    torch.save({}, folder / "unet" / "diffusion_pytorch_model.bin")


def half_of_the_weights(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    file = folder / "unet" / "diffusion_pytorch_model.safetensors"
    save_file(dict(list(load_file(file).items())[::2]), file)


def half_of_the_words(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    file = folder / "text_encoder" / "model.safetensors"
    save_file(dict(list(load_file(file).items())[::2]), file)


def cut_short(folder: Path) -> None:
    file = folder / "vae" / "diffusion_pytorch_model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])


def edited(folder: Path, file: str, **facts: object) -> None:
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | facts))


BAD = {
    "no model_index.json": (lambda f: (f / "model_index.json").unlink(), UsageError, "got no model_index.json"),
    "model_index.json is no JSON": (lambda f: (f / "model_index.json").write_text("{"), UsageError, "Expected"),
    "model_index.json is a list": (lambda f: (f / "model_index.json").write_text("[]"), UsageError, "Expected"),
    "another pipeline": (
        lambda f: edited(f, "model_index.json", _class_name="StableDiffusionXLPipeline"),
        UsageError,
        "got StableDiffusionXLPipeline",
    ),
    "a part is missing": (lambda f: shutil.rmtree(f / "tokenizer"), UsageError, "the folder tokenizer"),
    "no weights": (without_weights, UsageError, "weights of unet as .* got none"),
    "pickled weights": (pickled_weights, UsageError, "got pickled ones"),
    "half of the weights": (half_of_the_weights, DataError, "the whole unet"),
    "half of the words": (half_of_the_words, DataError, "the whole text_encoder"),
    "weights cut short": (cut_short, DataError, "the vae of"),
    "weights of another shape": (
        lambda f: edited(f, "unet/config.json", cross_attention_dim=6),
        DataError,
        "the unet of",
    ),
    "a configuration that is none": (
        lambda f: (f / "scheduler" / "scheduler_config.json").write_text("?"),
        DataError,
        "the scheduler of",
    ),
    "words without a vocabulary": (
        lambda f: [file.unlink() for file in (f / "tokenizer").iterdir()],
        DataError,
        "a tokenizer of 22 tokens, got 2",
    ),
    "a U-Net for other images": (
        lambda f: edited(f, "vae/config.json", latent_channels=5),
        DataError,
        "the vae of",
    ),
    "another schedule": (
        lambda f: edited(f, "scheduler/scheduler_config.json", prediction_type="v_prediction"),
        UsageError,
        "of another kind",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_folder_is_one_clear_sentence(name: str, copy: Path) -> None:
    spoil, kind, words = BAD[name]
    spoil(copy)
    with pytest.raises(SfumatoError, match=words) as caught:
        StableDiffusion(copy)
    assert type(caught.value) is kind
    assert len(caught.value.message().splitlines()) <= 3
    assert str(copy) in str(caught.value)


def test_weights_of_half_precision_are_used_in_single_precision(model: StableDiffusion, copy: Path) -> None:
    half = diffusers().StableDiffusionPipeline.from_pretrained(copy, dtype=torch.float16)
    half.save_pretrained(copy, safe_serialization=True)
    latents, steps = noise(torch.empty(2, 4, 4, 4)), torch.tensor([10, 700])
    loaded = StableDiffusion(copy)
    assert all(weight.dtype == torch.float32 for weight in loaded.network.parameters())
    torch.testing.assert_close(loaded.encode(faces()), model.encode(faces()), rtol=0, atol=1e-2)
    torch.testing.assert_close(loaded.denoise(latents, steps)[0], model.denoise(latents, steps)[0], rtol=0, atol=1e-2)


def test_a_folder_that_is_not_there_is_not_looked_for_elsewhere(tmp_path: Path) -> None:
    diffusers()
    with pytest.raises(UsageError, match="no such folder"):
        StableDiffusion(tmp_path / "stable-diffusion-v1-5")


def test_a_prompt_that_is_too_long_is_refused(saved: Path) -> None:
    with pytest.raises(UsageError, match="at most 20 tokens"):
        StableDiffusion(saved, prompt="a photo of a face " * 5)


def test_a_missing_package_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "diffusers", None)
    with pytest.raises(EnvironmentProblem, match=r"no diffusers[\s\S]*sfumato\[diffusion\]"):
        StableDiffusion(tmp_path)

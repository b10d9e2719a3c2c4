"""Our own diffusion model: the way to whitened latents and back, the schedule, and what its noise means."""

from __future__ import annotations

import pytest
import torch

from sfumato.errors import UsageError
from sfumato.synthesis.denoiser import STEPS, Denoiser
from sfumato.synthesis.regeneration import noised, regenerate


def images(*shape: int) -> torch.Tensor:
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def model(shape: tuple[int, int, int] = (3, 16, 16)) -> Denoiser:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Denoiser(shape, width=8).eval()


def test_latents_of_what_it_was_whitened_on_have_mean_zero_and_variance_one() -> None:
    pixels, made = images(300, 3, 16, 16), model()
    made.whiten(pixels)
    latents = made.encode(pixels)
    assert latents.shape == (300, 48, 4, 4)
    torch.testing.assert_close(latents.mean((0, 2, 3)), torch.zeros(48), atol=1e-4, rtol=0)
    torch.testing.assert_close(latents.var((0, 2, 3), correction=0), torch.ones(48), atol=1e-3, rtol=0)


@pytest.mark.parametrize("shape", [(3, 16, 16), (1, 24, 40), (3, 128, 72)])
def test_pixels_come_back_without_a_change(shape: tuple[int, int, int]) -> None:
    pixels, made = images(3, *shape), model(shape)
    made.whiten(pixels)
    assert torch.equal(made.decode(made.encode(pixels)), pixels)
    assert made.denoise(made.encode(pixels), torch.tensor([0, 500, 999]))[0].isfinite().all()


def test_flat_images_can_be_whitened() -> None:
    made, pixels = model(), torch.full((4, 3, 16, 16), 77, dtype=torch.uint8)
    made.whiten(pixels)
    assert made.encode(pixels).isfinite().all()
    assert torch.equal(made.decode(made.encode(pixels)), pixels)


def test_the_schedule_falls_from_nearly_all_to_nearly_nothing() -> None:
    signal = model().signal
    assert signal.shape == (STEPS,)
    assert (signal.diff() < 0).all()
    assert signal[0] > 0.999
    assert 0 < signal[-1] < 0.002


def test_the_noise_is_what_the_preconditioning_says() -> None:
    """If the network gave what it is trained to give, the predicted noise would be the noise."""
    made = model()
    draw = torch.Generator().manual_seed(1)
    clean, noise = torch.randn(4, 48, 4, 4, generator=draw), torch.randn(4, 48, 4, 4, generator=draw)
    steps = torch.tensor([0, 300, 700, 999])
    signal = made.signal[steps][:, None, None, None]
    made.preconditioned = lambda *_: ((1 - signal).sqrt() * clean - signal.sqrt() * noise, clean)  # type: ignore[method-assign]
    predicted, _ = made.denoise(noised(made, clean, steps, noise), steps)
    torch.testing.assert_close(predicted, noise, rtol=1e-4, atol=1e-4)


def test_there_is_no_prompt_so_that_guidance_changes_nothing() -> None:
    made, pixels = model(), images(2, 3, 16, 16)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.05, generator=torch.Generator().manual_seed(0))
    plain, guided = (
        regenerate(made, pixels, steps=4, guidance=w, generator=torch.Generator().manual_seed(2)) for w in (1.0, 7.5)
    )
    assert (plain.int() - guided.int()).abs().max() <= 1  # u + w (c - u) rounds


@pytest.mark.parametrize("shape", [(3, 15, 16), (3, 8, 8), (1, 16, 20), (3, 136, 128)])
def test_other_sides_are_refused(shape: tuple[int, int, int]) -> None:
    with pytest.raises(UsageError, match="multiples of 8 from 16 to 128"):
        Denoiser(shape, width=8)


def test_adapters_go_into_the_attention_of_the_network() -> None:
    made = model()
    assert made.adaptable
    assert all(isinstance(made.network.get_submodule(name), torch.nn.Linear) for name in made.adaptable)

"""Images from weights: shapes, randomness of its own, guidance, painted beginnings."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sfumato.networks.latent_grid import LatentGrid
from sfumato.synthesis.diffusion_sampler import CHUNK, DiffusionSampler, Painted
from sfumato.synthesis.diffusion_solvers import Sampling

SHAPE = (1, 8, 8)
GRID = LatentGrid(SHAPE)
CENTRES = torch.tensor([0.2, 0.8, 0.5])  # brightness of both classes, and of all images together
SPREAD = 0.05


class Known(nn.Module):
    """The exact denoiser of flat images whose brightness is Gaussian around that of their class."""

    no_label = 2

    def forward(self, noisy: Tensor, sigmas: Tensor, labels: Tensor) -> Tensor:
        mean = GRID.encode(CENTRES[labels][:, None, None, None].expand(-1, *SHAPE))
        sigma = sigmas[:, None, None, None]
        return mean + (noisy - mean) * SPREAD**2 / (SPREAD**2 + sigma**2)


def sampler(guidance: float = 0.0, seed: int = 0, painted: Painted | None = None) -> DiffusionSampler:
    return DiffusionSampler(Known(), GRID, ("a", "b"), Sampling(), guidance=guidance, seed=seed, painted=painted)


ASKED = torch.arange(40) % 2


def test_images_are_of_their_class() -> None:
    made = sampler()(ASKED)
    assert made.pixels.shape == (40, *SHAPE)
    assert made.pixels.dtype == torch.uint8
    assert torch.equal(made.labels, ASKED)
    for label in (0, 1):
        assert abs(float(made.unit()[made.labels == label].mean()) - float(CENTRES[label])) < 0.02


def test_it_has_randomness_of_its_own_and_goes_on() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = sampler()
    made = first(ASKED)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(made.pixels, sampler()(ASKED).pixels)
    assert not torch.equal(made.pixels, first(ASKED).pixels)
    assert not torch.equal(made.pixels, sampler(seed=1)(ASKED).pixels)


def test_guidance_goes_further_from_what_all_images_have() -> None:
    plain, guided = (sampler(guidance)(ASKED).unit() for guidance in (0.0, 0.3))
    assert guided[ASKED == 0].mean() < plain[ASKED == 0].mean() - 0.02
    assert guided[ASKED == 1].mean() > plain[ASKED == 1].mean() + 0.02


def test_painted_images_stay_as_they_are_or_are_made_anew_from_a_level_on() -> None:
    def paint(labels: Tensor, draw: torch.Generator) -> Tensor:
        noise = 0.1 * torch.rand(len(labels), *SHAPE, generator=draw)
        return 0.4 + noise  # far from both classes

    still, little, much = (sampler(painted=Painted(paint, level))(ASKED).unit() for level in (0.0, 0.02, 2.0))
    assert (still >= 0.39).all()
    assert (still <= 0.51).all()
    assert abs(float(little[ASKED == 0].mean()) - 0.44) < 0.05
    assert abs(float(much[ASKED == 0].mean()) - 0.2) < 0.05


def test_many_images_are_made_in_chunks() -> None:
    assert len(sampler()(torch.zeros(CHUNK + 3).long())) == CHUNK + 3

"""Which draws a record gets: by its own pixels alone, the same in every batch, and of all that there are."""

from __future__ import annotations

import torch
from torch.func import vmap

from sfumato.synthesis.edm import NoiseLevels
from sfumato.synthesis.noise_pool import FEWEST, NoisePool


def pool(number: int = 0, copies: int = 4, seed: int = 0, latents: tuple[int, int, int] = (4, 2, 2)) -> NoisePool:
    return NoisePool.of_round(
        number, image=(1, 8, 8), latents=latents, copies=copies, levels=NoiseLevels(), dropped=0.2, seed=seed
    )


def images(count: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 1, 8, 8), generator=draw, dtype=torch.uint8).float().div(255)


def test_a_record_gets_the_same_draws_alone_and_in_any_batch() -> None:
    drawn, some = pool(), images(64)

    def of(image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        found = drawn.chosen_by(image)
        return found.sigmas, found.noise, found.unlabelled

    together, few = vmap(of)(some), vmap(of)(some[:7])
    for whole, part, single in zip(together, few, of(some[5]), strict=True):
        assert torch.equal(whole[:7], part)
        assert torch.equal(whole[5], single)


def test_records_share_the_pool_evenly() -> None:
    drawn = pool()
    levels = torch.stack([drawn.chosen_by(image).sigmas[0] for image in images(2_000)])
    used = torch.unique(levels, return_counts=True)[1]
    assert len(used) == len(drawn.sigmas)
    assert used.max() < 5 * used.float().mean()


def test_a_round_is_repeated_bit_by_bit_and_another_differs() -> None:
    first, again, next_round, other_seed = pool(3), pool(3), pool(4), pool(3, seed=1)
    assert torch.equal(first.noise, again.noise)
    assert torch.equal(first.weights, again.weights)
    assert not torch.equal(first.noise, next_round.noise)
    assert not torch.equal(first.noise, other_seed.noise)


def test_global_randomness_is_left_alone() -> None:
    before = torch.get_rng_state()
    pool()
    assert torch.equal(before, torch.get_rng_state())


def test_hostile_pixels_choose_as_others_do() -> None:
    drawn = pool()
    for value in (torch.inf, -torch.inf, torch.nan, 1e30, -3.0):
        assert drawn.chosen_by(torch.full((1, 8, 8), value)).noise.isfinite().all()


def test_large_latents_have_a_smaller_pool() -> None:
    assert len(pool(copies=4).sigmas) == 128
    assert len(pool(copies=32, latents=(64, 64, 64)).sigmas) == FEWEST


def test_some_copies_are_shown_without_their_label() -> None:
    assert 0.1 < float(pool().unlabelled.float().mean()) < 0.3

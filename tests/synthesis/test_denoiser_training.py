"""Our diffusion model learns, from a seed alone, and a killed training gives the same bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sfumato.synthesis import denoiser_training
from sfumato.synthesis.denoiser import Denoiser
from sfumato.synthesis.denoiser_training import DenoiserTraining, checkpoint_name, train_denoiser
from sfumato.synthesis.regeneration import regenerate

from toys import CheckpointsInMemory, KilledError, coloured_squares

FEW = DenoiserTraining(width=8, steps=5, batch=8)
PIXELS = coloured_squares().pixels
NAME = checkpoint_name(PIXELS, FEW)


def same(first: Denoiser, second: Denoiser) -> bool:
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_it_learns_what_the_images_look_like() -> None:
    """From pure noise come dim images with one bright square, not noise."""
    model = train_denoiser(PIXELS, replace(FEW, steps=200, batch=16, rate=8e-3), CheckpointsInMemory())
    made = regenerate(model, PIXELS[:20], strength=1, steps=10, generator=torch.Generator().manual_seed(0)).float()
    square, edge = made[:, :, 5:11, 5:11].mean((2, 3)), made[:, :, :2].mean((2, 3))
    assert abs(float(edge.mean()) - 30) < 15
    assert float(square.mean() - edge.mean()) > 25
    apart = square.max(dim=1).values - square.min(dim=1).values  # one channel is bright
    assert float(apart.median()) > 60  # 172 in the images that it learns from


def test_the_seed_alone_decides_and_global_randomness_is_left_alone() -> None:
    made = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        before = torch.get_rng_state()
        made.append(train_denoiser(PIXELS, FEW, CheckpointsInMemory()))
        assert torch.equal(before, torch.get_rng_state())
    assert same(*made)
    assert not same(made[0], train_denoiser(PIXELS, replace(FEW, seed=1), CheckpointsInMemory()))


def test_a_killed_training_goes_on_to_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(denoiser_training, "KEPT_EVERY", 2)
    whole = train_denoiser(PIXELS, FEW, CheckpointsInMemory())
    kept = CheckpointsInMemory(lasting=1)
    with pytest.raises(KilledError):
        train_denoiser(PIXELS, FEW, kept)
    assert int(kept.kept[NAME]["step"]) == 2
    kept.lasting = None
    assert same(whole, train_denoiser(PIXELS, FEW, kept))
    assert kept.restored == [NAME]


def test_a_finished_training_is_not_done_again() -> None:
    kept = CheckpointsInMemory()
    first = train_denoiser(PIXELS, FEW, kept)
    kept.lasting = 0  # would be killed at its next checkpoint
    assert same(first, train_denoiser(PIXELS, FEW, kept))


def test_other_images_or_settings_have_another_name() -> None:
    assert checkpoint_name(PIXELS.clone(), replace(FEW)) == NAME
    others = [
        checkpoint_name(PIXELS.roll(1), FEW),
        checkpoint_name(PIXELS[:-1], FEW),
        checkpoint_name(PIXELS, DenoiserTraining()),
    ]
    assert NAME not in others
    assert len(set(others)) == 3


def test_the_rate_rises_and_falls() -> None:
    rates = [DenoiserTraining(steps=1000).rate_at(step) for step in range(1000)]
    assert max(rates) < 1e-3
    assert rates.index(max(rates)) == 99
    assert rates[-1] < 1e-6
    assert DenoiserTraining(steps=1).rate_at(0) == 1e-3


def test_what_comes_back_does_not_learn_any_more() -> None:
    model = train_denoiser(PIXELS, FEW, CheckpointsInMemory())
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())

"""An autoencoder learns to give images back, from a seed alone, and a killed training goes on to the same bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sfumato.networks.autoencoder import Autoencoder
from sfumato.training import autoencoder
from sfumato.training.autoencoder import AutoencoderTraining, train_autoencoder
from sfumato.values import Checkpoints

from toys import CheckpointsInMemory, KilledError, coloured_squares

IMAGES = coloured_squares(channels=1)
FEW = AutoencoderTraining(steps=5, batch=8)


def trained(settings: AutoencoderTraining = FEW, checkpoints: Checkpoints | None = None) -> Autoencoder:
    network = Autoencoder((1, 16, 16), code=4, width=8)
    train_autoencoder(network, IMAGES, settings, checkpoints=checkpoints)
    return network


def test_it_learns_to_give_images_back() -> None:
    network = trained(replace(FEW, steps=120, batch=32, rate=8e-3))
    images = IMAGES.unit()
    errors = float((network.decode(network.encode(images)) - images).square().mean())
    assert errors < 0.35 * float((images - images.mean(0)).square().mean())
    assert not any(parameter.requires_grad for parameter in network.parameters())


def test_the_seed_alone_decides_and_global_randomness_is_left_alone() -> None:
    made = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        before = torch.get_rng_state()
        made.append(trained().identity)
        assert torch.equal(before, torch.get_rng_state())
    assert made[0] == made[1] != trained(replace(FEW, seed=1)).identity


def test_a_killed_training_goes_on_to_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoencoder, "KEPT_EVERY", 2)
    kept = CheckpointsInMemory(lasting=1)
    with pytest.raises(KilledError):
        trained(checkpoints=kept)
    kept.lasting = None
    assert trained(checkpoints=kept).identity == trained().identity
    assert len(kept.restored) == 1
    kept.lasting = 0  # would be killed at its next checkpoint
    assert trained(checkpoints=kept).identity == trained().identity

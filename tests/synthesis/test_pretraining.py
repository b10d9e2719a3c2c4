"""A denoiser learns from public images, from a seed alone, and a killed training goes on to the same bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sfumato.cache import cache_folder
from sfumato.networks.latent_grid import LatentGrid
from sfumato.synthesis import pretraining
from sfumato.synthesis.edm import ClassDenoiser, NoiseLevels
from sfumato.synthesis.pretraining import Pretraining, pretrain
from sfumato.values import Checkpoints, Images

from toys import CheckpointsInMemory, KilledError, coloured_squares

IMAGES = coloured_squares(channels=1)
GRID = LatentGrid((1, 16, 16))
FEW = Pretraining(NoiseLevels(), 5, 8, 2e-3, 0.9, unlabelled=0.1, mirror=False, seed=0)


def trained(
    settings: Pretraining = FEW, images: Images = IMAGES, checkpoints: Checkpoints | None = None
) -> ClassDenoiser:
    network = ClassDenoiser(GRID.usual_deviations(), 3, width=8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretraining, "_in_cache", lambda: checkpoints)
        pretrain(network, images, GRID, settings, images_are_public=checkpoints is not None)
    return network


def same(first: ClassDenoiser, second: ClassDenoiser) -> bool:
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_it_learns_to_denoise_by_the_label() -> None:
    network = trained(replace(FEW, steps=150, batch=32, rate=8e-3))
    clean, labels = GRID.encode(IMAGES.unit()), IMAGES.labels
    noisy = clean + torch.randn(clean.shape, generator=torch.Generator().manual_seed(3)) * 2
    sigmas = torch.full((len(clean),), 2.0)
    with torch.no_grad():
        right, wrong, none = (
            float((network(noisy, sigmas, told) - clean).square().mean())
            for told in (labels, (labels + 1) % 3, labels * 0 + 3)
        )
    assert right < 0.7 * wrong
    assert right < none < wrong
    assert right < 0.8 * float((clean - clean.mean(0)).square().mean())


def test_the_seed_alone_decides_and_global_randomness_is_left_alone() -> None:
    made = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        before = torch.get_rng_state()
        made.append(trained())
        assert torch.equal(before, torch.get_rng_state())
    assert same(*made)
    assert not same(made[0], trained(replace(FEW, seed=1)))


def test_a_killed_training_goes_on_to_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretraining, "KEPT_EVERY", 2)
    kept = CheckpointsInMemory(lasting=1)
    with pytest.raises(KilledError):
        trained(checkpoints=kept)
    (state,) = kept.kept.values()
    assert int(state["step"]) == 2
    kept.lasting = None
    assert same(trained(), trained(checkpoints=kept))
    assert len(kept.restored) == 1


def test_a_finished_training_is_not_done_again_and_other_images_or_settings_are_another_one() -> None:
    kept = CheckpointsInMemory()
    first = trained(checkpoints=kept)
    kept.lasting = 0  # would be killed at its next checkpoint
    assert same(first, trained(checkpoints=kept))
    darker = Images(IMAGES.pixels // 2, IMAGES.labels, IMAGES.classes)
    relabelled = Images(IMAGES.pixels, (IMAGES.labels + 1) % 3, IMAGES.classes)
    for settings, images in ((FEW, darker), (FEW, relabelled), (replace(FEW, rate=1e-3), IMAGES)):
        with pytest.raises(KilledError):
            trained(settings, images, kept)


def test_labels_that_the_network_does_not_know_count_as_none() -> None:
    labels = (7, -1, 3)
    made = [trained(images=Images(IMAGES.pixels, torch.full((60,), label), ("x",))) for label in labels]
    assert same(made[0], made[1])
    assert same(made[0], made[2])


def test_the_rate_rises_and_falls() -> None:
    rates = [replace(FEW, steps=1_000).rate_at(step) for step in range(1_000)]
    assert rates.index(max(rates)) == 49
    assert rates[0] < 1e-4
    assert rates[-1] == pytest.approx(0.05 * 2e-3, rel=0.01)


def test_nothing_is_kept_unless_images_are_said_to_be_public() -> None:
    network = ClassDenoiser(GRID.usual_deviations(), 3, width=8)
    pretrain(network, IMAGES, GRID, FEW)
    assert not cache_folder().exists()
    pretrain(network, IMAGES, GRID, FEW, images_are_public=True)
    assert len(list((cache_folder() / "trainings").iterdir())) == 1

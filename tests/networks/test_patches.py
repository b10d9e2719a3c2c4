"""Features of patches: what they depend on, and that the shipped filters are those that the script makes."""

from __future__ import annotations

import hashlib
import runpy
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load, load_file

from sfumato.errors import DataError
from sfumato.networks import patches
from sfumato.networks.patches import FILE, SHA256, PatchFeatures
from sfumato.training.patch_filters import patch_filters

SCRIPT = Path(__file__).parents[2] / "pretraining" / "patches.py"


def pictures(count: int, *shape: int) -> torch.Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 64, 48), (3, 224, 224), (1, 8, 8), (3, 200, 9)])
def test_features_have_length_one_and_are_of_one_image_alone(shape: tuple[int, int, int]) -> None:
    features, images = PatchFeatures(*shape), pictures(3, *shape)
    made = features(images)
    assert made.shape[1:] == features.shape
    assert torch.allclose(made.flatten(1).norm(dim=1), torch.ones(3), atol=1e-4)
    alone = torch.func.vmap(lambda image: features(image[None])[0])(images)
    assert torch.allclose(made, alone, atol=1e-5)


def test_brightness_contrast_and_mirror_images_change_little() -> None:
    features, images = PatchFeatures(3, 32, 32), 0.25 + 0.5 * pictures(4, 3, 32, 32)
    made = features(images)
    assert torch.allclose(features(images.flip(3)), made, atol=1e-6)
    darker = features(0.8 * images)
    others = features(images.roll(1, 0))
    assert (darker - made).norm() < 0.3 * (others - made).norm()


def test_a_flat_image_has_finite_features() -> None:
    assert torch.isfinite(PatchFeatures(3, 32, 32)(torch.zeros(1, 3, 32, 32))).all()


def test_filters_with_another_checksum_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "patches.safetensors").write_bytes(FILE.read_bytes() + b"x")
    monkeypatch.setattr(patches, "FILE", tmp_path / "patches.safetensors")
    patches._filters.cache_clear()
    with pytest.raises(DataError, match="SHA-256"):
        PatchFeatures(3, 32, 32)
    monkeypatch.undo()
    PatchFeatures(3, 32, 32)


def test_the_file_is_small_and_says_what_it_is_made_of() -> None:
    assert hashlib.sha256(FILE.read_bytes()).hexdigest() == SHA256
    assert FILE.stat().st_size < 8e6
    with safe_open(FILE, "pt") as held:
        assert "No real image" in held.metadata()["note"]


def test_the_script_makes_such_filters() -> None:
    """Rounding on another machine may choose other patches, so that only what they have in common is compared."""
    made, held = load(runpy.run_path(str(SCRIPT))["made"]()), load_file(FILE)
    assert made.keys() == held.keys()
    for name, tensor in held.items():
        assert made[name].shape == tensor.shape
        if name.endswith("weights"):
            ours, theirs = (torch.linalg.svdvals(weights.flatten(1)) for weights in (made[name], tensor))
            assert torch.allclose(ours[:30], theirs[:30], rtol=0.2), name


def test_whitened_patches_by_hand() -> None:
    """Filters of noise are not far from its own patches; each has mean zero and a bias that removes the mean."""
    images = pictures(200, 1, 16, 16)
    weights, biases = patch_filters(images, 8, torch.Generator().manual_seed(0))
    assert weights.shape == (8, 1, 6, 6)
    assert weights.flatten(1).mean(1).abs().max() < 1e-6
    assert biases.abs().max() < 0.5
    assert len(torch.unique(weights.flatten(1), dim=0)) == 8

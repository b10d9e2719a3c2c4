"""Generators: of several drafts of an image the one most like its class is kept."""

from __future__ import annotations

import pytest
import torch

from sfumato.errors import UsageError
from sfumato.synthesis.generator_training import CHUNK, GeneratorSampler, GeneratorSettings, PixelTable

GOOD, BROKEN = 4.0, -4.0  # before the sigmoid


def half_broken() -> PixelTable:
    """Ten images of each of two classes, every other one broken."""
    table = PixelTable((1, 2, 2), 2, each=10, draw=torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        table.logits[:, ::2], table.logits[:, 1::2] = GOOD, BROKEN
    return table


def bright(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return images.mean((1, 2, 3))


def broken_part(drafts: int) -> float:
    labels = torch.arange(2).repeat(1_000)
    images = GeneratorSampler(half_broken(), ("a", "b"), bright, drafts=drafts, seed=0)(labels)
    assert torch.equal(images.labels, labels)
    return float((images.pixels[:, 0, 0, 0] < 128).double().mean())


@pytest.mark.parametrize("drafts", [1, 2, 4])
def test_an_image_is_broken_only_where_all_its_drafts_are(drafts: int) -> None:
    wanted = 0.5**drafts
    assert abs(broken_part(drafts) - wanted) < 4 * (wanted * (1 - wanted) / 2_000) ** 0.5


def test_a_draft_is_compared_with_its_own_class() -> None:
    def like_the_label(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:  # the second class is dark
        return torch.where(labels == 0, 1.0, -1.0) * bright(images, labels)

    labels = torch.tensor([0, 1]).repeat(CHUNK)  # more than one chunk
    images = GeneratorSampler(half_broken(), ("a", "b"), like_the_label, drafts=8, seed=0)(labels)
    right = (images.pixels[:, 0, 0, 0] > 128) == (labels == 0)
    assert right.double().mean() > 0.97  # but for one in 256


def test_settings_without_a_draft_are_refused() -> None:
    with pytest.raises(UsageError, match="drafts"):
        GeneratorSettings(steps=1, batch=1, learning_rate=0.1, latent=1, hidden=1, codes=1, drafts=0)

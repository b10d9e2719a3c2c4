"""Low frequencies: an orthonormal part of images, and directions that are its adjoint."""

from __future__ import annotations

import torch

from sfumato.networks.low_frequencies import LowFrequencies


def test_all_frequencies_are_the_image() -> None:
    images = torch.rand(3, 2, 6, 8, generator=torch.Generator().manual_seed(0))
    low = LowFrequencies((2, 6, 8), 8)
    assert low.length == 2 * 6 * 8
    torch.testing.assert_close(low.directions(low.encode(images)) + 0.5, images)


def test_directions_are_the_adjoint() -> None:
    draw = torch.Generator().manual_seed(0)
    low = LowFrequencies((3, 16, 16), 5)
    images, directions = torch.rand(4, 3, 16, 16, generator=draw), torch.randn(4, low.length, generator=draw)
    inner = ((images - 0.5) * low.directions(directions)).sum()
    torch.testing.assert_close((low.encode(images) * directions).sum(), inner)

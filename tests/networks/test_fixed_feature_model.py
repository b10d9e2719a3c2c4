"""Classifiers on fixed features: what is learnt is in their state, and the features are not."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from networks.exported import DIMENSIONS, export, name_of, seeded
from sfumato.errors import DataError
from sfumato.networks.fixed_feature_model import FixedFeatureModel, fixed_features
from sfumato.networks.models import build_model
from sfumato.networks.photograph_features import PhotographFeatures
from sfumato.networks.scattering import ScatteringFeatures


def pictures(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("hidden", [0, 6])
@pytest.mark.parametrize(("kind", "shape"), [("scattering", (1, 8, 8)), ("photographs", (3, 16, 12))])
def test_the_state_holds_the_head_alone(kind: str, shape: tuple[int, int, int], hidden: int) -> None:
    features = fixed_features(kind, shape, "")
    assert isinstance(features, ScatteringFeatures if kind == "scattering" else PhotographFeatures)
    network = FixedFeatureModel(features, 5, hidden=hidden)
    width = math.prod(features.shape)
    sizes = [tuple(tensor.shape) for tensor in network.state_dict().values()]
    assert sizes == ([(hidden, width), (hidden,), (5, hidden), (5,)] if hidden else [(5, width), (5,)])
    assert all(name.startswith("head.") for name in network.state_dict())
    assert len(list(network.parameters())) == len(sizes)


def test_logits_are_linear_maps_of_the_features() -> None:
    features = ScatteringFeatures(1, 8, 8)
    images = pictures(4, 1, 8, 8)
    seen = features(images).flatten(1)
    linear, hidden = FixedFeatureModel(features, 3), FixedFeatureModel(features, 3, hidden=6)
    with torch.no_grad():
        torch.testing.assert_close(linear(images), F.linear(seen, linear.head.weight, linear.head.bias))
        first, _, last = hidden.head
        inner = F.relu(F.linear(seen, first.weight, first.bias))
        torch.testing.assert_close(hidden(images), F.linear(inner, last.weight, last.bias))


def test_the_features_get_no_gradient() -> None:
    images = pictures(2, 1, 8, 8).requires_grad_()
    network = FixedFeatureModel(ScatteringFeatures(1, 8, 8), 3)
    network(images).sum().backward()
    assert images.grad is None
    assert network.head.weight.grad is not None


def test_a_public_network_is_found_by_name_and_checksum_in_the_cache_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sfumato.networks.public_network.CACHE", tmp_path)
    file = export(tmp_path / "net.pt2", seeded())
    settings = {"features": "network", "network": name_of(file)}
    network = build_model("fixed-features", (1, 8, 8), 3, settings)
    assert [tuple(tensor.shape) for tensor in network.state_dict().values()] == [(3, DIMENSIONS), (3,)]
    assert network(pictures(2, 1, 8, 8)).shape == (2, 3)
    export(file, seeded(seed=1))
    with pytest.raises(DataError, match="got another"):
        build_model("fixed-features", (1, 8, 8), 3, settings)

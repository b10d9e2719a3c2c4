"""A classifier on fixed features, linear or with one hidden layer: what a private classifier without a GPU should be.

The features are functions of one image that nobody learnt from private data: wavelet scattering of grey images,
patches and scattering of photographs (`photograph_features`), or a public network. They are not among the weights of
the model, because whoever has this package, and the public network, has them.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from sfumato.networks.linear_teacher import Features
from sfumato.networks.models import Shape
from sfumato.networks.patches import SMALLEST
from sfumato.networks.photograph_features import PhotographFeatures
from sfumato.networks.public_network import named_features
from sfumato.networks.scattering import ScatteringFeatures

KINDS = ("scattering", "photographs", "network")


class FixedFeatureModel(nn.Module):
    """Logits of images: fixed features, then a linear map, or two with a rectifier between them."""

    def __init__(self, features: Features, classes: int, *, hidden: int = 0) -> None:
        super().__init__()
        # in a tuple, so that their own weights are none of this model's
        self._features = (features,)
        width = math.prod(features.shape)
        if hidden:
            self.head: nn.Module = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, classes))
        else:
            self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:  # (b, c, h, w) in [0, 1] -> (b, k)
        with torch.no_grad():
            features = self._features[0](images).flatten(1)
        return cast(Tensor, self.head(features))


def fixed_features(kind: str, shape: Shape, network: str) -> Features:
    """The features of that kind; `network` is a public network as a certificate names it, or empty."""
    if (kind == "network") != bool(network):
        raise ValueError("expected the name of a public network for features of a network, and for no other")
    if kind == "network":
        return named_features(network, shape)
    if kind == "photographs":
        if min(shape[1:]) < SMALLEST:
            raise ValueError(f"expected photographs of at least {SMALLEST} x {SMALLEST} pixels")
        return PhotographFeatures(*shape)
    if kind == "scattering":
        return ScatteringFeatures(*shape)
    raise ValueError(f"expected features of the kind {', '.join(KINDS)}; got {kind!r}")


def _model(shape: Shape, classes: int, *, features: str, network: str = "", hidden: int = 0) -> nn.Module:
    return FixedFeatureModel(fixed_features(features, shape, network), classes, hidden=hidden)


MODELS = {"fixed-features": _model}

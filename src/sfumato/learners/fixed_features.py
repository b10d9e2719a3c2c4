"""A linear or two-layer head on fixed features by DP-SGD (Tramer and Boneh 2021): what to use without a GPU.

The features are functions of one image that were not learnt from private data: wavelet scattering, filtered patches, or
a public network. Their strong directions, found on images that are not private, are reduced, because in few noisy steps
a head learns only along strong directions; then they are centred by a noisy mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.contracts import Learner
from sfumato.errors import UsageError, expect_one_of, expect_within
from sfumato.networks.fixed_feature_model import FixedFeatureModel, fixed_features
from sfumato.networks.linear_teacher import Features, LinearHead, WhitenedFeatures
from sfumato.networks.patches import SMALLEST
from sfumato.networks.public_network import NO_NETWORK, certified_name, public_features
from sfumato.privacy import Budget, Descent, GaussianSum, PrivateImages, descend
from sfumato.synthesis.procedural_images import procedural_images
from sfumato.synthesis.scenes import scenes
from sfumato.values import Classifier, Images, Spec

EXAMPLES = 2_000  # images that are not private, from which strong directions of the features are estimated
MEAN_BOUND = 2.0  # on the length of whitened features in the question for their mean; the median of the examples is 1
SMALLEST_PHOTOGRAPH = 16  # pixels; smaller images have no fine structure


@dataclass(frozen=True)
class FixedFeatures(Learner):
    """Hyperparameters, all public."""

    public_images: ClassVar[Literal["welcome"]] = "welcome"  # in place of procedural examples

    features: str = "scattering"
    network: str = NO_NETWORK  # a public network in place of `features`: efficientnet-lite0, or the path of a file
    hidden: int = 0  # width of a hidden layer; 0: a linear head
    rounds: int = 800
    sampling: float = 0.03
    rate: float = 50.0
    l2_bound: float = 0.1  # clipping bound of a gradient
    mean_share: float = 0.02  # of the budget, for the mean of the features
    whitening_level: float = 0.03  # variance that strong directions are reduced to, relative to the largest
    seed: int = 0

    def __post_init__(self) -> None:
        expect_one_of(self, features=("scattering", "photographs"))
        expect_within(
            self,
            hidden=(0, 100_000),
            rounds=(1, 1_000_000),
            sampling=(1e-9, 1),
            rate=(1e-9, 1e9),
            l2_bound=(1e-9, 1e9),
            mean_share=(0.001, 0.9),
            whitening_level=(1e-6, 1e6),
            seed=(0, 2**31 - 2),
        )

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        # The signal grows as epsilon times the number of records; more rounds and larger steps help where there is more
        # of it. About 2,000 records in a round keep the sampling noise below the privacy noise.
        signal = min(budget.epsilon, 100.0) * spec.count
        photographs = spec.channels == 3 and min(spec.height, spec.width) >= SMALLEST_PHOTOGRAPH
        # Without clipping (epsilon inf) gradients are about ten times as long.
        rate = 2.0 if math.isinf(budget.epsilon) else min(100.0, 50 * math.sqrt(signal / 60_000))
        return cls(
            features="photographs" if photographs else "scattering",
            rounds=round(min(1_000.0, max(50.0, 800 * (signal / 60_000) ** 0.7))),
            sampling=min(0.5, max(0.03, 2_000 / max(spec.count, 1))),
            rate=max(0.1, round(rate, 1)),
        )

    def plan(self, spec: Spec) -> Sequence[GaussianSum]:
        if self.features == "photographs" and self.network == NO_NETWORK and min(spec.height, spec.width) < SMALLEST:
            raise UsageError(
                f"Expected images of at least {SMALLEST} x {SMALLEST} pixels for features=photographs, got "
                f"{spec.height} x {spec.width}.",
                fix="use features=scattering, or resize the images with --size",
            )
        return [
            GaussianSum(share=self.mean_share, purpose="mean of the features of all images"),
            GaussianSum(
                rounds=self.rounds,
                sampling=self.sampling,
                share=1 - self.mean_share,
                purpose="gradients of the classifier",
            ),
        ]

    def public_network(self) -> str | None:
        return None if self.network == NO_NETWORK else certified_name(self.network)

    def seconds(self, spec: Spec) -> float:
        if self.network != NO_NETWORK:
            image = 9e-3 if max(spec.height, spec.width) > 40 else 3e-3  # and its mirror image
        else:
            image = 1.3e-3 if self.features == "photographs" else 4.5e-4 * spec.pixels / 784
        rows = self.rounds * self.sampling * spec.count
        return 10 + 0.01 * self.rounds + 1e-5 * rows * (1 + self.hidden / 10) + image * (spec.count + EXAMPLES)

    def fit(self, private: PrivateImages, public: Images | None) -> Classifier:
        spec = private.spec
        mean_question, gradients = private.ledger.calibrate(*self.plan(spec))
        fixed, settings = self._fixed_features(spec)
        seen = WhitenedFeatures(fixed, self._examples(spec, public), level=self.whitening_level, affine=True)
        features = private.mapped(lambda image: seen(image[None])[0])  # computed once, for both questions
        total = features.open(mean_question)(lambda row, label: row.flatten(), l2_bound=MEAN_BOUND)
        head = self._untrained_head((total / spec.count).float(), len(spec.classes))
        query = features.open(gradients)
        descend(query, head, lambda _: _cross_entropy, Descent(self.l2_bound, self.rate), what="classifier")
        network = FixedFeatureModel(fixed, len(spec.classes), hidden=self.hidden)
        _write_head(network, head, seen)
        return Classifier("fixed-features", settings, network.eval().requires_grad_(False))

    def _fixed_features(self, spec: Spec) -> tuple[Features, dict[str, bool | int | float | str]]:
        """The features, and the settings of the architecture by which the classifier is built on them again."""
        if self.network == NO_NETWORK:
            return fixed_features(self.features, spec.shape, ""), {"features": self.features, "hidden": self.hidden}
        # by its path; whoever reads the classifier looks for it by its name and checksum
        seen = public_features(self.network, spec.shape)
        return seen, {"features": "network", "network": seen.name, "hidden": self.hidden}

    def _examples(self, spec: Spec, public: Images | None) -> Tensor:
        """Public images where there are some, else procedural ones: uint8 (n, c, h, w)."""
        draw = torch.Generator().manual_seed(self.seed)
        if public is not None and len(public):
            if tuple(public.pixels.shape[1:]) != spec.shape:
                raise UsageError(
                    f"Expected public images of shape {spec.shape}, got {tuple(public.pixels.shape[1:])}.",
                    fix="give public images of this shape, or leave --public out",
                )
            return public.pixels[torch.randperm(len(public), generator=draw)[:EXAMPLES]]
        make = scenes if self.features == "photographs" else procedural_images
        return (255 * make(EXAMPLES, spec.shape, draw)).round().to(torch.uint8)

    def _untrained_head(self, mean: Tensor, classes: int) -> nn.Sequential:
        """Centred features, then a `LinearHead`, whose weights are zero; before a hidden layer they are drawn."""
        first = LinearHead(len(mean), self.hidden or classes)
        if not self.hidden:
            return nn.Sequential(_Centred(mean), first)
        draw = torch.Generator().manual_seed(self.seed)
        nn.init.normal_(first.linear.weight, generator=draw)  # features have about unit length
        last = nn.Linear(self.hidden, classes)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        return nn.Sequential(_Centred(mean), first, nn.ReLU(), last)


class _Centred(nn.Module):
    """Features less their mean."""

    mean: Tensor

    def __init__(self, mean: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)

    def forward(self, features: Tensor) -> Tensor:
        return features.flatten(1) - self.mean


def _write_head(network: FixedFeatureModel, head: nn.Sequential, seen: WhitenedFeatures) -> None:
    """Put the head into the classifier, as layers on the features themselves."""
    layers = [layer for layer in network.head.modules() if isinstance(layer, nn.Linear)]
    centred, first = cast(_Centred, head[0]), cast(LinearHead, head[1]).linear.weight.detach()
    weight, bias = seen.in_given_features(first)
    state = [(weight, bias - first[:, :-1] @ centred.mean)]
    state += [(layer.weight, layer.bias) for layer in head if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        for layer, (weight, bias) in zip(layers, state, strict=True):
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)


def _cross_entropy(model: Callable[..., Tensor], features: Tensor, label: Tensor) -> Tensor:
    return F.cross_entropy(model(features[None]), label[None])

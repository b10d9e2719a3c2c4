"""DP-SGD on a network (Abadi et al. 2016) with the techniques of De et al. (2022) and DP-SAT (Park et al. 2023).

Each technique is a switch: large batches (obs), group norm (gn), weight standardisation (ws), augmentation multiplicity
(am), parameter averaging (pa) and sharpness-aware training (sat). None of them changes what one record can do to a
gradient, and so none changes the cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.contracts import Learner
from sfumato.errors import UsageError, expect_one_of, expect_within
from sfumato.networks.models import build_model
from sfumato.privacy import Budget, Descent, GaussianSum, PrivateImages, descend
from sfumato.training.augmentation import draw_windows, versions
from sfumato.training.techniques import TECHNIQUES, WIDE, switched_on
from sfumato.values import Classifier, Images, Spec

ARCHITECTURES = (*WIDE, "resnet18", "cnn")
STANDARD = {"obs", "gn", "ws", "am", "pa"}
IN_ALL = {"resnet18": {"gn"}}  # techniques that an architecture always has
POSSIBLE = {"resnet18": set(TECHNIQUES) - {"ws"}, "cnn": set(TECHNIQUES) - {"gn", "ws"}}  # all, where not stated
SMALLEST = {"cnn": 8}  # pixels, the shortest side of images that an architecture takes; one, where not stated
# Seconds for one image of 32 x 32 pixels on two cores, and one version of it.
COSTS = {"wrn-10-1-fast": 1.2e-3, "wrn-16-1": 4e-3, "wrn-16-4": 4e-2, "wrn-40-4": 0.12, "resnet18": 4e-3, "cnn": 4e-3}

_Model = Callable[..., Tensor]
Callback = Callable[[float, nn.Module], None]  # fraction of training done, and the network in eval mode


@dataclass(frozen=True)
class DPSGD(Learner):
    """Hyperparameters, all public."""

    arch: str = "wrn-10-1-fast"
    # names with commas, or none; standard: obs, gn, ws, am and pa, as far as the architecture can have them
    techniques: str = "standard"
    epochs: float = 20.0  # how often a record is seen, on average
    batch: int = 256  # records of a round, on average
    large_batch: int = 2_048  # the same with obs
    multiplicity: int = 4  # versions of a record in a round, with am
    averaging: float = 0.999  # the share of the averaged weights that stays at each step, with pa
    ascent: float = 0.03  # how far sat goes uphill
    rate: float = 2.0  # learning rate of large batches; it is proportional to the batch
    momentum: float = 0.0
    l2_bound: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        expect_one_of(self, arch=ARCHITECTURES)
        expect_within(
            self,
            epochs=(1e-6, 1e6),
            batch=(1, 1e9),
            large_batch=(1, 1e9),
            multiplicity=(1, 1_000),
            averaging=(0, 0.99999),
            ascent=(0, 1e6),
            rate=(1e-9, 1e9),
            momentum=(0, 0.9999),
            l2_bound=(1e-9, 1e9),
            seed=(0, 2**31 - 2),
        )
        impossible = self.switched_on() - POSSIBLE.get(self.arch, set(TECHNIQUES))
        missing = IN_ALL.get(self.arch, set()) - self.switched_on()
        if impossible or missing:
            what = f"cannot have {', '.join(sorted(impossible))}" if impossible else f"has {', '.join(missing)} always"
            raise UsageError(
                f"Expected techniques that fit the architecture; {self.arch} {what}.",
                fix=f"use {', '.join(WIDE)}, or --with standard",
            )

    def switched_on(self) -> set[str]:
        """The techniques by name; `standard` stands for those that usually help and that the architecture can have."""
        if self.techniques.strip() == "standard":
            return STANDARD & POSSIBLE.get(self.arch, STANDARD)
        return switched_on(self.techniques)

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        # Without clipping (epsilon inf) gradients are longer, so the rate is smaller.
        rate = 0.5 if math.isinf(budget.epsilon) else 2.0
        return cls(
            large_batch=min(2_048, max(32, spec.count // 5)), batch=min(256, max(8, spec.count // 20)), rate=rate
        )

    def _batch(self) -> int:
        return self.large_batch if "obs" in self.switched_on() else self.batch

    def plan(self, spec: Spec) -> Sequence[GaussianSum]:
        least, size = SMALLEST.get(self.arch, 1), f"{spec.height} x {spec.width}"
        if min(spec.height, spec.width) < least:
            raise UsageError(
                f"Expected images of at least {least} x {least} pixels for {self.arch}, got {size}.",
                fix=f"use {', '.join(WIDE)}, or resize the images with --size",
            )
        sampling = min(1.0, self._batch() / max(spec.count, 1))
        rounds = max(1, round(self.epochs / sampling))
        return [GaussianSum(rounds=rounds, sampling=sampling, purpose="gradients of the classifier")]

    def seconds(self, spec: Spec) -> float:
        seen = self.epochs * spec.count * (self.multiplicity if "am" in self.switched_on() else 1)
        return 5 + seen * COSTS[self.arch] * spec.height * spec.width / 1024

    def fit(self, private: PrivateImages, public: Images | None) -> Classifier:
        return self.fit_watched(private, None)

    def fit_watched(self, private: PrivateImages, callback: Callback | None, *, calls: int = 8) -> Classifier:
        """The same, with a callback that is shown the network so many times on the way."""
        spec = private.spec
        (mechanism,) = private.ledger.calibrate(*self.plan(spec))
        on = self.switched_on()
        architecture, settings = self._architecture()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            network = build_model(architecture, spec.shape, len(spec.classes), settings)
        descent = Descent(
            self.l2_bound,
            self.rate * self._batch() / self.large_batch,
            momentum=self.momentum,
            schedule="constant",
            averaging=self.averaging if "pa" in on else 0.0,
            warm_up="slow",
            ascent=self.ascent if "sat" in on else 0.0,
        )
        descend(
            private.open(mechanism),
            network,
            self._losses(spec),
            descent,
            what="classifier",
            callback=callback,
            calls=calls,
        )
        return Classifier(architecture, settings, network.eval())

    def _architecture(self) -> tuple[str, dict[str, bool | int | float | str]]:
        on = self.switched_on()
        if self.arch == "cnn":
            return "private-cnn", {}
        if self.arch == "resnet18":
            return "resnet18", {}
        depth, widen, stride = WIDE[self.arch]
        norm = "group" if "gn" in on else "none"
        return "wide-resnet", {
            "depth": depth,
            "widen": widen,
            "stem_stride": stride,
            "norm": norm,
            "weight_standardisation": "ws" in on,
        }

    def _losses(self, spec: Spec) -> Callable[[int], Callable[[_Model, Tensor, Tensor], Tensor]]:
        """The loss of each round; with am the mean over versions of the record, which are one row together.

        The windows of the versions are the same for all records of a round and new in each: so nothing is drawn while
        private records are looked at, and a resumed run sees the same.
        """
        if "am" not in self.switched_on():
            return lambda _: _cross_entropy
        side, colour = min(spec.height, spec.width), spec.channels == 3  # mirrored digits and letters are others

        def of_round(number: int) -> Callable[[_Model, Tensor, Tensor], Tensor]:
            draw = torch.Generator().manual_seed((self.seed + 1) * 1_000_003 + number)
            windows = draw_windows(self.multiplicity, side, mirror=colour, draw=draw)

            def loss(model: _Model, image: Tensor, label: Tensor) -> Tensor:
                logits = model(versions(image, windows))  # (K, k)
                return F.cross_entropy(logits, label.expand(len(windows)))

            return loss

        return of_round


def _cross_entropy(model: _Model, image: Tensor, label: Tensor) -> Tensor:
    return F.cross_entropy(model(image[None]), label[None])

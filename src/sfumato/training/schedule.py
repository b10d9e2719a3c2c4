"""Training schedules for classifiers on released images; all settings are public, published ones named by source."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch

from sfumato.errors import DataError, UsageError
from sfumato.networks import classifiers
from sfumato.values import Images

Loss = Literal["logits", "kl", "labels"]
Subset = Literal["data", "transfer", "all"]  # the folders of a release
UNIT_AREA = 32 * 32  # pixels; a larger image counts as several against the bound `images_seen`
# By what factor a short schedule is cut for slow networks: measured, so that training lasts minutes (a ResNet: half
# an hour).
COSTS = {
    "resnet18": 10,
    "resnet34": 20,
    "vgg11": 5,
    "mobilenet-v2": 5,
    "shufflenet-v2": 5,
    "mlp": 2,
    "lenet": 4,
    "resnet8": 5,
    "wrn-10-2": 10,
    "resnext-11": 8,
    # Estimated from multiply counts, not measured; these need a GPU.
    "resnet110": 10,
    "resnet164": 15,
    "wrn-40-4": 25,
    "resnext29-8x64": 100,
    "wrn-28-10": 100,
    "resnext28-8x64": 100,
    # Estimated from multiply counts: networks for DP-SGD; the last two need a GPU.
    "private-cnn": 4,
    "wrn-16-1-gn": 5,
    "resnet18-gn-16": 5,
    "wrn-16-4-gn": 10,
    "wrn-40-4-gn": 25,
}
# Networks that learn hard labels as well in batches of 128 at a higher rate as in more, smaller steps.
FAST_LEARNERS = ("mlp", "resnet8", "wrn-10-2", "resnext-11")


def training_images(images: Images, loss: Loss | None = None, subset: Subset | None = None) -> Images:
    """The images of a release that a student is trained on.

    By default the distillation set, where there is one; for the loss "labels" the class images. `subset` overrides
    this. The subset "all" carries labels but no logits, because class images have no logits.
    """
    distillation = images.transfer
    if distillation is None:
        if subset in ("transfer", "all"):
            raise UsageError(
                "Expected a release with a distillation set, got one with class images alone.",
                fix="leave the subset out",
            )
        return images
    wanted = subset or ("data" if loss == "labels" else "transfer")
    if wanted != "all":
        return images if wanted == "data" else distillation
    if loss in ("logits", "kl"):
        raise UsageError(
            f"Expected the loss labels for the subset all, got {loss}; class images have no logits.",
            fix="leave the loss out",
        )
    pixels = torch.cat([images.pixels, distillation.pixels])
    labels = torch.cat([images.labels, distillation.labels])
    return Images(pixels, labels, images.classes)


def with_hard_labels(images: Images) -> Images:
    """The same images with labels but without logits."""
    return Images(images.pixels, images.labels, images.classes)


@dataclass(frozen=True)
class Schedule:
    """How long and with which steps a student is trained; all fields are public, none was chosen on real images.

    There is deliberately no augmentation: the logits of a shifted or flipped image would have to come from the
    teacher, which is not released.
    """

    arch: str = "small-cnn"
    loss: Loss | None = None  # None: logits where the release has them, labels where not
    temperature: float = 100.0  # used by the loss "kl" only
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"  # sgd with momentum 0.9
    rate: float = 4e-3  # peak learning rate
    milestones: tuple[float, ...] | None = None  # fractions of training at which the rate is cut; None: one cycle
    decay: float = 0.1  # factor of the rate at each milestone
    weight_decay: float = 0.01
    batch: int = 256
    least_batches: int = 16  # per epoch; the batch shrinks where there are few images
    max_epochs: float = 60.0
    images_seen: float = 240_000  # bound on training, in images of up to 32 x 32 pixels
    average: float | None = None  # decay of a moving average of the weights, which is then the result
    patience: int | None = None  # early stopping: epochs without a better accuracy on a held-out tenth

    @classmethod
    def short(cls, arch: str = "small-cnn", *, soft: bool = False, **changes: Any) -> Self:
        """Minutes on two cores: AdamW under one cycle of the learning rate; `soft` to match logits.

        With logits many small steps are better: on FashionMNIST images with the logits of a digit teacher, 120,000
        images seen in batches of 64 beat 240,000 in batches of 256 (measured on training digits that the teacher
        had not seen).
        """
        settings: dict[str, Any] = {}
        if soft or arch != "small-cnn":
            settings = {"batch": 64, "images_seen": 400_000 / COSTS.get(arch, 1)}
        if arch in FAST_LEARNERS and not soft:
            settings |= {"batch": 128, "rate": 0.01}
        return cls(**{"arch": arch, **settings, **changes})

    @classmethod
    def paper(cls, arch: str = "resnet18", **changes: Any) -> Self:
        """DP-ImgSyn's student: SGD for 200 epochs, the rate cut to a tenth at 120, 150 and 180; hours."""
        settings = {
            "loss": "kl",
            "optimizer": "sgd",
            "rate": 0.1,
            "milestones": (0.6, 0.75, 0.9),
            "weight_decay": 1e-4,
            "least_batches": 1,
            "max_epochs": 200.0,
            "images_seen": math.inf,
        }
        return cls(**{"arch": arch, **settings, **changes})

    @classmethod
    def dpimagebench(cls, arch: str, *, colour: bool, **changes: Any) -> Self:
        """DPImageBench's classifiers (Gong et al. 2025), as for MNIST, or as for CIFAR where `colour`; hours on a GPU.

        Their code evaluates averaged weights with the batch-norm statistics of the last step, which belong to other
        weights; here the statistics are averaged like the weights.
        """
        settings: dict[str, Any] = {
            "optimizer": "adam",
            "rate": 0.01,
            "milestones": (0.4, 0.8),
            "weight_decay": 0.0,
            "batch": 256,
            "max_epochs": 50.0,
        }
        if colour:
            settings = {
                "optimizer": "sgd",
                "rate": 0.1,
                "milestones": (0.3, 0.6, 0.9),
                "weight_decay": 5e-4,
                "batch": 126,
                "max_epochs": 200.0,
            }
        settings |= {"decay": 0.2, "least_batches": 1, "images_seen": math.inf, "average": 0.9999}
        return cls(**{"arch": arch, **settings, **changes})

    @classmethod
    def dpac(cls, arch: str, **changes: Any) -> Self:
        """DPAC's classifiers: a perceptron with early stopping on a tenth of the images, or LeNet for 50 epochs.

        The perceptron's weight decay of 0.01 is divided by the batch size of 200, as scikit-learn does with its
        alpha. LeNet's batch size is our choice, and pixels are scaled to [-1, 1], not by MNIST's mean.
        """
        settings: dict[str, Any] = {
            "optimizer": "sgd",
            "rate": 0.05,
            "milestones": (0.8,),
            "weight_decay": 1e-4,
            "batch": 128,
            "max_epochs": 50.0,
        }
        if arch == "mlp":
            settings = {
                "optimizer": "adam",
                "rate": 1e-3,
                "milestones": (),
                "weight_decay": 0.01 / 200,
                "batch": 200,
                "max_epochs": 1000.0,
                "patience": 10,
            }
        settings |= {"least_batches": 1, "images_seen": math.inf}
        return cls(**{"arch": arch, **settings, **changes})

    def loss_for(self, images: Images) -> Loss:
        return self.loss or ("labels" if images.logits is None else "logits")

    def batch_for(self, images: Images) -> int:
        return max(2, min(self.batch, len(images) // self.least_batches))

    def steps(self, images: Images) -> int:
        area = images.pixels.shape[2] * images.pixels.shape[3]
        seen = min(self.max_epochs * len(images), self.images_seen * min(1.0, UNIT_AREA / area))
        return max(1, math.ceil(seen / self.batch_for(images)))

    def epochs(self, images: Images) -> float:
        return self.steps(images) * self.batch_for(images) / len(images)

    def check(self, images: Images) -> None:
        """Refuse a schedule that cannot be used with these images."""
        classifiers.check(self.arch)
        if not 0 < self.temperature < math.inf:
            raise UsageError(
                f"Expected a finite temperature > 0, got {self.temperature:g}.", fix="leave it out for the default"
            )
        if len(images) < 2:
            raise DataError(f"Expected at least 2 images to train on, got {len(images)}.")
        if self.loss_for(images) == "labels":
            return
        if images.logits is None:
            raise UsageError(
                f"Expected a release with logits for the loss {self.loss}, got one with labels alone.",
                fix="use the loss labels",
            )
        if not images.logits.isfinite().all():
            raise DataError("Expected finite logits in the release, got some that are not.")

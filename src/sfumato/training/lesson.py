"""How a classifier is to be taught with released images: every number of it public, named after where it is from."""

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
FULL_PRICE = 32 * 32  # pixels; a larger image counts as several against the bound on work
# How much less a network sees in a short lesson: measured, so that one lasts minutes (a ResNet half an hour).
PRICES = {
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
    # By their multiplications, not measured: a GPU's work.
    "resnet110": 10,
    "resnet164": 15,
    "wrn-40-4": 25,
    "resnext29-8x64": 100,
    "wrn-28-10": 100,
    "resnext28-8x64": 100,
}
# Learn labels in batches of 128 at a higher rate as well as in more steps.
QUICK = ("mlp", "resnet8", "wrn-10-2", "resnext-11")


def lessons_of(images: Images, loss: Loss | None = None, subset: Subset | None = None) -> Images:
    """The images of a release that teach.

    Where it has some for transfer it is those, but by labels it is those of the classes; or whichever subset is
    wished. All of them together have labels and no logits, for the images of the classes have none.
    """
    more = images.transfer
    if more is None:
        if subset in ("transfer", "all"):
            raise UsageError("Expected a release with images for transfer, got one with those of the classes alone.")
        return images
    wished = subset or ("data" if loss == "labels" else "transfer")
    if wished != "all":
        return images if wished == "data" else more
    if loss in ("logits", "kl"):
        raise UsageError(f"Expected the loss labels for all images, got {loss}; those of the classes have no logits.")
    pixels, labels = torch.cat([images.pixels, more.pixels]), torch.cat([images.labels, more.labels])
    return Images(pixels, labels, images.classes)


def hard(images: Images) -> Images:
    """The images with their labels alone."""
    return Images(images.pixels, images.labels, images.classes)


@dataclass(frozen=True)
class Lesson:
    """How a student learns; every field is public, and nothing of it is chosen by looking at real images.

    There is no augmentation on purpose: the logits of a shifted or flipped image are the teacher's
    to say, and the teacher is not released.
    """

    arch: str = "small-cnn"
    loss: Loss | None = None  # None: logits where the release has them, labels where not
    temperature: float = 100.0  # of the loss "kl" alone
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"  # sgd with momentum 0.9
    rate: float = 4e-3  # at its peak
    falls: tuple[float, ...] | None = None  # at these parts of the lesson the rate falls; None: one cycle
    fall: float = 0.1  # by this factor
    weight_decay: float = 0.01
    batch: int = 256
    least_batches: int = 16  # so many of them at least in an epoch, however few images there are
    max_epochs: float = 60.0
    images_seen: float = 240_000  # bound on the work, in images up to 32 px
    average: float | None = None  # decay of a moving average of the student, which then is what counts
    patience: int | None = None  # stop after so many epochs without a better accuracy on a tenth kept apart

    @classmethod
    def short(cls, arch: str = "small-cnn", *, soft: bool = False, **changes: Any) -> Self:
        """Minutes on two cores: AdamW under one cycle of the learning rate; `soft` to match logits.

        Logits say so much about each image that many small steps pay: on FashionMNIST pictures with a
        digit teacher's logits, 120,000 images seen in batches of 64 beat 240,000 in batches of 256 (judged on
        training digits that the teacher had not seen).
        """
        settings: dict[str, Any] = {}
        if soft or arch != "small-cnn":
            settings = {"batch": 64, "images_seen": 400_000 / PRICES.get(arch, 1)}
        if arch in QUICK and not soft:
            settings |= {"batch": 128, "rate": 0.01}
        return cls(**{"arch": arch, **settings, **changes})

    @classmethod
    def paper(cls, arch: str = "resnet18", **changes: Any) -> Self:
        """DP-ImgSyn's student: SGD for 200 epochs, the rate cut to a tenth at 120, 150 and 180; hours."""
        settings = {
            "loss": "kl",
            "optimizer": "sgd",
            "rate": 0.1,
            "falls": (0.6, 0.75, 0.9),
            "weight_decay": 1e-4,
            "least_batches": 1,
            "max_epochs": 200.0,
            "images_seen": math.inf,
        }
        return cls(**{"arch": arch, **settings, **changes})

    @classmethod
    def dpimagebench(cls, arch: str, *, colour: bool, **changes: Any) -> Self:
        """DPImageBench's classifiers (Gong et al. 2025), as for MNIST, or as for CIFAR where `colour`; hours on a GPU.

        Theirs are judged with averaged weights but with the batch statistics of the last step, which fit other
        weights; here the statistics are averaged with the weights.
        """
        settings: dict[str, Any] = {
            "optimizer": "adam",
            "rate": 0.01,
            "falls": (0.4, 0.8),
            "weight_decay": 0.0,
            "batch": 256,
            "max_epochs": 50.0,
        }
        if colour:
            settings = {
                "optimizer": "sgd",
                "rate": 0.1,
                "falls": (0.3, 0.6, 0.9),
                "weight_decay": 5e-4,
                "batch": 126,
                "max_epochs": 200.0,
            }
        settings |= {"fall": 0.2, "least_batches": 1, "images_seen": math.inf, "average": 0.9999}
        return cls(**{"arch": arch, **settings, **changes})

    @classmethod
    def dpac(cls, arch: str, **changes: Any) -> Self:
        """DPAC's classifiers: a perceptron until a tenth of the images stops to improve, or LeNet for 50 epochs.

        The perceptron's penalty of 0.01 is divided by the batch of 200, as scikit-learn does with its alpha. The
        batch of the convolutional one is ours, and pixels are scaled to [-1, 1] and not by MNIST's mean.
        """
        settings: dict[str, Any] = {
            "optimizer": "sgd",
            "rate": 0.05,
            "falls": (0.8,),
            "weight_decay": 1e-4,
            "batch": 128,
            "max_epochs": 50.0,
        }
        if arch == "mlp":
            settings = {
                "optimizer": "adam",
                "rate": 1e-3,
                "falls": (),
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
        seen = min(self.max_epochs * len(images), self.images_seen * min(1.0, FULL_PRICE / area))
        return max(1, math.ceil(seen / self.batch_for(images)))

    def epochs(self, images: Images) -> float:
        return self.steps(images) * self.batch_for(images) / len(images)

    def check(self, images: Images) -> None:
        """Refuse a lesson that these images cannot give."""
        classifiers.check(self.arch)
        if not 0 < self.temperature < math.inf:
            raise UsageError(f"Expected a finite temperature > 0, got {self.temperature:g}.")
        if len(images) < 2:
            raise DataError(f"Expected at least 2 images to learn from, got {len(images)}.")
        if self.loss_for(images) == "labels":
            return
        if images.logits is None:
            raise UsageError(
                f"Expected a release with logits for the loss {self.loss}, got one with labels alone.",
                fix="use the loss labels",
            )
        if not images.logits.isfinite().all():
            raise DataError("Expected finite logits in the release, got some that are not.")

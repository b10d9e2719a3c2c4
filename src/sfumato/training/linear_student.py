"""The student that is linear: fixed features, and a linear function of them, fitted by least squares.

Where the logits of the release are a linear function of the same features, up to a factor for each image, a few
thousand images determine it, whatever they look like; nothing is random here. The features are those of a public
network, or those that are shipped with this package, which no real image was used for.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.errors import DataError
from sfumato.progress import track
from sfumato.training.student import split_off, unit
from sfumato.values import Images

PENALTIES = (1e-9, 1e-7, 1e-5, 1e-3, 1e-1)  # of the squared weights, relative to the mean square of a feature
CHUNK = 64  # images at a time
PART = 2_000  # rows at a time


class LinearStudent(nn.Module):
    """Logits of images (b, c, h, w) in [0, 1]."""

    def __init__(self, features: nn.Module, weights: Tensor) -> None:
        super().__init__()
        self.features = features
        self.register_buffer("weights", weights.float())  # (d + 1, k)

    def forward(self, images: Tensor) -> Tensor:
        return _with_constant(self.features(images).flatten(1)) @ self.get_buffer("weights")


def fit_linear_student(images: Images, features: nn.Module, *, what: str) -> LinearStudent:
    """The linear function of the features that fits the logits of these images, or their labels where there are none.

    The penalty is the one with the least error on a tenth of the released images, which are held out for that.
    """
    if len(images) < 3:
        raise DataError(f"Expected at least 3 images to train on, got {len(images)}.", fix="make a larger release")
    places = Images(torch.arange(len(images))[:, None, None, None], images.labels, images.classes)
    fitted, held_out = (part.pixels.flatten() for part in split_off(places, seed=0))
    rows, targets = _rows(images.pixels, features, what), _targets(images).double()
    gram, products = _products(rows[fitted], targets[fitted])
    square = gram.diagonal().mean()
    found = [_solve(gram, products, penalty * square) for penalty in PENALTIES]
    kept = rows[held_out].double()
    errors = torch.stack([F.mse_loss(kept @ weights, targets[held_out]) for weights in found])
    return LinearStudent(features, found[int(errors.argmin())]).eval()


def _rows(pixels: Tensor, features: nn.Module, what: str) -> Tensor:
    """Features of images (n, d + 1)."""
    chunks = torch.split(pixels, CHUNK)
    with torch.inference_mode():
        made = [features(unit(chunk)).flatten(1) for chunk in track(chunks, what=what, total=len(chunks))]
    return _with_constant(torch.cat(made))


def _products(rows: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Mean products of the rows (d, d), and of rows and targets (d, k), in double precision a part at a time."""
    gram = torch.zeros(rows.shape[1], rows.shape[1], dtype=torch.float64)
    products = torch.zeros(rows.shape[1], targets.shape[1], dtype=torch.float64)
    for part, answers in zip(torch.split(rows, PART), torch.split(targets, PART), strict=True):
        exact = part.double()
        gram.addmm_(exact.T, exact)
        products.addmm_(exact.T, answers)
    return gram / len(rows), products / len(rows)


def _with_constant(rows: Tensor) -> Tensor:
    return F.pad(rows, (0, 1), value=rows.shape[1] ** -0.5)  # about as large as a feature


def _targets(images: Images) -> Tensor:
    """Only differences between logits matter, so they are centred."""
    answers = F.one_hot(images.labels, len(images.classes)).float() if images.logits is None else images.logits
    return answers - answers.mean(1, keepdim=True)


def _solve(gram: Tensor, products: Tensor, penalty: Tensor) -> Tensor:
    weights: Tensor = torch.linalg.solve(gram + penalty * torch.eye(len(gram), dtype=gram.dtype), products)
    return weights

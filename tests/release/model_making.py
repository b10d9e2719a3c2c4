"""Small released classifiers for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from release.making import CLASSES, make_certificate, make_images
from sfumato.networks.models import build_model
from sfumato.privacy import Mechanism
from sfumato.release import ModelCertificate, model_facts, write_model
from sfumato.values import Classifier

SHAPE = (1, 8, 8)


def make_classifier(
    architecture: str = "private-cnn",
    settings: dict[str, Any] | None = None,
    *,
    shape: tuple[int, int, int] = SHAPE,
    classes: int = len(CLASSES),
    seed: int = 3,
) -> Classifier:
    """A classifier with random weights."""
    torch.manual_seed(seed)
    return Classifier(architecture, settings or {}, build_model(architecture, shape, classes, settings or {}))


def make_model_certificate(
    classifier: Classifier, *mechanisms: Mechanism, shape: tuple[int, int, int] = SHAPE, **changes: Any
) -> ModelCertificate:
    """With real charges; everything but the model is that of a release of images."""
    images = make_images(channels=shape[0], side=shape[1])
    values = make_certificate(images, *mechanisms).model_dump(exclude={"format", "samples"})
    learner = {"name": "dp-linear", "hyperparameters": {"steps": 100, "rate": 0.1}}
    return ModelCertificate(**{**values, "method": learner, "model": model_facts(classifier), **changes})


def make_model(folder: Path, **shape: Any) -> Path:
    classifier = make_classifier(**shape)
    return write_model(folder, classifier, make_model_certificate(classifier, **shape))

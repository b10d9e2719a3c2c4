"""Released classifiers for tests of judges, and data whose labels say nothing, which can only be memorised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from metrics.digits import CLASSES, reference
from release.making import OPEN, make_certificate
from sfumato.contracts import Reading
from sfumato.networks.models import build_model
from sfumato.release import ModelCertificate, model_facts, write_model
from sfumato.values import Classifier, Images, Reference

READING = Reading(classes=CLASSES)
TRAINED, TESTED = 200, 120  # records


def random_labels(images: Images, seed: int) -> Images:
    labels = torch.randint(10, (len(images),), generator=torch.Generator().manual_seed(seed))
    return Images(images.pixels, labels, images.classes)


def meaningless() -> Reference:
    """Digits under random labels: whoever knows a label has memorised it."""
    real = reference()
    assert real.test is not None
    draw = torch.Generator().manual_seed(0)  # neighbours are by one writer
    train, test = (
        images.rows(torch.randperm(len(images), generator=draw)[:count])
        for images, count in ((real.train, TRAINED), (real.test, TESTED))
    )
    return Reference(random_labels(train, 1), random_labels(test, 2))


def written(real: Reference, path: Path) -> str:
    """The data as a file that `--real` can name; read it with READING."""
    assert real.test is not None
    parts = {"train": real.train, "test": real.test}
    arrays = {f"x_{split}": images.pixels[:, 0].numpy() for split, images in parts.items()}
    arrays |= {f"y_{split}": images.labels.numpy() for split, images in parts.items()}
    np.savez(path, **arrays)
    return str(path)


def untrained(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_model("private-cnn", (1, 8, 8), 10, {})


def trained(images: Images, *, steps: int = 300, seed: int = 0) -> nn.Module:
    """A small network after so many steps on all images at once: it memorises a few hundred labels."""
    network = untrained(seed)
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(network(images.unit()), images.labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network.eval()


def released(folder: Path, network: nn.Module, images: Images, *, private: bool = True, **changes: Any) -> Path:
    """The network as a release, under a claim of epsilon 1 or so, or none."""
    classifier = Classifier("private-cnn", {}, network)
    guarantee = (
        {} if private else {"guarantee": OPEN, "budget": {"epsilon": None, "delta": OPEN["delta"]}, "profile": []}
    )
    values = make_certificate(images, **guarantee).model_dump(exclude={"format", "samples"})
    certificate = ModelCertificate(**{**values, "model": model_facts(classifier), **changes})
    return write_model(folder, classifier, certificate)

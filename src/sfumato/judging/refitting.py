"""Fit what a certificate names again, on other records and with a ledger of its own: how shadows are made."""

from __future__ import annotations

import ast
import math
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato import contracts
from sfumato.contracts import Asking
from sfumato.errors import NotApplicable, SfumatoError
from sfumato.privacy import Budget, Ledger, PrivateImages
from sfumato.values import Images, Spec

LIMIT = (
    "shadows were fitted on real records outside the release's ledger; nothing of them is kept, "
    "and what they show is for the lab alone"
)


@dataclass(frozen=True, slots=True)
class _Records:
    """Real images as a source of records."""

    pixels: Tensor
    labels: Tensor
    spec: Spec
    name: str = "shadow"

    def chunks(self) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
        for start in range(0, len(self.labels), 1_000):
            yield self.pixels[start : start + 1_000].numpy(), self.labels[start : start + 1_000].numpy()


def stated_in(certificate: Mapping[str, Any], kind: Literal["methods", "learners"], spec: Spec) -> tuple[Any, Budget]:
    """The method or the learner with the hyperparameters and the budget that the certificate states."""
    stated_budget = certificate["budget"]
    epsilon = math.inf if stated_budget["epsilon"] is None else stated_budget["epsilon"]
    budget = Budget(epsilon, stated_budget["delta"])
    try:
        named = certificate["method"]
        usual = contracts.find(kind, named["name"]).for_task(spec, budget)
        known = {f.name: getattr(usual, f.name) for f in fields(usual)}
        stated = {
            name: ast.literal_eval(value) if isinstance(known[name], tuple) else value
            for name, value in named["hyperparameters"].items()
        }
        asking = replace(usual, **stated)
        asking.public_network()  # refuses a network whose file is not here: the certificate has no paths
        return asking, budget
    except (SfumatoError, KeyError, TypeError, ValueError, SyntaxError) as error:
        raise NotApplicable(
            f"Expected a {kind[:-1]} and hyperparameters that this version knows, got {error}."
        ) from error


def refuse_long_work(asking: Asking, spec: Spec, public: Images | None, *, shadows: int, seconds: float) -> None:
    """Raises NotApplicable where public images are missing, or where all shadows would take longer than `seconds`."""
    if asking.public_images == "needed" and public is None:
        raise NotApplicable("Expected the public images that the release was made from, got none.")
    needed = shadows * asking.seconds(spec)
    if needed > seconds:
        raise NotApplicable(f"Expected {shadows} shadows in {seconds:.0f} s; they would take {needed:.0f} s.")


def fitted_again(asking: Any, budget: Budget, images: Images, public: Images | None) -> Any:
    """What a method or a learner learns from these records; its ledger and its working copies go when it is made."""
    shape = images.pixels.shape
    records = _Records(
        images.pixels, images.labels, Spec(len(images), int(shape[1]), int(shape[2]), int(shape[3]), images.classes)
    )
    with tempfile.TemporaryDirectory(prefix="sfumato-shadow-") as folder:
        ledger = Ledger(budget, Path(folder) / "ledger.jsonl")
        try:
            private = PrivateImages.seal(records, ledger, folder=Path(folder))
            try:
                return asking.fit(private, public)
            finally:
                private.close()
        finally:
            ledger.close()


def joined(first: Images, rows: Tensor, second: Images, others: Tensor) -> Images:
    """Some rows of one set, then some of another."""
    pixels = torch.cat([first.pixels[rows], second.pixels[others]])
    return Images(pixels, torch.cat([first.labels[rows], second.labels[others]]), first.classes)

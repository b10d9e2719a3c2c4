"""Accuracy on real images of a linear student that sees through the release's public network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sfumato.contracts import Metric
from sfumato.errors import NotApplicable, SfumatoError
from sfumato.networks.public_network import named_features
from sfumato.statistics import panels
from sfumato.training.linear_student import fit_linear_student
from sfumato.training.student import predict
from sfumato.values import Images, Reference, Score


@dataclass(frozen=True)
class Gen2RealNetwork(Metric):
    """Only for releases with logits for a public network; the student has no seed, so there is no standard error."""

    judges: ClassVar = "utility"
    higher_is_better: ClassVar[bool] = True

    def __call__(self, synthetic: Images, real: Reference) -> Score:
        if synthetic.network is None or synthetic.network.seen_through is None:
            raise NotApplicable("Expected a release with logits for a public network, got none.")
        images, name = synthetic.network, synthetic.network.seen_through
        held_out = panels.comparable(images, real)
        try:
            features = named_features(name, images.pixels.shape[1:])
        except SfumatoError as problem:  # a judge without the network still has the other metrics of the panel
            raise NotApplicable(problem.what, where=problem.where, fix=problem.fix) from problem
        student = fit_linear_student(images, features, what="gen2real through the public network")
        details = {"network": name, "test_split": real.test is not None, "trained_on": "the images in network/"}
        return panels.accuracy(
            "gen2real-network", [predict(student, held_out.pixels)], held_out, seeds=(), details=details
        )

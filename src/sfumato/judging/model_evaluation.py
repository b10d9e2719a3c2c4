"""Evaluate a released classifier by its answers to real images; lab side, after it is written."""

from __future__ import annotations

import hashlib

from torch import Tensor, nn

from sfumato.judging.harmonic import add_harmonic_score
from sfumato.judging.panel import Panel, classifier_panel_of, run_panel
from sfumato.lab.folder import Lab
from sfumato.lab.scores import read_scores
from sfumato.training.student import outputs
from sfumato.values import ModelRelease, Reference, Score


class RememberedAnswers:
    """A network that is asked once for the logits of the same pixels: most metrics judge the same images."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._known: dict[str, Tensor] = {}

    def __call__(self, pixels: Tensor) -> Tensor:  # uint8 (n, c, h, w) -> (n, k)
        key = hashlib.sha256(pixels.numpy().tobytes()).hexdigest()
        if key not in self._known:
            self._known[key] = outputs(self._network, pixels)
        return self._known[key]


def evaluate_model(
    release: ModelRelease, real: Reference, *, metrics: tuple[str, ...] = (), panel: Panel = "default"
) -> list[Score]:
    """Score a released classifier; the results go to its lab folder.

    Metrics that are named are all computed; metrics of a panel that do not apply to these images are left out, and
    the table gives the reason.
    """
    judges = classifier_panel_of(panel, metrics)
    lab = Lab.beside(release.path.absolute())
    read_scores(lab.folder)  # refuse a foreign table before the work
    answers = RememberedAnswers(release.classifier.network.eval())
    entries = run_panel(judges, answers, real, lab, leave_out=not metrics)
    scores = [entry.score for entry in entries]
    with lab:
        harmonic = add_harmonic_score(lab)
    return scores if harmonic is None or metrics else [*scores, harmonic]

"""Accuracy on real images of classifiers that were trained on synthetic images alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from sfumato.contracts import Metric
from sfumato.statistics import panels as judging
from sfumato.statistics.panels import CPU_EPOCHS, Profile, Selection
from sfumato.training.student import Schedule, outputs, training_images, with_hard_labels
from sfumato.values import Images, Reference, Score

BY_LABELS = "small-cnn"


@dataclass(frozen=True)
class Gen2Real(Metric):
    """The mean over networks and seeds, never the best: nothing is selected on real data.

    The standard error is the larger of two, over networks and over seeds (`judging.Spread`).
    """

    judges: ClassVar = "utility"
    higher_is_better: ClassVar[bool] = True

    archs: tuple[str, ...] = ()  # none: those of the profile
    seeds: tuple[int, ...] = (0, 1)
    profile: Profile = "cpu"
    selection: Selection = "last"  # synthetic: of eight looks, the best on a tenth of the synthetic images
    images_seen: float = math.inf  # these two bound the lessons of the profile cpu
    max_epochs: float = CPU_EPOCHS

    def __call__(self, synthetic: Images, real: Reference) -> Score:
        archs = judging.networks_of(self.profile, self.archs, synthetic)
        judging.check_panel(archs, self.seeds)
        held_out, images = judging.comparable(synthetic, real), training_images(synthetic)
        said = self._said(images, archs, held_out)
        details = {
            "profile": self.profile,
            "selection": "last step" if self.selection == "last" else "best look on a tenth of the synthetic images",
            "test_split": real.test is not None,
            "taught_by": "the images of the classes" if images is synthetic else "the images for transfer",
            **judging.taught({arch: self.lesson_for(arch, images) for arch in archs}, images),
        }
        score = judging.panel_score("gen2real", said, held_out, seeds=self.seeds, details=details)
        worst = judging.worst_class("gen2real-worst-class", said, held_out, seeds=self.seeds)
        calibration = judging.calibration("gen2real-calibration-error", said, held_out, seeds=self.seeds)
        by_labels = () if images is synthetic else (self._by_labels(with_hard_labels(synthetic), held_out),)
        return replace(score, parts=(*score.parts, worst, calibration, *by_labels))

    def _said(self, images: Images, archs: tuple[str, ...], held_out: Images) -> dict[str, list[Tensor]]:
        lessons = {arch: self.lesson_for(arch, images) for arch in archs}
        said: dict[str, list[Tensor]] = {arch: [] for arch in archs}
        panel = judging.panel_of(images, lessons, seeds=self.seeds, what="gen2real", selection=self.selection)
        for arch, student in panel:
            said[arch].append(outputs(student, held_out.pixels))
        return said

    def _by_labels(self, images: Images, held_out: Images) -> Score:
        """What the images of the classes teach by their labels alone, beside a transfer set: one small network."""
        answers = [said.argmax(1) for said in self._said(images, (BY_LABELS,), held_out)[BY_LABELS]]
        details = {"arch": BY_LABELS, **judging.taught({BY_LABELS: self.lesson_for(BY_LABELS, images)}, images)}
        return judging.accuracy("gen2real-labels", answers, held_out, seeds=self.seeds, details=details)

    def lesson_for(self, arch: str, synthetic: Images) -> Schedule:
        """Logits teach where the release has them."""
        return judging.lesson_for(
            self.profile, arch, synthetic, images_seen=self.images_seen, max_epochs=self.max_epochs
        )

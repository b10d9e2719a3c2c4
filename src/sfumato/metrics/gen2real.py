"""Accuracy on real images of classifiers that were trained on synthetic images alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from sfumato.contracts import Metric
from sfumato.statistics import panels
from sfumato.statistics.panels import CPU_EPOCHS, Profile, Selection
from sfumato.training.student import Schedule, training_images, with_hard_labels
from sfumato.values import Images, Reference, Score

BY_LABELS = "small-cnn"


@dataclass(frozen=True)
class Gen2Real(Metric):
    """The mean over networks and seeds, never the best: nothing is selected on real data.

    The standard error is the larger of two, over networks and over seeds (`panels.Spread`).
    """

    judges: ClassVar = "utility"
    higher_is_better: ClassVar[bool] = True

    archs: tuple[str, ...] = ()  # empty: those of the profile
    seeds: tuple[int, ...] = (0, 1)
    profile: Profile = "cpu"
    selection: Selection = "last"  # synthetic: of eight checkpoints, the best on a tenth of the synthetic images
    images_seen: float = math.inf  # this and the next bound the training of the profile cpu
    max_epochs: float = CPU_EPOCHS

    def __call__(self, synthetic: Images, real: Reference) -> Score:
        archs = panels.networks_of(self.profile, self.archs, synthetic)
        panels.check_panel(archs, self.seeds)
        held_out = panels.comparable(synthetic, real)
        images = training_images(synthetic)
        logits = self._logits(images, archs, held_out)
        details = {
            "profile": self.profile,
            "selection": "last step"
            if self.selection == "last"
            else "best checkpoint on a tenth of the synthetic images",
            "test_split": real.test is not None,
            "trained_on": "the class images" if images is synthetic else "the distillation set",
            **panels.training_details({arch: self.schedule_for(arch, images) for arch in archs}, images),
        }
        score = panels.panel_score("gen2real", logits, held_out, seeds=self.seeds, details=details)
        worst = panels.worst_class("gen2real-worst-class", logits, held_out, seeds=self.seeds)
        calibration = panels.calibration("gen2real-calibration-error", logits, held_out, seeds=self.seeds)
        by_labels = () if images is synthetic else (self._by_labels(with_hard_labels(synthetic), held_out),)
        return replace(score, parts=(*score.parts, worst, calibration, *by_labels))

    def _logits(self, images: Images, archs: tuple[str, ...], held_out: Images) -> panels.PanelLogits:
        schedules = {arch: self.schedule_for(arch, images) for arch in archs}
        (logits,) = panels.student_logits(
            images, schedules, (held_out.pixels,), seeds=self.seeds, what="gen2real", selection=self.selection
        )
        return logits

    def _by_labels(self, images: Images, held_out: Images) -> Score:
        """Where there is a distillation set: the accuracy of one small network trained on the class images alone."""
        answers = [logits.argmax(1) for logits in self._logits(images, (BY_LABELS,), held_out)[BY_LABELS]]
        details = {
            "arch": BY_LABELS,
            **panels.training_details({BY_LABELS: self.schedule_for(BY_LABELS, images)}, images),
        }
        return panels.accuracy("gen2real-labels", answers, held_out, seeds=self.seeds, details=details)

    def schedule_for(self, arch: str, synthetic: Images) -> Schedule:
        """The schedule of the profile; students are trained on logits where the release has them."""
        return panels.schedule_for(
            self.profile, arch, synthetic, images_seen=self.images_seen, max_epochs=self.max_epochs
        )

"""Accuracy on synthetic images, by their labels, of classifiers that were trained on real images."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from sfumato.contracts import Metric
from sfumato.errors import NotApplicable
from sfumato.statistics import panels
from sfumato.statistics.distances import some
from sfumato.statistics.panels import CPU_EPOCHS, Profile
from sfumato.statistics.same_kind import known
from sfumato.training.student import Schedule
from sfumato.values import Images, Reference, Score


@dataclass(frozen=True)
class Real2Gen(Metric):
    """Do synthetic images look like their labels? The mean over networks and seeds, each after its last step.

    The part real2real is what the same classifiers do on real test images. DPAC trained its convolutional network
    on the real test split; `legacy` does so too, and has no real2real.
    """

    judges: ClassVar = "utility"
    higher_is_better: ClassVar[bool] = True

    archs: tuple[str, ...] = ()  # empty: those of the profile
    seeds: tuple[int, ...] = (0,)  # one, because the error is over networks and each takes as long as in gen2real
    profile: Profile = "cpu"
    legacy: bool = False
    most: int = 20_000  # synthetic images to be judged
    images_seen: float = math.inf  # this and the next bound the training of the profile cpu
    max_epochs: float = CPU_EPOCHS

    def __call__(self, synthetic: Images, real: Reference) -> Score:
        archs = panels.networks_of(self.profile, self.archs, synthetic)
        panels.check_panel(archs, self.seeds)
        panels.comparable(synthetic, real)
        if self.legacy and real.test is None:
            raise NotApplicable("Expected a test split for the legacy protocol, which trains on it, got none.")
        test = None if real.test is None or self.legacy else known(real.test)
        draw = torch.Generator().manual_seed(self.seeds[0])
        judged = synthetic.rows(some(len(synthetic), self.most, draw))
        on_synthetic: panels.PanelLogits = {}
        on_test: panels.PanelLogits = {}
        details: dict[str, Any] = {
            "selection": "last step",
            "profile": self.profile,
            "legacy": self.legacy,
            "judged": len(judged),
            "loss": {},
            "epochs": {},
        }
        for arch in archs:
            images = self._training_images_for(arch, real)
            schedules = {arch: self.schedule_for(arch, images)}
            for key, of_arch in panels.training_details(schedules, images).items():
                details[key] |= of_arch
            tests = [judged.pixels] if test is None else [judged.pixels, test.pixels]
            logits = panels.student_logits(images, schedules, tests, seeds=self.seeds, what="real2gen")
            on_synthetic |= logits[0]
            if test is not None:
                on_test |= logits[1]
        score = panels.panel_score("real2gen", on_synthetic, judged, seeds=self.seeds, details=details)
        if test is None:
            return score
        ceiling = panels.panel_score("real2real", on_test, test, seeds=self.seeds, details={})
        return replace(score, parts=(*score.parts, replace(ceiling, parts=()), *ceiling.parts))

    def schedule_for(self, arch: str, images: Images) -> Schedule:
        schedule = panels.schedule_for(
            self.profile, arch, images, images_seen=self.images_seen, max_epochs=self.max_epochs
        )
        if self.profile == "dpac" and arch != "mlp":  # a smaller rate and more epochs than with synthetic images
            schedule = replace(schedule, rate=0.01, max_epochs=100.0)
        return schedule

    def _training_images_for(self, arch: str, real: Reference) -> Images:
        """The real images to train this network on: the training split, except where legacy repeats DPAC's flaw."""
        on_test_split = self.legacy and arch != "mlp" and real.test is not None
        return known(real.held_out if on_test_split else real.train)

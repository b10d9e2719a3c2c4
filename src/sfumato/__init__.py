"""Sfumato: private image release under a guarantee that anyone can check."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sfumato.openmp import let_threads_sleep

let_threads_sleep()  # before anything here can import torch

if TYPE_CHECKING:
    from sfumato.auditing.audit import audit_method
    from sfumato.auditing.selfcheck import selfcheck
    from sfumato.contracts import Attack, Dataset, Metric, Reading, Synthesizer
    from sfumato.errors import SfumatoError
    from sfumato.experiments.experiment import Experiment
    from sfumato.judging.attack import attack_release
    from sfumato.judging.evaluate import evaluate_release
    from sfumato.judging.selection import select_classifier
    from sfumato.judging.student import train_student
    from sfumato.making.release import Job, Plan, make_release, plan_release
    from sfumato.making.resample import resample_release
    from sfumato.release import Verdict, read_release
    from sfumato.release import verify as verify_release
    from sfumato.report.evaluation import write_page
    from sfumato.report.public import write_public_page
    from sfumato.report.site import write_site
    from sfumato.values import Images, Reference, Release, Score, Spec

__all__ = [
    "Attack",
    "Dataset",
    "Experiment",
    "Images",
    "Job",
    "Metric",
    "Plan",
    "Reading",
    "Reference",
    "Release",
    "Score",
    "SfumatoError",
    "Spec",
    "Synthesizer",
    "Verdict",
    "attack_release",
    "audit_method",
    "evaluate_release",
    "make_release",
    "plan_release",
    "read_release",
    "resample_release",
    "select_classifier",
    "selfcheck",
    "train_student",
    "verify_release",
    "write_page",
    "write_public_page",
    "write_site",
]

_HOMES = {
    "Experiment": "experiments.experiment",
    "Job": "making.release",
    "Plan": "making.release",
    "SfumatoError": "errors",
    "Verdict": "release",
    "attack_release": "judging.attack",
    "audit_method": "auditing.audit",
    "evaluate_release": "judging.evaluate",
    "make_release": "making.release",
    "plan_release": "making.release",
    "read_release": "release",
    "resample_release": "making.resample",
    "select_classifier": "judging.selection",
    "selfcheck": "auditing.selfcheck",
    "train_student": "judging.student",
    "verify_release": "release",
    "write_page": "report.evaluation",
    "write_public_page": "report.public",
    "write_site": "report.site",
    **dict.fromkeys(("Attack", "Dataset", "Metric", "Reading", "Synthesizer"), "contracts"),
    **dict.fromkeys(("Images", "Reference", "Release", "Score", "Spec"), "values"),
}


def __getattr__(name: str) -> Any:
    # imported when first needed, so that `sfumato --help` and `sfumato verify` start fast
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(f"sfumato.{_HOMES[name]}")
    return getattr(home, "verify" if name == "verify_release" else name)

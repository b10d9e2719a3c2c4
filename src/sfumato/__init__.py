"""Sfumato: private image release under a guarantee that anyone can check."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sfumato.openmp import let_threads_sleep

let_threads_sleep()  # before anything here can import torch

if TYPE_CHECKING:
    from sfumato.auditing.audit import audit_method
    from sfumato.auditing.doctor import examine as doctor
    from sfumato.auditing.selfcheck import selfcheck
    from sfumato.contracts import Attack, Dataset, Metric, Reading, Synthesizer
    from sfumato.contracts import names as available
    from sfumato.errors import SfumatoError
    from sfumato.experiments.experiment import Experiment, run_recipe
    from sfumato.experiments.recipe import RecipeResult
    from sfumato.experiments.status import store_status
    from sfumato.judging.attack import attack_release
    from sfumato.judging.attribute_leak import Leak
    from sfumato.judging.evaluate import evaluate_release
    from sfumato.judging.leak import measure_leak
    from sfumato.judging.predict import predict_images
    from sfumato.judging.selection import select_classifier
    from sfumato.judging.student import train_student
    from sfumato.making.hide import HidingJob, HidingPlan, hide_attribute, plan_hiding
    from sfumato.making.model import TrainingJob, TrainingPlan, plan_training, train_model
    from sfumato.making.release import Job, Plan, make_release, plan_release
    from sfumato.making.resample import resample_release
    from sfumato.release import Verdict, read_model, read_release
    from sfumato.release import verify as verify_release
    from sfumato.report.confined import write_public_page
    from sfumato.report.evaluation import write_page
    from sfumato.report.leak_page import write_leak_page
    from sfumato.report.site import write_site
    from sfumato.values import Images, Reference, Release, Score, Spec

__all__ = [
    "Attack",
    "Dataset",
    "Experiment",
    "HidingJob",
    "HidingPlan",
    "Images",
    "Job",
    "Leak",
    "Metric",
    "Plan",
    "Reading",
    "RecipeResult",
    "Reference",
    "Release",
    "Score",
    "SfumatoError",
    "Spec",
    "Synthesizer",
    "TrainingJob",
    "TrainingPlan",
    "Verdict",
    "attack_release",
    "audit_method",
    "available",
    "doctor",
    "evaluate_release",
    "hide_attribute",
    "make_release",
    "measure_leak",
    "plan_hiding",
    "plan_release",
    "plan_training",
    "predict_images",
    "read_model",
    "read_release",
    "resample_release",
    "run_recipe",
    "select_classifier",
    "selfcheck",
    "store_status",
    "train_model",
    "train_student",
    "verify_release",
    "write_leak_page",
    "write_page",
    "write_public_page",
    "write_site",
]

# where each name is defined, and under which name if that is another one
_HOMES = {
    "Attack": "contracts",
    "Dataset": "contracts",
    "Experiment": "experiments.experiment",
    "HidingJob": "making.hide",
    "HidingPlan": "making.hide",
    "Images": "values",
    "Job": "making.release",
    "Leak": "judging.attribute_leak",
    "Metric": "contracts",
    "Plan": "making.release",
    "Reading": "contracts",
    "RecipeResult": "experiments.recipe",
    "Reference": "values",
    "Release": "values",
    "Score": "values",
    "SfumatoError": "errors",
    "Spec": "values",
    "Synthesizer": "contracts",
    "TrainingJob": "making.model",
    "TrainingPlan": "making.model",
    "Verdict": "release",
    "attack_release": "judging.attack",
    "audit_method": "auditing.audit",
    "available": "contracts:names",
    "doctor": "auditing.doctor:examine",
    "evaluate_release": "judging.evaluate",
    "hide_attribute": "making.hide",
    "make_release": "making.release",
    "measure_leak": "judging.leak",
    "plan_hiding": "making.hide",
    "plan_release": "making.release",
    "plan_training": "making.model",
    "predict_images": "judging.predict",
    "read_model": "release",
    "read_release": "release",
    "resample_release": "making.resample",
    "run_recipe": "experiments.experiment",
    "select_classifier": "judging.selection",
    "selfcheck": "auditing.selfcheck",
    "store_status": "experiments.status",
    "train_model": "making.model",
    "train_student": "judging.student",
    "verify_release": "release:verify",
    "write_leak_page": "report.leak_page",
    "write_page": "report.evaluation",
    "write_public_page": "report.confined",
    "write_site": "report.site",
}


def __getattr__(name: str) -> Any:
    # imported when first needed, so that `sfumato --help` and `sfumato verify` start fast
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, _, other_name = _HOMES[name].partition(":")
    return getattr(importlib.import_module(f"sfumato.{home}"), other_name or name)

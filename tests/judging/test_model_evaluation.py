"""Evaluating a released classifier: its own panel, its lab, its page, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from judging.released import meaningless, released, trained, untrained, written
from metrics.digits import reference
from release.making import make_certificate
from sfumato import contracts, data
from sfumato.contracts import ClassifierMetric, Reading
from sfumato.errors import DataError, SfumatoError, UsageError, VerificationFailed
from sfumato.judging.evaluate import evaluate_release
from sfumato.judging.harmonic import FORMULAS, harmonic_score
from sfumato.judging.model_evaluation import RememberedAnswers, evaluate_model
from sfumato.judging.panel import classifier_panel_of, panel_of
from sfumato.lab.folder import Lab
from sfumato.lab.scores import Entry, add_scores, read_scores
from sfumato.release import read_model, write_release
from sfumato.release.kind import release_kind
from sfumato.report.evaluation import write_page
from sfumato.values import Groups, Reference, Score

from commands import sfumato


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network that was trained on the digits, released under a claim."""
    train = reference().train
    return released(tmp_path_factory.mktemp("model") / "m", trained(train, steps=60), train)


def by_name(scores: list[Score]) -> dict[str, Score]:
    return {score.name: score for score in scores}


def test_the_kind_of_a_release(model: Path, tmp_path: Path) -> None:
    assert release_kind(model) == "model"
    with pytest.raises(UsageError, match="Expected a release folder"):
        release_kind(tmp_path / "nothing")
    with pytest.raises(VerificationFailed, match=r"certificate\.json"):
        release_kind(tmp_path)


def test_a_classifier_is_judged_by_its_own_panel(model: Path) -> None:
    before = {path: path.read_bytes() for path in model.rglob("*") if path.is_file()}
    scores = by_name(evaluate_release(model, "digits"))
    assert {path: path.read_bytes() for path in model.rglob("*") if path.is_file()} == before
    assert list(scores) == ["accuracy", "calibration", "worst-class"]  # digits have neither colour nor groups
    assert scores["accuracy"].value > 0.9
    assert scores["worst-class"].value <= scores["accuracy"].value
    lab = model.with_name("m.lab")
    table = json.loads((lab / "scores.json").read_text())
    assert set(table["left_out"]) == {"accuracy-gap", "classifier-bias", "classifier-equalised-odds"}
    assert all("groups" in why for why in table["left_out"].values())
    assert not list(lab.glob("*.png")), "a classifier has no pictures to look at"
    again = by_name(evaluate_release(model, "digits"))
    assert again == scores


def test_panels_tell_images_and_classifiers_apart() -> None:
    of_classifiers = classifier_panel_of("full")
    assert all(isinstance(metric, ClassifierMetric) for metric in of_classifiers.values())
    assert set(of_classifiers).isdisjoint(panel_of("full"))
    assert {*of_classifiers, *panel_of("full")} == set(contracts.names("metrics"))
    assert set(classifier_panel_of("default", ("calibration",))) == {"calibration"}


def test_the_same_pixels_are_asked_once() -> None:
    asked: list[int] = []

    class Counting(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            asked.append(len(images))
            return images.flatten(1)[:, :10]

    test = reference().test
    assert test is not None
    answers = RememberedAnswers(Counting())
    first = answers(test.pixels[:300])
    assert torch.equal(answers(test.pixels[:300].clone()), first)
    assert asked == [300]
    answers(test.pixels[1:301])
    assert asked == [300, 300]


TERMS = {
    "classifier-bias": (0.1, "fairness"),
    "attack-lira": (0.6, "privacy"),
    "attack-loss-threshold": (0.55, "privacy"),
}


def test_the_harmonic_score_of_a_classifier_takes_its_strongest_attack(tmp_path: Path) -> None:
    entries = [Entry(Score(name, value, 0.01, True), name, kind) for name, (value, kind) in TERMS.items()]
    folder = released(tmp_path / "m", untrained(), reference().train)
    with Lab.beside(folder) as lab:
        add_scores(lab, entries, judged_on="the test split", left_out={})
    scores = by_name(evaluate_release(folder, "digits", metrics=("accuracy",)))
    (row,) = [row for row in read_scores(tmp_path / "m.lab")["scores"] if row["score"] == "harmonic-score"]
    terms = row["details"]["of"]
    assert terms["AUC"] == {"score": "attack-lira", "value": 0.6}
    assert terms["bias"] == {"score": "classifier-bias", "value": 0.1}
    strongest, bias = entries[1].score, entries[0].score
    assert row["value"] == harmonic_score(scores["accuracy"], strongest, bias).value
    assert (row["details"]["variant"], row["details"]["formula"]) == ("bounded", FORMULAS["bounded"])


def test_the_page_of_a_classifier(model: Path) -> None:
    evaluate_release(model, "digits", metrics=("accuracy", "worst-class", "calibration"))
    page = write_page(model).read_text()
    assert "a classifier of" in page
    assert "under epsilon" in page
    assert "Accuracy of the released classifier on real images, by class" in page
    assert "is it as often right as it is sure" in page
    assert "trained on the release" not in page
    assert "<img" not in page
    assert page.index("PRIVATE") < page.index("Utility") < page.index("Fairness")


def test_a_page_of_nothing_but_a_claim(tmp_path: Path) -> None:
    folder = released(tmp_path / "m", untrained(), reference().train, private=False)
    assert "NOT PRIVATE" in write_page(folder).read_text()


def test_groups_are_judged(model: Path) -> None:
    """Dark and bright digits."""
    real = reference()
    assert real.test is not None
    bright = [(images.pixels.float().mean((1, 2, 3)) > 78).long() for images in (real.train, real.test)]
    grouped = Reference(real.train, real.test, groups=Groups(("dark", "bright"), *bright))
    scores = by_name(evaluate_model(read_model(model), grouped))
    assert {"accuracy-gap", "classifier-bias", "classifier-equalised-odds"} <= set(scores)
    assert 0 <= scores["accuracy-gap"].value < 0.2
    assert scores["classifier-bias"].details["bias_of_the_labels"] > 0


def test_the_command_judges_a_classifier(model: Path) -> None:
    outcome = sfumato("evaluate", model, "--real", "digits", "--metric", "accuracy", "--json")
    assert outcome.code == 0, outcome.err
    (score,) = json.loads(outcome.out)["scores"]
    assert (score["name"], score["details"]["test_split"]) == ("accuracy", True)
    assert (model.with_name("m.lab") / "scores.html").exists()


# --- refusals

Refused = tuple[Callable[[Path, Path], object], type[SfumatoError], str]


def changed(model: Path, folder: Path) -> Path:
    copy = Path(shutil.copytree(model, folder / "changed"))
    weights = next(copy.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\0")
    return copy


def foreign_table(model: Path, folder: Path) -> Path:
    copy = Path(shutil.copytree(model, folder / "m"))
    with Lab.beside(copy) as lab:
        lab.write("scores.json", "[1, 2]")
    return copy


REFUSALS: dict[str, Refused] = {
    "a metric of images": (
        lambda m, f: evaluate_release(m, "digits", metrics=("fid",)),
        UsageError,
        "Expected metrics of a released classifier, got fid, which judges released images",
    ),
    "no metric at all": (lambda m, f: evaluate_release(m, "digits", metrics=("acuracy",)), UsageError, "'acuracy'"),
    "an unknown panel": (lambda m, f: evaluate_release(m, "digits", panel="all"), UsageError, "panel default or full"),
    "a profile": (lambda m, f: evaluate_release(m, "digits", profile="dpac"), UsageError, "for --profile"),
    "an extractor": (lambda m, f: evaluate_release(m, "digits", extractor="scattering"), UsageError, "for --extractor"),
    "public images": (lambda m, f: evaluate_release(m, "digits", public="digits"), UsageError, "for --public"),
    "a metric without groups": (
        lambda m, f: evaluate_release(m, "digits", metrics=("accuracy-gap",)),
        UsageError,
        "Expected groups of the real held-out images",
    ),
    "groups that are the classes": (
        lambda m, f: evaluate_release(m, "digits", group="tribe"),
        UsageError,
        "groups beside the classes",
    ),
    "images of another size": (
        lambda m, f: evaluate_release(m, "digits", reading=Reading(size=4)),
        UsageError,
        r"Expected real images of shape \(1, 8, 8\)",
    ),
    "other classes": (
        lambda m, f: evaluate_release(
            m, written(meaningless(), f / "d.npz"), reading=Reading(classes=tuple("abcdefghij"))
        ),
        UsageError,
        "with the released classes",
    ),
    "no data": (lambda m, f: evaluate_release(m, str(f / "none.npz")), UsageError, "a path where nothing is"),
    "weights that were changed": (
        lambda m, f: evaluate_release(changed(m, f), "digits"),
        VerificationFailed,
        "Expected the files that SHA256SUMS lists",
    ),
    "a lab of something else": (
        lambda m, f: evaluate_release(foreign_table(m, f), "digits"),
        DataError,
        "table of scores that Sfumato wrote",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_judged_is_refused(name: str, model: Path, tmp_path: Path) -> None:
    judge, error, said = REFUSALS[name]
    with pytest.raises(error, match=said):
        judge(model, tmp_path)


def test_images_are_not_judged_by_metrics_of_classifiers(tmp_path: Path) -> None:
    train = data.load("digits")
    folder = write_release(tmp_path / "r", train, make_certificate(train))
    with pytest.raises(UsageError, match="Expected metrics of released images, got accuracy, which judges a released"):
        evaluate_release(folder, "digits", metrics=("accuracy",))

"""Real2Gen: real images look like their labels, noise does not; it learns from the training split, and nothing else."""

import dataclasses

import pytest
import torch

from metrics.digits import noise, reference
from sfumato.errors import DataError, NotApplicable, UsageError
from sfumato.metrics.gen2real import Gen2Real
from sfumato.metrics.real2gen import Real2Gen
from sfumato.training.student import Schedule
from sfumato.values import Images, Reference, Score

FAST = Real2Gen(archs=("mlp", "small-cnn"), images_seen=6_000)
ONE = dataclasses.replace(FAST, archs=("small-cnn",), seeds=(0,), images_seen=4_000)


@pytest.fixture(scope="module")
def on_real_images() -> Score:
    return FAST(reference().train, reference())


def named(score: Score) -> dict[str, float]:
    return {p.name: p.value for p in score.parts}


def test_real_images_look_like_their_labels(on_real_images: Score) -> None:
    score = on_real_images
    assert score.name == "real2gen"
    assert named(score)["real2gen-small-cnn"] > 0.97
    assert score.value > 0.85
    assert score.standard_error is not None
    accuracies = score.details["accuracies"]
    assert score.value == pytest.approx(sum(sum(a) for a in accuracies.values()) / 2), "the mean, never the best"
    assert max(map(max, accuracies.values())) > score.value
    assert score.details["selection"] == "last step"
    assert score.details["epochs"].keys() == score.details["loss"].keys() == {"mlp", "small-cnn"}


def test_the_same_classifiers_on_real_test_images_are_a_part(on_real_images: Score) -> None:
    parts = named(on_real_images)
    assert list(parts) == [
        "real2gen-mlp",
        "real2gen-small-cnn",
        "real2real",
        "real2real-mlp",
        "real2real-small-cnn",
    ]
    assert parts["real2real"] == pytest.approx((parts["real2real-mlp"] + parts["real2real-small-cnn"]) / 2)
    assert parts["real2real-small-cnn"] > 0.9
    assert parts["real2real"] < on_real_images.value, "it has seen the training images and not these"
    again = named(ONE(reference().test, reference()))
    assert again["real2gen-small-cnn"] == again["real2real-small-cnn"], "test images as a release"


def test_noise_and_permuted_labels_are_near_chance() -> None:
    real = reference()
    assert ONE(noise(500), real).value < 0.25
    moved = dataclasses.replace(real.train, labels=(real.train.labels + 1) % 10)
    assert ONE(moved, real).value < 0.05


def test_nothing_is_learnt_from_the_test_split_or_the_release() -> None:
    """With other test images and another release beside it, the same image gets the same answer."""
    real = reference()
    scores = [
        ONE(real.train, given).details["accuracies"]
        for given in (real, Reference(real.train, noise(50)), Reference(real.train))
    ]
    assert scores[0] == scores[1] == scores[2]


def test_legacy_learns_from_the_test_split_with_all_but_the_perceptron() -> None:
    real = reference()
    astray = Reference(real.train, dataclasses.replace(real.test, labels=(real.test.labels + 1) % 10))
    metric = dataclasses.replace(FAST, seeds=(0,), legacy=True)
    parts = named(metric(real.train, astray))
    assert parts["real2gen-small-cnn"] < 0.1, "trained on the wrong labels of the test split"
    assert parts["real2gen-mlp"] > 0.75
    assert not [name for name in parts if name.startswith("real2real")], "a ceiling on its own training images is none"
    assert named(ONE(real.train, astray))["real2gen-small-cnn"] > 0.9
    with pytest.raises(NotApplicable, match="test split"):
        metric(real.train, Reference(real.train))


def test_without_a_test_split_there_is_no_ceiling() -> None:
    assert list(named(ONE(reference().train, Reference(reference().train)))) == ["real2gen-small-cnn"]


def test_labels_are_what_logits_say_and_few_images_are_enough() -> None:
    real = reference()
    logits = torch.nn.functional.one_hot(real.train.labels, 10).float()
    soft = Images(real.train.pixels, torch.zeros_like(real.train.labels), real.train.classes, logits)
    score = dataclasses.replace(ONE, most=300)(soft, real)
    assert score.value > 0.9
    assert score.details["judged"] == 300
    assert score.details["loss"] == {"small-cnn": "cross-entropy"}


def test_unknown_labels_teach_nothing() -> None:
    real = reference()
    labels = torch.where(real.train.labels == 3, 99, real.train.labels)
    masked = Reference(Images(real.train.pixels, labels, real.train.classes), real.test)
    assert ONE(real.train, masked).details["per_class"]["3"] == 0


def test_profiles_and_bounds() -> None:
    images = reference().train
    assert Real2Gen(profile="dpac").schedule_for("mlp", images) == Schedule.dpac("mlp")
    lenet = Real2Gen(profile="dpac").schedule_for("lenet", images)
    assert lenet == Schedule.dpac("lenet", rate=0.01, max_epochs=100.0)
    assert Real2Gen().schedule_for("small-cnn", images) == Gen2Real().schedule_for(
        "small-cnn", images
    )  # a fair ceiling
    assert Real2Gen(profile="dpimagebench").schedule_for("resnet110", images) == Schedule.dpimagebench(
        "resnet110", colour=False
    )


def test_mismatch_is_refused() -> None:
    real = reference()
    with pytest.raises(UsageError, match="classes"):
        FAST(Images(real.train.pixels, real.train.labels, ("x",)), real)
    with pytest.raises(UsageError, match="at least one network"):
        dataclasses.replace(FAST, seeds=())(real.train, real)
    with pytest.raises(DataError, match="at least 2"):
        FAST(real.train, Reference(Images(real.train.pixels[:1], real.train.labels[:1], real.train.classes), real.test))

"""Gen2Real: good on real training data, chance on noise, and it says how it was trained."""

import dataclasses

import pytest
import torch

from metrics.digits import noise, reference
from sfumato.errors import DataError, UsageError
from sfumato.metrics.gen2real import Gen2Real
from sfumato.networks.small_cnn import SmallCNN
from sfumato.networks.student import Lesson
from sfumato.values import Images, Reference

FAST = Gen2Real(seeds=(0, 1), images_seen=8_000, logits_images_seen=8_000)


def test_training_data_as_its_own_release_is_near_best():
    score = FAST(reference().train, reference())
    assert score.value > 0.9
    assert score.standard_error is not None
    assert score.standard_error < 0.05
    assert score.details["test_split"]
    assert score.details["loss"] == "cross-entropy"
    assert score.details["worst_class_accuracy"] == min(score.details["per_class"].values())
    assert score.value == pytest.approx(sum(score.details["accuracies"]) / 2)


def test_noise_is_near_chance():
    assert FAST(noise(1438), reference()).value < 0.3


def test_logits_replace_labels():
    real = reference()
    wrong = Images(
        real.train.pixels,
        torch.zeros_like(real.train.labels),
        real.train.classes,
        logits=7 + 4 * torch.nn.functional.one_hot(real.train.labels, 10).float(),
    )
    score = FAST(wrong, real)
    assert score.value > 0.9
    assert score.details["loss"] == "squared error on centred logits"


def test_same_seed_same_score_and_global_randomness_untouched():
    one = dataclasses.replace(FAST, seeds=(3,), images_seen=2_000)
    torch.manual_seed(11)
    before = torch.get_rng_state()
    first, second = one(reference().train, reference()), one(reference().train, reference())
    assert first.details["accuracies"] == second.details["accuracies"]
    assert first.standard_error is None
    assert torch.equal(before, torch.get_rng_state())


def test_without_a_test_split_the_score_says_so():
    real = Reference(train=reference().train)
    score = dataclasses.replace(FAST, seeds=(0,), images_seen=2_000)(noise(64), real)
    assert not score.details["test_split"]


def test_work_is_bounded_by_images_seen():
    metric = Gen2Real()
    many = Images(torch.zeros(1, 1, 28, 28, dtype=torch.uint8).expand(10**6, -1, -1, -1), torch.zeros(10**6), ("a",))
    soft = dataclasses.replace(many, logits=torch.zeros(1, 1).expand(10**6, 1))
    for images, bound in ((many, metric.images_seen), (soft, metric.logits_images_seen)):
        lesson = metric.lesson_for(images)
        assert lesson.steps(images) * lesson.batch_for(images) <= bound + metric.batch


def test_it_gives_the_short_lesson():
    real = reference()
    soft = dataclasses.replace(real.train, logits=torch.zeros(len(real.train), 10))
    assert Gen2Real().lesson_for(real.train) == Lesson.short()
    assert Gen2Real().lesson_for(soft) == Lesson.short(soft=True)


def test_unknown_labels_count_as_absent_and_missing_classes_do_not_hurt():
    real = reference()
    labels = torch.where(real.test.labels == 3, -1, real.test.labels)
    masked = Reference(real.train, Images(real.test.pixels, labels, real.test.classes))
    score = FAST(real.train, masked)
    assert score.value > 0.9
    assert score.details["per_class"]["3"] is None


def test_mismatch_is_refused():
    real = reference()
    with pytest.raises(UsageError, match="classes"):
        FAST(Images(real.train.pixels, real.train.labels, ("x",)), real)
    with pytest.raises(UsageError, match="shape"):
        FAST(Images(real.train.pixels[..., :4], real.train.labels, real.train.classes), real)
    with pytest.raises(DataError):
        FAST(Images(real.train.pixels[:1], real.train.labels[:1], real.train.classes), real)


@pytest.mark.parametrize("side", [8, 13, 28, 32, 64])
@pytest.mark.parametrize("channels", [1, 3])
def test_network_takes_every_size(side, channels):
    assert SmallCNN(channels, side, side, 7)(torch.rand(2, channels, side, side)).shape == (2, 7)

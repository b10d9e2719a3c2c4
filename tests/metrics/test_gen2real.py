"""Gen2Real: good on real training data, chance on noise, a mean and never a best, and it says how it was trained."""

import dataclasses
import math

import pytest
import torch

from metrics.digits import noise, reference
from sfumato.errors import DataError, UsageError
from sfumato.metrics.gen2real import Gen2Real
from sfumato.networks.small_cnn import SmallCNN
from sfumato.statistics import panels as judging
from sfumato.statistics.panels import Spread, calibration_error, panel_score
from sfumato.training.student import Schedule, predict, split_off, train
from sfumato.values import Images, Reference, Score

FAST = Gen2Real(archs=("mlp", "small-cnn"), images_seen=6_000)
ONE = dataclasses.replace(FAST, archs=("mlp",), seeds=(0,), images_seen=2_000)


@pytest.fixture(scope="module")
def on_real_images() -> Score:
    return FAST(reference().train, reference())


def part(score: Score, name: str) -> Score:
    (found,) = [p for p in score.parts if p.name == name]
    return found


def test_training_data_as_its_own_release_is_near_best(on_real_images: Score) -> None:
    score = on_real_images
    assert score.name == "gen2real"
    assert part(score, "gen2real-small-cnn").value > 0.9
    assert part(score, "gen2real-mlp").value > 0.75
    assert score.standard_error < 0.1
    assert score.details["test_split"]
    assert score.details["loss"] == {"mlp": "cross-entropy", "small-cnn": "cross-entropy"}
    assert score.details["selection"] == "last step"
    assert score.details["epochs"]["small-cnn"] == pytest.approx(6_000 / 1438, rel=0.02)


def test_the_value_is_the_mean_and_not_the_best(on_real_images: Score) -> None:
    score, accuracies = on_real_images, on_real_images.details["accuracies"]
    strong, weak = (sum(accuracies[arch]) / 2 for arch in ("small-cnn", "mlp"))
    assert strong - weak > 0.02, "networks of unequal strength"
    assert score.value == pytest.approx((strong + weak) / 2)
    assert part(score, "gen2real-mlp").value == pytest.approx(weak)
    assert score.seeds == part(score, "gen2real-mlp").seeds == (0, 1)


def test_parts_state_the_worst_class_and_the_calibration(on_real_images: Score) -> None:
    worst = part(on_real_images, "gen2real-worst-class")
    assert worst.value == pytest.approx(min(on_real_images.details["per_class"].values()))
    assert on_real_images.details["per_class"][worst.details["worst_class"]] == pytest.approx(worst.value)
    calibration = part(on_real_images, "gen2real-calibration-error")
    assert not calibration.higher_is_better
    assert 0 < calibration.value < 0.3
    assert all(0 < p <= 1 for p in on_real_images.details["precision"].values())


def test_noise_is_near_chance() -> None:
    assert FAST(noise(1438), reference()).value < 0.3


def test_small_cnn_alone_is_what_it_was() -> None:
    """The short schedule, its last step, every seed: written out."""
    real = reference()
    metric = dataclasses.replace(FAST, archs=("small-cnn",), images_seen=2_000)
    by_hand = [
        (
            predict(train(real.train, Schedule.short(images_seen=2_000), seed=s, what="t"), real.test.pixels)
            == real.test.labels
        )
        .double()
        .mean()
        .item()
        for s in (0, 1)
    ]
    score = metric(real.train, real)
    assert score.details["accuracies"]["small-cnn"] == pytest.approx(by_hand)
    assert score.standard_error == pytest.approx(abs(by_hand[0] - by_hand[1]) / 2)


def test_standard_error_is_the_larger_of_two() -> None:
    table = torch.tensor([[0.8, 0.9], [0.5, 0.5], [0.7, 0.6]], dtype=torch.float64)
    spread = Spread.of(table)
    means = [0.85, 0.5, 0.65]
    mean = sum(means) / 3
    assert spread.value == pytest.approx(mean)
    assert spread.over_networks == pytest.approx(math.sqrt(sum((m - mean) ** 2 for m in means) / 2 / 3))
    # The variance of the mean of three independent means of two.
    assert spread.over_seeds == pytest.approx(math.sqrt((0.005 + 0 + 0.005) / 2) / 3)
    assert spread.error == spread.over_networks
    noisy = Spread.of(torch.tensor([[0.1, 0.9], [0.8, 0.2]], dtype=torch.float64))
    assert noisy.error == noisy.over_seeds > noisy.over_networks
    assert Spread.of(table[:1]).over_networks is None
    assert Spread.of(table[:, :1]).over_seeds is None
    assert Spread.of(table[:1, :1]).error is None


def test_scores_of_a_panel_by_hand() -> None:
    labels = torch.tensor([0, 0, 1, 1])
    images = Images(torch.zeros(4, 1, 8, 8, dtype=torch.uint8), labels, ("a", "b", "c"))
    answers = {"one": [[0, 0, 1, 0]], "two": [[0, 1, 1, 1]]}
    said = {
        arch: [torch.nn.functional.one_hot(torch.tensor(a), 3).float() for a in given]
        for arch, given in answers.items()
    }
    score = panel_score("x", said, images, seeds=(5,), details={})
    assert score.details["accuracies"] == {"one": [0.75], "two": [0.75]}
    assert score.details["per_class"] == {"a": 0.75, "b": 0.75, "c": None}
    assert score.details["precision"] == {"a": 3 / 4, "b": 3 / 4, "c": None}
    assert [p.name for p in score.parts] == ["x-one", "x-two"]
    assert score.standard_error == 0


def test_calibration_error_of_known_cases() -> None:
    sure = torch.tensor([[0.9, 0.1]] * 10)
    assert calibration_error(sure, torch.tensor([0] * 9 + [1])) == pytest.approx(0, abs=1e-6)
    assert calibration_error(sure, torch.tensor([0] * 5 + [1] * 5)) == pytest.approx(0.4, abs=1e-6)
    # Two bins, half of the images in each: errors of opposite sign do not cancel.
    both = torch.tensor([[1.0, 0.0]] * 2 + [[0.6, 0.4]] * 2)
    assert calibration_error(both, torch.tensor([1, 0, 0, 0])) == pytest.approx((0.5 + 0.4) / 2, abs=1e-6)


def test_logits_replace_labels() -> None:
    real = reference()
    wrong = Images(
        real.train.pixels,
        torch.zeros_like(real.train.labels),
        real.train.classes,
        logits=7 + 4 * torch.nn.functional.one_hot(real.train.labels, 10).float(),
    )
    score = dataclasses.replace(FAST, archs=("small-cnn",))(wrong, real)
    assert score.value > 0.9
    assert score.details["loss"] == {"small-cnn": "squared error on centred logits"}


def test_images_for_transfer_teach_and_those_of_the_classes_have_a_row_of_their_own() -> None:
    real = reference()
    further = dataclasses.replace(real.train, logits=4 * torch.nn.functional.one_hot(real.train.labels, 10).float())
    others = dataclasses.replace(real.train, labels=(real.train.labels + 1) % 10, transfer=further)
    metric = dataclasses.replace(FAST, archs=("mlp",), seeds=(0,))
    score = metric(others, real)
    assert score.value > 0.7
    assert score.details["loss"] == {"mlp": "squared error on centred logits"}
    assert score.details["trained_on"] == "the distillation set"
    labels = part(score, "gen2real-labels")
    assert labels.value < 0.1, "their labels are wrong, and nothing else may be trained on here"
    assert (labels.details["arch"], labels.details["loss"]) == ("small-cnn", {"small-cnn": "cross-entropy"})
    brief = dataclasses.replace(FAST, archs=("small-cnn",), images_seen=500)
    correct = part(brief(dataclasses.replace(real.train, transfer=further), real), "gen2real-labels")
    by_hand = brief(real.train, real)
    assert correct.seeds == (0, 1)
    assert correct.details["accuracies"] == by_hand.details["accuracies"]["small-cnn"]
    assert "gen2real-labels" not in {p.name for p in by_hand.parts}


def test_same_seed_same_score_and_global_randomness_untouched() -> None:
    torch.manual_seed(11)
    before = torch.get_rng_state()
    first, second = ONE(reference().train, reference()), ONE(reference().train, reference())
    assert first.details["accuracies"] == second.details["accuracies"]
    assert first.standard_error is None
    assert torch.equal(before, torch.get_rng_state())


def test_without_a_test_split_the_score_says_so() -> None:
    assert not ONE(noise(64), Reference(train=reference().train)).details["test_split"]


def test_work_is_bounded_by_images_seen() -> None:
    many = Images(torch.zeros(1, 1, 28, 28, dtype=torch.uint8).expand(10**6, -1, -1, -1), torch.zeros(10**6), ("a",))
    soft = dataclasses.replace(many, logits=torch.zeros(1, 1).expand(10**6, 1))
    for images, bound in ((many, 240_000), (soft, 400_000)):
        for arch in judging.CPU_PANEL:
            schedule = Gen2Real().schedule_for(arch, images)
            assert schedule.steps(images) * schedule.batch_for(images) <= bound + schedule.batch
    short = dataclasses.replace(Gen2Real(), images_seen=1_000).schedule_for("small-cnn", many)
    assert short.steps(many) * short.batch_for(many) <= 1_000 + short.batch


def test_profiles_have_networks_of_their_own() -> None:
    grey, colour = noise(4), noise(4)
    colour = dataclasses.replace(colour, pixels=colour.pixels.expand(-1, 3, -1, -1))
    assert judging.networks_of("cpu", (), grey) == judging.networks_of("cpu", (), colour) == judging.CPU_PANEL
    assert judging.networks_of("dpimagebench", (), grey)[0] == "resnet110"
    assert judging.networks_of("dpimagebench", (), colour)[0] == "resnet164"
    assert judging.networks_of("dpac", (), grey) == ("mlp", "lenet")
    assert judging.networks_of("dpac", ("small-cnn",), grey) == ("small-cnn",)


def test_profiles_are_the_schedules_of_their_names() -> None:
    real = reference()
    soft = dataclasses.replace(real.train, logits=torch.zeros(len(real.train), 10))
    whole = Gen2Real(max_epochs=math.inf)
    assert whole.schedule_for("small-cnn", real.train) == Schedule.short()
    assert whole.schedule_for("small-cnn", soft) == Schedule.short(soft=True)
    assert Gen2Real().schedule_for("small-cnn", real.train) == Schedule.short(max_epochs=judging.CPU_EPOCHS)
    colour = dataclasses.replace(real.train, pixels=real.train.pixels.expand(-1, 3, -1, -1))
    for images, coloured in ((real.train, False), (colour, True)):
        published = Schedule.dpimagebench("wrn-40-4", colour=coloured)
        assert Gen2Real(profile="dpimagebench", images_seen=1.0).schedule_for("wrn-40-4", images) == published
    assert Gen2Real(profile="dpac").schedule_for("lenet", real.train) == Schedule.dpac("lenet")


def test_selection_by_synthetic_images_never_touches_real_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its choice is the same whatever the real images are, and is the best on the tenth that was kept."""
    real, synthetic, students = reference(), noise(200), []
    whole = judging.train_student

    def kept(*arguments: object, **named: object) -> torch.nn.Module:
        students.append(whole(*arguments, **named))
        return students[-1]

    monkeypatch.setattr(judging, "train_student", kept)
    metric = dataclasses.replace(ONE, selection="synthetic", archs=("small-cnn",))
    score = metric(synthetic, real)
    metric(synthetic, Reference(noise(20), Images(real.test.pixels.flip(0), real.test.labels, real.test.classes)))
    first, second = (s.state_dict() for s in students)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert score.details["selection"] == "best checkpoint on a tenth of the synthetic images"
    training, apart = split_off(synthetic, seed=0)

    def right(student: torch.nn.Module) -> float:
        return (predict(student, apart.pixels) == apart.labels).double().mean().item()

    accuracies: list[float] = []
    schedule = metric.schedule_for("small-cnn", synthetic)
    train(training, schedule, seed=0, what="t", callback=lambda _, student: accuracies.append(right(student)))
    assert len(accuracies) == 8
    assert accuracies[-1] < max(accuracies), "noise: the last is not the best by itself"
    assert right(students[0]) == max(accuracies)


def test_unknown_labels_count_as_absent_and_missing_classes_do_not_hurt() -> None:
    real = reference()
    labels = torch.where(real.test.labels == 3, -1, real.test.labels)
    masked = Reference(real.train, Images(real.test.pixels, labels, real.test.classes))
    score = dataclasses.replace(ONE, images_seen=6_000)(real.train, masked)
    assert score.value > 0.75
    assert score.details["per_class"]["3"] is None


def test_mismatch_is_refused() -> None:
    real = reference()
    with pytest.raises(UsageError, match="classes"):
        FAST(Images(real.train.pixels, real.train.labels, ("x",)), real)
    with pytest.raises(UsageError, match="shape"):
        FAST(Images(real.train.pixels[..., :4], real.train.labels, real.train.classes), real)
    with pytest.raises(DataError):
        FAST(Images(real.train.pixels[:1], real.train.labels[:1], real.train.classes), real)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"archs": ("resnet9",)}, "Expected one of the architectures"),
        ({"seeds": ()}, "at least one network and one seed, got 2 and 0"),
        ({"archs": ("mlp", "mlp")}, "every network once"),
        ({"profile": "gpu"}, "Expected the profile cpu"),
        ({"selection": "best"}, "Expected the selection last or synthetic"),
    ],
    ids=str,
)
def test_bad_settings_are_refused(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        dataclasses.replace(FAST, **changes)(noise(40), reference())


@pytest.mark.parametrize("side", [8, 13, 28, 32, 64])
@pytest.mark.parametrize("channels", [1, 3])
def test_network_takes_every_size(side, channels):
    assert SmallCNN(channels, side, side, 7)(torch.rand(2, channels, side, side)).shape == (2, 7)

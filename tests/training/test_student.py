"""Training: losses match their formulas, schedules are bounded, seeds reproduce, and a student learns."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from metrics.digits import noise, reference
from sfumato.errors import DataError, UsageError
from sfumato.training.student import BestCheckpoint, Schedule, Student, loss_of, predict, split_off, train
from sfumato.values import Images

QUICK = Schedule.short(images_seen=6_000)
ALL = torch.arange(6)


def images_and_outputs(scale: float = 1.0) -> tuple[Images, Tensor]:
    """Six images with logits, and a student's outputs."""
    draw = torch.Generator().manual_seed(1)
    pixels = torch.randint(0, 256, (6, 1, 8, 8), dtype=torch.uint8, generator=draw)
    logits = scale * torch.randn(6, 3, generator=draw)
    return Images(pixels, torch.arange(6) % 3, ("a", "b", "c"), logits), torch.randn(6, 3, generator=draw)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0, 100.0])
def test_kl_is_the_sum_of_p_log_p_over_q(temperature: float) -> None:
    images, outputs = images_and_outputs(3.0)
    p = torch.softmax(images.logits.double() / temperature, 1)
    q = torch.softmax(outputs.double() / temperature, 1)
    expected = temperature**2 * (p * (p / q).log()).sum(1).mean()
    found = loss_of(outputs.double(), with_logits(images, images.logits.double()), ALL, "kl", temperature)
    torch.testing.assert_close(found, expected)
    assert loss_of(images.logits, images, ALL, "kl", temperature).item() == pytest.approx(0, abs=1e-3)


def with_logits(images: Images, logits: Tensor | None) -> Images:
    return dataclasses.replace(images, logits=logits)


def test_kl_at_high_temperature_is_the_squared_error_of_centred_logits() -> None:
    images, outputs = images_and_outputs()
    images, outputs = with_logits(images, images.logits.double()), outputs.double()
    classes = 3
    # T^2 KL -> sum_k (centred difference)^2 / (2 K), which is half of the mean squared error.
    kl = loss_of(outputs, images, ALL, "kl", 1e4)
    torch.testing.assert_close(kl, loss_of(outputs, images, ALL, "logits", 1.0) / 2, rtol=1e-3, atol=0)
    by_hand = ((outputs - images.logits) - (outputs - images.logits).mean(1, True)).square().sum(1).mean() / classes
    torch.testing.assert_close(loss_of(outputs, images, ALL, "logits", 1.0), by_hand)


def test_gradient_of_kl_keeps_its_size_whatever_the_temperature() -> None:
    images, outputs = images_and_outputs()
    sizes = []
    for temperature in (20.0, 200.0):
        leaf = outputs.clone().requires_grad_()
        loss_of(leaf, images, ALL, "kl", temperature).backward()
        sizes.append(leaf.grad.norm().item())
    assert sizes[0] == pytest.approx(sizes[1], rel=0.05)


def test_logits_mean_only_their_differences_and_labels_are_cross_entropy() -> None:
    images, outputs = images_and_outputs()
    moved = with_logits(images, images.logits + 9)
    torch.testing.assert_close(
        loss_of(outputs, images, ALL, "logits", 1.0), loss_of(outputs - 5, moved, ALL, "logits", 1.0)
    )
    by_hand = -torch.log_softmax(outputs, 1)[ALL, images.labels].mean()
    torch.testing.assert_close(loss_of(outputs, images, ALL, "labels", 1.0), by_hand)


def test_work_is_bounded_by_images_and_epochs() -> None:
    many, large = (
        Images(torch.zeros(1, 1, side, side, dtype=torch.uint8).expand(10**7, -1, -1, -1), torch.zeros(10**7), ("a",))
        for side in (28, 64)
    )
    short = Schedule.short()
    assert short.steps(many) * short.batch_for(many) <= short.images_seen + short.batch
    assert short.steps(large) * 4 <= short.steps(many) + 4
    few = noise(100)
    assert short.epochs(few) <= short.max_epochs + 1
    assert short.steps(few) >= 16 * (short.max_epochs - 1), "a small release still gives many steps"


def test_paper_is_as_printed() -> None:
    paper, images = Schedule.paper(), noise(1024)
    assert (paper.loss, paper.temperature, paper.batch) == ("kl", 100.0, 256)
    assert (paper.steps(images), paper.batch_for(images)) == (200 * 4, 256)


def test_rate_falls_at_120_150_and_180(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = []
    step = torch.optim.SGD.step

    def watched(self: torch.optim.SGD, *arguments: object) -> object:
        rates.append(self.param_groups[0]["lr"])
        assert self.param_groups[0]["momentum"] == 0.9
        assert self.param_groups[0]["weight_decay"] == 1e-4
        return step(self, *arguments)

    monkeypatch.setattr(torch.optim.SGD, "step", watched)
    train(noise(8), Schedule.paper("small-cnn", loss="labels", batch=8), seed=0, what="test")
    assert len(rates) == 200
    assert [i for i in range(1, 200) if rates[i] != rates[i - 1]] == [120, 150, 180]
    assert rates[0] == 0.1
    assert rates[-1] == pytest.approx(1e-4)


Changes = list[tuple[int, float]]


def rates_of(schedule: Schedule, kind: type[torch.optim.Optimizer], monkeypatch: pytest.MonkeyPatch) -> Changes:
    """Train on eight images, and say at which steps the rate changes, and to what."""
    rates: list[float] = []
    step = kind.step

    def watched(self: torch.optim.Optimizer, *arguments: object) -> object:
        rates.append(self.param_groups[0]["lr"])
        assert self.param_groups[0]["weight_decay"] == schedule.weight_decay
        return step(self, *arguments)

    monkeypatch.setattr(kind, "step", watched)
    train(noise(8), dataclasses.replace(schedule, batch=8), seed=0, what="test")
    return [(i, rate) for i, rate in enumerate(rates) if not i or rate != rates[i - 1]]


def test_dpimagebench_is_as_published(monkeypatch: pytest.MonkeyPatch) -> None:
    grey, colour = (Schedule.dpimagebench("mlp", colour=c) for c in (False, True))
    assert (grey.batch, grey.max_epochs, grey.average) == (256, 50, 0.9999)
    assert (colour.batch, colour.max_epochs, colour.weight_decay, colour.average) == (126, 200, 5e-4, 0.9999)
    assert grey.steps(noise(2560)) == 50 * 10
    changes = rates_of(grey, torch.optim.Adam, monkeypatch)
    assert [i for i, _ in changes] == [0, 20, 40]
    assert [rate for _, rate in changes] == pytest.approx([0.01, 0.002, 0.0004])
    changes = rates_of(colour, torch.optim.SGD, monkeypatch)
    assert [i for i, _ in changes] == [0, 60, 120, 180]
    assert [rate for _, rate in changes] == pytest.approx([0.1, 0.02, 0.004, 0.0008])


def test_dpac_is_as_published(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = rates_of(Schedule.dpac("lenet"), torch.optim.SGD, monkeypatch)
    assert [i for i, _ in changes] == [0, 40]
    assert [rate for _, rate in changes] == pytest.approx([0.05, 0.005])
    perceptron = Schedule.dpac("mlp")
    assert (perceptron.optimizer, perceptron.rate, perceptron.batch, perceptron.patience) == ("adam", 1e-3, 200, 10)
    assert perceptron.weight_decay * perceptron.batch == pytest.approx(0.01)


def test_averages_are_of_weights_and_batch_statistics() -> None:
    """Two steps by hand: the average is 2/11 of the start and so on, for buffers too."""
    images, states = noise(16), []
    plain = Schedule("small-cnn", loss="labels", batch=16, least_batches=1, milestones=(), images_seen=math.inf)
    for steps in (1, 2):
        student = train(images, dataclasses.replace(plain, max_epochs=float(steps)), seed=0, what="test")
        states.append(student.state_dict())
    still = dataclasses.replace(plain, rate=0.0, weight_decay=0.0, max_epochs=1.0)  # weights as they began
    start = train(images, still, seed=0, what="test").state_dict()
    averaged = dataclasses.replace(plain, average=0.9999, max_epochs=2.0)
    found = train(images, averaged, seed=0, what="test").state_dict()
    first, second = 2 / 11, 3 / 12  # (1 + n) / (10 + n)
    for name in ("network.head.1.weight", "network.features.1.running_mean", "network.features.1.running_var"):
        begun = start[name]
        if "running" in name:  # where batch norm begins
            begun = torch.zeros_like(begun) if "mean" in name else torch.ones_like(begun)
        once = first * begun + (1 - first) * states[0][name]
        torch.testing.assert_close(found[name], second * once + (1 - second) * states[1][name])
    capped = dataclasses.replace(averaged, average=0.1)
    assert not torch.equal(
        train(images, capped, seed=0, what="test").state_dict()["network.head.1.weight"], found["network.head.1.weight"]
    )


def test_patience_ends_training_and_keeps_the_best() -> None:
    real = reference().train
    images = Images(real.pixels[:100], real.labels[:100], real.classes)
    _, kept = split_off(images, seed=0)
    accuracies: list[float] = []  # after every epoch, and of what is kept at the end

    def callback(done: float, student: Student) -> None:
        accuracies.append((predict(student, kept.pixels) == kept.labels).double().mean().item())

    schedule = Schedule(
        "mlp", optimizer="adam", rate=1e-2, milestones=(), batch=9, least_batches=1, max_epochs=100.0, patience=3
    )
    student = train(images, schedule, seed=0, what="test", callback=callback, checkpoints=100)
    *each, final = accuracies
    assert len(each) < 99, "it was over before"
    best = each.index(max(each))
    assert len(each) == best + 1 + schedule.patience
    assert final == max(each)
    assert (predict(student, kept.pixels) == kept.labels).double().mean().item() == final


def test_held_out_images_are_the_others() -> None:
    real = reference().train
    some, kept = split_off(real, seed=4)
    assert (len(some), len(kept)) == (len(real) - 144, 144)
    again = torch.cat([some.pixels, kept.pixels]).flatten(1)
    assert torch.equal(again.unique(dim=0), real.pixels.flatten(1).unique(dim=0))
    logits = torch.arange(30.0).reshape(10, 3)
    soft, apart = split_off(Images(real.pixels[:10], torch.arange(10), ("a",), logits), seed=0)
    for part in (soft, apart):
        assert torch.equal(part.logits, logits[part.labels]), "logits stay with their images"
    with pytest.raises(DataError, match="at least 3"):
        split_off(noise(2), seed=0)


@pytest.mark.parametrize("arch", ["small-cnn", "wrn-40-4"])  # the second draws dropout
def test_callbacks_come_at_equal_intervals_and_change_nothing(arch: str) -> None:
    images, few = noise(32), 3 if arch == "wrn-40-4" else 10
    schedule = Schedule(arch, loss="labels", batch=2, images_seen=2 * few)
    moments: list[float] = []
    modes: set[bool] = set()
    seen: list[Tensor] = []

    def callback(done: float, student: Student) -> None:
        moments.append(done)
        modes.add(student.training)
        torch.rand(7)
        predict(student, images.pixels)
        seen.append(weights(student))

    watched = train(images, schedule, seed=0, what="test", callback=callback, checkpoints=5)
    assert moments == ([1 / 3, 2 / 3, 1.0] if few == 3 else [0.2, 0.4, 0.6, 0.8, 1.0])
    assert modes == {False}
    assert torch.equal(weights(watched), weights(train(images, schedule, seed=0, what="test")))
    assert torch.equal(seen[-1], weights(watched))
    assert not torch.equal(seen[0], seen[1])


def test_the_best_is_the_first_of_the_highest() -> None:
    images = noise(20)
    best = BestCheckpoint(images)
    students = [Student(Constant(answer), torch.ones(())) for answer in (1, 3, 3, 2)]
    images.labels[:] = torch.tensor([3] * 12 + [1] * 5 + [2] * 3)
    for number, student in enumerate(students):
        best(number / 4, student)
    assert best.accuracy == 0.6
    assert best.since == 2
    assert best.state["network.scores"].argmax() == 3


class Constant(torch.nn.Module):
    """The same class for every image."""

    def __init__(self, answer: int) -> None:
        super().__init__()
        self.scores = torch.nn.Parameter(torch.nn.functional.one_hot(torch.tensor(answer), 10).float())

    def forward(self, images: Tensor) -> Tensor:
        return self.scores.expand(len(images), -1)


@pytest.mark.parametrize("arch", ["mlp", "lenet", "resnet8", "wrn-10-2", "resnext-11"])
def test_quick_networks_learn_digits(arch: str) -> None:
    real = reference()
    student = train(real.train, Schedule.short(arch, max_epochs=3.0), seed=0, what="test")
    assert (predict(student, real.test.pixels) == real.test.labels).float().mean() > 0.7


@pytest.mark.parametrize("scale", [0.01, 100.0])
def test_logits_of_any_scale_are_learnt_and_given_back(scale: float) -> None:
    real = reference()
    logits = scale * (torch.nn.functional.one_hot(real.train.labels, 10).float() - 0.1)
    student = train(with_logits(real.train, logits), QUICK, seed=0, what="test")
    assert (predict(student, real.test.pixels) == real.test.labels).float().mean() > 0.9
    with torch.no_grad():
        outputs = student(real.test.unit())
    assert 0.2 * scale < outputs.std() < 0.5 * scale, "logits come back in the teacher's units"


@pytest.mark.parametrize("loss", ["kl", "labels"])
def test_other_losses_learn_too(loss: str) -> None:
    real = reference()
    logits = 5 * torch.nn.functional.one_hot(real.train.labels, 10).float()
    schedule = Schedule.short(images_seen=6_000, loss=loss, temperature=4.0)
    student = train(with_logits(real.train, logits), schedule, seed=0, what="test")
    assert (predict(student, real.test.pixels) == real.test.labels).float().mean() > 0.9


def weights(student: Student) -> Tensor:
    return torch.cat([v.flatten().double() for v in student.state_dict().values()])


def test_seeds_reproduce_and_global_randomness_is_untouched() -> None:
    images, schedule = noise(64), Schedule.short("shufflenet-v2", images_seen=24)
    torch.manual_seed(11)
    before = torch.get_rng_state()
    first, again, other = (weights(train(images, schedule, seed=s, what="test")) for s in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())


def test_impossible_schedules_are_refused() -> None:
    images, _ = images_and_outputs()
    for schedule, given, sentence in (
        (Schedule.short("resnet17"), images, "Expected one of the architectures"),
        (Schedule.short(loss="kl"), with_logits(images, None), "got one with labels alone"),
        (Schedule.short(loss="logits"), with_logits(images, None), "got one with labels alone"),
        (Schedule.short(temperature=0.0), images, "temperature > 0, got 0"),
        (Schedule.short(temperature=math.nan), images, "temperature > 0, got nan"),
    ):
        with pytest.raises(UsageError, match=sentence):
            train(given, schedule, seed=0, what="test")
    with pytest.raises(DataError, match="finite logits"):
        train(with_logits(images, images.logits / 0), Schedule.short(), seed=0, what="test")
    with pytest.raises(DataError, match="at least 2"):
        train(Images(images.pixels[:1], images.labels[:1], images.classes), Schedule.short(), seed=0, what="test")


def test_logits_without_any_spread_do_no_harm() -> None:
    images, _ = images_and_outputs()
    student = train(with_logits(images, torch.ones(6, 3)), Schedule.short(images_seen=20), seed=0, what="test")
    assert weights(student).isfinite().all()

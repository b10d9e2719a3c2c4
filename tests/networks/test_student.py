"""Lessons: the losses are the written formulas, schedules are bounded, seeds reproduce, and a student learns."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from metrics.digits import noise, reference
from sfumato.errors import DataError, UsageError
from sfumato.networks.student import Lesson, Student, loss_of, predict, train
from sfumato.values import Images

QUICK = Lesson.short(images_seen=6_000)
ALL = torch.arange(6)


def taught(scale: float = 1.0) -> tuple[Images, Tensor]:
    """Six images with logits, and a student's outputs."""
    draw = torch.Generator().manual_seed(1)
    pixels = torch.randint(0, 256, (6, 1, 8, 8), dtype=torch.uint8, generator=draw)
    logits = scale * torch.randn(6, 3, generator=draw)
    return Images(pixels, torch.arange(6) % 3, ("a", "b", "c"), logits), torch.randn(6, 3, generator=draw)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0, 100.0])
def test_kl_is_the_sum_of_p_log_p_over_q(temperature: float) -> None:
    images, outputs = taught(3.0)
    p = torch.softmax(images.logits.double() / temperature, 1)
    q = torch.softmax(outputs.double() / temperature, 1)
    expected = temperature**2 * (p * (p / q).log()).sum(1).mean()
    found = loss_of(outputs.double(), with_logits(images, images.logits.double()), ALL, "kl", temperature)
    torch.testing.assert_close(found, expected)
    assert loss_of(images.logits, images, ALL, "kl", temperature).item() == pytest.approx(0, abs=1e-3)


def with_logits(images: Images, logits: Tensor | None) -> Images:
    return dataclasses.replace(images, logits=logits)


def test_kl_at_high_temperature_is_the_squared_error_of_centred_logits() -> None:
    images, outputs = taught()
    images, outputs = with_logits(images, images.logits.double()), outputs.double()
    classes = 3
    # T^2 KL -> sum_k (centred difference)^2 / (2 K), which is half of the mean squared error.
    kl = loss_of(outputs, images, ALL, "kl", 1e4)
    torch.testing.assert_close(kl, loss_of(outputs, images, ALL, "logits", 1.0) / 2, rtol=1e-3, atol=0)
    by_hand = ((outputs - images.logits) - (outputs - images.logits).mean(1, True)).square().sum(1).mean() / classes
    torch.testing.assert_close(loss_of(outputs, images, ALL, "logits", 1.0), by_hand)


def test_gradient_of_kl_keeps_its_size_whatever_the_temperature() -> None:
    images, outputs = taught()
    sizes = []
    for temperature in (20.0, 200.0):
        leaf = outputs.clone().requires_grad_()
        loss_of(leaf, images, ALL, "kl", temperature).backward()
        sizes.append(leaf.grad.norm().item())
    assert sizes[0] == pytest.approx(sizes[1], rel=0.05)


def test_logits_mean_only_their_differences_and_labels_are_cross_entropy() -> None:
    images, outputs = taught()
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
    short = Lesson.short()
    assert short.steps(many) * short.batch_for(many) <= short.images_seen + short.batch
    assert short.steps(large) * 4 <= short.steps(many) + 4
    few = noise(100)
    assert short.epochs(few) <= short.max_epochs + 1
    assert short.steps(few) >= 16 * (short.max_epochs - 1), "a small release still gives many steps"


def test_paper_is_as_printed() -> None:
    paper, images = Lesson.paper(), noise(1024)
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
    train(noise(8), Lesson.paper("small-cnn", loss="labels", batch=8), seed=0, what="test")
    assert len(rates) == 200
    assert [i for i in range(1, 200) if rates[i] != rates[i - 1]] == [120, 150, 180]
    assert rates[0] == 0.1
    assert rates[-1] == pytest.approx(1e-4)


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
    lesson = Lesson.short(images_seen=6_000, loss=loss, temperature=4.0)
    student = train(with_logits(real.train, logits), lesson, seed=0, what="test")
    assert (predict(student, real.test.pixels) == real.test.labels).float().mean() > 0.9


def weights(student: Student) -> Tensor:
    return torch.cat([v.flatten().double() for v in student.state_dict().values()])


def test_seeds_reproduce_and_global_randomness_is_untouched() -> None:
    images, lesson = noise(64), Lesson.short("shufflenet-v2", images_seen=24)
    torch.manual_seed(11)
    before = torch.get_rng_state()
    first, again, other = (weights(train(images, lesson, seed=s, what="test")) for s in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())


def test_impossible_lessons_are_refused() -> None:
    images, _ = taught()
    for lesson, given, sentence in (
        (Lesson.short("resnet17"), images, "Expected one of the architectures"),
        (Lesson.short(loss="kl"), with_logits(images, None), "got one with labels alone"),
        (Lesson.short(loss="logits"), with_logits(images, None), "got one with labels alone"),
        (Lesson.short(temperature=0.0), images, "temperature > 0, got 0"),
        (Lesson.short(temperature=math.nan), images, "temperature > 0, got nan"),
    ):
        with pytest.raises(UsageError, match=sentence):
            train(given, lesson, seed=0, what="test")
    with pytest.raises(DataError, match="finite logits"):
        train(with_logits(images, images.logits / 0), Lesson.short(), seed=0, what="test")
    with pytest.raises(DataError, match="at least 2"):
        train(Images(images.pixels[:1], images.labels[:1], images.classes), Lesson.short(), seed=0, what="test")


def test_logits_without_any_spread_do_no_harm() -> None:
    images, _ = taught()
    student = train(with_logits(images, torch.ones(6, 3)), Lesson.short(images_seen=20), seed=0, what="test")
    assert weights(student).isfinite().all()

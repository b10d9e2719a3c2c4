"""Central images: one bounded row whatever the data, sizes by noisy numbers alone, halves that differ, less noise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from sfumato.privacy import Budget, GaussianSum, Ledger, Noise, PrivateImages, Recording, SeededNoise, Tape
from sfumato.synthesis.central_images import CentralQuestion, _denoised, _SmallCode
from sfumato.values import Images, Spec

from toys import ToySource, halves, opened

QUESTION = CentralQuestion(rounds=3, sampling=1.0, halves=True, count_share=0.02, seed=0)


def asked(
    source: ToySource, question: CentralQuestion = QUESTION, *, noise_multiplier: float = 0.0, seed: int = 0
) -> Images:
    mechanism = replace(question.mechanism(share=1.0), noise_multiplier=noise_multiplier)
    return question.ask(opened(source, mechanism, noise=SeededNoise(seed)))


def mean_of(source: ToySource, label: int) -> torch.Tensor:
    return torch.from_numpy(source.pixels[source.labels == label]).float().mean(0)


def test_without_noise_the_first_round_is_the_mean_of_each_class() -> None:
    images = asked(halves())
    for label in range(3):
        assert (images.pixels[label].float() - mean_of(halves(), label)).abs().max() <= 1


def test_the_halves_of_a_class_differ_and_make_up_its_mean() -> None:
    images = asked(halves())
    assert images.labels.tolist() == [0, 1, 2] + 2 * [0, 0, 1, 1, 2, 2]
    pairs = images.pixels[3:].float().reshape(2, 3, 2, 64).transpose(1, 2)  # (rounds, halves, classes, pixels)
    apart = (pairs[:, 0] - pairs[:, 1]).abs().amax(2)
    assert (apart > 20).all()
    # where halves have about the same size, their mean is nearly that of the class
    assert (pairs.mean(1)[:, 2] - mean_of(halves(), 2).flatten()).abs().max() < 15


def test_sampled_rounds_are_of_whole_classes() -> None:
    images = asked(halves(), replace(QUESTION, sampling=0.5, halves=False))
    assert images.labels.tolist() == 3 * [0, 1, 2]
    middle = images.pixels.float().reshape(3, 3, 64).mean(0)
    assert (middle[2] - mean_of(halves(), 2).flatten()).abs().max() < 30


@pytest.mark.parametrize("sampling", [1.0, 0.5])
@pytest.mark.parametrize("record", [0, 119])
def test_a_record_moves_every_sum_by_at_most_the_bound_and_nothing_else(sampling: float, record: int) -> None:
    """In a class of two: public code divided by how many there are, so that one of two moved its mean by half."""
    source = halves(120)
    source.labels[:118] = np.arange(118) % 2
    source.labels[118:] = 2
    source.pixels[record] = 255  # its row is as long as any
    recording, made = Recording(), []
    question = replace(QUESTION, sampling=sampling)
    for data, (noise, tape) in ((source, recording.recorder()), (source.without(record), recording.player())):
        made.append(_recorded(question, data, noise, tape))
    assert not recording.violations
    assert torch.equal(made[0].pixels, made[1].pixels)
    if sampling == 1:
        assert 0.99 < recording.worst <= 1


def _recorded(question: CentralQuestion, source: ToySource, noise: Noise, tape: Tape) -> Images:
    private = PrivateImages.seal(source, Ledger(Budget(math.inf, 1e-5)), noise=noise, tape=tape)
    return question.ask(private.open(replace(question.mechanism(share=1.0), noise_multiplier=5.0)))


def test_no_row_is_longer_than_its_bound_and_black_and_white_are_as_long() -> None:
    for shape in ((1, 28, 28), (3, 32, 32), (3, 64, 48), (1, 8, 8), (1, 5, 3)):
        code = _SmallCode(Spec(10, *shape, ("a",)))
        for value in (0.0, 1.0):
            assert float(code.encode(torch.full(shape, value)).norm()) == pytest.approx(1.0, abs=1e-5)
        assert float(code.encode(torch.rand(shape, generator=torch.Generator().manual_seed(0))).norm()) < 1


def test_a_flat_image_survives_the_way_there_and_back() -> None:
    for shape in ((1, 28, 28), (3, 64, 48), (1, 5, 3)):
        code = _SmallCode(Spec(10, *shape, ("a",)))
        back = code.enlarged(code.encode(torch.full(shape, 0.25))[None])
        assert back.shape == (1, *shape)
        assert (back.int() - 64).abs().max() <= 1


def test_noise_is_taken_off() -> None:
    """Against the plain quotient of the same noisy sums."""
    draw = torch.Generator().manual_seed(0)
    code = _SmallCode(Spec(10, 1, 28, 28, ("a",)))
    smooth = torch.zeros(28, 28)
    smooth[8:20, 10:18] = 1
    rows = torch.stack([code.encode(smooth.roll(shift, 1)[None]) for shift in range(-4, 5)])
    noisy = rows + 0.05 * torch.randn(rows.shape, generator=draw)
    kept = _denoised(noisy, torch.full((9,), 0.05**2), code.bands)
    assert (kept - rows).square().mean() < 0.5 * (noisy - rows).square().mean()
    assert torch.allclose(_denoised(rows, torch.zeros(9), code.bands), rows, atol=1e-4)


@pytest.mark.parametrize("noise_multiplier", [0.0, 5.0, 1e4])
def test_an_empty_class_one_class_alone_and_pure_noise_give_images(noise_multiplier: float) -> None:
    source = halves(60)
    for labels, classes in ((source.labels % 2, ("a", "b", "none")), (source.labels * 0, ("only",))):
        images = asked(ToySource(source.pixels, labels, classes), noise_multiplier=noise_multiplier)
        assert len(images) == 5 * len(classes)


def test_when_a_crash_has_cost_all_rounds_there_are_grey_images(monkeypatch: pytest.MonkeyPatch) -> None:
    query = opened(halves(), GaussianSum(rounds=3, sampling=0.5, noise_multiplier=1.0))
    monkeypatch.setattr(type(query), "rounds", 0)
    images = replace(QUESTION, sampling=0.5).ask(query)
    assert images.labels.tolist() == [0, 1, 2]
    assert (images.pixels.int() - 128).abs().max() <= 1

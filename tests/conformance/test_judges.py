"""What every metric and every attack is held to, the moment its file exists."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from sfumato import contracts, data
from sfumato.contracts import Reading
from sfumato.values import Images, Reference, Release


@pytest.fixture(scope="module")
def digits() -> Reference:
    return Reference(train=data.load("digits"), test=data.load("digits", Reading(split="test")))


def part(images: Images, keep: torch.Tensor) -> Images:
    return Images(images.pixels[keep], images.labels[keep], images.classes)


@pytest.mark.parametrize("name", contracts.names("metrics"))
def test_a_metric_prefers_real_images_to_noise(name: str, digits: Reference) -> None:
    metric = contracts.find("metrics", name)()
    if any(f.name == "seeds" for f in fields(metric)):
        metric = replace(metric, seeds=(0, 1))
    half = torch.arange(len(digits.train)) % 2 == 0
    real = Reference(train=part(digits.train, ~half), test=digits.test)
    draw = torch.Generator().manual_seed(0)
    good = part(digits.train, half)
    noise = torch.randint(0, 256, good.pixels.shape, generator=draw, dtype=torch.uint8)
    best, worst = metric(good, real), metric(Images(noise, good.labels, good.classes), real)
    assert metric.higher_is_better == best.higher_is_better
    # Far from all real images is safe, so noise does well there, and copies do badly.
    if name not in ("nearest", "obfuscation"):
        assert (best.value > worst.value) == metric.higher_is_better
    else:
        assert best.value < worst.value
        assert metric(real.train, real).value < best.value
    assert best.standard_error is not None


@pytest.mark.parametrize("name", contracts.names("attacks"))
def test_an_attack_catches_a_copy_and_no_independent_release(name: str, digits: Reference) -> None:
    attack = contracts.find("attacks", name)()
    thirds = torch.arange(len(digits.train)) % 3
    members, others, independent = (part(digits.train, thirds == k) for k in range(3))

    def advantage(images: Images) -> float:
        release = Release(Path("r"), {}, images)
        ins, outs = attack.score(release, members), attack.score(release, others)
        return float((ins[:, None] > outs[None, :]).float().mean() + (ins[:, None] == outs[None, :]).float().mean() / 2)

    assert advantage(members) > 0.95
    assert 0.42 < advantage(independent) < 0.58

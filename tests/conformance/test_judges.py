"""What every metric and every attack is held to, the moment its file exists."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from sfumato import contracts, data
from sfumato.contracts import Reading
from sfumato.errors import NotApplicable
from sfumato.values import Groups, Images, Reference, Release


@pytest.fixture(scope="module")
def digits() -> Reference:
    return Reference(train=data.load("digits"), test=data.load("digits", Reading(split="test")))


def part(images: Images, keep: torch.Tensor) -> Images:
    return Images(images.pixels[keep], images.labels[keep], images.classes)


def complete(train: Images, test: Images) -> Reference:
    """Real images with all that a metric may ask for: public images (stripes), and groups (how bright an image is)."""
    stripes = torch.arange(0, 256, 4, dtype=torch.uint8).repeat(8)[:, None, None, None].expand(-1, 1, 1, 8)
    public = Images(stripes.expand(-1, 1, 8, 8).contiguous(), torch.zeros(512, dtype=torch.int64), ("stripes",))
    groups = [(images.pixels.float().mean((1, 2, 3)) > 78).long() for images in (train, test)]
    return Reference(train, test, public, Groups(("dark", "bright"), *groups))


@pytest.fixture(scope="module")
def judged(digits: Reference) -> tuple[Images, Images, Reference]:
    """Real images, noise with their labels, and what to judge them against; the same for all, who share features."""
    half = torch.arange(len(digits.train)) % 2 == 0
    good = part(digits.train, half)
    draw = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 256, good.pixels.shape, generator=draw, dtype=torch.uint8)
    return good, Images(noise, good.labels, good.classes), complete(part(digits.train, ~half), digits.test)


@pytest.mark.parametrize("name", contracts.names_of("metrics", contracts.Metric))
def test_a_metric_prefers_real_images_to_noise(name: str, judged: tuple[Images, Images, Reference]) -> None:
    good, noise, real = judged
    metric = quick(contracts.find("metrics", name)())
    try:
        best, worst = metric(good, real), metric(noise, real)
    except NotApplicable as reason:
        pytest.skip(f"digits cannot be judged so: {reason}")
    assert metric.higher_is_better == best.higher_is_better
    assert best.standard_error is not None
    if metric.judges == "privacy":  # far from all real images is safe, so noise does well, and copies do badly
        assert best.value < worst.value
        assert metric(real.train, real).value < best.value
    elif metric.judges != "fairness":  # noise can be fair
        assert (best.value > worst.value) == metric.higher_is_better


def quick(metric: contracts.Metric) -> contracts.Metric:
    """Little training, where a metric trains: enough to tell digits from noise."""
    known = {f.name for f in fields(metric)}
    return replace(metric, **{name: most for name, most in LITTLE.items() if name in known})


LITTLE = {"seeds": (0, 1), "images_seen": 4_000, "archs": ("mlp", "small-cnn"), "resamples": 50}


def members_and_others(images: Images) -> tuple[Images, Images, Images, Images]:
    quarters = torch.arange(len(images)) % 4
    members, others, independent, population = (part(images, quarters == k) for k in range(4))
    return members, others, independent, population


def advantage(ins: torch.Tensor, outs: torch.Tensor) -> float:
    """The area under the attacker's curve."""
    return float((ins[:, None] > outs[None, :]).float().mean() + (ins[:, None] == outs[None, :]).float().mean() / 2)


@pytest.mark.parametrize("name", contracts.names_of("attacks", contracts.Attack))
def test_an_attack_catches_a_copy_and_no_independent_release(name: str, digits: Reference) -> None:
    attack = contracts.find("attacks", name)()
    members, others, independent, population = members_and_others(digits.train)

    def auc_on(images: Images) -> float:
        release = Release(Path("r"), {}, images)
        return advantage(*(attack.score(release, part, population=population) for part in (members, others)))

    assert auc_on(members) > attack.floor_on_copies
    assert 0.42 < auc_on(independent) < 0.58

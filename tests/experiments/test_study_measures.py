"""What a study measures: its records, marks, risks, and two trends on a small scale."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from data.test_celeba import MALE, TEST, write
from sfumato.contracts import Reading
from sfumato.errors import UsageError
from sfumato.experiments.study_data import Held, Material, Place, load_material, plain_name
from sfumato.experiments.study_measures import (
    accuracy_and_bias,
    before_overfitting,
    lineup,
    mean_and_error,
    measure,
    riskiest,
    rows_of,
    tracker_of,
)
from sfumato.learners.dp_sgd import DPSGD
from sfumato.privacy import Budget, Ledger, PrivateImages, SeededNoise
from sfumato.training.plain import PlainTraining, train_plainly
from sfumato.values import Images

SIDE = 8


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten classes that differ in a faint pattern, in images whose colours say nothing of the class."""
    rng = np.random.default_rng(0)
    patterns = rng.normal(0, 10, (10, SIDE, SIDE, 1))

    def images(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.arange(count) % 10
        tint = rng.uniform(-40, 40, (count, 1, 1, 3))
        noise = rng.normal(0, 30, (count, SIDE, SIDE, 1))
        return np.clip(128 + patterns[labels] + tint + noise, 0, 255).astype(np.uint8), labels

    (x_train, y_train), (x_test, y_test) = images(600), images(200)
    path = tmp_path_factory.mktemp("measures") / "tiny.npz"
    np.savez(path, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    return path


def material(archive: Path, name: str, records: int = 600) -> Material:
    return load_material(Place(name, str(archive), Reading()), records=records, others=200)


def grey(images: Images) -> torch.Tensor:
    return (images.pixels == images.pixels[:, :1]).flatten(1).all(1)


def test_a_plain_data_set_is_tested_in_colour_and_in_grey_and_counts_colour(archive: Path) -> None:
    found = material(archive, "cifar10")
    assert (len(found.train), len(found.others), len(found.test)) == (600, 200, 400)
    assert found.test.classes[0] == found.train.classes[0] == "airplane"
    assert torch.equal(found.counted, found.groups == 0)
    assert torch.equal(grey(found.test), found.groups == 1)
    assert not grey(found.train).any()
    assert not grey(found.others).any()


@pytest.mark.parametrize(("name", "share"), [("cifar10s-75", 0.75), ("cifar10s-95", 0.95)])
def test_others_have_the_colours_of_the_training_split(archive: Path, name: str, share: float) -> None:
    """An attacker who sees that a class has the other colour more often outside would not infer membership."""
    found = material(archive, name)
    assert found.counted.all()
    for images, count in ((found.train, 60), (found.others, 20)):
        mostly_grey = images.labels % 2 == 0
        assert int(grey(images)[mostly_grey].sum()) == 5 * round(share * count)
        assert int((~grey(images))[~mostly_grey].sum()) == 5 * round(share * count)


def test_records_are_the_same_for_every_seed_and_others_are_no_members(archive: Path) -> None:
    first, again = material(archive, "cifar10", 300), material(archive, "cifar10", 300)
    assert torch.equal(first.train.pixels, again.train.pixels)
    members, others = lineup(first, 50, seed=3)
    assert len(members) == len(others) == 50
    assert members.labels.bincount().tolist() == others.labels.bincount().tolist() == [5] * 10
    trained = {image.numpy().tobytes() for image in first.train.pixels}
    assert all(image.numpy().tobytes() in trained for image in members.pixels)
    assert not any(image.numpy().tobytes() in trained for image in others.pixels)


def test_other_data_needs_a_group() -> None:
    with pytest.raises(UsageError, match="protected attribute"):
        load_material(Place("digits", "digits", Reading()), records=20, others=8)
    assert plain_name("cifar10s-95") == "cifar10"
    assert plain_name("cifar100s-75") == "cifar100"
    assert plain_name("celeba") == "celeba"


def test_faces_are_grouped_by_a_protected_attribute(tmp_path: Path) -> None:
    place = Place("celeba", str(write(tmp_path / "celeba")), Reading(size=16, label="Smiling"), "Male")
    found = load_material(place, records=6, others=4)
    assert (len(found.train), len(found.others), len(found.test)) == (6, 4, 4)
    assert found.test.classes == ("not Smiling", "Smiling")
    assert found.names == ("not Male", "Male")
    assert found.groups.tolist() == [int(MALE[k]) for k in TEST]
    assert found.counted.all()


def test_the_last_checkpoint_before_overfitting() -> None:
    rows = [{"validation loss": loss, "at": number} for number, loss in enumerate([3.0, 1.0, 1.04, 1.06])]
    assert before_overfitting(rows)["at"] == 2
    assert before_overfitting(rows[:3])["at"] == 2


def test_means_and_errors_over_seeds() -> None:
    assert mean_and_error([2.0]) == (2.0, None)
    mean, error = mean_and_error([1.0, 2.0, 6.0])
    assert (mean, error) == (3.0, pytest.approx(np.std([1, 2, 6], ddof=1) / 3**0.5))


class Known(torch.nn.Module):
    """Sure and right about images with a bright first pixel, and undecided about others."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        sure = 10.0 * (images[:, 0, 0, 0] > 0.5)
        return torch.stack([sure, torch.zeros_like(sure)], 1)


def test_the_riskiest_records_are_those_that_only_members_are_known_by() -> None:
    pixels = torch.zeros(20, 3, 2, 2, dtype=torch.uint8)
    pixels[[4, 9, 13]] = 255
    labels = torch.zeros(20, dtype=torch.int64)
    train = Images(pixels, labels, ("a", "b"))
    others = Images(torch.zeros_like(pixels), labels, ("a", "b"))
    found, risk = riskiest(Known(), train, others, 3)
    assert sorted(found.tolist()) == [4, 9, 13]
    assert risk == 1.0


def test_a_curve_follows_one_record(archive: Path) -> None:
    records = material(archive, "cifar10")
    tracker = tracker_of(records, 50)
    train_plainly(records.train, PlainTraining(epochs=1, batch=100), what="test", callback=tracker, checkpoints=2)
    rows = rows_of(tracker.checkpoints)
    assert [row["done"] for row in rows] == [0.5, 1.0]
    assert all(0 <= row["membership probability"] <= 1 for row in rows)


def test_more_data_bias_gives_a_larger_model_bias(archive: Path) -> None:
    settings = PlainTraining(epochs=6, batch=50)
    found = {}
    for name in ("cifar10s-75", "cifar10s-95"):
        records = material(archive, name)
        trained = [train_plainly(records.train, replace(settings, seed=seed), what="test") for seed in (0, 1)]
        found[name] = sum(accuracy_and_bias(made.network, records)["bias"] for made in trained) / 2
    assert found["cifar10s-75"] + 0.03 < found["cifar10s-95"], found


def test_a_network_that_remembers_is_found_out_and_a_private_one_is_not() -> None:
    """Labels are drawn at random, so that whatever is right about a training record was remembered."""
    draw = torch.Generator().manual_seed(0)

    def random_images(count: int) -> Images:
        pixels = torch.randint(256, (count, 3, SIDE, SIDE), generator=draw).to(torch.uint8)
        return Images(pixels, torch.randint(2, (count,), generator=draw), ("a", "b"))

    train, others = random_images(120), random_images(120)
    groups = torch.arange(120) % 2
    records = Material(train, others, others, groups, ("x", "y"), torch.ones(120, dtype=torch.bool))
    plainly = train_plainly(train, PlainTraining(epochs=25, batch=20, weight_decay=0.0), what="test")
    private = PrivateImages.seal(Held(train), Ledger(Budget(1.0, 1e-3)), noise=SeededNoise(0))
    learnt = DPSGD(epochs=1, batch=40, techniques="none").fit(private, None)
    private.close()
    remembered, kept = (measure(made.network, records, 120, seed=0) for made in (plainly, learnt))
    assert remembered["auc-loss-threshold"] > 0.9
    assert kept["auc-loss-threshold"] < 0.65
    assert remembered["harmonic"] < kept["harmonic"]

"""Students from the command line: trained on the release alone, tested on real images, reported to the lab only."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from metrics.digits import reference
from release.making import edit_table, make_certificate, renew_sums
from sfumato.errors import DataError, EnvironmentProblem
from sfumato.judging import student as bench
from sfumato.judging.student import train_student
from sfumato.release import write_release
from sfumato.training.student import Schedule
from sfumato.values import Images

from commands import Outcome, sfumato

COUNT = 240


def released(folder: Path, *, logits: bool, count: int = COUNT) -> Path:
    """A release of digits; with logits its labels are all wrong, so that only logits can teach."""
    train = reference().train
    pixels, labels = train.pixels[:count], train.labels[:count]
    soft = 6 * torch.nn.functional.one_hot(labels, 10).float() if logits else None
    images = Images(pixels, labels, train.classes, soft)
    made = write_release(folder / "r", images, make_certificate(images))
    if logits:  # in an unaltered release the label is the largest logit
        zeros = pa.array(np.zeros(count, np.int64))
        edit_table(made, lambda table: table.set_column(1, table.schema.field("label"), zeros))
        renew_sums(made)
    return made


def released_for_transfer(folder: Path) -> Path:
    """Digits for transfer with their logits; the images of the classes are the same digits with wrong labels."""
    train = reference().train
    pixels, labels = train.pixels[:COUNT], train.labels[:COUNT]
    further = Images(pixels, labels, train.classes, 6 * torch.nn.functional.one_hot(labels, 10).float())
    images = Images(pixels[:100], (labels[:100] + 1) % 10, train.classes, transfer=further)
    return write_release(folder / "r", images, make_certificate(images))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return released(tmp_path_factory.mktemp("plain"), logits=False)


@pytest.fixture(scope="module")
def soft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return released(tmp_path_factory.mktemp("soft"), logits=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same schedules, cut short."""
    for name in ("short", "paper"):
        whole = getattr(Schedule, name)
        cut = {"max_epochs": 8.0}
        monkeypatch.setattr(Schedule, name, lambda arch, whole=whole, cut=cut, **changes: whole(arch, **cut, **changes))


def trained(release: Path, *more: object) -> Outcome:
    return sfumato("student", release, "--real", "digits", "--arch", "small-cnn", "--seeds", "2", *more)


def test_labels_teach_and_the_release_is_left_alone(plain: Path) -> None:
    before = sorted(plain.rglob("*"))
    outcome = trained(plain)
    assert outcome.code == 0, outcome.err
    for words in ("accuracy    0.", "+-", "worst class", "with the release's labels", "not for publication"):
        assert words in outcome.out
    assert sorted(plain.rglob("*")) == before
    lab = plain.with_name("r.lab")
    document = json.loads((lab / "student-small-cnn.json").read_text())
    assert document["notice"].startswith("PRIVATE")
    score = document["score"]
    assert score["name"] == "student-small-cnn"
    assert score["value"] == pytest.approx(np.mean(score["details"]["accuracies"]))
    assert score["value"] > 0.7
    assert score["seeds"] == [0, 1]
    assert score["details"]["kept_from_the_student"] == COUNT // 20
    assert document["schedule"]["arch"] == "small-cnn"


def test_logits_teach_where_labels_are_wrong(soft: Path) -> None:
    printed = json.loads(trained(soft, "--json").out)
    assert printed["lab"] is True
    assert printed["score"]["value"] > 0.7
    assert printed["score"]["details"]["loss"] == "logits"
    assert printed["score"]["details"]["agreement_with"] == "logits"
    assert printed["score"]["details"]["agreement"] > 0.6
    astray = json.loads(trained(soft, "--json", "--loss", "labels").out)
    assert astray["score"]["value"] < 0.3


def test_images_for_transfer_teach_and_labels_are_those_of_the_classes(tmp_path: Path) -> None:
    release = released_for_transfer(tmp_path)
    printed = json.loads(trained(release, "--json").out)["score"]
    assert printed["value"] > 0.7
    assert (printed["details"]["loss"], printed["details"]["agreement_with"]) == ("logits", "logits")
    assert printed["details"]["kept_from_the_student"] == COUNT // 20
    astray = json.loads(trained(release, "--json", "--loss", "labels").out)["score"]
    assert astray["value"] < 0.2
    assert (astray["details"]["loss"], astray["details"]["agreement_with"]) == ("labels", "labels")
    assert astray["details"]["kept_from_the_student"] == 5
    together = json.loads(trained(release, "--json", "--subset", "all").out)["score"]
    assert together["value"] > 0.5, "many right labels against few wrong ones"
    assert (together["details"]["loss"], together["details"]["subset"]) == ("labels", "all")
    assert together["details"]["kept_from_the_student"] == (COUNT + 100) // 20
    assert "Expected the loss labels" in trained(release, "--subset", "all", "--loss", "logits").err


def test_a_subset_that_is_not_there_is_refused(plain: Path) -> None:
    assert "Expected a release with a distillation set" in trained(plain, "--subset", "transfer").err


def test_every_run_is_a_row(soft: Path) -> None:
    lab = soft.with_name("r.lab")
    (lab / "students.md").unlink(missing_ok=True)
    assert trained(soft, "--loss", "kl", "--temperature", "4").code == 0
    assert trained(soft, "--schedule", "paper", "--seeds", "1").code == 0
    text = (lab / "students.md").read_text()
    assert text.startswith("PRIVATE")
    rows = [line for line in text.splitlines() if line.startswith("| small-cnn")]
    assert [row.split(" | ")[1:3] for row in rows] == [["short", "kl"], ["paper", "kl"]]
    assert "test split" in rows[0]
    assert len({line.count("|") for line in text.splitlines() if line.startswith("|")}) == 1


def test_without_a_test_split_it_says_so(plain: Path, tmp_path: Path) -> None:
    train = reference().train
    np.savez(tmp_path / "real.npz", x=train.pixels[:60, 0].numpy(), y=train.labels[:60].numpy())
    classes = ",".join(train.classes)
    outcome = sfumato(
        "student", plain, "--real", tmp_path / "real.npz", "--classes", classes, "--arch", "small-cnn", "--seeds=1"
    )
    assert outcome.code == 0, outcome.err
    assert "there is no test split" in outcome.out
    assert "there is no test split" in (plain.with_name("r.lab") / "students.md").read_text()


BAD = {
    "an unknown architecture": (("--arch=resnet19",), "Expected one of the architectures resnet8, "),
    "no seeds": (("--seeds=0",), "Expected 1 to 1000 seeds, got 0"),
    "temperature zero": (("--loss=kl", "--temperature=0"), "Expected a finite temperature > 0, got 0"),
    "temperature without kl": (("--temperature=4",), "Expected a temperature with the loss kl alone"),
    "kl without logits": (("--loss=kl",), "got one with labels alone"),
    "the paper's schedule without logits": (("--schedule=paper",), "got one with labels alone"),
    "an unknown schedule": (("--schedule=long",), "--schedule"),
    "an unknown loss": (("--loss=hinge",), "--loss"),
    "real data that is not there": (("--real=nowhere",), "nowhere"),
    "another size": (("--size=4",), "Expected real images of shape (1, 8, 8)"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_request(name: str, tmp_path: Path) -> None:
    more, sentence = BAD[name]
    outcome = trained(released(tmp_path, logits=False), *more)
    assert outcome.code == 2, outcome
    assert sentence in outcome.said
    assert "Traceback" not in outcome.err
    assert outcome.err.startswith("Usage:") or len(outcome.err.splitlines()) <= 3
    assert [p.name for p in tmp_path.iterdir()] == ["r"], "a refusal leaves nothing behind"


def test_no_release_and_too_small_a_release(tmp_path: Path) -> None:
    assert trained(tmp_path / "none").code == 2
    with pytest.raises(DataError, match="at least 20 images, got 19"):
        train_student(released(tmp_path, logits=True, count=19), "digits", arch="small-cnn")


def test_a_lab_that_cannot_be_used_is_said_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = released(tmp_path, logits=True)
    (tmp_path / "r.lab").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setattr(bench, "student_logits", lambda *_, **__: pytest.fail("trained for nothing"))
    with pytest.raises(EnvironmentProblem):
        train_student(release, "digits", arch="small-cnn")

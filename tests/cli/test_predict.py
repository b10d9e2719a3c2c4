"""sfumato predict: a table of what a released classifier says of images, and which requests are refused."""

from __future__ import annotations

import csv
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import sfumato as api
from cli.checking import left_in, refused, writes_up_to
from release.making import CLASSES, make_certificate, make_images, renew_sums
from release.model_making import make_classifier, make_model, make_model_certificate
from sfumato import data
from sfumato.contracts import Reading
from sfumato.networks.models import build_model
from sfumato.release import write_model, write_release
from sfumato.values import Classifier

from commands import sfumato

COLUMNS = ["file", "label", "probability", *(f"p_{name}" for name in CLASSES)]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("original") / "m")


def picture(path: Path, seed: int, size: tuple[int, ...] = (8, 8)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)).save(path)
    return path


@pytest.fixture
def place(original: Path, workdir: Path) -> Path:
    """The working directory with a model, m, and images: grey and colour, of several sizes, in folders of any depth."""
    shutil.copytree(original, workdir / "m")
    picture(workdir / "images" / "top.png", 0)
    picture(workdir / "images" / "a" / "wide.jpg", 1, (20, 31, 3))
    picture(workdir / "images" / "a" / "b, c" / "deep.PNG", 2, (9, 8))
    (workdir / "images" / "labels.csv").write_text("file,age\ntop.png,81\n")
    (workdir / "images" / ".DS_Store").write_bytes(b"x")
    return workdir


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        found = csv.DictReader(file)
        assert list(found.fieldnames or ()) == COLUMNS
        return list(found)


def test_a_folder_of_any_layout(place: Path) -> None:
    outcome = sfumato("predict", "m", "images", "--out", "labels.csv")
    assert outcome.code == 0, outcome.err
    assert outcome.out == "Labelled 3 images in labels.csv. Predictions of private images are private, too.\n"
    table = {row["file"]: row for row in rows(place / "labels.csv")}
    assert set(table) == {"top.png", "a/wide.jpg", "a/b, c/deep.PNG"}
    for row in table.values():
        chances = {name: float(row[f"p_{name}"]) for name in CLASSES}
        assert row["label"] == max(chances, key=chances.__getitem__)
        assert row["probability"] == row[f"p_{row['label']}"]
        assert sum(chances.values()) == pytest.approx(1, abs=3e-6)
    with torch.no_grad(), Image.open(place / "images" / "top.png") as image:
        pixels = torch.from_numpy(np.array(image)).float() / 255
        logits = api.read_model(place / "m").classifier.network(pixels[None, None])
    expected = logits.double().softmax(1)[0].tolist()
    assert [float(table["top.png"][f"p_{name}"]) for name in CLASSES] == pytest.approx(expected, abs=2e-6)
    assert (place / "labels.csv").stat().st_mode & 0o077 == 0, "nobody else may read it"


def test_images_are_read_as_all_readers_read_them(place: Path) -> None:
    """As if they had been in a folder of their own class."""
    (place / "classes").mkdir()
    (place / "images" / "a" / "wide.jpg").rename(place / "classes" / "wide.jpg")
    (place / "sorted").mkdir()
    (place / "classes").rename(place / "sorted" / "one")
    (expected,) = data.load(place / "sorted", Reading(size=8, mode="grey")).pixels
    ((names, pixels),) = data.open_unlabelled(place / "sorted", Reading(size=8, mode="grey")).chunks()
    assert names == ["one/wide.jpg"]
    assert np.array_equal(pixels[0], expected.numpy())


def test_json_and_other_sources(place: Path) -> None:
    with zipfile.ZipFile(place / "images.zip", "w") as archive:
        archive.write(place / "images" / "top.png", "x/y/top.png")
    given = {
        "images.zip": ["x/y/top.png"],
        "images/top.png": ["top.png"],
        "tiny.npz": [f"tiny[{k}]" for k in range(90)],
    }
    for number, (images, files) in enumerate(given.items()):
        outcome = sfumato("predict", "m", images, "--out", f"{number}.csv", "--json")
        assert outcome.code == 0, outcome.err
        assert json.loads(outcome.out) == {"lab": True, "out": f"{number}.csv", "count": len(files), "skipped": []}
        assert [row["file"] for row in rows(place / f"{number}.csv")] == files


def test_an_npz_needs_no_labels(place: Path) -> None:
    with np.load("tiny.npz") as tiny:
        np.savez("plain.npz", x=tiny["x"])
        np.savez("odd.npz", images=tiny["x"], labels=np.full(90, -7))
    for name in ("tiny", "plain", "odd"):
        assert sfumato("predict", "m", f"{name}.npz", "--out", f"{name}.csv").code == 0
    tables = [[list(row.values())[1:] for row in rows(place / f"{name}.csv")] for name in ("tiny", "plain", "odd")]
    assert tables[0] == tables[1] == tables[2]
    np.savez("none.npz", y=np.arange(3))
    np.savez("flat.npz", x=np.float32(1))
    refused(sfumato("predict", "m", "none.npz", "--out", "n.csv"), 3, "Expected an array x, images, x_train or x_test")
    refused(sfumato("predict", "m", "flat.npz", "--out", "n.csv"), 3, "got a single value of float32")
    assert not (place / "n.csv").exists()


def test_bad_files_are_left_out_and_listed_if_that_is_asked_for(place: Path) -> None:
    (place / "images" / "a" / "half.png").write_bytes((place / "images" / "top.png").read_bytes()[:60])
    (place / "images" / "no\nimage").write_text("hello")
    outcome = sfumato("predict", "m", "images", "--out", "labels.csv", "--skip-bad")
    assert outcome.code == 0, outcome.err
    assert "Labelled 3 images in labels.csv; 2 left out." in outcome.out
    listed = outcome.err.splitlines()
    assert len(listed) == 2
    assert any(line.startswith("left out: a/half.png (") for line in listed)
    assert any(line.startswith("left out: no\\nimage (") for line in listed)
    assert len(rows(place / "labels.csv")) == 3


def test_more_images_than_a_batch(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfumato.judging.predict.BATCH", 7)
    made = api.predict_images("m", "tiny.npz", "labels.csv")
    together = rows(place / "labels.csv")
    monkeypatch.setattr("sfumato.judging.predict.BATCH", 1000)
    api.predict_images("m", "tiny.npz", "again.csv")
    assert (made.count, made.skipped) == (90, ())
    for one, other in zip(together, rows(place / "again.csv"), strict=True):
        assert one["file"] == other["file"]
        assert float(one["p_zero"]) == pytest.approx(float(other["p_zero"]), abs=3e-6)


def test_a_classifier_of_images_that_are_not_square(workdir: Path) -> None:
    shape = (1, 8, 12)
    classifier = Classifier("private-cnn", {}, build_model("private-cnn", shape, len(CLASSES), {}))
    values = make_model_certificate(classifier).model_dump(exclude={"public"})
    public = {**make_certificate(make_images()).public.model_dump(), "height": 8, "width": 12}
    write_model("m", classifier, make_model_certificate(classifier, **{**values, "public": public}))
    picture(workdir / "images" / "one.png", 0, (8, 12))
    assert sfumato("predict", "m", "images", "--out", "labels.csv").code == 0
    picture(workdir / "square" / "one.png", 0, (8, 8))
    refused(sfumato("predict", "m", "square", "--out", "more.csv"), 3, "Expected images of 12 x 8 pixels")
    assert left_in(workdir) == ["images", "labels.csv", "m", "square"]


REQUESTS: dict[str, tuple[tuple[str, ...], int, str]] = {
    "without images": (("m", "--out=o.csv"), 2, "Missing argument"),
    "without a file for it": (("m", "images"), 2, "Missing option '--out'"),
    "by a model that is not there": (("n", "images", "--out=o.csv"), 2, "Expected a release folder"),
    "by a file": (("tiny.npz", "images", "--out=o.csv"), 2, "Expected a release folder"),
    "by a folder that is none": (("images", "images", "--out=o.csv"), 6, "SHA256SUMS is missing"),
    "of images that are not there": (("m", "pictures", "--out=o.csv"), 2, "got a path where nothing is"),
    "of something else": (("m", "m/README.md", "--out=o.csv"), 3, "got something else"),
    "into a file that exists": (("m", "images", "--out=tiny.npz"), 2, "Expected a new file"),
    "into a folder that exists": (("m", "images", "--out=images"), 2, "Expected a new file"),
    "into a folder that does not": (("m", "images", "--out=no/o.csv"), 2, "Expected a folder that exists"),
    "into the model": (("m", "images", "--out=m/o.csv"), 2, "Expected a place outside of the model"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_bad_request(name: str, place: Path) -> None:
    before = (place / "tiny.npz").read_bytes()
    arguments, code, needle = REQUESTS[name]
    refused(sfumato("predict", *arguments), code, needle)
    assert left_in(place) == ["images", "m"]
    assert len(list((place / "m").iterdir())) == 4
    assert (place / "tiny.npz").read_bytes() == before


def _images(place: Path) -> None:
    """A release of images in the place of the model."""
    images = make_images()
    shutil.rmtree(place / "m")
    write_release(place / "m", images, make_certificate(images))


def _infinite(place: Path) -> None:
    weights = place / "m" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + np.float32(np.inf).tobytes())
    renew_sums(place / "m")


def _empty(place: Path) -> None:
    shutil.rmtree(place / "images")
    (place / "images").mkdir()
    (place / "images" / "notes.txt").write_text("no images")


def _all_bad(place: Path) -> None:
    _empty(place)
    (place / "images" / "one.png").write_bytes(b"no image")


def _unknown(place: Path) -> None:
    shutil.rmtree(place / "m")
    classifier = Classifier("new-network", {}, make_classifier().network)
    write_model(place / "m", classifier, make_model_certificate(classifier))


SPOILT: dict[str, tuple[Callable[[Path], object], int, str]] = {
    "a release of images": (_images, 2, "Expected a released classifier, got a release of images."),
    "a changed card": (lambda p: (p / "m" / "README.md").write_text("x"), 6, "README.md differs"),
    "an infinite weight": (_infinite, 6, "not finite"),
    "an unknown architecture": (_unknown, 2, "Expected one of the architectures"),
    "no image": (_empty, 3, "Expected image files in it or in its sub-folders, got none."),
    "no readable image": (_all_bad, 3, "one.png"),
    "an empty file": (lambda p: (p / "images" / "x.png").touch(), 3, "x.png (the file is empty)"),
    "half a file": (
        lambda p: (p / "images" / "x.png").write_bytes((p / "images" / "top.png").read_bytes()[:60]),
        3,
        "x.png (",
    ),
    "a file that is no image": (lambda p: (p / "images" / "x.doc").write_text("x"), 3, "x.doc (no PNG"),
    "a link out of the folder": (lambda p: (p / "images" / "x.png").symlink_to("/etc/passwd"), 3, "leads out of"),
    "a pipe": (lambda p: os.mkfifo(p / "images" / "x.png"), 3, "x.png (not a regular file)"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_bad_model_or_image(name: str, place: Path) -> None:
    change, code, needle = SPOILT[name]
    change(place)
    refused(sfumato("predict", "m", "images", "--out", "labels.csv"), code, needle)
    assert left_in(place) == ["images", "m"]


def test_nothing_readable_is_no_table_with_skip_bad_either(place: Path) -> None:
    _all_bad(place)
    refused(sfumato("predict", "m", "images", "--out", "labels.csv", "--skip-bad"), 3, "at least one readable image")
    header_only = bytearray(picture(place / "images" / "one.png", 0).read_bytes())
    (place / "images" / "one.png").write_bytes(header_only[:60])  # its header can be read and its pixels cannot
    refused(sfumato("predict", "m", "images", "--out", "labels.csv", "--skip-bad"), 3, "at least one readable image")
    assert left_in(place) == ["images", "m"]


def test_a_full_disk_leaves_nothing(place: Path) -> None:
    with writes_up_to(500):
        outcome = sfumato("predict", "m", "tiny.npz", "--out", "labels.csv")
    refused(outcome, 5, "Expected to write the table")
    assert left_in(place) == ["images", "m"]

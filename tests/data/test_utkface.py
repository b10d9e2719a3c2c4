"""UTKFace: age, gender and race are read from the names of the files; names that do not say them are bad records."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sfumato.contracts import Reading, find
from sfumato.data import has_split, load, open_source, open_unlabelled
from sfumato.data._face_labels import AGES, GENDERS, RACES
from sfumato.errors import DataError, UsageError

FACES = np.random.default_rng(0).integers(0, 256, (6, 9, 7, 3), dtype=np.uint8)
NAMES = [
    "100_0_0_20170112213500903.jpg.chip.jpg",
    "1_1_4_20161219140623097.jpg.chip.jpg",
    "24_0_1_20170116220224657 .jpg.chip.jpg",  # published so
    "26_1_2_20170116174525125.jpg",
    "39_0_3_20170103200622384.jpg",
    "55_0_0_20170116232725357jpg.chip.jpg",  # published so
]
RACE, GENDER, AGE = [0, 4, 1, 2, 3, 0], [0, 1, 0, 1, 0, 0], [8, 0, 3, 3, 4, 6]
BROKEN = ["39_1_20170116174525125.jpg.chip.jpg", "53__0_20170116184028385.jpg"]  # published so


def encoded(face: np.ndarray) -> bytes:
    """A PNG under the name of a JPEG, so that pixels come back as they are: formats are told by their first bytes."""
    stream = io.BytesIO()
    Image.fromarray(face).save(stream, "PNG")
    return stream.getvalue()


def write(root: Path, names: list[str] = NAMES) -> Path:
    root.mkdir(parents=True)
    for name, face in zip(names, FACES, strict=False):
        (root / name).write_bytes(encoded(face))
    return root


def test_race_is_the_label(tmp_path: Path) -> None:
    images = load(write(tmp_path / "UTKFace"))
    assert images.classes == RACES == ("White", "Black", "Asian", "Indian", "Others")
    assert images.labels.tolist() == RACE
    assert np.array_equal(images.pixels.numpy(), FACES.transpose(0, 3, 1, 2))


def test_other_labels(tmp_path: Path) -> None:
    root = write(tmp_path / "UTKFace")
    gender, age = load(root, Reading(label="gender")), load(root, Reading(label="age"))
    assert (gender.classes, gender.labels.tolist()) == (GENDERS, GENDER)
    assert (age.classes, age.labels.tolist()) == (AGES, AGE)
    some = load(root, Reading(classes=("Black", "White")))
    assert (some.classes, some.labels.tolist()) == (("Black", "White"), [1, 0, 1])


def test_there_is_one_split(tmp_path: Path) -> None:
    root = write(tmp_path / "UTKFace")
    assert has_split(root, "train")
    assert not has_split(root, "test")


@pytest.mark.parametrize("name", [*BROKEN, "151_0_0_20170116184028385.jpg", "1_2_0_20170116184028385.jpg", "face.jpg"])
def test_a_name_that_does_not_say_all_is_a_bad_record(tmp_path: Path, name: str) -> None:
    root = write(tmp_path / "UTKFace")
    (root / name).write_bytes(encoded(FACES[0]))
    with pytest.raises(DataError, match="got 1 bad: ") as caught:
        open_source(root)
    assert f"{name} (a name without age, gender and race)" in str(caught.value)
    source = open_source(root, Reading(skip_bad=True))
    assert source.spec.count == 7
    ((_, labels),) = source.chunks()
    assert sorted(labels.tolist()) == [-1, *sorted(RACE)]
    assert len(load(root, Reading(skip_bad=True))) == 6


def test_found_by_most_names(tmp_path: Path) -> None:
    """Also beside broken names and a text; not where such names are few, or where a table says what is true."""
    reader, few = find("data", "utkface"), [NAMES[k] for k in (0, 1, 3, 4)]
    root = write(tmp_path / "faces", [*few, *BROKEN])
    (root / "README.txt").write_text("faces")
    (root / ".DS_Store").write_bytes(b"x")
    assert reader.recognises(str(root))
    assert isinstance(open_source(root, Reading(skip_bad=True)), reader)
    assert not reader.recognises(str(write(tmp_path / "few", [NAMES[0], *BROKEN])))
    (root / "labels.csv").write_text("file,smile\n" + "".join(f"{name},1\n" for name in [*few, *BROKEN]))
    assert not reader.recognises(str(root))
    assert len(load(root, Reading(label="smile"))) == 6


def test_found_in_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "cache"))
    with pytest.raises(DataError, match=r"Expected UTKFace in the cache folder.*\n.*\n.*https://susanqq"):
        open_source("utkface")
    write(tmp_path / "cache" / "utkface")
    source = open_source("utkface")
    assert (source.name, source.spec.count) == ("utkface", 6)
    write(tmp_path / "utkface", NAMES[:2])  # a folder of that name comes first, and has one meaning
    assert open_source("utkface").spec.count == 2


def test_an_unknown_attribute(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="one of age, gender, race; got 'smile'"):
        open_source(write(tmp_path / "UTKFace"), Reading(label="smile"))


def test_without_labels(tmp_path: Path) -> None:
    ((names, pixels),) = open_unlabelled(write(tmp_path / "UTKFace")).chunks()
    assert names == NAMES
    assert len(pixels) == 6

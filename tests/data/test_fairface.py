"""FairFace: its two tables are read as published, and its races and ages as those of every face data set."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sfumato.contracts import Reading, find
from sfumato.data import has_split, load, open_source, open_unlabelled
from sfumato.data._face_labels import AGES, FIVE_RACES, GENDERS, RACES, RACES7, age_range
from sfumato.errors import DataError, UsageError

TRAIN, VAL = "fairface_label_train.csv", "fairface_label_val.csv"
HEAD = "file,age,gender,race,service_test\n"
TRAIN_ROWS = [
    "50-59,Male,East Asian,True",
    "30-39,Female,Indian,False",
    "3-9,Female,Black,False",
    "20-29,Female,White,True",
    "more than 70,Male,Middle Eastern,True",
    "0-2,Male,Latino_Hispanic,False",
    "10-19,Female,Southeast Asian,False",
]
VAL_ROWS = ["60-69,Male,White,True", "40-49,Female,Indian,True"]
FACES = np.random.default_rng(0).integers(0, 256, (7, 8, 8, 3), dtype=np.uint8)


def encoded(face: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(face).save(stream, "PNG")
    return stream.getvalue()


def write(root: Path) -> Path:
    for folder, table, rows in (("train", TRAIN, TRAIN_ROWS), ("val", VAL, VAL_ROWS)):
        (root / folder).mkdir(parents=True)
        named = [f"{folder}/{k + 1}.jpg,{row}\n" for k, row in enumerate(rows)]
        (root / table).write_text(HEAD + "".join(named))
        for k in range(len(rows)):
            (root / folder / f"{k + 1}.jpg").write_bytes(encoded(FACES[k]))
    return root


def test_the_races_of_two_data_sets() -> None:
    assert FIVE_RACES == {
        "White": "White",
        "Black": "Black",
        "East Asian": "Asian",
        "Southeast Asian": "Asian",
        "Indian": "Indian",
        "Latino_Hispanic": "Others",
        "Middle Eastern": "Others",
    }
    assert set(FIVE_RACES.values()) == set(RACES)


@pytest.mark.parametrize(
    ("youngest", "oldest", "name"),
    [
        (0, 2, "0-2"),
        (3, 9, "3-9"),
        (10, 19, "10-19"),
        (20, 29, "20-29"),
        (30, 39, "30-39"),
        (40, 49, "40-49"),
        (50, 59, "50-59"),
        (60, 69, "60-69"),
        (70, 150, "70+"),
    ],
)
def test_the_ranges_of_age(youngest: int, oldest: int, name: str) -> None:
    assert {age_range(years) for years in range(youngest, oldest + 1)} == {name}
    assert name in AGES


@pytest.mark.parametrize("years", [-1, 151, 999])
def test_no_age(years: int) -> None:
    with pytest.raises(DataError, match=f"Expected ages of 0 to 150 years, got {years}"):
        age_range(years)


@pytest.mark.parametrize(
    ("label", "classes", "train", "test"),
    [
        (None, RACES, [2, 3, 1, 0, 4, 4, 2], [0, 3]),
        ("race", RACES, [2, 3, 1, 0, 4, 4, 2], [0, 3]),
        ("race7", RACES7, [3, 5, 1, 0, 6, 2, 4], [0, 5]),
        ("gender", GENDERS, [0, 1, 1, 1, 0, 0, 1], [0, 1]),
        ("age", AGES, [6, 4, 1, 3, 8, 0, 2], [7, 5]),
    ],
)
def test_both_splits(
    tmp_path: Path, label: str | None, classes: tuple[str, ...], train: list[int], test: list[int]
) -> None:
    root = write(tmp_path / "fair")
    for split, expected in (("train", train), ("test", test)):
        images = load(root, Reading(split=split, label=label))  # type: ignore[arg-type]
        assert images.classes == classes
        assert images.labels.tolist() == expected
        assert np.array_equal(images.pixels.numpy(), FACES[: len(expected)].transpose(0, 3, 1, 2))


def test_listed_classes(tmp_path: Path) -> None:
    images = load(write(tmp_path / "fair"), Reading(classes=("Others", "White")))
    assert (images.classes, images.labels.tolist()) == (("Others", "White"), [1, 0, 0])


def test_one_table_alone(tmp_path: Path) -> None:
    root = write(tmp_path / "fair")
    (root / TRAIN).unlink()
    assert has_split(root, "test")
    assert not has_split(root, "train")
    assert isinstance(open_source(root, Reading(split="test")), find("data", "fairface"))


def test_other_tables_and_images_beside_them(tmp_path: Path) -> None:
    root = write(tmp_path / "fair")
    (root / "mine.csv").write_text("file,smile\n")
    (root / "train" / "99.jpg").write_bytes(b"in no table")
    assert len(load(root)) == 7


def test_found_in_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "cache"))
    with pytest.raises(DataError, match=r"Expected FairFace in the cache folder.*\n.*\n.*https://github.com/joojs"):
        open_source("fairface")
    write(tmp_path / "cache" / "fairface")
    source = open_source("fairface")
    assert (source.name, source.spec.count) == ("fairface", 7)


def test_without_labels(tmp_path: Path) -> None:
    ((names, _),) = open_unlabelled(write(tmp_path / "fair")).chunks()
    assert len(names) == 9


def test_an_unknown_attribute(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="one of race, race7, gender, age; got 'service_test'"):
        open_source(write(tmp_path / "fair"), Reading(label="service_test"))

"""Several attributes at once: alike from every reader, named alike for faces, refused where they are no labels."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sfumato.contracts import Reading
from sfumato.data import _records as records
from sfumato.data import attributes_of, load, load_attributed
from sfumato.data._face_labels import AGES, GENDERS, RACES
from sfumato.errors import DataError, UsageError
from sfumato.values import Attributed

COUNT = 30
FACES = np.random.default_rng(0).integers(0, 256, (COUNT, 6, 6, 3), dtype=np.uint8)
YEARS = [(7 * k) % 110 for k in range(COUNT)]  # thirty different ones
SEX = [k % 2 for k in range(COUNT)]
RACE = [k % 5 for k in range(COUNT)]
FACE_COLUMNS = {"age": YEARS, "gender": SEX, "race": RACE}


def png(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, "PNG")
    return stream.getvalue()


def table(columns: Mapping[str, Sequence[object]]) -> str:
    rows = zip([f"images/{k:02}.png" for k in range(COUNT)], *columns.values(), strict=True)
    return "\n".join([",".join(["file", *columns]), *(",".join(map(str, row)) for row in rows)]) + "\n"


def write(root: Path, columns: Mapping[str, Sequence[object]]) -> Path:
    (root / "images").mkdir(parents=True)
    for k, face in enumerate(FACES):
        (root / "images" / f"{k:02}.png").write_bytes(png(face))
    (root / "labels.csv").write_text(table(columns))
    return root


def held(images: Attributed, name: str) -> list[str]:
    """What each image's attribute is called."""
    return [images.classes[name][k] for k in images.attributes[name].tolist()]


def pixels(rows: Sequence[int]) -> torch.Tensor:
    return torch.from_numpy(FACES[list(rows)].transpose(0, 3, 1, 2).copy())


# Tables


def test_a_table_with_utkfaces_numbers(tmp_path: Path) -> None:
    root = write(tmp_path / "faces", FACE_COLUMNS)
    assert attributes_of(root) == ("age", "gender", "race")
    images = load_attributed(root, ["race", "age", "gender"])
    assert images.pixels.equal(pixels(range(COUNT)))
    assert list(images.attributes) == ["race", "age", "gender"]
    assert {name: tuple(images.classes[name]) for name in images.classes} == {
        "race": RACES,
        "age": AGES,
        "gender": GENDERS,
    }
    assert images.attributes["race"].tolist() == RACE
    assert images.attributes["gender"].tolist() == SEX
    assert all(values.dtype == torch.int64 for values in images.attributes.values())
    low, high = zip(*(name.replace("70+", "70-150").split("-") for name in held(images, "age")), strict=True)
    assert all(int(a) <= years <= int(b) for a, years, b in zip(low, YEARS, high, strict=True))


def test_a_zip_is_read_like_the_folder(tmp_path: Path) -> None:
    root = write(tmp_path / "faces", FACE_COLUMNS)
    with zipfile.ZipFile(tmp_path / "faces.zip", "w") as archive:
        for file in sorted(root.rglob("*.*")):
            archive.write(file, file.relative_to(tmp_path))
    one, other = load_attributed(root, ["race", "age"]), load_attributed(tmp_path / "faces.zip", ["race", "age"])
    assert one.pixels.equal(other.pixels)
    assert all(one.attributes[name].equal(other.attributes[name]) for name in ("race", "age"))


def test_numbers_alone_have_no_names(tmp_path: Path) -> None:
    """Without a column of ages in years, or with another number, 0 and 1 need not be UTKFace's."""
    for k, columns in enumerate(
        ({"gender": SEX, "race": RACE}, {**FACE_COLUMNS, "age": RACE}, {**FACE_COLUMNS, "race": [5, *RACE[1:]]})
    ):
        images = load_attributed(write(tmp_path / str(k), columns), ["gender", "race"])
        assert images.classes["gender"] == ("0", "1")
        assert images.attributes["race"].tolist() == columns["race"]


def test_attributes_that_are_joined_are_one(tmp_path: Path) -> None:
    images = load_attributed(write(tmp_path / "faces", FACE_COLUMNS), ["race+gender", "age"])
    assert list(images.attributes) == ["race+gender", "age"]
    assert images.classes["race+gender"] == tuple(f"{race}, {gender}" for race in RACES for gender in GENDERS)
    assert held(images, "race+gender") == [f"{RACES[k % 5]}, {GENDERS[k % 2]}" for k in range(COUNT)]


def test_an_attribute_whose_name_has_a_plus_is_itself(tmp_path: Path) -> None:
    images = load_attributed(write(tmp_path / "faces", {"a+b": SEX, "a": RACE, "b": RACE}), ["a+b"])
    assert images.classes["a+b"] == ("0", "1")


@pytest.mark.parametrize(
    ("name", "message"),
    [("race+mood", "attributes among .*; got 'mood'"), ("a+b+c", "at most 100 combinations, got 125 of 'a")],
)
def test_attributes_that_cannot_be_joined(tmp_path: Path, name: str, message: str) -> None:
    columns = {**FACE_COLUMNS, "a": RACE, "b": RACE, "c": RACE}
    with pytest.raises(UsageError, match=message):
        load_attributed(write(tmp_path / "faces", columns), [name])


def test_one_of_the_three_is_named_too(tmp_path: Path) -> None:
    assert load_attributed(write(tmp_path / "faces", FACE_COLUMNS), ["gender"]).classes["gender"] == GENDERS


def test_names_in_any_case(tmp_path: Path) -> None:
    columns = {"Age": YEARS, "GENDER": SEX, "Race": RACE}
    images = load_attributed(write(tmp_path / "faces", columns), ["Age", "GENDER", "Race"])
    assert (images.classes["Age"], images.classes["GENDER"], images.classes["Race"]) == (AGES, GENDERS, RACES)


def test_words_of_fairface(tmp_path: Path) -> None:
    """Seven races as five, and every class in the order that it has in the other data sets."""
    races = ["Middle Eastern", "East Asian", "Southeast Asian", "Latino_Hispanic", "Indian", "Black"] * 5
    columns = {"race": races, "gender": ["Female"] * COUNT, "age": ["more than 70", "3-9"] * 15}
    images = load_attributed(write(tmp_path / "faces", columns), ["race", "gender", "age"])
    assert images.attributes["race"].tolist() == [4, 2, 2, 4, 3, 1] * 5
    assert images.attributes["gender"].tolist() == [1] * COUNT
    assert images.attributes["age"].tolist() == [8, 1] * 15
    assert (images.classes["race"], images.classes["gender"], images.classes["age"]) == (RACES, GENDERS, AGES)


def test_other_words_and_few_ages_stay_as_they_are(tmp_path: Path) -> None:
    columns = {"race": ["Elf", "Orc", "White"] * 10, "age": [3, 20, 100] * 10, "years": YEARS}
    images = load_attributed(write(tmp_path / "faces", columns), ["race", "age", "years"])
    assert images.classes["race"] == ("Elf", "Orc", "White")
    assert images.classes["age"] == ("3", "20", "100")
    assert images.classes["years"] == tuple(map(str, sorted(YEARS)))


def test_the_label_of_a_table_is_not_changed(tmp_path: Path) -> None:
    """What one label is called, in releases that are there, does not depend on what attributes are called."""
    assert len(load(write(tmp_path / "faces", FACE_COLUMNS), Reading(label="age")).classes) == COUNT


def test_an_age_that_is_none(tmp_path: Path) -> None:
    root = write(tmp_path / "faces", {"age": [999, *YEARS[1:]]})
    with pytest.raises(DataError, match="Expected ages of 0 to 150 years, got 999"):
        load_attributed(root, ["age"])


def test_an_attribute_with_one_value(tmp_path: Path) -> None:
    images = load_attributed(write(tmp_path / "faces", {"hair": ["red"] * COUNT}), ["hair"])
    assert images.classes["hair"] == ("red",)


# Records without an attribute, and images that cannot be read

GAPS = {"hair": ["", *"ab" * 14, "a"], "eyes": ["c", "", *"cd" * 14]}


def test_a_record_without_an_attribute_stops_the_reading(tmp_path: Path) -> None:
    root = write(tmp_path / "faces", GAPS)
    with pytest.raises(DataError, match=r"got 1 bad: images/00.png \(no label"):
        load_attributed(root, ["hair", "eyes"])
    with pytest.raises(DataError, match=r"got 1 bad: images/01.png \(no label"):
        load_attributed(root, ["eyes", "hair"])
    (root / "labels.csv").write_text(table({**GAPS, "hair": ["a", *"ab" * 14, "a"]}))
    with pytest.raises(DataError, match=r"got 1 bad: images/01.png \(no eyes\)"):
        load_attributed(root, ["hair", "eyes"])


def test_bad_records_are_left_out_and_the_rest_keeps_its_order(tmp_path: Path) -> None:
    root = write(tmp_path / "faces", GAPS)
    (root / "images" / "05.png").write_bytes(b"x")  # its header
    (root / "images" / "07.png").write_bytes(png(FACES[7])[:-40])  # its pixels
    (root / "images" / "09.png").unlink()
    (root / "images" / "loose.png").write_bytes(png(FACES[0]))  # without a row
    images = load_attributed(root, ["hair", "eyes"], Reading(skip_bad=True))
    left = [k for k in range(COUNT) if k not in (0, 1, 5, 7, 9)]
    assert images.pixels.equal(pixels(left))
    assert held(images, "hair") == [GAPS["hair"][k] for k in left]
    assert held(images, "eyes") == [GAPS["eyes"][k] for k in left]


def test_no_record_has_them_all(tmp_path: Path) -> None:
    columns = {"hair": ["a", ""] * 15, "eyes": ["", "b"] * 15}
    with pytest.raises(DataError, match="at least one image with all of these attributes"):
        load_attributed(write(tmp_path / "faces", columns), ["hair", "eyes"], Reading(skip_bad=True))


def test_many_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "rows_per_chunk", lambda _: 7)
    images = load_attributed(write(tmp_path / "faces", GAPS), ["hair", "eyes"], Reading(skip_bad=True))
    assert images.pixels.equal(pixels(range(2, COUNT)))
    assert held(images, "eyes") == GAPS["eyes"][2:]


def test_pixels_are_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    decode = records.pixels
    monkeypatch.setattr(records, "pixels", lambda *given, **named: decoded.append(1) or decode(*given, **named))
    load_attributed(write(tmp_path / "faces", FACE_COLUMNS), ["race", "age", "gender"])
    assert len(decoded) == COUNT


def test_size_and_mode(tmp_path: Path) -> None:
    root = write(tmp_path / "faces", FACE_COLUMNS)
    images = load_attributed(root, ["race"], Reading(size=4, mode="grey"))
    assert images.pixels.equal(load(root, Reading(label="race", size=4, mode="grey")).pixels)


# Identifiers


def test_an_identifier_is_no_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfumato.data._attributes.MOST_VALUES", COUNT - 1)
    root = write(tmp_path / "faces", {**FACE_COLUMNS, "id": [f"p{k}" for k in range(COUNT)]})
    with pytest.raises(UsageError, match="at most 29 values, got 'id' with 30: it looks like an identifier"):
        load_attributed(root, ["race", "id"])
    images = load_attributed(root, ["race"], person="id")
    assert list(images.attributes) == ["race", "id"]
    assert images.attributes["id"].tolist() == list(range(COUNT))


def test_the_largest_label(tmp_path: Path) -> None:
    (tmp_path / "faces" / "images").mkdir(parents=True)
    for k in range(101):
        (tmp_path / "faces" / "images" / f"{k}.png").write_bytes(png(FACES[0]))
    rows = [f"images/{k}.png,{k % 100},{k}\n" for k in range(101)]
    (tmp_path / "faces" / "labels.csv").write_text("file,hundred,more\n" + "".join(rows))
    assert len(load_attributed(tmp_path / "faces", ["hundred"]).classes["hundred"]) == 100
    with pytest.raises(UsageError, match="at most 100 values, got 'more' with 101"):
        load_attributed(tmp_path / "faces", ["more"])


def test_people_are_numbered_as_they_appear(tmp_path: Path) -> None:
    names = ["zoe", "adam", "zoe", "mia", "", *["adam"] * 25]
    root = write(tmp_path / "faces", {"hair": ["", *"ab" * 14, "a"], "who": names})
    images = load_attributed(root, ["hair"], Reading(skip_bad=True), person="who")
    left = [1, 2, 3, *range(5, COUNT)]
    assert held(images, "who") == [names[k] for k in left]
    assert images.classes["who"] == ("adam", "zoe", "mia")
    assert images.pixels.equal(pixels(left))


# Other readers


def test_utkface_and_fairface_are_read_alike(tmp_path: Path) -> None:
    (tmp_path / "utk").mkdir()
    (tmp_path / "fair" / "train").mkdir(parents=True)
    (tmp_path / "fair" / "val").mkdir()
    seven = ("White", "Black", "East Asian", "Indian", "Middle Eastern")
    ages = dict(zip((0, 3, 10, 20, 30, 40, 50, 60, 70), (*AGES[:-1], "more than 70"), strict=True))
    rows = []
    for k, (years, age) in enumerate(sorted(ages.items())):
        name = f"{years:02}_{k % 2}_{k % 5}_201701161745251{k:02}.jpg"
        (tmp_path / "utk" / name).write_bytes(png(FACES[k]))
        (tmp_path / "fair" / "train" / f"{k}.jpg").write_bytes(png(FACES[k]))
        (tmp_path / "fair" / "val" / f"{k}.jpg").write_bytes(png(FACES[k]))
        rows.append(f"{k}.jpg,{age},{GENDERS[k % 2]},{seven[k % 5]},True\n")
    for folder in ("train", "val"):
        head = "file,age,gender,race,service_test\n"
        named = "".join(f"{folder}/{row}" for row in rows)
        (tmp_path / "fair" / f"fairface_label_{folder}.csv").write_text(head + named)
    names = ["age", "gender", "race"]
    assert attributes_of(tmp_path / "utk") == tuple(names)
    assert attributes_of(tmp_path / "fair") == ("race", "race7", "gender", "age")
    one = load_attributed(tmp_path / "utk", names)
    for split in ("train", "test"):
        other = load_attributed(tmp_path / "fair", [*names, "race7"], Reading(split=split))  # type: ignore[arg-type]
        assert one.pixels.equal(other.pixels)
        assert all(one.attributes[name].equal(other.attributes[name]) for name in names)
        assert all(one.classes[name] == other.classes[name] for name in names)
        assert held(other, "race7") == [seven[k % 5] for k in range(9)]


def test_celeba(tmp_path: Path) -> None:
    (tmp_path / "img_align_celeba").mkdir()
    for k in range(6):
        (tmp_path / "img_align_celeba" / f"{k}.jpg").write_bytes(png(FACES[k]))
    rows = [f"{k}.jpg {1 if k % 2 else -1} {1 if k % 3 else -1}" for k in range(6)]
    (tmp_path / "list_attr_celeba.txt").write_text("\n".join(["6", "Male Smiling", *rows]))
    (tmp_path / "list_eval_partition.txt").write_text("\n".join(f"{k}.jpg {k // 2}" for k in range(6)))
    assert attributes_of(tmp_path) == ("Male", "Smiling")
    images = load_attributed(tmp_path, ["Smiling", "Male"], Reading(split="test"))
    assert images.pixels.equal(pixels([4, 5]))
    assert held(images, "Smiling") == ["Smiling", "Smiling"]
    assert held(images, "Male") == ["not Male", "Male"]


def test_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"image": [png(face) for face in FACES[:6]], "tone": [2, 0, None, 1, 2, 0], "hair": list("abbaab")}
    facts = {"info": {"features": {"tone": {"names": ["dark", "mid", "light", "none"], "_type": "ClassLabel"}}}}
    held_out = {"image": [png(FACES[6])], "tone": [3], "hair": ["c"]}
    for split, held_there in (("train", columns), ("test", held_out)):
        rows = pa.table({**held_there, "score": [0.5] * len(held_there["hair"])})
        rows = rows.replace_schema_metadata({"huggingface": json.dumps(facts)})
        pq.write_table(rows, tmp_path / f"{split}.parquet")
    assert attributes_of(tmp_path) == ("tone", "hair")
    images = load_attributed(tmp_path, ["hair", "tone"], Reading(skip_bad=True))
    assert images.pixels.equal(pixels([0, 1, 3, 4, 5]))
    assert held(images, "tone") == ["light", "dark", "mid", "light", "dark"]
    assert images.classes == {"hair": ("a", "b", "c"), "tone": ("dark", "mid", "light", "none")}
    with pytest.raises(DataError, match=r"got 1 bad: record 2 \(no tone\)"):
        load_attributed(tmp_path, ["hair", "tone"])
    test = load_attributed(tmp_path, ["hair", "tone"], Reading(split="test"))
    assert (held(test, "hair"), held(test, "tone")) == (["c"], ["none"])


# Refused


def test_data_without_attributes() -> None:
    assert attributes_of("digits") == ()
    with pytest.raises(UsageError, match="Expected a data set with several attributes"):
        load_attributed("digits", ["race"])


@pytest.mark.parametrize(("names", "got"), [(["race", "hair"], "'hair'"), ([], "none"), (["file"], "'file'")])
def test_attributes_that_are_not_there(tmp_path: Path, names: list[str], got: str) -> None:
    root = write(tmp_path / "faces", FACE_COLUMNS)
    with pytest.raises(UsageError, match=f"Expected attributes among age, gender, race; got {got}"):
        load_attributed(root, names)


def test_a_person_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="among age, gender, race; got 'who'"):
        load_attributed(write(tmp_path / "faces", FACE_COLUMNS), ["race"], person="who")


def test_a_split_that_is_not_there(tmp_path: Path) -> None:
    root = write(tmp_path / "faces", FACE_COLUMNS)
    for reads in (attributes_of, lambda where, reading: load_attributed(where, ["race"], reading)):
        with pytest.raises(DataError, match="Expected a test split, got only train"):
            reads(root, Reading(split="test"))


# The development data


def test_shared_faces() -> None:
    folders = [Path(os.environ["SFUMATO_DEV_DATA"])] if "SFUMATO_DEV_DATA" in os.environ else []
    folders += [parent / "shared" / "data" for parent in Path(__file__).resolve().parents]
    faces = next((folder / "faces_utk128.zip" for folder in folders if (folder / "faces_utk128.zip").is_file()), None)
    if faces is None:
        pytest.skip("the development data faces_utk128.zip are not on this machine (SFUMATO_DEV_DATA)")
    images = load_attributed(faces, ["race", "age", "gender"], Reading(size=8))
    assert images.pixels.shape == (9673, 3, 8, 8)
    assert images.classes == {"race": RACES, "age": AGES, "gender": GENDERS}
    assert images.attributes["race"].bincount().tolist() == [5191, 402, 1548, 1447, 1085]
    assert images.attributes["gender"].bincount().tolist() == [4336, 5337]
    assert images.attributes["age"].bincount().tolist() == [1581, 1338, 1201, 1505, 1027, 674, 930, 641, 776]

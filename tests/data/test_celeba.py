"""CelebA: its published layout is read by name, attribute and official part, and every broken list is refused."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sfumato.contracts import Reading, find
from sfumato.data import has_split, load, open_source
from sfumato.errors import DataError, SfumatoError, UsageError
from sfumato.judging.reference import reference_for
from sfumato.values import Release

COUNT = 12
ATTRIBUTES = ("Bald", "Male", "Smiling")
BALD = [k % 4 == 0 for k in range(COUNT)]
MALE = [k % 3 == 0 for k in range(COUNT)]
SMILING = [k % 2 == 0 for k in range(COUNT)]
PARTS = [0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 2, 2]
FACES = np.random.default_rng(0).integers(0, 256, (COUNT, 22, 18, 3), dtype=np.uint8)
TRAIN, TEST = range(6), range(8, 12)
NAMES = [f"{k + 1:06d}.jpg" for k in range(COUNT)]

attributes, partition, images = "list_attr_celeba.txt", "list_eval_partition.txt", "img_align_celeba"


def encoded(face: np.ndarray) -> bytes:
    """A PNG under the name of a JPEG, so that pixels come back as they are: formats are told by their first bytes."""
    stream = io.BytesIO()
    Image.fromarray(face).save(stream, "PNG")
    return stream.getvalue()


def attribute_lines() -> list[str]:
    rows = zip(NAMES, BALD, MALE, SMILING, strict=True)
    written = [" ".join([name, *(f"{1 if v else -1:>2}" for v in values)]) for name, *values in rows]
    return [str(COUNT), " ".join(ATTRIBUTES) + " ", *written]


def partition_lines() -> list[str]:
    return [f"{name} {part}" for name, part in zip(NAMES, PARTS, strict=True)]


def write(root: Path, *, anno: str = "", evaluation: str = "", img: str = "", newline: str = "\n") -> Path:
    for folder in (anno, evaluation, f"{img}{images}"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / anno / attributes).write_bytes(newline.join([*attribute_lines(), ""]).encode())
    (root / evaluation / partition).write_bytes(newline.join([*partition_lines(), ""]).encode())
    for name, face in zip(NAMES, FACES, strict=True):
        (root / img / images / name).write_bytes(encoded(face))
    return root


def change(root: Path, file: str, line: int, text: str | None) -> Path:
    """The same folder with another line (the first is 1), or without it."""
    lines = (root / file).read_text().splitlines()
    lines[line - 1 : line] = [] if text is None else [text]
    (root / file).write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture
def celeba(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small stand-in in the cache folder, where the name `celeba` finds it."""
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path))
    return write(tmp_path / "celeba")


def expected(rows: range) -> np.ndarray:
    return FACES[rows.start : rows.stop].transpose(0, 3, 1, 2)


def picked(values: list[bool], rows: range) -> list[int]:
    return [int(values[k]) for k in rows]


# What is read


def test_the_official_parts(celeba: Path) -> None:
    train, test = load("celeba"), load("celeba", Reading(split="test"))
    assert train.classes == test.classes == ("not Smiling", "Smiling")
    assert np.array_equal(train.pixels.numpy(), expected(TRAIN))
    assert np.array_equal(test.pixels.numpy(), expected(TEST))
    assert train.labels.tolist() == picked(SMILING, TRAIN)
    assert test.labels.tolist() == picked(SMILING, TEST)
    assert has_split("celeba", "test")
    assert open_source("celeba").name == "celeba"


def test_another_target_and_listed_classes(celeba: Path) -> None:
    images = load("celeba", Reading(label="Bald"))
    assert images.classes == ("not Bald", "Bald")
    assert images.labels.tolist() == picked(BALD, TRAIN)
    turned = load("celeba", Reading(label="Bald", classes=("Bald", "not Bald")))
    assert turned.labels.tolist() == [1 - k for k in picked(BALD, TRAIN)]
    assert len(load("celeba", Reading(label="Bald", classes=("Bald",)))) == sum(picked(BALD, TRAIN))


def test_size_and_mode(celeba: Path) -> None:
    assert load("celeba", Reading(size=8)).pixels.shape == (6, 3, 8, 8)
    assert load("celeba", Reading(size=8, mode="grey")).pixels.shape == (6, 1, 8, 8)


def test_judges_get_the_protected_attribute(celeba: Path) -> None:
    images = load("celeba")
    public = {"channels": 3, "height": 22, "width": 18, "classes": list(images.classes)}
    reference = reference_for(Release(celeba, {"public": public}, images), "celeba", Reading(), group="Male")
    assert reference.groups is not None
    assert reference.groups.names == ("not Male", "Male")
    assert reference.groups.train.tolist() == picked(MALE, TRAIN)
    assert reference.groups.test is not None
    assert reference.groups.test.tolist() == picked(MALE, TEST)


def test_public_facts_come_from_headers(celeba: Path) -> None:
    """The size is known although no image can be decoded."""
    for file in (celeba / images).iterdir():
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
    assert open_source("celeba").spec.shape == (3, 22, 18)


# Layouts


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"anno": "Anno/", "evaluation": "Eval/", "img": "Img/"},
        {"anno": "Anno/"},
        {"img": "Img/"},
        {"newline": "\r\n"},
        {"newline": "\n\n"},
    ],
)
def test_layouts(tmp_path: Path, layout: dict[str, str]) -> None:
    root = write(tmp_path / "faces", **layout)
    reader = find("data", "celeba")
    assert reader.recognises(str(root))
    source = reader(str(root), Reading(split="test"))
    ((pixels, labels),) = source.chunks()
    assert np.array_equal(pixels, expected(TEST))
    assert labels.tolist() == picked(SMILING, TEST)


def test_lists_in_another_order_and_images_in_no_list(celeba: Path) -> None:
    lines = attribute_lines()
    (celeba / attributes).write_text("\n".join([*lines[:2], *reversed(lines[2:])]), encoding="utf-8-sig")
    (celeba / partition).write_text("\n".join(line.replace(" ", "\t") for line in partition_lines()))
    (celeba / images / "999999.jpg").write_bytes(b"of no part")
    assert load("celeba").labels.tolist() == picked(SMILING, TRAIN)


def test_recognised_by_names_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reader = find("data", "celeba")
    assert reader.recognises("celeba")
    for where in ("elsewhere", "", "a\0b", "x" * 5000, str(tmp_path)):
        assert not reader.recognises(where)
    for k, name in enumerate((attributes, partition)):
        root = tmp_path / str(k)
        root.mkdir()
        (root / name).write_bytes(b"\xff not a list")
        assert reader.recognises(str(root))


def test_a_folder_of_that_name_comes_before_the_cache(
    tmp_path: Path, celeba: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    write(tmp_path / "here" / "celeba")
    monkeypatch.chdir(tmp_path / "here")
    (celeba / attributes).unlink()
    assert find("data", "celeba")("celeba", Reading()).spec.count == 6


# Bad inputs

UNKNOWN = Reading(label="Happy")


def without(name: str) -> Callable[[Path], object]:
    return lambda root: (root / name).rename(root / "elsewhere")


def changed(file: str, line: int, text: str | None) -> Callable[[Path], object]:
    return lambda root: change(root, file, line, text)


def written(file: str, content: bytes) -> Callable[[Path], object]:
    return lambda root: (root / file).write_bytes(content)


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "no attributes": (without(attributes), "Expected list_attr_celeba.txt in the folder"),
    "no partition": (without(partition), "Expected list_eval_partition.txt in the folder"),
    "no images": (without(images), "Expected img_align_celeba in the folder"),
    "empty list": (written(attributes, b""), "Expected the number of images in the first line"),
    "no count": (changed(attributes, 1, None), "Expected the number of images in the first line"),
    "a count of digits without end": (changed(attributes, 1, "9" * 5000), "Expected the number of images in the first"),
    "another count": (changed(attributes, 1, "13"), "Expected 13 images, as the first line says, got 12"),
    "bytes": (written(attributes, b"\xff\xfe\0"), "Expected a list in plain text"),
    "bytes in the partition": (written(partition, b"\xff\xfe\0"), "Expected a list in plain text"),
    "an attribute twice": (changed(attributes, 2, "Bald Smiling Smiling"), "one attribute 'Smiling', got 2"),
    "a short line": (changed(attributes, 4, "000002.jpg 1 1"), "Expected 4 cells in line 4, got 3"),
    "a long line": (changed(attributes, 4, "000002.jpg 1 1 1 1"), "Expected 4 cells in line 4, got 5"),
    "another value": (changed(attributes, 4, "000002.jpg 1 1 0"), "1 or -1 for Smiling in line 4, got '0'"),
    "an image twice": (changed(attributes, 4, "000001.jpg 1 1 1"), "each image once in line 4, got 000001.jpg again"),
    "a path that leaves": (changed(attributes, 4, "../2.jpg 1 1 1"), "name of an image file in line 4, got '../2.jpg'"),
    "escapes": (changed(attributes, 4, "\x1b[31m/ 1 1 1"), r"got '\x1b[31m/'"),
    "no part": (changed(partition, 2, "000002.jpg"), "Expected 2 cells in line 2, got 1"),
    "another part": (changed(partition, 2, "000002.jpg 3"), "part 0, 1 or 2 in line 2, got '3'"),
    "a part of a path": (changed(partition, 2, "a/2.jpg 0"), "name of an image file in line 2, got 'a/2.jpg'"),
    "not in the partition": (
        changed(partition, 2, None),
        "got 1 in list_attr_celeba.txt that are not in list_eval_partition.txt, such as 000002.jpg",
    ),
    "not in the attributes": (
        lambda root: change(change(root, attributes, 4, None), attributes, 1, "11"),
        "got 1 in list_eval_partition.txt that are not in list_attr_celeba.txt, such as 000002.jpg",
    ),
    "a missing image": (
        lambda root: (root / images / "000003.jpg").unlink(),
        "got 1 bad: img_align_celeba/000003.jpg (the file is missing)",
    ),
    "an image of text": (written(f"{images}/000003.jpg", b"hello"), "000003.jpg (no PNG, JPEG"),
    "half an image": (written(f"{images}/000003.jpg", encoded(FACES[2])[:600]), "000003.jpg (damaged"),
}


def refused(where: str, needle: str, kind: type[SfumatoError], reading: Reading = Reading()) -> None:  # noqa: B008
    with pytest.raises(kind) as caught:
        load(where, reading)
    assert needle in str(caught.value)
    assert caught.value.where is not None
    assert caught.value.fix
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize("name", BAD)
def test_bad_inputs(celeba: Path, name: str) -> None:
    spoil, needle = BAD[name]
    spoil(celeba)
    refused("celeba", needle, DataError)


def test_an_unknown_attribute(celeba: Path) -> None:
    refused("celeba", "one of Bald, Male, Smiling; got 'Happy'", UsageError, UNKNOWN)


def test_a_part_without_images(celeba: Path) -> None:
    (celeba / partition).write_text((celeba / partition).read_text().replace(" 2\n", " 1\n"))
    refused("celeba", "Expected images of part 2 (test), got none", DataError, Reading(split="test"))


def test_a_name_without_a_folder_says_where_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "nothing"))
    monkeypatch.chdir(tmp_path)
    refused("celeba", "https://", DataError)


def test_a_missing_image_stays_as_an_absent_record(celeba: Path) -> None:
    (celeba / images / "000003.jpg").unlink()
    source = open_source("celeba", Reading(skip_bad=True))
    assert source.spec.count == 6
    ((_, labels),) = source.chunks()
    assert labels.tolist() == [1, 0, -1, 0, 1, 0]


def test_a_bad_image_of_another_part_does_not_matter(celeba: Path) -> None:
    (celeba / images / NAMES[6]).unlink()
    (celeba / images / NAMES[9]).write_bytes(b"hello")
    assert len(load("celeba")) == 6


def test_links_that_lead_out_are_not_followed(tmp_path: Path, celeba: Path) -> None:
    (tmp_path / "secret").write_bytes(encoded(FACES[2]))
    (celeba / images / "000003.jpg").unlink()
    (celeba / images / "000003.jpg").symlink_to(tmp_path / "secret")
    refused("celeba", "a link that leads out of the folder", DataError)


def test_a_folder_has_one_meaning(tmp_path: Path) -> None:
    for k, layout in enumerate(({}, {"anno": "Anno/", "evaluation": "Eval/", "img": "Img/"})):
        assert open_source(write(tmp_path / str(k), **layout)).spec.count == 6

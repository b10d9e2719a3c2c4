"""CIFAR-10S and CIFAR-100S: exact counts, the same choice every time, pairs to test on, and groups for the judges."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sfumato.contracts import Reading, find, names
from sfumato.data import has_split, load, open_source
from sfumato.data._skewed import grey_views, in_grey
from sfumato.errors import DataError, SfumatoError, UsageError
from sfumato.judging.reference import reference_for
from sfumato.values import Release

CLASSES = 10
PER_CLASS, TEST = 40, 30
MOSTLY_COLOUR = {"automobile", "cat", "dog", "horse", "truck"}


def photographs(count: int, seed: int) -> np.ndarray:
    """Images in which every pixel has a colour to lose."""
    pixels = np.random.default_rng(seed).integers(0, 200, (count, 32, 32, 3), dtype=np.uint8)
    pixels[..., 0] += 50
    pixels[..., 1] = pixels[..., 0] - 50
    return pixels


def write(path: Path, *, classes: int = CLASSES, per_class: int = PER_CLASS, **other: np.ndarray) -> Path:
    labels = np.random.default_rng(1).permutation(np.arange(classes * per_class) % classes).astype(np.uint8)
    arrays = {
        "x_train": photographs(len(labels), 2),
        "y_train": labels,
        "x_test": photographs(TEST, 3),
        "y_test": (np.arange(TEST) % classes).astype(np.uint8),
    }
    np.savez(path, **(arrays | other))
    return path


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("cifar") / "cifar.npz")


def grey_of(pixels: np.ndarray) -> np.ndarray:
    return np.asarray((pixels == pixels[:, :1]).all(axis=(1, 2, 3)))


def luma(image: np.ndarray) -> np.ndarray:
    """What Pillow makes of one image (h, w, 3), in three channels."""
    return np.asarray(Image.fromarray(image).convert("L"))[None].repeat(3, 0)


# Training images


@pytest.mark.parametrize(("name", "usual"), [("cifar10s", 38), ("cifar10s-95", 38), ("cifar10s-75", 30)])
def test_exact_counts(archive: Path, name: str, usual: int) -> None:
    images = load(f"{name}:{archive}")
    grey, labels = grey_of(images.pixels.numpy()), images.labels.numpy()
    counts = {c: int(grey[labels == k].sum()) for k, c in enumerate(images.classes)}
    assert counts == {c: PER_CLASS - usual if c in MOSTLY_COLOUR else usual for c in images.classes}
    assert len(images) == CLASSES * PER_CLASS


def test_images_keep_their_order_and_are_grey_as_pillow_does_it(archive: Path) -> None:
    given = np.load(archive)
    images = load(f"cifar10s:{archive}")
    assert np.array_equal(images.labels.numpy(), given["y_train"])
    for image, before in zip(images.pixels.numpy(), given["x_train"], strict=True):
        assert np.array_equal(image, before.transpose(2, 0, 1)) or np.array_equal(image, luma(before))


@pytest.mark.parametrize("percent", [95, 75])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 10, 30, 5000])
def test_counts_of_any_size_of_class(percent: int, count: int) -> None:
    numbers = np.arange(2 * count) % 2
    grey = grey_views(numbers, split="train", classes=2, percent=percent)[:, 0]
    usual = round(percent / 100 * count)
    assert (int(grey[numbers == 0].sum()), int((~grey[numbers == 1]).sum())) == (usual, usual)


def test_the_choice_is_seeded_and_follows_from_positions(tmp_path: Path, archive: Path) -> None:
    first, again = load(f"cifar10s:{archive}"), load(f"cifar10s:{archive}")
    assert first.pixels.equal(again.pixels)
    other = write(tmp_path / "other.npz", x_train=photographs(CLASSES * PER_CLASS, 9))
    chosen = grey_of(load(f"cifar10s:{other}").pixels.numpy())
    assert np.array_equal(chosen, grey_of(first.pixels.numpy()))  # other pixels, the same choice


def test_the_choice_stays_as_it_is_published() -> None:
    """A change here would change the data set under its name."""
    grey = grey_views(np.arange(40) % 2, split="train", classes=2, percent=75)[:, 0]
    order = np.random.default_rng(42).permutation(40).tolist()
    evens, odds = [k for k in order if k % 2 == 0], [k for k in order if k % 2 == 1]
    assert set(np.flatnonzero(grey)) == {*evens[:15], *odds[15:]}
    assert sorted(odds[15:]) == [1, 13, 15, 17, 33]  # so that a numpy with other permutations is noticed


def test_a_choice_does_not_depend_on_other_classes() -> None:
    numbers = np.arange(60) % 3
    changed = np.where(numbers == 1, 0, numbers)
    one, two = (grey_views(n, split="train", classes=3, percent=75)[:, 0] for n in (numbers, changed))
    assert np.array_equal(one[numbers == 2], two[numbers == 2])


# Test images


@pytest.mark.parametrize("name", ["cifar10s", "cifar10s-75"])
def test_every_test_image_comes_in_colour_and_in_grey(archive: Path, name: str) -> None:
    given = np.load(archive)
    where = f"{name}:{archive}"
    source = open_source(where, Reading(split="test"))
    assert source.spec.count == 2 * TEST
    images = load(where, Reading(split="test"))
    assert np.array_equal(images.pixels[::2].numpy(), given["x_test"].transpose(0, 3, 1, 2))
    assert np.array_equal(images.pixels[1::2].numpy(), np.stack([luma(image) for image in given["x_test"]]))
    assert np.array_equal(images.labels.numpy(), given["y_test"].repeat(2))
    groups = load(where, Reading(split="test", label="colour"))
    assert groups.classes == ("colour", "grey")
    assert groups.labels.tolist() == [0, 1] * TEST


def test_pairs_stay_together_over_many_chunks(tmp_path: Path) -> None:
    many = photographs(800, 5)
    where = f"cifar10s:{write(tmp_path / 'many.npz', x_test=many, y_test=np.arange(800) % 10)}"
    source = open_source(where, Reading(split="test"))
    assert len(list(source.chunks())) > 1
    images = load(where, Reading(split="test"))
    assert np.array_equal(images.pixels[1::2].numpy(), in_grey(many.transpose(0, 3, 1, 2)))
    assert np.array_equal(images.labels.numpy(), np.arange(1600) // 2 % 10)


# Groups, classes and sizes


def test_judges_get_the_groups(archive: Path, tmp_path: Path) -> None:
    where = f"cifar10s:{archive}"
    images = load(where)
    public = {"channels": 3, "height": 32, "width": 32, "classes": list(images.classes)}
    release = Release(tmp_path, {"public": public}, images)
    reference = reference_for(release, where, Reading(), group="colour")
    assert reference.groups is not None
    assert reference.groups.names == ("colour", "grey")
    assert np.array_equal(reference.groups.train.numpy() == 1, grey_of(images.pixels.numpy()))
    assert reference.groups.test is not None
    assert reference.groups.test.tolist() == [0, 1] * TEST
    assert reference.test is not None
    assert len(reference.test) == 2 * TEST


def test_a_list_of_classes_does_not_change_the_choice(archive: Path) -> None:
    where = f"cifar10s:{archive}"
    everything, some = load(where), load(where, Reading(classes=("truck", "cat")))
    rows = np.isin(everything.labels.numpy(), [3, 9])
    assert np.array_equal(some.pixels.numpy(), everything.pixels.numpy()[rows])
    assert np.array_equal(some.labels.numpy(), (everything.labels.numpy()[rows] == 3).astype(int))
    grey = load(where, Reading(label="colour", classes=("grey",)))
    assert grey_of(grey.pixels.numpy()).all()
    assert len(grey) == grey_of(everything.pixels.numpy()).sum()


def test_a_record_of_no_class_is_absent_in_every_label(tmp_path: Path) -> None:
    labels = np.arange(20) % 10
    labels[4] = 10
    path = write(tmp_path / "odd.npz", x_train=photographs(20, 0), y_train=labels)
    for reading in (Reading(), Reading(label="colour")):
        ((pixels, numbers),) = open_source(f"cifar10s:{path}", reading).chunks()
        assert len(pixels) == 20
        assert np.flatnonzero(numbers == -1).tolist() == [4]


def test_resized_images_are_grey_too(archive: Path) -> None:
    where = f"cifar10s:{archive}"
    images, groups = load(where, Reading(size=16)), load(where, Reading(size=16, label="colour"))
    assert images.pixels.shape[1:] == (3, 16, 16)
    assert np.array_equal(grey_of(images.pixels.numpy()), groups.labels.numpy() == 1)


def test_axes_and_floats_as_every_archive_may_have_them(tmp_path: Path, archive: Path) -> None:
    given = np.load(archive)["x_train"]
    expected = load(f"cifar10s:{archive}").pixels
    for k, array in enumerate((np.ascontiguousarray(given.transpose(0, 3, 1, 2)), given / 255)):
        assert load(f"cifar10s:{write(tmp_path / f'{k}.npz', x_train=array)}").pixels.equal(expected)


# By name


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


def test_names_derive_from_what_cifar_is_in_the_cache(cached: Path, archive: Path) -> None:
    (cached / "cifar10.npz").symlink_to(archive)
    for name in ("cifar10s", "cifar10s-75", "cifar10s_75"):
        assert load(name).pixels.equal(load(f"{name}:{archive}").pixels)
        assert open_source(name).name == name.replace("_", "-")
        assert has_split(name, "test")
    assert open_source("cifar10s-95").name == "cifar10s"
    assert not grey_of(load("cifar10").pixels.numpy()).any()


@pytest.mark.parametrize(
    ("name", "inside", "files", "label_bytes"),
    [
        ("cifar10s", "cifar-10-batches-bin", [*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"], 1),
        ("cifar100s", "cifar-100-binary", ["train.bin", "test.bin"], 2),
    ],
)
def test_names_derive_from_the_official_files(
    cached: Path, name: str, inside: str, files: list[str], label_bytes: int
) -> None:
    (cached / inside).mkdir()
    numbers = (np.arange(80) % 2).astype(np.uint8)
    pixels = photographs(80, 4).transpose(0, 3, 1, 2).reshape(80, -1)
    rows = np.hstack([numbers[:, None].repeat(label_bytes, 1), pixels])
    for file in files:
        (cached / inside / file).write_bytes(rows.tobytes())
    count = 80 * (len(files) - 1)
    images = load(name)
    grey, labels = grey_of(images.pixels.numpy()), images.labels.numpy()
    assert len(images) == count
    assert grey[labels == 0].sum() == (~grey[labels == 1]).sum() == round(0.95 * count / 2)
    assert len(load(name, Reading(split="test"))) == 160


def test_nothing_is_downloaded_that_cifar_does_not_download() -> None:
    for skewed, plain in (("cifar10s", "cifar10"), ("cifar100s", "cifar100")):
        assert find("data", skewed).downloads == find("data", plain).downloads
        assert find("data", skewed).class_names == find("data", plain).class_names


def test_cifar100s(tmp_path: Path) -> None:
    path = write(tmp_path / "cifar100.npz", classes=100, per_class=20)
    for name, usual in (("cifar100s", 19), ("cifar100s-75", 15)):
        images = load(f"{name}:{path}")
        grey, labels = grey_of(images.pixels.numpy()), images.labels.numpy()
        counts = np.bincount(labels[grey], minlength=100)
        assert counts[0::2].tolist() == [usual] * 50
        assert counts[1::2].tolist() == [20 - usual] * 50


@pytest.mark.parametrize("where", ["cifar10", "cifar10s-", "cifar10s-5", "cifar10ss", "xcifar10s", "cifar10s75", ""])
def test_other_names_are_not_ours(where: str) -> None:
    assert not any(find("data", name).recognises(where) for name in ("cifar10s", "cifar100s"))


def test_one_reader_knows_each_name(archive: Path) -> None:
    wheres = [f"{name}{end}" for name in ("cifar10s", "cifar100s") for end in ("", "-75", f":{archive}")]
    for where in wheres:
        assert sum(find("data", name).recognises(where) for name in names("data")) == 1


def test_an_archive_without_a_test_split(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", x=photographs(20, 0), y=np.arange(20) % 10)
    where = f"cifar10s:{tmp_path / 'set.npz'}"
    assert not has_split(where, "test")
    assert len(load(where)) == 20
    with pytest.raises(DataError, match="Expected a test split"):
        open_source(where, Reading(split="test"))


# Bad inputs


def grey_archive(folder: Path) -> Path:
    return write(folder / "grey.npz", x_train=photographs(400, 0)[..., 0])


def unequal(folder: Path) -> Path:
    return write(folder / "unequal.npz", y_train=np.arange(5))


def scalar(folder: Path) -> Path:
    return write(folder / "scalar.npz", x_train=np.float64(1))


def text(folder: Path) -> Path:
    (folder / "text.npz").write_text("hello")
    return folder / "text.npz"


@pytest.mark.parametrize(
    ("build", "error", "needle", "reading"),
    [
        (lambda folder: folder / "missing.npz", UsageError, "Expected an npz archive after the colon", Reading()),
        (lambda folder: folder, UsageError, "Expected an npz archive after the colon", Reading()),
        (lambda folder: "a\0b", UsageError, r"got 'a\x00b'", Reading()),
        (text, DataError, "cannot be read as one", Reading()),
        (grey_archive, DataError, "Expected images in colour, got 1 channel", Reading()),
        (unequal, DataError, "each of 400 images, got 5", Reading()),
        (scalar, DataError, "got a single value of float64", Reading()),
        (lambda folder: write(folder / "a.npz"), UsageError, "'colour' or none, got 'sex'", Reading(label="sex")),
        (lambda folder: write(folder / "a.npz"), UsageError, "got --mode grey", Reading(mode="grey")),
        (lambda folder: write(folder / "a.npz"), UsageError, "a size of 1 to", Reading(size=0)),
    ],
)
def test_bad_inputs(
    tmp_path: Path, build: Callable[[Path], object], error: type[SfumatoError], needle: str, reading: Reading
) -> None:
    with pytest.raises(error) as caught:
        load(f"cifar10s:{build(tmp_path)}", reading)
    assert needle in str(caught.value)
    assert caught.value.fix
    assert len(str(caught.value).splitlines()) <= 3


def test_a_bad_image_is_named_where_it_lies(tmp_path: Path) -> None:
    pixels = photographs(TEST, 0) / 255
    pixels[7, 0, 0, 0] = np.nan
    where = f"cifar10s:{write(tmp_path / 'nan.npz', x_test=pixels)}"
    with pytest.raises(DataError, match=r"x_test\[7\]"):
        load(where, Reading(split="test"))
    ((_, labels),) = open_source(where, Reading(split="test", label="colour", skip_bad=True)).chunks()
    assert np.flatnonzero(labels == -1).tolist() == [14, 15]

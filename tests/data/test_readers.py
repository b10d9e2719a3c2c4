"""Each reader gives back what was written, and says its public facts without decoding a pixel."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sfumato.cache import cache_folder
from sfumato.contracts import Reading, find, names
from sfumato.data import has_split, load, open_source
from sfumato.data._download import Download, fetch
from sfumato.errors import DataError, EnvironmentProblem, UsageError

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (10, 8, 8), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (10, 8, 8, 3), dtype=np.uint8)
Y = np.arange(10) % 3


def png(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, "PNG")
    return stream.getvalue()


def dev_data(name: str) -> Path:
    folders = [Path(os.environ["SFUMATO_DEV_DATA"])] if "SFUMATO_DEV_DATA" in os.environ else []
    folders += [parent / "shared" / "data" for parent in Path(__file__).resolve().parents]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    pytest.skip(f"the development data {name} are not on this machine (SFUMATO_DEV_DATA)")


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


def write_folder(root: Path, labels: dict[str, list[np.ndarray]]) -> Path:
    for label, images in labels.items():
        (root / label).mkdir(parents=True)
        for k, image in enumerate(images):
            (root / label / f"{k}.png").write_bytes(png(image))
    return root


# Discovery


def test_every_reader_is_found_by_its_file() -> None:
    found = names("data")
    assert set(found) == {
        "celeba",
        "cifar10",
        "cifar100",
        "cifar100s",
        "cifar10s",
        "digits",
        "fairface",
        "fashion-mnist",
        "folder",
        "idx",
        "mnist",
        "npz",
        "parquet",
        "table",
        "utkface",
    }
    assert all(sentence.endswith(".") for sentence in found.values())
    assert all(hasattr(find("data", name), "recognises") for name in found)


def test_reading_headers_does_not_import_torch(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "set", {"a": list(X[:2])})
    code = f"import sys; from sfumato.data import open_source; list(open_source({str(root)!r}).chunks());"
    subprocess.run([sys.executable, "-c", code + "assert 'torch' not in sys.modules"], check=True)


def test_a_name_that_is_also_a_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "digits", {"a": list(X[:2])})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"digits and folder"):
        open_source("digits")
    assert open_source("./digits").spec.count == 2


# Folders


def test_folder(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "pets", {"cat": list(X[:4]), "ant": list(X[4:])})
    source = open_source(root)
    assert source.name == "pets"
    assert source.spec.classes == ("ant", "cat")
    assert (source.spec.count, source.spec.shape) == (10, (1, 8, 8))
    images = load(root)
    assert np.array_equal(images.pixels[:, 0].numpy(), np.concatenate([X[4:], X[:4]]))
    assert images.labels.tolist() == [0] * 6 + [1] * 4


def test_folder_with_splits(tmp_path: Path) -> None:
    write_folder(tmp_path / "set" / "train", {"b": list(COLOUR[:3]), "c": list(COLOUR[3:4])})
    write_folder(tmp_path / "set" / "test", {"a": list(COLOUR[4:5]), "c": list(COLOUR[5:6])})
    assert has_split(tmp_path / "set", "test")
    test = load(tmp_path / "set", Reading(split="test"))
    assert test.classes == load(tmp_path / "set").classes == ("a", "b", "c")
    assert test.labels.tolist() == [0, 2]
    assert np.array_equal(test.pixels.numpy(), COLOUR[4:6].transpose(0, 3, 1, 2))
    assert not has_split(write_folder(tmp_path / "flat", {"a": list(X[:1])}), "test")


def test_public_facts_come_from_headers(tmp_path: Path) -> None:
    """The size and colour are known although the pixels cannot be decoded."""
    whole = png(X[0])
    (tmp_path / "set" / "a").mkdir(parents=True)
    (tmp_path / "set" / "a" / "0.png").write_bytes(whole[: len(whole) // 2])
    assert open_source(tmp_path / "set").spec.shape == (1, 8, 8)


def test_resizing_and_mode(tmp_path: Path) -> None:
    smooth = np.add.outer(np.arange(40), np.arange(60)).astype(np.uint8)
    root = write_folder(tmp_path / "set", {"a": [smooth, smooth[:20, :20]]})
    images = load(root, Reading(size=10, mode="colour"))
    assert images.pixels.shape == (2, 3, 10, 10)
    square = Image.fromarray(smooth).crop((10, 0, 50, 40)).resize((10, 10), Image.Resampling.LANCZOS)
    assert np.array_equal(images.pixels[0, 1].numpy(), np.asarray(square))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP", "TIFF"])
def test_formats(tmp_path: Path, kind: str) -> None:
    (tmp_path / "set" / "a").mkdir(parents=True)
    path = tmp_path / "set" / "a" / "0.bin"
    Image.fromarray(COLOUR[0]).save(path, kind)
    expected = np.asarray(Image.open(path).convert("RGB")).transpose(2, 0, 1)
    assert np.array_equal(load(tmp_path / "set").pixels[0].numpy(), expected)


def test_many_chunks_keep_the_order(tmp_path: Path) -> None:
    big = [np.full((250, 250), k, np.uint8) for k in range(200)]  # 12 MB: more than one chunk
    source = open_source(write_folder(tmp_path / "set", {"a": big[:150], "b": big[150:]}))
    blocks = list(source.chunks())
    assert len(blocks) > 1
    assert sum(len(labels) for _, labels in blocks) == 200
    by_name = sorted(range(150), key=lambda k: f"{k}.png") + sorted(range(150, 200), key=lambda k: f"{k - 150}.png")
    assert [int(image[0, 0, 0]) for pixels, _ in blocks for image in pixels] == by_name


def test_zip_of_class_folders(tmp_path: Path) -> None:
    for around in ("", "pets/"):
        with zipfile.ZipFile(tmp_path / "pets.zip", "w") as archive:
            archive.writestr(f"{around}dog/0.png", png(X[1]))
            archive.writestr(f"{around}cat/0.png", png(X[0]))
            archive.writestr("__MACOSX/._0.png", b"junk")
        images = load(tmp_path / "pets.zip")
        assert images.classes == ("cat", "dog")
        assert np.array_equal(images.pixels[:, 0].numpy(), X[:2])


# Tables


def write_table(root: Path, text: str) -> Path:
    (root / "images").mkdir(parents=True)
    for k in range(4):
        (root / "images" / f"{k}.png").write_bytes(png(X[k]))
    (root / "attributes.csv").write_text(text, encoding="utf-8-sig")
    return root


@pytest.mark.parametrize(
    "text",
    [
        "age,file\n10,images/2.png\n9,images/0.png\n10,images/1.png\n100,images/3.png\n",
        "Filename;age\n2.png;10\n0.png;9\n1.png;10\n3.png;100\n",
        'whatever\tage\n"./images/2.png"\t10\n\n0.png\t9\nimages/1.png\t10\nimages/3.png\t100\n',
    ],
)
def test_table(tmp_path: Path, text: str) -> None:
    root = write_table(tmp_path / "faces", text)
    images = load(root, Reading(label="age"))
    assert images.classes == ("9", "10", "100")  # whole numbers by value
    assert images.labels.tolist() == [1, 0, 1, 2]
    assert np.array_equal(images.pixels[:, 0].numpy(), X[[2, 0, 1, 3]])
    chosen = load(root, Reading(label="age", classes=("100", "9")))
    assert chosen.labels.tolist() == [1, 0]


def test_zip_with_a_table(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "faces.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for k in range(3):
            archive.writestr(f"faces/img/{k}.png", png(X[k]))
        archive.writestr("faces/attributes.csv", "image,sex\nimg/1.png,f\nimg/0.png,m\nimg/2.png,f\n")
    images = load(tmp_path / "faces.zip", Reading(label="sex"))
    assert images.labels.tolist() == [0, 1, 0]
    assert np.array_equal(images.pixels[:, 0].numpy(), X[[1, 0, 2]])
    assert not has_split(tmp_path / "faces.zip", "test")


# Arrays


@pytest.mark.parametrize("keys", [("x_train", "y_train"), ("x", "y"), ("images", "labels")])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(tmp_path: Path, keys: tuple[str, str], save: object) -> None:
    save(tmp_path / "set.npz", **{keys[0]: X, keys[1]: Y})  # type: ignore[operator]
    images = load(tmp_path / "set.npz")
    assert images.classes == ("0", "1", "2")
    assert np.array_equal(images.pixels[:, 0].numpy(), X)
    assert np.array_equal(images.labels.numpy(), Y)


def test_npz_axes_kinds_and_splits(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    first = COLOUR.transpose(0, 3, 1, 2)
    for array in (
        COLOUR,
        np.ascontiguousarray(first),
        COLOUR / 255,
        (COLOUR / 255).astype(np.float32),
        COLOUR.astype(np.int16),
        COLOUR.astype(">u4"),
    ):
        np.savez(path, x_train=array, y_train=Y, x_test=array[:2], y_test=np.array([[3], [4]]), classes=list("abcde"))
        assert has_split(path, "test")
        images, test = load(path), load(path, Reading(split="test"))
        assert np.array_equal(images.pixels.numpy(), first)
        assert images.classes == test.classes == tuple("abcde")
        assert test.labels.tolist() == [3, 4]


def test_npz_words_and_named_classes(tmp_path: Path) -> None:
    words = np.array(["dog", "cat", "dog", "emu", "cat"] * 2)
    np.savez(tmp_path / "set.npz", x=X, y=words)
    assert load(tmp_path / "set.npz").labels.tolist() == [1, 0, 1, 2, 0] * 2
    chosen = open_source(tmp_path / "set.npz", Reading(classes=("emu", "dog")))
    ((_, labels),) = chosen.chunks()
    assert labels.tolist() == [1, -1, 1, 0, -1] * 2
    np.savez(tmp_path / "set.npz", x=X, y=Y, classes=["a", "b", "c"])
    assert load(tmp_path / "set.npz", Reading(classes=("c", "a"))).labels.tolist() == [1, 0, 1, 0, 1, 0, 1]


def test_npz_resized_and_recoloured(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", x=COLOUR, y=Y)
    grey = load(tmp_path / "set.npz", Reading(mode="grey", size=4)).pixels.numpy()
    expected = Image.fromarray(COLOUR[0]).convert("L").resize((4, 4), Image.Resampling.LANCZOS)
    assert np.array_equal(grey[0, 0], np.asarray(expected))
    np.savez(tmp_path / "set.npz", x=X, y=Y)
    assert np.array_equal(load(tmp_path / "set.npz", Reading(mode="colour")).pixels.numpy(), X[:, None].repeat(3, 1))


def write_idx(root: Path, prefix: str, count: int, suffix: str = "") -> None:
    root.mkdir(parents=True, exist_ok=True)
    squeeze = gzip.compress if suffix else bytes
    images = struct.pack(">4I", 0x803, count, 8, 8) + X[:count].tobytes()
    labels = struct.pack(">2I", 0x801, count) + Y[:count].astype(np.uint8).tobytes()
    (root / f"{prefix}-images-idx3-ubyte{suffix}").write_bytes(squeeze(images))
    (root / f"{prefix}-labels-idx1-ubyte{suffix}").write_bytes(squeeze(labels))


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx(tmp_path: Path, suffix: str) -> None:
    write_idx(tmp_path / "set", "train", 10, suffix)
    assert not has_split(tmp_path / "set", "test")
    write_idx(tmp_path / "set", "t10k", 4, suffix)
    images, test = load(tmp_path / "set"), load(tmp_path / "set", Reading(split="test"))
    assert np.array_equal(images.pixels[:, 0].numpy(), X)
    assert np.array_equal(images.labels.numpy(), Y)
    assert len(test) == 4


def test_digits() -> None:
    train, test = load("digits"), load("digits", Reading(split="test"))
    assert (len(train), len(test)) == (1438, 359)
    assert train.pixels.shape[1:] == (1, 8, 8)
    assert train.pixels.max() == 255
    assert train.classes == tuple("0123456789")
    from sklearn.datasets import load_digits

    values, targets = load_digits(return_X_y=True)
    assert np.array_equal(test.pixels[:, 0].numpy(), np.rint(values[4::5] * 255 / 16).reshape(-1, 8, 8))
    assert np.array_equal(test.labels.numpy(), targets[4::5])


# Parquet


def write_parquet(path: Path, images: list[object], labels: list[object], **more: object) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"image": images, "label": labels}
    if "logits" in more:
        columns["logits"] = more["logits"]  # type: ignore[assignment]
    table = pa.table(columns)
    if "names" in more:
        facts = {"info": {"features": {"label": {"names": more["names"], "_type": "ClassLabel"}}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(facts)})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def test_parquet_folder_of_shards(tmp_path: Path) -> None:
    held = [{"bytes": png(x), "path": None} for x in X]
    for k in range(2):
        write_parquet(
            tmp_path / "hub" / "data" / f"train-0000{k}-of-00002.parquet",
            held[5 * k : 5 * k + 5],
            Y[5 * k : 5 * k + 5].tolist(),
            names=["a", "b", "c", "d"],
        )
    write_parquet(tmp_path / "hub" / "data" / "test-00000-of-00001.parquet", held[:2], [3, 0])
    images, test = load(tmp_path / "hub"), load(tmp_path / "hub", Reading(split="test"))
    assert images.classes == ("a", "b", "c", "d")
    assert np.array_equal(images.pixels[:, 0].numpy(), X)
    assert np.array_equal(images.labels.numpy(), Y)
    assert test.labels.tolist() == [3, 0]


def test_parquet_file_with_words_and_plain_bytes(tmp_path: Path) -> None:
    path = tmp_path / "pets.parquet"
    write_parquet(path, [png(x) for x in X[:3]], ["dog", "cat", "dog"])
    images = load(path)
    assert images.classes == ("cat", "dog")
    assert images.labels.tolist() == [1, 0, 1]
    assert images.logits is None


def test_parquet_of_a_release(tmp_path: Path) -> None:
    """A release folder has other files beside its data, and perhaps soft labels."""
    soft = RNG.normal(size=(4, 3)).astype(np.float32)
    root = tmp_path / "release"
    write_parquet(
        root / "data" / "train-00000-of-00001.parquet",
        [{"bytes": png(x), "path": None} for x in X[:4]],
        [0, 1, 2, 0],
        names=["a", "b", "c"],
        logits=soft.tolist(),
    )
    (root / "certificate.json").write_text("{}")
    (root / "README.md").write_text("# release")
    images = load(root)
    assert images.logits is not None
    assert np.array_equal(images.logits.numpy(), soft)
    assert images.classes == ("a", "b", "c")


def test_parquet_written_by_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c"])})
    rows = {"image": [Image.fromarray(x) for x in X], "label": Y.tolist()}
    datasets.Dataset.from_dict(rows, features=features).to_parquet(str(tmp_path / "hub.parquet"))
    images = load(tmp_path / "hub.parquet")
    assert images.classes == ("a", "b", "c")
    assert np.array_equal(images.pixels[:, 0].numpy(), X)


# By name


def test_named_from_idx_files_in_the_cache(cached: Path) -> None:
    for name in ("mnist", "fashion-mnist"):
        write_idx(cached / name.replace("-", "_"), "train", 10, ".gz")
        write_idx(cached / name.replace("-", "_"), "t10k", 5, ".gz")
        assert np.array_equal(load(name).pixels[:, 0].numpy(), X)
        assert len(load(name, Reading(split="test"))) == 5
    assert load("fashion_mnist").classes[9] == "Ankle boot"
    assert open_source("mnist").name == "mnist"


def test_named_from_an_npz_in_the_cache(cached: Path) -> None:
    np.savez(cached / "cifar10.npz", x_train=COLOUR, y_train=Y, x_test=COLOUR[:2], y_test=Y[:2])
    images = load("cifar10")
    assert images.classes[:2] == ("airplane", "automobile")
    assert np.array_equal(images.pixels.numpy(), COLOUR.transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("name", "archive", "inside", "extra"),
    [
        ("cifar10", "cifar-10-binary.tar.gz", "cifar-10-batches-bin", 0),
        ("cifar100", "cifar-100-binary.tar.gz", "cifar-100-binary", 1),
    ],
)
def test_cifar_archives_are_unpacked_by_exact_name(
    cached: Path, name: str, archive: str, inside: str, extra: int
) -> None:
    pixels = RNG.integers(0, 256, (6, 3072), dtype=np.uint8)
    labels = np.arange(6, dtype=np.uint8)
    rows = np.hstack([np.full((6, extra), 9, np.uint8), labels[:, None], pixels])
    files = (
        [f"data_batch_{k}.bin" for k in range(1, 6)] + ["test_batch.bin"] if extra == 0 else ["train.bin", "test.bin"]
    )
    with tarfile.open(cached / archive, "w:gz") as tar:
        for file in files:
            member = tarfile.TarInfo(f"{inside}/{file}")
            member.size = rows.nbytes
            tar.addfile(member, io.BytesIO(rows.tobytes()))
        for trick in ("../evil.bin", f"{inside}/../../evil.bin", "/evil.bin"):
            tar.addfile(tarfile.TarInfo(trick), io.BytesIO())
    images = load(name, Reading(split="test"))
    assert images.labels.tolist() == list(range(6))
    assert np.array_equal(images.pixels.numpy(), pixels.reshape(6, 3, 32, 32))
    assert open_source(name).spec.count == (30 if extra == 0 else 6)
    assert sorted(p.name for p in (cached / inside).iterdir()) == sorted(files)
    assert not list(cached.parent.rglob("evil.bin"))


def test_cifar_archive_that_is_damaged(cached: Path) -> None:
    (cached / "cifar-10-binary.tar.gz").write_bytes(b"\x1f\x8b junk")
    with pytest.raises(DataError, match="binary version"):
        open_source("cifar10")
    assert [p.name for p in cached.iterdir()] == ["cifar-10-binary.tar.gz"]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"SFUMATO_CACHE": "/a"}, "/a"),
        ({"SFUMATO_CACHE": "", "XDG_CACHE_HOME": "/b"}, "/b/sfumato"),
        ({"SFUMATO_CACHE": "", "XDG_CACHE_HOME": "", "HOME": "/c"}, "/c/.cache/sfumato"),
    ],
)
def test_cache_folder(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str) -> None:
    for key, value in variables.items():
        monkeypatch.setenv(key, value)
    assert str(cache_folder()) == expected


# Downloads


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, directory=str(tmp_path / "www"), **options)  # type: ignore[arg-type]

        def log_message(self, *_: object) -> None: ...

    (tmp_path / "www").mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


CONTENT = RNG.bytes(700_000)


def test_download_with_the_right_checksum(tmp_path: Path, server: str) -> None:
    (tmp_path / "www" / "file.gz").write_bytes(CONTENT)
    digest = hashlib.sha256(CONTENT).hexdigest()
    for url in (f"{server}/file.gz", (tmp_path / "www" / "file.gz").as_uri()):
        folder = tmp_path / "cache" / url[:4]
        path = fetch(Download("file.gz", digest, (f"{server}/missing.gz", url)), folder)
        assert path.read_bytes() == CONTENT
        assert [p.name for p in folder.iterdir()] == ["file.gz"]


def test_download_with_a_wrong_checksum_leaves_nothing(tmp_path: Path, server: str) -> None:
    (tmp_path / "www" / "file.gz").write_bytes(CONTENT + b"!")
    with pytest.raises(DataError, match="SHA-256"):
        fetch(Download("file.gz", hashlib.sha256(CONTENT).hexdigest(), (f"{server}/file.gz",)), tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/f", "file:///nowhere/f", "ftp://example.org/f", "http://example.org/f"]
)
def test_download_without_an_answer(tmp_path: Path, url: str) -> None:
    with pytest.raises(EnvironmentProblem) as caught:
        fetch(Download("f", "0" * 64, (url,)), tmp_path / "cache")
    assert str(tmp_path / "cache" / "f") in caught.value.fix
    assert caught.value.exit_code == 5
    assert not list((tmp_path / "cache").iterdir())


def test_download_into_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match="cache folder"):
        fetch(Download("f", "0" * 64, ("http://127.0.0.1:9/f",)), tmp_path / "file" / "cache")


def test_named_data_sets_download_what_they_read(
    cached: Path, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_idx(tmp_path / "www", "train", 10, ".gz")
    write_idx(tmp_path / "www", "t10k", 5, ".gz")
    reader = find("data", "mnist")
    assert [d.name for d in reader.downloads] == [
        "train-images-idx3-ubyte.gz",
        "train-labels-idx1-ubyte.gz",
        "t10k-images-idx3-ubyte.gz",
        "t10k-labels-idx1-ubyte.gz",
    ]
    local = tuple(
        Download(d.name, hashlib.sha256((tmp_path / "www" / d.name).read_bytes()).hexdigest(), (f"{server}/{d.name}",))
        for d in reader.downloads
    )
    monkeypatch.setattr(reader, "downloads", local)
    (cached / "mnist").mkdir()  # an earlier run was stopped after the first file
    first = local[0].name
    (cached / "mnist" / first).write_bytes((tmp_path / "www" / first).read_bytes())
    assert np.array_equal(load("mnist").pixels[:, 0].numpy(), X)
    assert len(list((cached / "mnist").iterdir())) == 4


# The development data


def test_shared_mnist(cached: Path) -> None:
    path = dev_data("mnist.npz")
    assert open_source(path).spec.count == 60_000
    (cached / "mnist.npz").symlink_to(path)
    test = load("mnist", Reading(split="test"))
    assert len(test) == 10_000
    assert test.labels[:5].tolist() == [7, 2, 1, 0, 4]


def test_shared_cifar() -> None:
    source = open_source(dev_data("cifar10_20k.npz"), Reading(split="test"))
    assert (source.spec.count, source.spec.shape) == (4000, (3, 32, 32))


def test_shared_faces() -> None:
    source = open_source(dev_data("faces_utk128.zip"), Reading(label="gender", size=32))
    assert (source.spec.count, source.spec.shape) == (9673, (3, 32, 32))
    assert source.spec.classes == ("0", "1")
    pixels, labels = next(source.chunks())
    assert pixels.std() > 20
    assert set(labels.tolist()) == {0, 1}

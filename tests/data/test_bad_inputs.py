"""Bad inputs by name: each is refused in three lines with the offender named, or read with the right pixels."""

from __future__ import annotations

import gzip
import io
import os
import socket
import struct
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sfumato.contracts import Reading
from sfumato.data import load, open_source
from sfumato.errors import DataError, SfumatoError, UsageError

Build = Callable[[Path], Path]

REFUSED: dict[str, tuple[Build, type[SfumatoError], str, Reading]] = {}
RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (8, 8), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (8, 8, 3), dtype=np.uint8)


def bad(
    name: str, needle: str, error: type[SfumatoError] = DataError, reading: Reading | None = None
) -> Callable[[Build], Build]:
    def register(build: Build) -> Build:
        assert name not in REFUSED
        REFUSED[name] = (build, error, needle, reading or Reading())
        return build

    return register


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


PNG = encoded(Image.fromarray(GREY))
JPEG = encoded(Image.fromarray(COLOUR), "JPEG")


def folder(tmp: Path, name: str | None = None, content: bytes | None = None) -> Path:
    """Two good classes, and one more file in the first."""
    for label in ("cat", "dog"):
        (tmp / "set" / label).mkdir(parents=True, exist_ok=True)
        for k in range(2):
            (tmp / "set" / label / f"{k}.png").write_bytes(PNG)
    if name is not None and content is not None:
        (tmp / "set" / "cat" / name).write_bytes(content)
    return tmp / "set"


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def raw_png(width: int, height: int, data: bytes) -> bytes:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", data) + chunk(b"IEND", b"")


# A. Broken files, C. hostile ones: one more file in a good folder.

frames = [Image.fromarray(GREY), Image.fromarray(255 - GREY), Image.fromarray(GREY // 2)]
corrupt_crc = bytearray(PNG)
corrupt_crc[-30] ^= 0xFF
nan = np.ones((8, 8), np.float32)
nan[0, 0] = np.nan

FILES: dict[str, tuple[str, bytes]] = {
    "empty file": ("empty.png", b""),
    "text as png": ("text.png", b"hello"),
    "html as jpg": ("page.jpg", b"<html><script>alert(1)</script>"),
    "truncated jpeg": ("half.jpg", JPEG[: len(JPEG) * 2 // 3]),
    "truncated png": ("half.png", PNG[: len(PNG) // 2]),
    "only the magic": ("magic.png", PNG[:8]),
    "bad checksum in png": ("crc.png", bytes(corrupt_crc)),
    "zero width and height": ("zero.png", raw_png(0, 0, zlib.compress(b""))),
    "header larger than the data": ("lies.png", raw_png(8, 8, zlib.compress(b"\0" * 20))),
    "broken deflate stream": ("deflate.png", raw_png(8, 8, b"\xff" * 40)),
    "half-written file": ("written.png", PNG[:-60] + b"\0" * 60),
    "corrupt exif": ("exif.jpg", encoded(Image.fromarray(COLOUR), "JPEG", exif=b"Exif\0\0nonsense!")),
    "int32 tiff": ("deep.tiff", encoded(Image.fromarray(GREY.astype(np.int32) * 1000), "TIFF")),
    "float tiff": ("float.tiff", encoded(Image.fromarray(GREY.astype(np.float32)), "TIFF")),
    "float tiff with NaN": ("nan.tiff", encoded(Image.fromarray(nan), "TIFF")),
    "animated gif": ("anim.gif", encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])),
    "gif": ("still.gif", encoded(frames[0], "GIF")),
    "animated png": ("anim.png", encoded(frames[0], "PNG", save_all=True, append_images=frames[1:])),
    "animated webp": ("anim.webp", encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:])),
    "multi-page tiff": ("pages.tiff", encoded(frames[0], "TIFF", save_all=True, append_images=frames[1:])),
    "header bomb": ("bomb.png", raw_png(60000, 60000, zlib.compress(b"\0" * 1000))),
    "bomb below Pillow's limit": ("bomb9400.png", raw_png(9400, 9400, zlib.compress(b"\0" * (9401 * 9400), 9))),
    "eps by magic": ("eps.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"),
    "pdf by magic": ("pdf.png", b"%PDF-1.4\n1 0 obj\n<<>>\nendobj\n"),
    "svg by magic": ("svg.png", b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
    "fits by magic": ("fits.png", b"SIMPLE  =                    T" + b" " * 2850),
    "text file beside images": ("notes.txt", b"remember the milk"),
    "zip as image": ("zip.png", b"PK\x03\x04" + b"\0" * 60),
    "newline in a bad name": ("a\nb.png", b""),
    "escape in a bad name": ("\x1b[31mred.png", b""),
    "right-to-left mark in a bad name": ("gnp.\u202eevil.png", b""),
    "long bad name": ("x" * 200 + ".png", b""),
}
SHOWN = {
    "a\nb.png": "a\\nb.png",
    "\x1b[31mred.png": "\\x1b[31mred.png",
    "gnp.\u202eevil.png": "gnp.\\u202eevil.png",
    "x" * 200 + ".png": "x" * 100,
}
for title, (file, content) in FILES.items():
    bad(title, SHOWN.get(file, file))(lambda tmp, f=file, c=content: folder(tmp, f, c))


@bad("surrogate in a bad name", "\\udcff.png")
def _(tmp: Path) -> Path:
    root = folder(tmp)
    Path(os.fsdecode(os.fsencode(root / "cat") + b"/\xff.png")).write_bytes(b"")
    return root


@bad("oversized file", "huge.png")
def _(tmp: Path) -> Path:
    root = folder(tmp, "huge.png", PNG)
    os.truncate(root / "cat" / "huge.png", 300 * 2**20)  # sparse
    return root


@bad("unreadable file", "locked.png")
def _(tmp: Path) -> Path:
    if os.geteuid() == 0:
        pytest.skip("root can read every file")
    root = folder(tmp, "locked.png", PNG)
    (root / "cat" / "locked.png").chmod(0)
    return root


@bad("fifo", "fifo.png")
def _(tmp: Path) -> Path:
    root = folder(tmp)
    os.mkfifo(root / "cat" / "fifo.png")
    return root


@bad("socket", "sock.png")
def _(tmp: Path) -> Path:
    root = folder(tmp)
    here = Path.cwd()
    os.chdir(root / "cat")  # a socket's path may only have 108 characters
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("sock.png")
    finally:
        os.chdir(here)
    return root


@bad("device", "null.png")
def _(tmp: Path) -> Path:
    root = folder(tmp)
    try:
        os.mknod(root / "cat" / "null.png", 0o20666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("may not make devices")
    return root


@bad("directory named png", "dir.png")
def _(tmp: Path) -> Path:
    root = folder(tmp)
    (root / "cat" / "dir.png").mkdir()
    return root


def linked(tmp: Path, name: str, target: str) -> Path:
    root = folder(tmp)
    (root / "cat" / name).symlink_to(target)
    return root


bad("link out of the folder", "out.png")(lambda tmp: linked(tmp, "out.png", "/etc/hostname"))
bad("link up and out", "up.png")(lambda tmp: linked(tmp, "up.png", "../../../secret.png"))
bad("dead link", "dead.png")(lambda tmp: linked(tmp, "dead.png", "nothing.png"))
bad("link to itself", "loop.png")(lambda tmp: linked(tmp, "loop.png", "loop.png"))
bad("link to a device", "zero.png")(lambda tmp: linked(tmp, "zero.png", "/dev/zero"))
bad("folder in a class that is a link out", "cat/etc")(lambda tmp: linked(tmp, "etc", "/etc"))


@bad("class folder that is a link out", "lynx")
def _(tmp: Path) -> Path:
    root = folder(tmp)
    (root / "lynx").symlink_to("/etc")
    return root


@bad("class folder that leads round in a circle", "lynx")
def _(tmp: Path) -> Path:
    root = folder(tmp)
    (root / "lynx").symlink_to(".")
    return root


# D. Shapes of data sets.


@bad("no images at all", "empty")
def _(tmp: Path) -> Path:
    (tmp / "empty").mkdir()
    return tmp / "empty"


@bad("only empty classes", "set")
def _(tmp: Path) -> Path:
    (tmp / "set" / "cat").mkdir(parents=True)
    return tmp / "set"


@bad("only system files", "set")
def _(tmp: Path) -> Path:
    (tmp / "set" / "cat").mkdir(parents=True)
    (tmp / "set" / "cat" / ".DS_Store").write_bytes(b"x")
    (tmp / "set" / "cat" / "Thumbs.db").write_bytes(b"x")
    return tmp / "set"


@bad("nested class folders", "cat/tabby")
def _(tmp: Path) -> Path:
    root = folder(tmp)
    (root / "cat" / "tabby").mkdir()
    (root / "cat" / "tabby" / "0.png").write_bytes(PNG)
    return root


@bad("images beside class folders", "loose.png")
def _(tmp: Path) -> Path:
    root = folder(tmp)
    (root / "loose.png").write_bytes(PNG)
    return root


@bad("case clash of classes", "Cat")
def _(tmp: Path) -> Path:
    root = folder(tmp)
    (root / "Cat").mkdir()
    (root / "Cat" / "0.png").write_bytes(PNG)
    return root


@bad("train beside class folders", "train")
def _(tmp: Path) -> Path:
    root = folder(tmp)
    (root / "train").mkdir()
    return root


@bad("class name with a newline", "a\\nb")
def _(tmp: Path) -> Path:
    root = folder(tmp)
    (root / "a\nb").mkdir()
    return root


@bad("mixed sizes", "wide.png")
def _(tmp: Path) -> Path:
    return folder(tmp, "wide.png", encoded(Image.new("L", (20, 8))))


@bad("large images", "300")
def _(tmp: Path) -> Path:
    (tmp / "set" / "cat").mkdir(parents=True)
    (tmp / "set" / "cat" / "big.png").write_bytes(encoded(Image.new("L", (300, 300))))
    return tmp / "set"


bad("no test split", "test", reading=Reading(split="test"))(folder)
bad("size zero", "size", UsageError, Reading(size=0))(folder)
bad("huge size", "size", UsageError, Reading(size=10**6))(folder)
bad("class asked for twice", "cat", UsageError, Reading(classes=("cat", "cat")))(folder)


def table(tmp: Path, text: str | bytes, **images: bytes) -> Path:
    (tmp / "faces" / "images").mkdir(parents=True)
    for k in range(3):
        (tmp / "faces" / "images" / f"{k}.png").write_bytes(PNG)
    for name, content in images.items():
        (tmp / "faces" / "images" / f"{name}.png").write_bytes(content)
    (tmp / "faces" / "labels.csv").write_bytes(text.encode() if isinstance(text, str) else text)
    return tmp / "faces"


HEAD = "file,age,sex\n"
ROWS = "images/0.png,3,f\nimages/1.png,4,m\nimages/2.png,5,f\n"
SEX = Reading(label="sex")

TABLES: dict[str, tuple[str | bytes, str, type[SfumatoError], Reading]] = {
    "table without a label column named": (HEAD + ROWS, "age, sex", UsageError, Reading()),
    "table without that label column": (HEAD + ROWS, "'race'", UsageError, Reading(label="race")),
    "empty table": ("", "labels.csv", DataError, SEX),
    "table of a header": (HEAD, "no row", DataError, SEX),
    "table longer than the images": (HEAD + ROWS + "images/9.png,1,m\n", "images/9.png", DataError, SEX),
    "table shorter than the images": (HEAD + ROWS[:34], "images/2.png", DataError, SEX),
    "duplicate row": (HEAD + ROWS + "images/0.png,3,f\n", "images/0.png", DataError, SEX),
    "duplicate by another spelling": (HEAD + ROWS + "./images/0.png,3,f\n", "images/0.png", DataError, SEX),
    "ragged row": (HEAD + ROWS + "images/3.png,3\n", "line 5", DataError, SEX),
    "row without a label": (HEAD + ROWS.replace("5,f", "5,"), "images/2.png", DataError, SEX),
    "path out of the folder": (HEAD + ROWS + "../../etc/passwd,3,f\n", "../../etc/passwd", DataError, SEX),
    "absolute path": (HEAD + ROWS + "/etc/passwd,3,f\n", "/etc/passwd", DataError, SEX),
    "table not in UTF-8": ((HEAD + ROWS).encode("utf-16"), "labels.csv", DataError, SEX),
    "table with an open quote": (HEAD + 'images/0.png,"3,f\n', "labels.csv", DataError, SEX),
    "label column twice": ("file,sex,sex\nimages/0.png,3,f\n", "sex", DataError, SEX),
    "label with an escape": (HEAD + ROWS.replace("5,f", "5,\x1b[2J"), "\\x1b[2J", DataError, SEX),
    "nul in a file name": (HEAD + ROWS + "images/\0.png,3,f\n", "images/\\x00.png", DataError, SEX),
    "a million classes": (HEAD + "".join(f"images/{k}.png,3,{k}\n" for k in range(100_000)), "100000", DataError, SEX),
}
for title, (text, needle, error, reading) in TABLES.items():
    bad(title, needle, error, reading)(lambda tmp, t=text: table(tmp, t))


@bad("two tables", "labels.csv", reading=SEX)
def _(tmp: Path) -> Path:
    root = table(tmp, HEAD + ROWS)
    (root / "more.csv").write_text(HEAD)
    return root


@bad("bad image in a table", "images/0.png", reading=SEX)
def _(tmp: Path) -> Path:
    root = table(tmp, HEAD + ROWS)
    (root / "images" / "0.png").write_bytes(b"x")
    return root


# Faces, of which files' names or tables say several attributes.


def utkface(tmp: Path, name: str, content: bytes = PNG) -> Path:
    (tmp / "utk").mkdir()
    for k in range(3):
        (tmp / "utk" / f"2{k}_{k % 2}_{k}_2017011220030241{k}.jpg.chip.jpg").write_bytes(PNG)
    (tmp / "utk" / name).write_bytes(content)
    return tmp / "utk"


UTKFACE: dict[str, tuple[str, bytes, str]] = {
    "utkface without a race": ("39_1_20170116174525125.jpg.chip.jpg", PNG, "39_1_20170116174525125"),
    "utkface without a gender": ("53__0_20170116184028385.jpg", PNG, "a name without age, gender and race"),
    "utkface with another gender": ("53_2_0_20170116184028385.jpg", PNG, "a name without age, gender and race"),
    "utkface with another race": ("53_1_5_20170116184028385.jpg", PNG, "a name without age, gender and race"),
    "utkface with no age": ("999_1_0_20170116184028385.jpg", PNG, "a name without age, gender and race"),
    "utkface with an escape": ("\x1b[31m_1_0_2.jpg", PNG, "\\x1b[31m_1_0_2.jpg"),
    "utkface with half an image": ("53_1_0_20170116184028385.jpg", PNG[:60], "53_1_0_20170116184028385.jpg (damaged"),
}
for title, (name, content, needle) in UTKFACE.items():
    bad(title, needle)(lambda tmp, n=name, c=content: utkface(tmp, n, c))
bad("utkface by an unknown label", "one of age, gender, race", UsageError, Reading(label="smile"))(
    lambda tmp: utkface(tmp, "9_1_0_20170116184028385.jpg")
)
bad("utkface has no test split", "test", reading=Reading(split="test"))(
    lambda tmp: utkface(tmp, "9_1_0_20170116184028385.jpg")
)


def fairface(tmp: Path, text: str | bytes) -> Path:
    (tmp / "fair" / "train").mkdir(parents=True)
    for k in range(3):
        (tmp / "fair" / "train" / f"{k}.jpg").write_bytes(PNG if k < 2 else PNG[:60])
    (tmp / "fair" / "fairface_label_train.csv").write_bytes(text.encode() if isinstance(text, str) else text)
    return tmp / "fair"


FAIR = "file,age,gender,race,service_test\ntrain/0.jpg,50-59,Male,East Asian,True\n"
FAIRFACE: dict[str, tuple[str | bytes, str]] = {
    "fairface without a column": ("file,age\n", "Expected a column 'race', got file, age"),
    "fairface with a column twice": ("file,race,race\n", "Expected a column 'race', got file, race, race"),
    "fairface with an empty table": ("", "fairface_label_train.csv"),
    "fairface with a header alone": (FAIR[:34], "got none"),
    "fairface table not in UTF-8": (b"\xff\xfe\0", "fairface_label_train.csv"),
    "fairface with another race": (FAIR + "train/1.jpg,3-9,Male,Mart\x1bian,True\n", "got 'Mart\\x1bian'"),
    "fairface without a race": (FAIR + "train/1.jpg,3-9,Male,,True\n", "train/1.jpg (no race in its row)"),
    "fairface with a file twice": (FAIR * 2, "train/0.jpg"),
    "fairface without a file": (FAIR + "train/9.jpg,3-9,Male,White,True\n", "train/9.jpg (the file is missing)"),
    "fairface path out of the folder": (FAIR + "../../etc/passwd,3-9,Male,White,True\n", "../../etc/passwd ("),
    "fairface absolute path": (FAIR + "/etc/hostname,3-9,Male,White,True\n", "a link that leads out of the folder"),
    "fairface with an empty name": (FAIR + ",3-9,Male,White,True\n", "not a regular file"),
    "fairface with nul in a name": (FAIR + "\0.jpg,3-9,Male,White,True\n", "\\x00.jpg"),
    "fairface with half an image": (FAIR + "train/2.jpg,3-9,Male,White,True\n", "train/2.jpg (damaged"),
}
for title, (text, needle) in FAIRFACE.items():
    bad(title, needle)(lambda tmp, t=text: fairface(tmp, t))
bad("fairface by an unknown label", "race, race7, gender, age", UsageError, SEX)(lambda tmp: fairface(tmp, FAIR))
bad("fairface without the other table", "test", reading=Reading(split="test"))(lambda tmp: fairface(tmp, FAIR))


@bad("fairface table that is a link out", "fairface_label_train.csv")
def _(tmp: Path) -> Path:
    root = fairface(tmp, FAIR)
    (root / "fairface_label_train.csv").unlink()
    (root / "fairface_label_train.csv").symlink_to("/etc/hostname")
    return root


# C. Hostile archives.


def zipped(tmp: Path, *members: tuple[str | zipfile.ZipInfo, bytes], csv: bool = True) -> Path:
    with zipfile.ZipFile(tmp / "set.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("images/0.png", PNG)
        if csv:
            archive.writestr("labels.csv", "file,sex\nimages/0.png,f\n")
        for name, content in members:
            archive.writestr(name, content)
    return tmp / "set.zip"


def special(name: str, mode: int) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name)
    member.external_attr = mode << 16
    return member


ZIPS: dict[str, tuple[str | zipfile.ZipInfo, bytes, str]] = {
    "zip slip": ("../../evil.png", PNG, "../../evil.png"),
    "zip with an absolute path": ("/abs.png", PNG, "/abs.png"),
    "zip with a backslash": ("a\\..\\b.png", PNG, "a\\..\\b.png"),
    "zip with a drive": ("c:/b.png", PNG, "c:/b.png"),
    "zip with a link": (special("link.png", 0o120777), b"/etc/passwd", "link.png"),
    "zip with a device": (special("dev.png", 0o20666), b"", "dev.png"),
    "zip in a zip": ("inner.zip", b"PK", "inner.zip"),
    "zip bomb": ("bomb.png", b"\0" * 50_000_000, "times"),
    "zip with a bad image": ("images/1.png", b"x", "images/1.png"),
}
for title, (name, content, needle) in ZIPS.items():
    bad(title, needle, reading=SEX)(lambda tmp, n=name, c=content: zipped(tmp, (n, c)))


@bad("zip with a name twice", "images/0.png", reading=SEX)
def _(tmp: Path) -> Path:
    with pytest.warns(UserWarning, match="Duplicate"):
        return zipped(tmp, ("images/0.png", PNG))


@bad("encrypted zip", "images/0.png", reading=SEX)
def _(tmp: Path) -> Path:
    path = zipped(tmp)
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + offset] |= 1
    path.write_bytes(data)
    return path


@bad("damaged member of a zip", "images/0.png", reading=SEX)
def _(tmp: Path) -> Path:
    path = zipped(tmp)
    data = bytearray(path.read_bytes())
    data[60:70] = b"\xff" * 10
    path.write_bytes(data)
    return path


@bad("truncated zip", "set.zip")
def _(tmp: Path) -> Path:
    path = zipped(tmp)
    path.write_bytes(path.read_bytes()[:-40])
    return path


@bad("tar archive", "unpack")
def _(tmp: Path) -> Path:
    with tarfile.open(tmp / "set.tar.gz", "w:gz") as tar:
        member = tarfile.TarInfo("link.png")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(member)
    return tmp / "set.tar.gz"


@bad("unknown kind of file", "set.h5")
def _(tmp: Path) -> Path:
    (tmp / "set.h5").write_bytes(b"x")
    return tmp / "set.h5"


@bad("fifo as the data set", "pipe.npz")
def _(tmp: Path) -> Path:
    os.mkfifo(tmp / "pipe.npz")
    return tmp / "pipe.npz"


bad("nothing at the path", "nowhere", UsageError)(lambda tmp: tmp / "nowhere")
bad("nul in the path", "\\x00", UsageError)(lambda tmp: tmp / "a\0b")


# E. Arrays.

X, Y = RNG.integers(0, 256, (6, 8, 8), dtype=np.uint8), np.arange(6) % 3


def saved(tmp: Path, **arrays: object) -> Path:
    np.savez(tmp / "set.npz", **{key: np.asanyarray(value) for key, value in arrays.items()})
    return tmp / "set.npz"


def spoilt(value: float, dtype: type = np.float32) -> np.ndarray:
    array = (X / 255).astype(dtype) if dtype != np.int64 else X.astype(np.int64)
    array[2, 3, 3] = value
    return array


ARRAYS: dict[str, tuple[dict[str, object], str]] = {
    "pickled objects as images": ({"x": np.array([{"a": 1}] * 6), "y": Y}, "pickled"),
    "pickled objects as labels": ({"x": X, "y": np.array([None] * 6)}, "pickled"),
    "complex images": ({"x": X.astype(complex), "y": Y}, "complex128"),
    "boolean images": ({"x": X > 9, "y": Y}, "bool"),
    "dates as images": ({"x": X.astype("datetime64[s]"), "y": Y}, "datetime64"),
    "words as images": ({"x": X.astype("U3"), "y": Y}, "<U3"),
    "structured images": ({"x": np.zeros((6, 8, 8), [("a", "u1")]), "y": Y}, "set.npz: x"),
    "0-d images": ({"x": np.uint8(3), "y": Y}, "single value"),
    "1-d images": ({"x": X[:, 0, 0], "y": Y}, "set.npz: x"),
    "5-d images": ({"x": X[:, None, None], "y": Y}, "6 x 1 x 1 x 8 x 8"),
    "five channels": ({"x": np.zeros((6, 8, 8, 5), np.uint8), "y": Y}, "6 x 8 x 8 x 5"),
    "images without pixels": ({"x": np.zeros((6, 0, 8), np.uint8), "y": Y}, "6 x 0 x 8"),
    "no records": ({"x": X[:0], "y": Y[:0]}, "set.npz"),
    "Fortran order": ({"x": np.asfortranarray(X), "y": Y}, "Fortran"),
    "NaN": ({"x": spoilt(np.nan), "y": Y}, "x[2]"),
    "infinity": ({"x": spoilt(np.inf), "y": Y}, "x[2]"),
    "float above 1": ({"x": spoilt(1.5), "y": Y}, "x[2]"),
    "negative float": ({"x": spoilt(-0.1, np.float64), "y": Y}, "x[2]"),
    "floats up to 255": ({"x": X.astype(np.float32), "y": Y}, "floats from 0 to 1"),
    "integer above 255": ({"x": spoilt(256, np.int64), "y": Y}, "x[2]"),
    "negative integer": ({"x": spoilt(-1, np.int64), "y": Y}, "x[2]"),
    "labels longer": ({"x": X, "y": np.arange(7)}, "got 7"),
    "labels shorter": ({"x": X, "y": Y[:5]}, "got 5"),
    "no labels": ({"x": X}, "got x"),
    "no known keys": ({"a": X, "b": Y}, "got a, b"),
    "float labels": ({"x": X, "y": Y + 0.5}, "float64"),
    "NaN labels": ({"x": X, "y": Y * np.nan}, "float64"),
    "negative label": ({"x": X, "y": Y - 1}, "got -1"),
    "label of a million": ({"x": X, "y": Y * 1_000_000}, "got 2000000"),
    "one-hot labels": ({"x": X, "y": np.eye(3, dtype=int)[Y]}, "6 x 3"),
    "labels of two kinds": ({"x_train": X, "y_train": Y, "x_test": X, "y_test": Y.astype("U")}, "words"),
    "label words with an escape": ({"x": X, "y": np.array(["a", "b\x1b"] * 3)}, "b\\x1b"),
    "huge record": ({"x": np.zeros((1, 9000, 9000), np.uint8), "y": Y[:1]}, "9000"),
}
for title, (arrays, needle) in ARRAYS.items():
    bad(title, needle)(lambda tmp, a=arrays: saved(tmp, **a))


@bad("npz that is no archive", "set.npz")
def _(tmp: Path) -> Path:
    (tmp / "set.npz").write_bytes(b"\x93NUMPY\x01\x00v\x00{'descr'")
    return tmp / "set.npz"


@bad("npz that ends early", "set.npz")
def _(tmp: Path) -> Path:
    path = saved(tmp, x=X, y=Y)
    path.write_bytes(path.read_bytes()[:300])
    return path


@bad("npz with a flipped bit", "set.npz")
def _(tmp: Path) -> Path:
    path = saved(tmp, x=X, y=Y)
    data = bytearray(path.read_bytes())
    data[250] ^= 1
    path.write_bytes(data)
    return path


@bad("npy header that promises too much", "more or fewer bytes")
def _(tmp: Path) -> Path:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": (10**12, 28, 28)})
    with zipfile.ZipFile(saved(tmp, y=Y), "a") as archive:
        archive.writestr("x.npy", stream.getvalue() + b"\0" * 100)
    return tmp / "set.npz"


def idx_files(tmp: Path, images: bytes, labels: bytes, suffix: str = "") -> Path:
    (tmp / "idx").mkdir()
    squeeze = gzip.compress if suffix else bytes
    (tmp / "idx" / f"train-images-idx3-ubyte{suffix}").write_bytes(squeeze(images))
    (tmp / "idx" / f"train-labels-idx1-ubyte{suffix}").write_bytes(squeeze(labels))
    return tmp / "idx"


IMAGES = struct.pack(">4I", 0x803, 6, 8, 8) + X.tobytes()
LABELS = struct.pack(">2I", 0x801, 6) + Y.astype(np.uint8).tobytes()
IDX: dict[str, tuple[bytes, bytes, str, str]] = {
    "idx with the wrong number": (b"\1" + IMAGES, LABELS, "", "train-images"),
    "idx images that end early": (IMAGES[:-9], LABELS, "", "train-images"),
    "idx images that go on": (IMAGES + b"0", LABELS, "", "train-images"),
    "idx labels that end early": (IMAGES, LABELS[:-1], "", "train-labels"),
    "idx labels that go on": (IMAGES, LABELS + b"0", "", "train-labels"),
    "idx with fewer labels": (IMAGES, struct.pack(">2I", 0x801, 5) + LABELS[8:-1], "", "got 5"),
    "idx empty": (b"", LABELS, "", "train-images"),
    "idx that promises four billion": (struct.pack(">4I", 0x803, 2**32 - 1, 8, 8), LABELS, "", "4294967295"),
    "idx labels that promise too much": (IMAGES, struct.pack(">2I", 0x801, 10**8), ".gz", "train-labels"),
    "gzip bomb": (IMAGES + b"\0" * 50_000_000, LABELS, ".gz", "longer"),
}
for title, (images, labels, suffix, needle) in IDX.items():
    bad(title, needle)(lambda tmp, i=images, n=labels, s=suffix: idx_files(tmp, i, n, s))


@bad("idx gzip that ends early", "train-images")
def _(tmp: Path) -> Path:
    root = idx_files(tmp, IMAGES, LABELS, ".gz")
    path = root / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-30])
    return root


@bad("idx that is no gzip", "train-images")
def _(tmp: Path) -> Path:
    root = idx_files(tmp, IMAGES, LABELS, ".gz")
    (root / "train-images-idx3-ubyte.gz").write_bytes(IMAGES)
    return root


@bad("idx without labels", "train-images")
def _(tmp: Path) -> Path:
    root = idx_files(tmp, IMAGES, LABELS)
    (root / "train-labels-idx1-ubyte").unlink()
    return root


def parquet(tmp: Path, name: str = "train-00000-of-00001.parquet", **columns: list[object]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp / "hub").mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), tmp / "hub" / name)
    return tmp / "hub"


GOOD = {"bytes": PNG, "path": "0.png"}
PARQUET: dict[str, tuple[dict[str, list[object]], str, type[SfumatoError]]] = {
    "parquet without images": ({"picture": [1], "label": [0]}, "picture", DataError),
    "parquet with words as images": ({"image": ["a"], "label": [0]}, "image", DataError),
    "parquet without labels": ({"image": [GOOD], "age": [3]}, "one of age", UsageError),
    "parquet with float labels": ({"image": [GOOD], "label": [0.5]}, "float", DataError),
    "parquet with negative labels": ({"image": [GOOD], "label": [-1]}, "-1", DataError),
    "parquet with a missing label": ({"image": [GOOD, GOOD], "label": [0, None]}, "row 1", DataError),
    "parquet with a path only": (
        {"image": [GOOD, {"bytes": None, "path": "/etc/passwd"}], "label": [0, 0]},
        "row 1",
        DataError,
    ),
    "parquet with a bad image": ({"image": [PNG, b"x"], "label": [0, 0]}, "row 1", DataError),
    "parquet of no rows": ({"image": [GOOD][:0], "label": [0][:0]}, "hub", DataError),
}
for title, (columns, needle, error) in PARQUET.items():
    bad(title, needle, error)(lambda tmp, c=columns: parquet(tmp, **c))
bad("missing shard", "Expected 2 shards")(
    lambda tmp: parquet(tmp, "train-00001-of-00002.parquet", image=[GOOD], label=[0])
)


@bad("damaged parquet", "train-00000-of-00001.parquet")
def _(tmp: Path) -> Path:
    root = parquet(tmp, image=[GOOD], label=[0])
    path = root / "train-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    return root


@bad("parquet shard that is a fifo", "test-0.parquet")
def _(tmp: Path) -> Path:
    root = parquet(tmp, image=[GOOD], label=[0])
    os.mkfifo(root / "test-0.parquet")
    return root


def test_there_are_enough_cases() -> None:
    assert len(REFUSED) >= 60


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    build, error, needle, reading = REFUSED[name]
    where = build(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    started = time.monotonic()
    with pytest.raises(SfumatoError) as caught:
        for _ in open_source(where, reading).chunks():
            pass
    assert time.monotonic() - started < 10
    problem = caught.value
    assert type(problem) is error
    assert problem.exit_code == (2 if error is UsageError else 3)
    message = str(problem)
    assert needle in message
    assert problem.fix
    lines = message.split("\n")
    assert len(lines) <= 3
    assert all(line.isprintable() for line in lines)
    assert sorted(tmp_path.rglob("*")) == before  # nothing was extracted or left


# What must be accepted, with the right pixels.


def single(tmp: Path, name: str, content: bytes, **reading: object) -> np.ndarray:
    (tmp / "set" / "cat").mkdir(parents=True)
    (tmp / "set" / "cat" / name).write_bytes(content)
    source = open_source(tmp / "set", Reading(**reading))
    assert source.spec.count == 1
    ((pixels, labels),) = source.chunks()
    assert labels.tolist() == [0]
    assert pixels.shape == (1, *source.spec.shape)
    return pixels[0]


def rgb(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("RGB")).transpose(2, 0, 1)


def test_exif_rotation_is_applied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: rotate by 90 degrees clockwise
    wide = Image.fromarray(COLOUR[:6])
    pixels = single(tmp_path, "turned.png", encoded(wide, exif=exif))
    assert pixels.shape == (3, 8, 6)
    assert np.array_equal(pixels, np.rot90(COLOUR[:6], -1).transpose(2, 0, 1))


@pytest.mark.parametrize("kind", ["JPEG", "TIFF", "WEBP"])
def test_exif_rotation_of_other_formats(tmp_path: Path, kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 8
    options = {"lossless": True} if kind == "WEBP" else {}
    content = encoded(Image.fromarray(COLOUR[:6]), kind, exif=exif, **options)
    pixels = single(tmp_path, "turned.x", content)
    plain = Image.open(io.BytesIO(encoded(Image.fromarray(COLOUR[:6]), kind, **options)))
    assert np.array_equal(pixels, np.rot90(np.asarray(plain)).transpose(2, 0, 1))


def test_palette(tmp_path: Path) -> None:
    image = Image.fromarray(COLOUR).convert("P")
    assert np.array_equal(single(tmp_path, "palette.png", encoded(image)), rgb(image))


def test_one_bit(tmp_path: Path) -> None:
    pixels = single(tmp_path, "bit.png", encoded(Image.fromarray(GREY > 127)))
    assert np.array_equal(pixels[0], np.where(GREY > 127, 255, 0))


def test_cmyk(tmp_path: Path) -> None:
    image = Image.fromarray(COLOUR).convert("CMYK")
    assert np.array_equal(single(tmp_path, "cmyk.tiff", encoded(image, "TIFF")), rgb(image))


def test_cmyk_jpeg(tmp_path: Path) -> None:
    red = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    pixels = single(tmp_path, "cmyk.jpg", encoded(red, "JPEG", quality=95)).astype(int)
    assert abs(pixels - np.array([255, 0, 0]).reshape(3, 1, 1)).max() <= 3


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled(tmp_path: Path, kind: str) -> None:
    content = encoded(Image.fromarray(GREY.astype(np.uint16) * 257), kind)
    assert np.array_equal(single(tmp_path, "deep.x", content)[0], GREY)


def test_transparency_is_laid_on_white(tmp_path: Path) -> None:
    half = np.dstack([COLOUR, np.full((8, 8), 128, np.uint8)])
    half[0, 0, 3] = 0
    pixels = single(tmp_path, "alpha.png", encoded(Image.fromarray(half))).astype(int)
    assert pixels[:, 0, 0].tolist() == [255, 255, 255]
    expected = COLOUR[1:] * (128 / 255) + 255 * (127 / 255)
    assert abs(pixels[:, 1:].transpose(1, 2, 0) - expected).max() <= 1


def test_grey_with_alpha_stays_grey(tmp_path: Path) -> None:
    image = Image.merge("LA", [Image.fromarray(GREY), Image.new("L", (8, 8), 0)])
    pixels = single(tmp_path, "la.png", encoded(image))
    assert pixels.shape == (1, 8, 8)
    assert (pixels == 255).all()


def test_transparent_colour_of_a_palette(tmp_path: Path) -> None:
    image = Image.new("P", (8, 8), 0)
    image.putpalette([0, 0, 0, 255, 0, 0])
    assert (single(tmp_path, "key.png", encoded(image, transparency=0)) == 255).all()


def test_wrong_extension(tmp_path: Path) -> None:
    assert np.array_equal(single(tmp_path, "really_a_png.jpg", PNG)[0], GREY)


def test_something_behind_the_image(tmp_path: Path) -> None:
    assert np.array_equal(single(tmp_path, "polyglot.png", PNG + b"PK\x03\x04" + PNG)[0], GREY)


def test_corrupt_colour_profile(tmp_path: Path) -> None:
    content = encoded(Image.fromarray(COLOUR), icc_profile=b"nonsense")
    assert np.array_equal(single(tmp_path, "icc.png", content), COLOUR.transpose(2, 0, 1))


def test_one_pixel(tmp_path: Path) -> None:
    assert single(tmp_path, "dot.png", encoded(Image.fromarray(GREY[:1, :1]))).shape == (1, 1, 1)


def test_a_line_of_20000_pixels(tmp_path: Path) -> None:
    pixels = single(tmp_path, "line.png", encoded(Image.new("L", (20000, 1), 7)), size=4)
    assert (pixels == 7).all()
    assert pixels.shape == (1, 4, 4)


def test_centre_crop_before_resizing(tmp_path: Path) -> None:
    wide = np.zeros((8, 24), np.uint8)
    wide[:, 8:16] = 200
    assert (single(tmp_path, "wide.png", encoded(Image.fromarray(wide)), size=4) == 200).all()


def test_grey_and_colour_together_are_colour(tmp_path: Path) -> None:
    root = folder(tmp_path, "colour.png", encoded(Image.fromarray(COLOUR)))
    source = open_source(root)
    assert source.spec.channels == 3
    assert open_source(root, Reading(mode="grey")).spec.channels == 1


def test_odd_names_are_read(tmp_path: Path) -> None:
    root = folder(tmp_path)
    for name in ("a\nb.png", "<img src=x onerror=alert(1)>.png", "\u202egnp.png", "\x1b[2J.png"):
        (root / "cat" / name).write_bytes(PNG)
    Path(os.fsdecode(os.fsencode(root / "dog") + b"/\xff.png")).write_bytes(PNG)
    assert len(load(root)) == 9


def test_links_inside_the_folder(tmp_path: Path) -> None:
    root = folder(tmp_path)
    (root / "dog" / "same.png").symlink_to("../cat/0.png")
    (root / "lynx").symlink_to("cat")
    source = open_source(root)
    assert source.spec.classes == ("cat", "dog", "lynx")
    assert source.spec.count == 7


def test_system_files_are_not_data(tmp_path: Path) -> None:
    root = folder(tmp_path)
    for name in (".DS_Store", "Thumbs.db", "desktop.ini", "._0.png"):
        (root / "cat" / name).write_bytes(b"junk")
    (root / ".git").mkdir()
    (root / "__MACOSX").mkdir()
    (root / "README.txt").write_text("hello")
    assert open_source(root).spec == open_source(folder(tmp_path / "again")).spec


def test_empty_class_is_a_class(tmp_path: Path) -> None:
    root = folder(tmp_path)
    (root / "emu").mkdir()
    assert open_source(root).spec.classes == ("cat", "dog", "emu")


def test_other_byte_order_subnormals_and_strides(tmp_path: Path) -> None:
    unit = (X / 255).astype(">f8")
    unit[0, 0, 0] = 5e-324
    images = load(saved(tmp_path, x=unit, y=Y.astype(">i4")))
    expected = X.copy()
    expected[0, 0, 0] = 0
    assert np.array_equal(images.pixels[:, 0].numpy(), expected)
    assert np.array_equal(images.labels.numpy(), Y)
    assert np.array_equal(load(saved(tmp_path, x=X[::-1, ::2], y=Y)).pixels[:, 0].numpy(), X[::-1, ::2])


def test_labels_outside_the_list_are_absent(tmp_path: Path) -> None:
    source = open_source(saved(tmp_path, x=X, y=[0, 1, 2, 7, -3, 1]), Reading(classes=("a", "b")))
    ((_, labels),) = source.chunks()
    assert labels.tolist() == [0, 1, -1, -1, -1, 1]
    assert source.spec.count == 6


def test_folders_outside_the_list_are_absent(tmp_path: Path) -> None:
    ((_, labels),) = open_source(folder(tmp_path), Reading(classes=("emu", "dog"))).chunks()
    assert labels.tolist() == [-1, -1, 1, 1]


# Skipping what is bad: the count stays, and the record is absent.


def test_skip_bad_keeps_the_count(tmp_path: Path) -> None:
    root = folder(tmp_path, "a_text.png", b"hello")
    (root / "dog" / "half.png").write_bytes(PNG[: len(PNG) // 2])  # a good header: found only while decoding
    source = open_source(root, Reading(skip_bad=True))
    assert source.spec.count == 6
    for _ in range(2):
        ((pixels, labels),) = source.chunks()
        assert labels.tolist() == [0, 0, -1, 1, 1, -1]
        assert not pixels[labels < 0].any()
        assert sorted(name for name, _ in source.bad) == ["cat/a_text.png", "dog/half.png"]
    assert len(load(root, Reading(skip_bad=True))) == 4


def test_skip_bad_in_a_table_and_an_array(tmp_path: Path) -> None:
    root = table(tmp_path, HEAD + ROWS + "images/9.png,1,m\n", extra=PNG)
    source = open_source(root, Reading(label="sex", skip_bad=True))
    ((_, labels),) = source.chunks()
    assert labels.tolist() == [0, 1, 0, -1, -1]
    source = open_source(saved(tmp_path, x=spoilt(np.nan), y=Y), Reading(skip_bad=True))
    ((pixels, labels),) = source.chunks()
    assert labels.tolist() == [0, 1, -1, 0, 1, 2]
    assert not pixels[2].any()
    assert source.bad[0][0] == "set.npz: x[2]"


def test_all_bad_is_refused_even_when_skipping(tmp_path: Path) -> None:
    (tmp_path / "set" / "cat").mkdir(parents=True)
    (tmp_path / "set" / "cat" / "x.png").write_bytes(b"x")
    with pytest.raises(DataError, match="at least one readable"):
        open_source(tmp_path / "set", Reading(skip_bad=True))


def test_the_first_three_and_the_count(tmp_path: Path) -> None:
    root = folder(tmp_path)
    for k in range(12):
        (root / "cat" / f"bad{k:02}.png").write_bytes(b"x")
    with pytest.raises(DataError, match=r"12 bad: cat/bad00.*bad01.*bad02.*and 9 more") as caught:
        open_source(root)
    assert "bad03" not in str(caught.value)
    assert "--skip-bad" in caught.value.fix


def test_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    root = folder(tmp_path)
    source = open_source(root)
    (root / "dog" / "1.png").write_bytes(encoded(Image.new("L", (9, 9))))
    (root / "cat" / "0.png").unlink()
    with pytest.raises(DataError, match=r"cat/0.png.*dog/1.png"):
        list(source.chunks())


def test_fuzzed_images_never_escape(tmp_path: Path) -> None:
    """Flip bytes of small images of every format: either pixels or a DataError, never another exception."""
    kinds = ("PNG", "JPEG", "WEBP", "BMP", "TIFF")
    rng = np.random.default_rng(1)
    (tmp_path / "set" / "cat").mkdir(parents=True)
    for k in range(400):
        data = np.frombuffer(encoded(Image.fromarray(COLOUR), kinds[k % 5]), np.uint8).copy()
        places = rng.integers(0, len(data), rng.integers(1, 6))
        data[places] = rng.integers(0, 256, len(places))
        (tmp_path / "set" / "cat" / f"{k}.bin").write_bytes(data.tobytes())
    (tmp_path / "set" / "cat" / "good.png").write_bytes(PNG)
    source = open_source(tmp_path / "set", Reading(skip_bad=True, size=8))
    assert sum(len(labels) for _, labels in source.chunks()) == 401
    assert 0 < len(source.bad) < 401

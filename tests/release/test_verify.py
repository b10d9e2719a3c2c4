"""Verification: an unaltered release passes, and every change is named."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from PIL import Image, PngImagePlugin

from release.making import edit_certificate, edit_table, make_certificate, make_images, renew_sums
from sfumato.errors import UsageError, VerificationFailed
from sfumato.privacy import GaussianSum, NoisyChoice, ShardedAnswers, ShardedSums
from sfumato.release import Verdict, read_release, verify, write_release


def failed(folder: Path) -> dict[str, str]:
    return {check.name: check.detail for check in verify(folder).failed}


def test_an_unaltered_release_passes_on_one_screen(pristine: Path) -> None:
    verdict = verify(pristine)
    assert verdict.ok, verdict.text()
    text = verdict.text()
    assert len(text.splitlines()) <= 45
    assert max(map(len, text.splitlines())) <= 100 + len(str(pristine))
    for words in ("Guaranteed", "Against", "Assuming", "at most one image", "not signed", "rewrote", "drawn"):
        assert words in text
    verdict.require()
    assert json.loads(json.dumps(verdict.to_dict()))["ok"] is True


@pytest.mark.parametrize(
    "mechanisms",
    [
        (GaussianSum(noise_multiplier=2.0, sampling=0.05, rounds=200),),
        (ShardedAnswers(noise_multiplier=4.0, shards=20, rounds=100),),
        (ShardedSums(noise_multiplier=40.0, shards=20, rounds=100),),
        (GaussianSum(noise_multiplier=6.0), NoisyChoice(noise_multiplier=10.0, candidates=5)),
    ],
)
def test_other_mechanisms_pass_too(tmp_path: Path, mechanisms: Any) -> None:
    images = make_images(channels=3)
    folder = write_release(tmp_path / "r", images, make_certificate(images, *mechanisms))
    assert verify(folder).ok, verify(folder).text()


def test_it_needs_no_torch_and_takes_seconds(pristine: Path) -> None:
    script = (
        "import sys, time\nstart = time.process_time()\nfrom sfumato.release import verify\n"
        "verdict = verify(sys.argv[1])\nassert verdict.ok, verdict.text()\nverdict.text()\n"
        "assert 'torch' not in sys.modules\nassert time.process_time() - start < 5\n"
    )
    subprocess.run([sys.executable, "-c", script, str(pristine)], check=True, timeout=60)


def test_bytes_behind_the_pixels_of_any_of_many_images_are_found(tmp_path: Path) -> None:
    """Of so many images, every second used to be looked at by its header alone."""
    images = make_images(count=2600, side=2)
    folder = write_release(tmp_path / "r", images, make_certificate(images))
    original = next((folder / "data").iterdir()).read_bytes()
    for number, spoil in ((1, _longer), (1235, _after_the_end), (2599, _other_checksum)):
        next((folder / "data").iterdir()).write_bytes(original)
        edit_table(folder, _one(number, spoil), row_group_size=1000)
        renew_sums(folder)
        found = failed(folder)
        assert found.keys() == {"images"}
        assert found["images"].startswith(f"image {number} ")
        with pytest.raises(VerificationFailed, match="an image that"):
            read_release(folder)


def test_flipping_any_byte_of_a_shard_is_noticed(release: Path) -> None:
    (shard,) = (release / "data").iterdir()
    original = shard.read_bytes()
    for at in (0, 100, len(original) // 2, len(original) - 1):
        shard.write_bytes(original[:at] + bytes([original[at] ^ 1]) + original[at + 1 :])
        assert "train-00000-of-00001.parquet differs" in failed(release)["sums"]


def _set(*path: Any) -> Callable[[dict[str, Any]], None]:
    *parents, last, value = path

    def change(values: Any) -> None:
        for parent in parents:
            values = values[parent]
        values[last] = value

    return change


TAMPERING = [
    ("halved noise", _set("mechanisms", 0, "noise_multiplier", 2.25), {"second accountant", "epsilon"}),
    ("noise off by 1%", _set("mechanisms", 0, "noise_multiplier", 4.5 * 0.99), {"epsilon"}),
    ("more noise", _set("mechanisms", 0, "noise_multiplier", 9.0), {"epsilon", "renyi"}),
    ("no noise", _set("mechanisms", 0, "noise_multiplier", 0), {"noise", "epsilon"}),
    ("null noise", _set("mechanisms", 0, "noise_multiplier", None), {"noise", "epsilon"}),
    ("tiny noise", _set("mechanisms", 0, "noise_multiplier", 1e-9), {"second accountant", "epsilon"}),
    ("rounds", _set("mechanisms", 0, "rounds", 2), {"second accountant", "epsilon"}),
    ("many rounds", _set("mechanisms", 0, "rounds", 10**8), {"second accountant", "epsilon"}),
    ("sampling", _set("mechanisms", 0, "sampling", 0.5), {"epsilon"}),
    ("no mechanisms", _set("mechanisms", []), {"noise", "epsilon"}),
    ("lower epsilon", _set("guarantee", "epsilon", 0.5), {"second accountant", "epsilon", "card"}),
    ("higher epsilon", _set("guarantee", "epsilon", 3.0), {"epsilon", "budget", "card"}),
    ("lower delta", _set("guarantee", "delta", 1e-9), {"second accountant", "epsilon", "card"}),
    ("renyi", _set("guarantee", "epsilon_rdp", 0.1), {"renyi"}),
    ("budget", _set("budget", "epsilon", 0.1), {"budget"}),
    ("budget delta", _set("budget", "delta", 1e-9), {"budget"}),
    ("few records", _set("public", "count", 1000_00), {"delta"}),
    ("seeded noise", _set("noise", "private", False), {"noise"}),
    ("curve", _set("profile", [[0.5, 1e-9]]), {"curve"}),
    ("no curve", _set("profile", []), {"curve"}),
    ("count", _set("samples", "count", 39), {"count"}),
    ("no logits", _set("samples", "has_logits", False), {"columns"}),
    ("height", _set("public", "height", 9), {"images"}),
    ("channels", _set("public", "channels", 3), {"images"}),
    ("class names", _set("public", "classes", ["a", "b", "c"]), {"columns"}),
    ("fewer classes", _set("public", "classes", ["zero", "T-shirt/top"]), {"columns", "rows"}),
    ("format", _set("format", "sfumato-release/9"), {"certificate"}),
    ("extra field", _set("accuracy_on_real_data", 0.9), {"certificate"}),
]


@pytest.mark.parametrize(("change", "named"), [t[1:] for t in TAMPERING], ids=[t[0] for t in TAMPERING])
def test_an_edited_certificate_is_caught_even_with_new_sums(
    release: Path, change: Callable[[dict[str, Any]], None], named: set[str]
) -> None:
    edit_certificate(release, change)
    assert "certificate.json differs" in failed(release)["sums"]
    renew_sums(release)
    found = failed(release)
    assert "sums" not in found
    assert named <= found.keys(), found


def test_the_epsilon_of_an_edited_noise_multiplier_is_recounted(release: Path) -> None:
    edit_certificate(release, _set("mechanisms", 0, "noise_multiplier", 3.0))
    renew_sums(release)
    detail = failed(release)
    assert "is claimed" in detail["epsilon"]
    assert "is claimed" in detail["second accountant"]
    with pytest.raises(VerificationFailed, match="epsilon") as refused:
        verify(release).require()
    assert refused.value.exit_code == 6


def test_every_change_of_a_sum_is_caught(release: Path) -> None:
    sums = release / "SHA256SUMS"
    lines = sums.read_text().splitlines()
    for index, line in enumerate(lines):
        other = "0" if line[0] != "0" else "1"
        sums.write_text("\n".join([*lines[:index], other + line[1:], *lines[index + 1 :]]) + "\n")
        assert line.split()[-1] in failed(release)["sums"]


@pytest.mark.parametrize(
    ("extra", "complaint"),
    [
        ("0" * 64 + "  ../../etc/passwd\n", "plain path"),
        ("0" * 64 + "  /etc/passwd\n", "plain path"),
        ("0" * 64 + "  data/../README.md\n", "plain path"),
        ("0" * 64 + "  data//x\n", "plain path"),
        ("0" * 64 + "  gone.txt\n", "gone.txt is listed but missing"),
        ("nonsense\n", "plain path"),
        ("0" * 64 + "  README.md\n", "README.md is listed twice"),
        ("0" * 64 + "  half", "line end"),
    ],
)
def test_tricks_in_the_list(release: Path, extra: str, complaint: str) -> None:
    with (release / "SHA256SUMS").open("a") as file:
        file.write(extra)
    assert complaint in failed(release)["sums"]


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        "data/real.parquet",
        ".hidden",
        "images/zero/000.jpg",
        "lab/ledger.jsonl",
        "data/train-00000.png",
        "a\nb",
    ],
)
def test_an_extra_file_is_named_with_and_without_new_sums(release: Path, name: str) -> None:
    (release / name).parent.mkdir(parents=True, exist_ok=True)
    (release / name).write_text("x")
    found = failed(release)
    assert "not listed" in found["sums"]
    assert "does not belong" in found["file names"]
    renew_sums(release)
    assert "file names" in failed(release)


@pytest.mark.parametrize(
    "name", ["README.md", "SHA256SUMS", "certificate.json", "preview.png", "data/train-00000-of-00001.parquet"]
)
def test_a_deleted_file_is_named(release: Path, name: str) -> None:
    (release / name).unlink()
    assert f"{name} is " in failed(release)["sums"]
    if name != "SHA256SUMS":
        renew_sums(release)
        assert not verify(release).ok


def test_links_and_pipes_are_refused_and_nothing_hangs(release: Path, tmp_path: Path) -> None:
    (release / "preview.png").rename(tmp_path / "p.png")
    (release / "preview.png").symlink_to(tmp_path / "p.png")
    assert "preview.png is not a regular file" in failed(release)["sums"]
    (release / "preview.png").unlink()
    os.mkfifo(release / "preview.png")
    assert "preview.png is not a regular file" in failed(release)["sums"]


def test_a_linked_folder_is_refused(release: Path, tmp_path: Path) -> None:
    (release / "data").rename(tmp_path / "data")
    (release / "data").symlink_to(tmp_path / "data")
    assert "data is not a regular file" in failed(release)["sums"]


def with_text(png: bytes) -> bytes:
    note, buffer = PngImagePlugin.PngInfo(), io.BytesIO()
    note.add_text("Comment", "patient 17")
    Image.open(io.BytesIO(png)).save(buffer, "PNG", pnginfo=note)
    return buffer.getvalue()


def _images(change: Callable[[int, dict[str, Any]], dict[str, Any]]) -> Callable[[Any], Any]:
    def edit(table: Any) -> Any:
        rows = [change(i, row) for i, row in enumerate(table.column("image").to_pylist())]
        return table.set_column(0, table.schema.field("image"), pa.array(rows, table.schema.field("image").type))

    return edit


def _one(number: int, change: Callable[[bytes], bytes | None]) -> Callable[[Any], Any]:
    return _images(lambda i, row: {"bytes": change(row["bytes"]) if i == number else row["bytes"], "path": None})


def _seventh(change: Callable[[bytes], bytes | None]) -> Callable[[Any], Any]:
    return _one(7, change)


def _body(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Another IDAT, with the checksum that belongs to it."""

    def edit(png: bytes) -> bytes:
        at = png.index(b"IDAT")
        (length,) = struct.unpack_from(">I", png, at - 4)
        chunk = b"IDAT" + change(png[at + 4 : at + 4 + length])
        sealed = struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
        return png[: at - 4] + sealed + png[at + 8 + length :]

    return edit


def _filtered(stream: bytes) -> bytes:
    rows = bytearray(zlib.decompress(stream))
    rows[9] = 5
    return zlib.compress(rows)


def _with_dictionary(stream: bytes) -> bytes:
    packer = zlib.compressobj(zdict=b"agreed")
    return packer.compress(zlib.decompress(stream)) + packer.flush()


_longer = _body(lambda stream: zlib.compress(zlib.decompress(stream) + b"secret"))
_after_the_end = _body(lambda stream: stream + b"secret")
_other_checksum = _body(lambda stream: stream[:-4] + b"hide")


def _labels(table: Any) -> Any:
    labels = [9, *table.column("label").to_pylist()[1:]]
    return table.set_column(1, table.schema.field("label"), pa.array(labels))


def _logits(table: Any) -> Any:
    rows = table.column("logits").to_pylist()
    rows[5][1] = float("inf")
    return table.set_column(2, table.schema.field("logits"), pa.array(rows, table.schema.field("logits").type))


TABLES: list[tuple[str, Callable[[Any], Any], str, str]] = [
    ("text chunk", _seventh(with_text), "images", "image 7 has a 'tEXt' chunk"),
    ("bytes after the end", _seventh(lambda png: png + b"secret"), "images", "image 7 is a broken PNG"),
    ("not a picture", _seventh(lambda png: b"GIF89a" + png), "images", "image 7 is not a PNG"),
    ("cut", _seventh(lambda png: png[:-20]), "images", "image 7 is a broken PNG"),
    ("empty", _seventh(lambda png: b""), "images", "image 7 is not a PNG"),
    ("bytes after the pixels", _seventh(_longer), "images", "image 7 holds more bytes than its pixels"),
    ("bytes after the stream", _seventh(_after_the_end), "images", "image 7 does not decompress (there are bytes"),
    ("another checksum", _seventh(_other_checksum), "images", "image 7 does not decompress"),
    ("half a stream", _seventh(_body(lambda z: z[:-5])), "images", "image 7 does not decompress (it ends too early"),
    ("no stream", _seventh(_body(lambda z: b"")), "images", "image 7 does not decompress (it ends too early"),
    ("dictionary", _seventh(_body(_with_dictionary)), "images", "image 7 does not decompress"),
    ("window", _seventh(_body(lambda z: b"\x88\x1c" + z[2:])), "images", "image 7 does not decompress"),
    ("filter", _seventh(_body(_filtered)), "images", "image 7 is a broken PNG (a row has an unknown filter)"),
    ("null", _seventh(lambda png: None), "images", "image 7 is not a PNG"),
    ("file names", _images(lambda i, row: {**row, "path": "anna.png"}), "images", "path"),
    ("extra column", lambda t: t.append_column("owner", pa.array(["anna"] * len(t))), "columns", "'owner'"),
    ("schema metadata", lambda t: t.replace_schema_metadata({**t.schema.metadata, "x": "y"}), "columns", "metadata"),
    ("no metadata", lambda t: t.replace_schema_metadata({}), "columns", "metadata"),
    ("label", _labels, "labels", "image 0 has label 9"),
    ("logit", _logits, "logits", "not finite"),
    ("fewer rows", lambda t: t.slice(0, 30), "count", "30 images where the certificate states 40"),
    ("column missing", lambda t: t.drop_columns(["label"]), "columns", "other columns"),
]


@pytest.mark.parametrize(("edit", "name", "complaint"), [t[1:] for t in TABLES], ids=[t[0] for t in TABLES])
def test_forbidden_content_in_a_shard(release: Path, edit: Callable[[Any], Any], name: str, complaint: str) -> None:
    edit_table(release, edit)
    renew_sums(release)
    found = failed(release)
    assert complaint in found.get(name, ""), found


def test_a_compressed_shard_is_refused(release: Path) -> None:
    edit_table(release, lambda t: t, compression="zstd")
    renew_sums(release)
    assert "compressed" in failed(release)["columns"]


def test_a_shard_that_is_no_parquet(release: Path) -> None:
    (shard,) = (release / "data").iterdir()
    shard.write_bytes(b"PAR1" + b"\0" * 100 + b"PAR1")
    renew_sums(release)
    assert {"columns", "rows"} <= failed(release).keys()


def test_card_and_preview_are_looked_into(release: Path) -> None:
    (release / "preview.png").write_bytes(with_text((release / "preview.png").read_bytes()))
    card = (release / "README.md").read_text()
    (release / "README.md").write_text(card + "<img src='data:image/png;base64,AAAA'>")
    renew_sums(release)
    assert failed(release).keys() == {"card", "preview"}


def test_exported_pictures_must_be_those_of_the_shards(tmp_path: Path) -> None:
    images = make_images()
    folder = write_release(tmp_path / "r", images, make_certificate(images), export_folders=True)
    first, second = sorted((folder / "images").rglob("*.png"))[:2]
    first.write_bytes(second.read_bytes())
    renew_sums(folder)
    assert "is not an image of the shards" in failed(folder)["images"]
    first.unlink()
    renew_sums(folder)
    assert "is missing" in failed(folder)["images"]


def test_one_failure_does_not_stop_the_other_checks(release: Path) -> None:
    (release / "README.md").unlink()
    edit_certificate(release, _set("mechanisms", 0, "noise_multiplier", 3.0))
    edit_table(release, _labels)
    assert {"sums", "card", "labels", "epsilon", "second accountant"} <= failed(release).keys()


def test_an_unreadable_certificate_fails_everything_that_needs_it(release: Path) -> None:
    text = (release / "certificate.json").read_bytes()
    for broken in (text[:200], text.replace(b'"budget"', b'"format"', 1), b"[" * 100_000):
        (release / "certificate.json").write_bytes(broken)
        verdict = verify(release)
        assert {"certificate", "epsilon", "noise", "rows"} <= {c.name for c in verdict.failed}
        assert verdict.text().startswith("FAILED")


def test_another_spelling_of_the_certificate_is_refused(release: Path) -> None:
    path = release / "certificate.json"
    path.write_text(json.dumps(json.loads(path.read_text())))
    renew_sums(release)
    assert "canonical" in failed(release)["certificate"]


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        verify(tmp_path / "nothing")
    verdict = verify(tmp_path)
    assert isinstance(verdict, Verdict)
    assert not verdict.ok


def test_terminal_escapes_do_not_reach_the_screen(release: Path) -> None:
    edit_certificate(release, _set("assumptions", ["\x1b[2Jgone"]))
    renew_sums(release)
    assert "\x1b" not in verify(release).text()

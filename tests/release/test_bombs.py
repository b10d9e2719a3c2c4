"""Small files that unpack to much memory are refused by what they are, before they are unpacked."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from release.bombs import PICTURES, SHARDS, plant, png
from release.making import edit_certificate, make_certificate, make_images, renew_card, renew_sums
from sfumato.errors import VerificationFailed
from sfumato.release import layout, read_release, tables, verify, write_release

MARGIN = 200_000  # kB of memory beyond what an ordinary release takes

CHILD = """
import json, sys
from sfumato.release import read_release, verify
for folder in sys.argv[1:]:
    verdict = {check.name: check.detail for check in verify(folder).failed}
    try:
        read_release(folder)
        read = ""
    except Exception as error:
        read = f"{type(error).__name__}: {error}"
    peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(json.dumps([verdict, read, peak]), flush=True)
"""


def in_a_child(folders: list[Path]) -> list[Any]:
    """What is said of each release, and the largest memory of the process up to then."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *map(str, folders)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every bomb, one after the other in one process; the first release is an ordinary one."""
    root = tmp_path_factory.mktemp("bombs")
    images = make_images()
    ordinary = write_release(root / "ordinary", images, make_certificate(images))
    folders = {"ordinary": ordinary}
    for number, (name, (make, _)) in enumerate(SHARDS.items()):
        folders[name] = Path(shutil.copytree(ordinary, root / str(number)))
        assert plant(folders[name], make()) < 100_000
        if name in PICTURES:
            edit_certificate(folders[name], lambda values: values["samples"].update(count=1))
            renew_card(folders[name])
        renew_sums(folders[name])
    return dict(zip(folders, in_a_child(list(folders.values())), strict=True))


def test_an_ordinary_release_is_read_in_the_child(found: dict[str, Any]) -> None:
    assert found["ordinary"][:2] == [{}, ""]


@pytest.mark.parametrize("name", SHARDS)
def test_a_bomb_is_refused_by_name_and_takes_no_memory(name: str, found: dict[str, Any]) -> None:
    words = SHARDS[name][1]
    verdict, read, peak = found[name]
    assert words in verdict["images" if name in PICTURES else "columns"], verdict
    assert read.startswith("VerificationFailed"), read
    assert words in read
    if name not in PICTURES:
        assert "were not read" in verdict["rows"]
    assert {"epsilon", "card", "sums"}.isdisjoint(verdict), "the other checks still run"
    assert peak < found["ordinary"][2] + MARGIN


def test_the_rows_of_other_shards_are_still_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "SHARD_BYTES", 64 * 20)
    images = make_images()
    folder = write_release(tmp_path / "r", images, make_certificate(images), export_folders=True)
    first, second = layout.shards(folder)
    first.write_bytes(SHARDS["dictionary"][0]())
    second.write_bytes(SHARDS["a picture that goes on"][0]())
    renew_sums(folder)
    failed = {check.name: check.detail for check in verify(folder).failed}
    assert failed.keys() == {"columns", "rows", "images"}
    assert failed["rows"].startswith(f"the rows of {first.name} were not read")
    assert "more bytes than its pixels" in failed["images"]


def test_more_pixels_than_the_files_can_hold_are_refused(release: Path) -> None:
    edit_certificate(release, lambda values: values["public"].update(height=1 << 14, width=1 << 14))
    renew_sums(release)
    with pytest.raises(VerificationFailed, match="cannot be in files of"):
        read_release(release)


def test_the_preview_is_inflated_to_its_end_and_its_size_is_bounded(release: Path) -> None:
    def of_preview(contents: bytes) -> str:
        (release / "preview.png").write_bytes(contents)
        renew_sums(release)
        return next(check.detail for check in verify(release).failed if check.name == "preview")

    colour = layout.encode_png(np.zeros((3, 8, 8), np.uint8))
    assert "larger than" in of_preview(colour.replace(colour[8:33], _header(9000, 9000)))
    assert "more bytes than its pixels" in of_preview(colour.replace(colour[8:33], _header(8, 7)))


def _header(height: int, width: int) -> bytes:
    """The chunk of a colour picture."""
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))


@pytest.mark.parametrize("logits", [True, False])
def test_several_row_groups_and_shards_and_a_transfer_set_pass(
    logits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "SHARD_BYTES", 16 * 1700)
    images = make_images(count=2500, side=4, logits=logits, transfer=1001)
    folder = write_release(tmp_path / "r", images, make_certificate(images))
    assert len(layout.shards(folder)) == 2
    assert verify(folder).ok, verify(folder).text()
    again = read_release(folder).images
    assert torch.equal(again.pixels, images.pixels)
    assert again.transfer is not None
    assert images.transfer is not None
    assert torch.equal(again.transfer.pixels, images.transfer.pixels)


def test_one_pixel_of_many_classes_passes(tmp_path: Path) -> None:
    """The smallest picture and the longest footer beside it."""
    images = make_images(count=3, side=1)
    classes = tuple(f"{k} {'é' * 150}" for k in range(3000))
    images = type(images)(images.pixels, images.labels, classes)
    folder = write_release(tmp_path / "r", images, make_certificate(images))
    assert not [check for check in verify(folder).failed if check.name in ("columns", "rows", "count", "images")]
    assert len(png(1, 1)) > 64

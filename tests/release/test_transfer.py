"""Two subsets in one release: the images of the classes and those for transfer, kept apart and both looked into."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

from release.making import edit_certificate, edit_table, make_certificate, make_images, renew_sums
from release.test_verify import _labels, _logits, _seventh, with_text
from sfumato import data
from sfumato.errors import UsageError, VerificationFailed
from sfumato.release import layout, read_certificate, read_release, tables, verify, write_release
from sfumato.values import Images

from commands import sfumato


def failed(folder: Path) -> dict[str, str]:
    return {check.name: check.detail for check in verify(folder).failed}


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def same(one: Images, other: Images) -> bool:
    soft = (one.logits is None) == (other.logits is None) and (
        one.logits is None or torch.equal(one.logits, other.logits)
    )
    return soft and torch.equal(one.pixels, other.pixels) and torch.equal(one.labels, other.labels)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("logits", [True, False])
def test_round_trip_keeps_the_two_apart(channels: int, logits: bool, tmp_path: Path) -> None:
    images = make_images(channels=channels, logits=logits, transfer=25)
    certificate = make_certificate(images)
    folder = write_release(tmp_path / "r", images, certificate)
    again = read_release(folder)
    assert same(again.images, images)
    assert again.images.transfer is not None
    assert same(again.images.transfer, images.transfer)
    assert read_certificate(folder) == certificate
    assert again.certificate["samples"] == {"count": 40, "has_logits": logits, "transfer": 25}
    verdict = verify(folder)
    assert verdict.ok, verdict.text()
    assert "25 images, as stated" in {c.detail for c in verdict.checks}
    assert len(verdict.text().splitlines()) <= 45, "one screen"


def test_both_subsets_have_shards_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "SHARD_BYTES", 64 * 15)
    images = make_images(transfer=25)
    folder = write_release(tmp_path / "r", images, make_certificate(images), export_folders=True)
    shards = {subset: [p.name for p in layout.shards(folder, subset=subset)] for subset in ("data", "transfer")}
    assert shards == {
        "data": [f"train-0000{i}-of-00003.parquet" for i in range(3)],
        "transfer": [f"train-0000{i}-of-00002.parquet" for i in range(2)],
    }
    assert same(read_release(folder).images.transfer, images.transfer)
    assert len(list((folder / "images").rglob("*.png"))) == 40, "class folders hold the images of the classes"
    assert verify(folder).ok, verify(folder).text()


def test_the_folder_holds_only_public_things(pristine_pair: Path) -> None:
    assert sorted(contents(pristine_pair)) == [
        "README.md",
        "SHA256SUMS",
        "certificate.json",
        "data/train-00000-of-00001.parquet",
        "preview.png",
        "transfer/train-00000-of-00001.parquet",
    ]
    assert all(layout.allowed(name, "images") for name in contents(pristine_pair))


def test_a_release_without_them_is_as_it_always_was(pristine: Path) -> None:
    assert "transfer" not in json.loads((pristine / "certificate.json").read_text())["samples"]
    assert "transfer" not in (pristine / "README.md").read_text()
    assert read_release(pristine).images.transfer is None


def test_a_stated_zero_is_not_the_one_spelling(release: Path) -> None:
    edit_certificate(release, lambda values: values["samples"].update(transfer=0))
    renew_sums(release)
    assert failed(release).keys() == {"certificate"}


def test_the_card_says_what_each_is_for_and_how_it_loads(pristine_pair: Path) -> None:
    card = (pristine_pair / "README.md").read_text()
    header = card.split("---")[1]
    assert header.count("config_name") == 2
    assert "config_name: transfer" in header
    assert "path: transfer/train-*.parquet" in header
    assert "25 further images for transfer" in card
    assert 'load_dataset("path/to/this/folder", "transfer", split="train")' in card


def test_datasets_opens_both(pristine_pair: Path, tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    script = (
        "import json, sys, datasets\n"
        "sets = {n: datasets.load_dataset(sys.argv[1], n, split='train') for n in ('default', 'transfer')}\n"
        "plain = datasets.load_dataset(sys.argv[1], split='train')\n"
        "print(json.dumps({'counts': [len(s) for s in sets.values()], 'plain': len(plain),\n"
        "  'columns': [s.column_names for s in sets.values()], 'logits': sets['transfer'][3]['logits']}))\n"
    )
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "HF_DATASETS_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", script, str(pristine_pair)],
        env=os.environ | offline,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    seen, further = json.loads(done.stdout), make_images(transfer=25).transfer
    assert (seen["counts"], seen["plain"]) == ([40, 25], 40)
    assert seen["columns"] == [["image", "label"], ["image", "label", "logits"]]
    assert seen["logits"] == pytest.approx(further.logits[3].tolist())


def test_as_data_a_release_is_the_images_of_its_classes(pristine_pair: Path) -> None:
    assert same(data.load(pristine_pair), make_images())


def _other_label(table: Any) -> Any:
    labels = table.column("label").to_pylist()
    labels[4] = (labels[4] + 1) % 3
    return table.set_column(1, table.schema.field("label"), pa.array(labels))


TABLES: list[tuple[str, Callable[[Any], Any], str, str]] = [
    ("text chunk", _seventh(with_text), "transfer images", "image 7 has a 'tEXt' chunk"),
    ("extra column", lambda t: t.append_column("owner", pa.array(["anna"] * len(t))), "transfer columns", "'owner'"),
    (
        "schema metadata",
        lambda t: t.replace_schema_metadata({**t.schema.metadata, "x": "y"}),
        "transfer columns",
        "metadata",
    ),
    ("no logits", lambda t: t.drop_columns(["logits"]), "transfer columns", "other columns"),
    ("label", _labels, "transfer labels", "image 0 has label 9"),
    ("logit", _logits, "transfer logits", "not finite"),
    ("another label", _other_label, "transfer logits", "image 4 has another label than its logits say"),
    ("fewer rows", lambda t: t.slice(0, 20), "transfer count", "20 images where the certificate states 25"),
]


@pytest.mark.parametrize(("edit", "name", "complaint"), [t[1:] for t in TABLES], ids=[t[0] for t in TABLES])
def test_tampering_is_named_and_exits_with_six(
    edit: Callable[[Any], Any], name: str, complaint: str, pair: Path
) -> None:
    edit_table(pair, edit, subset="transfer")
    assert "transfer/train-00000-of-00001.parquet differs" in failed(pair)["sums"]
    renew_sums(pair)
    found = failed(pair)
    assert complaint in found.get(name, ""), found
    assert all(check.startswith("transfer ") for check in found), "the images of the classes are as they were"
    assert sfumato("verify", pair).code == 6


def test_a_label_that_the_logits_of_class_images_deny_is_named_too(release: Path) -> None:
    edit_table(release, _other_label)
    renew_sums(release)
    assert "image 4 has another label" in failed(release)["logits"]


@pytest.mark.parametrize(
    ("count", "named"), [(24, {"card", "transfer count"}), (26, {"card", "transfer count"}), (0, {"card", "transfer"})]
)
def test_a_certificate_that_lies_about_them_is_caught(count: int, named: set[str], pair: Path) -> None:
    def lie(values: dict[str, Any]) -> None:
        values["samples"]["transfer"] = count
        if not count:
            del values["samples"]["transfer"]

    edit_certificate(pair, lie)
    renew_sums(pair)
    assert failed(pair).keys() == named
    assert sfumato("verify", pair).code == 6
    if count:
        with pytest.raises(
            VerificationFailed, match=f"25 images in transfer/ where the certificate states {count}|out of bounds"
        ):
            read_release(pair)


def test_a_subset_that_is_stated_must_be_there(pair: Path) -> None:
    shutil.rmtree(pair / "transfer")
    renew_sums(pair)
    assert failed(pair).keys() == {"transfer columns", "transfer count"}
    with pytest.raises(VerificationFailed, match="0 images in transfer/ where the certificate states 25"):
        read_release(pair)


@pytest.mark.parametrize("name", ["transfer/real.parquet", "transfer/notes.txt", "transfer/train-00000-of-1.parquet"])
def test_nothing_else_may_lie_beside_them(name: str, pair: Path) -> None:
    (pair / name).write_text("x")
    renew_sums(pair)
    assert "does not belong" in failed(pair)["file names"]


def test_images_for_transfer_that_cannot_be_are_refused(tmp_path: Path) -> None:
    images = make_images(transfer=25)
    certificate, further = make_certificate(images), images.transfer
    wrong = {
        "Expected 25 images for transfer as in the certificate, got none": None,
        "images for transfer 25 as in the certificate, got 24": make_images(count=24, logits=True),
        "images for transfer of shape": make_images(count=25, channels=3, logits=True),
        "images for transfer of the classes": replace(further, classes=("a", "b", "c")),
        "logits with images for transfer: True": make_images(count=25),
        "another for image 0": replace(further, labels=(further.labels + 1) % 3),
        "finite logits of shape": replace(further, logits=further.logits[:, :2]),
    }
    for sentence, other in wrong.items():
        with pytest.raises(UsageError, match=sentence):
            write_release(tmp_path / "r", replace(images, transfer=other), certificate)
    with pytest.raises(UsageError, match="images for transfer 0 as in the certificate, got 25"):
        write_release(tmp_path / "r", images, make_certificate(make_images()))
    assert not list(tmp_path.iterdir())

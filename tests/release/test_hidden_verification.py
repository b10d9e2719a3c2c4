"""Verification of images with a hidden attribute: it never says yes, and every change is named."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from release.bombs import PICTURES, SHARDS, plant, png
from release.hidden_making import edit_facts, make_faces, make_facts
from release.making import CLASSES, edit_table, make_certificate, make_images, renew_sums
from sfumato.errors import NoGuarantee, VerificationFailed
from sfumato.release import layout, read_hidden, verify, write_hidden
from sfumato.values import Attributed

from wording import PROMISES, only_says_there_is_no_epsilon

Change = Callable[[Path], Any]


def failed(folder: Path) -> dict[str, str]:
    return {check.name: check.detail for check in verify(folder).failed}


def test_whole_files_are_no_claim_that_holds(pristine_hidden: Path) -> None:
    verdict = verify(pristine_hidden)
    assert verdict.intact, verdict.text()
    assert not verdict.ok
    assert verdict.exit_code == 7
    assert [check.name for check in verdict.checks] == [
        "sums",
        "file names",
        "facts",
        "card",
        "preview",
        "columns",
        "count",
        "images",
        "labels",
    ]
    lines = verdict.text().splitlines()
    assert lines[0] == f"NO GUARANTEE  {pristine_hidden}: there is no epsilon here."
    assert len(lines) <= 25
    assert max(map(len, lines[1:])) <= 100
    assert verdict.to_dict()["ok"] is False
    assert verdict.to_dict()["facts"] == {"level": "empirical"}
    with pytest.raises(NoGuarantee, match="there is no epsilon here") as refused:
        verdict.require()
    assert isinstance(refused.value, VerificationFailed)
    assert refused.value.exit_code == 7


def test_it_needs_no_torch_and_no_core(pristine_hidden: Path) -> None:
    script = (
        "import sys\nfrom sfumato.release.hidden_verification import verify_hidden\nfrom pathlib import Path\n"
        "verdict = verify_hidden(Path(sys.argv[1]))\nassert verdict.intact, verdict.text()\n"
        "assert not {'torch', 'sfumato.privacy', 'dp_accounting'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(pristine_hidden)], check=True, timeout=60)


def _reversed(folder: Path) -> None:
    edit_table(folder, lambda table: table.take(pa.array(range(len(table) - 1, -1, -1))))


def test_rows_in_another_order_are_another_release_that_is_whole(hidden: Path) -> None:
    """Whoever renews the sums has written another release: nothing says in which order the images must be."""
    before = read_hidden(hidden).images.pixels
    _reversed(hidden)
    assert failed(hidden).keys() == {"sums"}
    renew_sums(hidden)
    assert verify(hidden).intact, verify(hidden).text()
    assert read_hidden(hidden).images.pixels.equal(before.flip(0))


def _with_column(name: str) -> Change:
    return lambda folder: edit_table(folder, lambda t: t.append_column(name, pa.array([0] * len(t))))


def _with_picture(picture: bytes) -> Change:
    def change(table: pa.Table) -> pa.Table:
        rows = table.column("image").to_pylist()
        rows[3] = {"bytes": picture, "path": None}
        return table.set_column(0, table.schema.field("image"), pa.array(rows, table.schema.field("image").type))

    return lambda folder: edit_table(folder, change)


def _with_path(folder: Path) -> None:
    def change(table: pa.Table) -> pa.Table:
        rows = table.column("image").to_pylist()
        rows[0]["path"] = "/home/anna/17.png"
        return table.set_column(0, table.schema.field("image"), pa.array(rows, table.schema.field("image").type))

    edit_table(folder, change)


def _with_label(folder: Path) -> None:
    def change(table: pa.Table) -> pa.Table:
        return table.set_column(1, table.schema.field("age"), pa.array([9, *table.column("age").to_pylist()[1:]]))

    edit_table(folder, change)


def _race_in_the_facts(values: dict[str, Any]) -> None:
    values["labels"]["race"] = values["values"]


def _race_under_another_name(folder: Path) -> None:
    """In the facts and in the card, but the shards have other columns."""
    edit_facts(folder, lambda v: v["labels"].update(origin=v["values"]), card=True)


def _edited(name: str, old: str, new: str) -> Change:
    def change(folder: Path) -> None:
        text = (folder / name).read_text("utf-8")
        assert old in text
        (folder / name).write_text(text.replace(old, new), "utf-8")

    return change


# name: what an attacker does, who then renews the sums; which checks fail, and a word of one of them
TAMPERED: dict[str, tuple[Change, set[str], str]] = {
    "the hidden attribute as a column": (_with_column("race"), {"columns", "rows"}, "a column 'race'"),
    "an extra column": (_with_column("note"), {"columns", "rows"}, "a column 'note'"),
    "the hidden attribute in the facts": (
        lambda f: edit_facts(f, _race_in_the_facts),
        {"facts", "card", "preview", "columns", "rows"},
        "other than the hidden attribute",
    ),
    "the hidden attribute under another name": (_race_under_another_name, {"columns", "rows"}, "than are stated"),
    "a column less": (
        lambda f: edit_table(f, lambda t: t.drop_columns(["age"])),
        {"columns", "rows"},
        "than are stated",
    ),
    "compressed": (lambda f: edit_table(f, lambda t: t, compression="zstd"), {"columns", "rows"}, "is compressed"),
    "fewer rows": (lambda f: edit_table(f, lambda t: t.slice(0, 20)), {"count"}, "20 images where hidden.json states"),
    "a label out of range": (_with_label, {"labels"}, "image 0 has age 9, outside 0..2"),
    "a path": (_with_path, {"images"}, "states a path"),
    "a grey picture": (_with_picture(png(8, 8)), {"images"}, "not an 8-bit picture of 3 channels"),
    "no picture": (_with_picture(b""), {"images"}, "is not a PNG"),
    "an edited card": (
        _edited("README.md", "may still be recognised", "cannot be recognised"),
        {"card"},
        "not the card that hidden.json gives",
    ),
    "a card with a promise": (_edited("README.md", "# Images", "# Certified images"), {"card"}, "not the card"),
    "other facts": (_edited("hidden.json", '"codes": 64', '"codes": 65'), {"card"}, "not the card"),
    "facts in another form": (_edited("hidden.json", '": ', '":'), {"facts"}, "canonical"),
    "a level": (
        _edited("hidden.json", '"empirical"', '"certified"'),
        {"facts", "card", "preview", "columns", "rows"},
        "level",
    ),
    "a certificate": (lambda f: (f / "certificate.json").write_text("{}"), {"file names"}, "certificate.json does not"),
    "a note": (lambda f: (f / "notes.txt").write_text("hello"), {"file names"}, "notes.txt does not belong"),
    "exported images": (
        lambda f: (
            (f / "images" / "a").mkdir(parents=True),
            (f / "images" / "a" / "000000.png").write_bytes(png(8, 8)),
        ),
        {"file names"},
        "does not belong",
    ),
    "a transfer set": (
        lambda f: shutil.copytree(f / "data", f / "transfer"),
        {"file names"},
        "transfer/train-00000-of-00001.parquet does not belong",
    ),
    "a preview that is none": (lambda f: (f / "preview.png").write_bytes(b"x"), {"preview"}, "is not a PNG"),
    "a preview with more than pixels": (
        lambda f: (f / "preview.png").write_bytes((f / "preview.png").read_bytes() + b"secret"),
        {"preview"},
        "broken PNG",
    ),
    "no preview": (lambda f: (f / "preview.png").unlink(), {"preview"}, "could not be read"),
    "no shards": (lambda f: shutil.rmtree(f / "data"), {"columns", "count"}, "no shards"),
    "a cut shard": (
        lambda f: os.truncate(f / "data" / "train-00000-of-00001.parquet", 1000),
        {"columns", "rows"},
        "is cut",
    ),
    "a shard out of order": (
        lambda f: (f / "data" / "train-00000-of-00001.parquet").rename(f / "data" / "train-00001-of-00002.parquet"),
        {"columns"},
        "not numbered",
    ),
    "facts with an epsilon": (
        lambda f: edit_facts(f, lambda v: v.update(epsilon=1.0)),
        {"facts", "card", "preview", "columns", "rows"},
        "there is no epsilon here",
    ),
    "a file that is called epsilon": (
        lambda f: (f / "epsilon-1.txt").write_text("certified"),
        {"file names"},
        "there is no epsilon here",
    ),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_change_is_named_with_sums_and_without(name: str, hidden: Path) -> None:
    change, checks, words = TAMPERED[name]
    change(hidden)
    assert "sums" in failed(hidden)
    renew_sums(hidden)
    verdict = verify(hidden)
    found = {check.name: check.detail for check in verdict.failed}
    assert found.keys() == checks
    assert words in " ".join(found.values())
    assert (verdict.ok, verdict.intact, verdict.exit_code) == (False, False, 6)
    text = verdict.text()
    assert text.splitlines()[0] == f"NO GUARANTEE  {hidden}: there is no epsilon here."
    assert "FAILED" in text
    assert only_says_there_is_no_epsilon(text)
    assert not [word for word in PROMISES if word in text.replace("'certified'", "")]
    with pytest.raises(VerificationFailed) as refused:
        verdict.require()
    assert refused.value.exit_code == 6


BOMBS = (
    *PICTURES,
    "dictionary under a footer that says plain",
    "null rows in a small group",
    "row groups that share their bytes",
    "a page of many values",
)


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_by_name(name: str, tmp_path: Path) -> None:
    """Small files that unpack to much memory, in a grey release with one label; `bombs` makes them."""
    plain = make_faces(count=1 if name in PICTURES else 40, channels=1)
    labelled = Attributed(plain.pixels, {"label": plain.attributes["age"]}, {"label": CLASSES})
    folder = write_hidden(tmp_path / "h", labelled, make_facts(labelled))
    make, words = SHARDS[name]
    assert plant(folder, make()) < 100_000
    renew_sums(folder)
    assert words in failed(folder)["images" if name in PICTURES else "columns"]
    with pytest.raises(VerificationFailed, match=words):
        read_hidden(folder)


def test_each_file_missing_changed_or_not_listed(hidden: Path) -> None:
    files = [path for path in sorted(hidden.rglob("*")) if path.is_file()]
    assert len(files) == 5
    for path in files:
        whole = path.read_bytes()
        for other in (None, b"", whole[:-1], whole + b"\n", whole[:40] + bytes([whole[40] ^ 1]) + whole[41:]):
            path.unlink(missing_ok=True)
            if other is not None:
                path.write_bytes(other)
            verdict = verify(hidden)
            assert verdict.exit_code == 6, path
            if path.name == "hidden.json" and other is None:
                continue  # then nothing says any more what it was, and it fails like any broken release
            assert verdict.text().startswith("NO GUARANTEE")
        path.write_bytes(whole)
    assert verify(hidden).intact


def test_a_changed_pixel_is_noticed_by_the_sums(hidden: Path) -> None:
    (shard,) = (hidden / "data").iterdir()
    whole = shard.read_bytes()
    for at in (100, len(whole) // 2, len(whole) - 1):
        shard.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert "train-00000-of-00001.parquet differs" in failed(hidden)["sums"]


def test_links_and_pipes_are_not_followed(hidden: Path, tmp_path: Path) -> None:
    facts = hidden / "hidden.json"
    facts.rename(tmp_path / "elsewhere.json")
    facts.symlink_to(tmp_path / "elsewhere.json")
    assert "a link, folder or pipe" in failed(hidden)["facts"]
    facts.unlink()
    os.mkfifo(facts)
    assert "a link, folder or pipe" in failed(hidden)["facts"]


def test_a_hidden_release_cannot_pass_for_a_certified_one(hidden: Path) -> None:
    """With a certificate, card and sums of a real release of images its hidden.json still says what it is."""
    images = make_images()
    (hidden / "certificate.json").write_text(make_certificate(images).to_json())
    renew_sums(hidden)
    verdict = verify(hidden)
    assert verdict.text().startswith("NO GUARANTEE")
    assert verdict.exit_code == 6
    (hidden / "hidden.json").unlink()
    renew_sums(hidden)
    assert {"card", "columns"} <= failed(hidden).keys(), "and without it the rest does not fit the certificate"


def test_a_certificate_in_the_place_of_the_facts_fails(hidden: Path) -> None:
    (hidden / "hidden.json").write_text(make_certificate(make_images()).to_json())
    renew_sums(hidden)
    assert "facts" in failed(hidden)


@pytest.mark.parametrize("licence", ["license: cc0-1.0", "license: CC-BY-4.0"])
def test_a_licence_may_be_filled_in(licence: str, hidden: Path) -> None:
    card = hidden / layout.CARD
    card.write_text(card.read_text("utf-8").replace("license: unknown", licence), "utf-8")
    renew_sums(hidden)
    assert verify(hidden).intact, verify(hidden).text()


def test_the_verdict_is_the_same_for_machines(pristine_hidden: Path) -> None:
    said = json.dumps(verify(pristine_hidden).to_dict())
    assert only_says_there_is_no_epsilon(said)
    assert not [word for word in PROMISES if word in said]


def test_a_hidden_attribute_that_is_called_like_a_promise_is_not_printed(tmp_path: Path) -> None:
    """What the publisher calls things stands in hidden.json, and not in what `verify` says."""
    images = make_faces()
    folder = write_hidden(tmp_path / "h", images, make_facts(images, hidden="VERIFIED and safe for everyone"))
    assert "safe for everyone" not in verify(folder).text()

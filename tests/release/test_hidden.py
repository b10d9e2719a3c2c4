"""Images with a hidden attribute, written and read back: complete, the same bytes each time, open to common tools."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from release.hidden_making import WEIGHTS, make_faces, make_facts
from release.making import make_certificate, make_images, renew_sums
from release.test_write import contents, names
from sfumato.errors import SfumatoError, UsageError, VerificationFailed
from sfumato.release import layout, read_certificate, read_hidden, read_model, read_release, tables, verify
from sfumato.release.hidden import write_hidden
from sfumato.release.kind import release_kind
from sfumato.release.write import write_release
from sfumato.values import Attributed

from wording import PROMISES, only_says_there_is_no_epsilon


@pytest.mark.parametrize("channels", [1, 3])
def test_round_trip(tmp_path: Path, channels: int) -> None:
    images = make_faces(channels=channels)
    facts = make_facts(images)
    again = read_hidden(write_hidden(tmp_path / "h", images, facts))
    assert again.path == tmp_path / "h"
    assert again.facts == facts
    assert torch.equal(again.images.pixels, images.pixels)
    assert list(again.images.attributes) == ["age", "gender"]
    assert again.images.classes == images.classes
    for name, values in images.attributes.items():
        assert torch.equal(again.images.attributes[name], values)


def test_several_shards_and_row_groups_keep_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "SHARD_BYTES", 16 * 1700)
    images = make_faces(count=2500, side=4, channels=1)
    folder = write_hidden(tmp_path / "h", images, make_facts(images))
    assert len(layout.shards(folder)) == 2
    assert torch.equal(read_hidden(folder).images.pixels, images.pixels)
    assert verify(folder).intact, verify(folder).text()


def test_many_labels_and_none(tmp_path: Path) -> None:
    plain = make_faces(count=3, side=1)
    many = {f"label {k} {'é' * 150}": plain.attributes["gender"] for k in range(100)}
    for attributes in (many, {}):
        images = Attributed(plain.pixels, attributes, dict.fromkeys(attributes, ("no", "yes")))
        folder = write_hidden(tmp_path / str(len(attributes)), images, make_facts(images))
        assert verify(folder).intact, verify(folder).text()
        assert read_hidden(folder).images.attributes.keys() == attributes.keys()


def test_two_writes_are_byte_identical(tmp_path: Path) -> None:
    images = make_faces()
    other_order = replace(images, attributes=dict(reversed(images.attributes.items())))
    first = write_hidden(tmp_path / "a", images, make_facts(images))
    second = write_hidden(tmp_path / "b", other_order, make_facts(other_order))
    assert contents(first) == contents(second)


def test_the_folder_holds_only_public_things_and_no_certificate(pristine_hidden: Path) -> None:
    assert sorted(contents(pristine_hidden)) == [
        "README.md",
        "SHA256SUMS",
        "data/train-00000-of-00001.parquet",
        "hidden.json",
        "preview.png",
    ]
    everything = b"".join(contents(pristine_hidden).values())
    for secret in (str(pristine_hidden.parent).encode(), b"tEXt", b"eXIf", b"tIME"):
        assert secret not in everything
    assert release_kind(pristine_hidden) == "hidden-images"


def test_datasets_opens_it_as_it_is(pristine_hidden: Path, tmp_path: Path) -> None:
    script = (
        "import json, sys, datasets, numpy as np\n"
        "data = datasets.load_dataset(sys.argv[1], split='train')\n"
        "row = data[3]\n"
        "print(json.dumps({'count': len(data), 'columns': data.column_names, 'age': row['age'],\n"
        "  'names': {n: data.features[n].names for n in ('age', 'gender')}, 'gender': row['gender'],\n"
        "  'pixels': np.asarray(row['image']).tolist()}))\n"
    )
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "HF_DATASETS_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", script, str(pristine_hidden)],
        env=os.environ | offline,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    seen, images = json.loads(done.stdout), make_faces()
    assert (seen["count"], seen["columns"]) == (30, ["image", "age", "gender"])
    assert {name: tuple(of) for name, of in seen["names"].items()} == images.classes
    assert (seen["age"], seen["gender"]) == tuple(images.attributes[name][3].item() for name in ("age", "gender"))
    assert seen["pixels"] == images.pixels[3].permute(1, 2, 0).tolist()


def _out_of_range(images: Attributed) -> Attributed:
    return replace(images, attributes={**images.attributes, "age": images.attributes["age"] - 1})


WRONG: dict[str, tuple[Callable[[Attributed], Attributed], str]] = {
    "the hidden attribute": (
        lambda i: replace(i, attributes={**i.attributes, "race": i.attributes["age"]}),
        "without the hidden attribute race",
    ),
    "a further label": (
        lambda i: Attributed(i.pixels, {**i.attributes, "x": i.attributes["age"]}, {**i.classes, "x": ("a",)}),
        "labels .'age', 'gender'. as in the facts",
    ),
    "a label less": (lambda i: replace(i, attributes={"age": i.attributes["age"]}), "as in the facts"),
    "other classes": (lambda i: replace(i, classes={**i.classes, "age": ("a", "b", "c")}), "as in the facts"),
    "fewer images": (lambda i: i.rows(torch.arange(29)), "images 30 as in the facts, got 29"),
    "larger images": (lambda i: make_faces(side=9), "of shape"),
    "grey images": (lambda i: make_faces(channels=1), "of shape"),
    "numbers that are no bytes": (lambda i: i.with_pixels(i.pixels.float()), "uint8"),
    "an unknown label": (_out_of_range, r"age in 0\.\.2, got -1"),
    "fewer labels": (
        lambda i: replace(i, attributes={**i.attributes, "age": i.attributes["age"][:5]}),
        "for each of 30",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_images_that_differ_from_the_facts_are_refused(name: str, tmp_path: Path) -> None:
    images = make_faces()
    change, words = WRONG[name]
    with pytest.raises(UsageError, match=words):
        write_hidden(tmp_path / "h", change(images), make_facts(images))
    assert names(tmp_path) == []


def test_an_existing_target_is_left_alone(tmp_path: Path) -> None:
    images = make_faces()
    (tmp_path / "h").mkdir()
    with pytest.raises(UsageError, match="exists"):
        write_hidden(tmp_path / "h", images, make_facts(images))
    assert contents(tmp_path) == {}


def test_the_card_says_what_was_done_and_that_nothing_is_proved(pristine_hidden: Path) -> None:
    card = (pristine_hidden / "README.md").read_text("utf-8")
    said = " ".join(card.replace("\n> ", " ").split())
    for words in (
        "There is no epsilon here: nothing is proved about what this release gives away.",
        "The hidden attribute: race.",
        "The method: transport, of sfumato 0.1.0",
        "- strength: 0.8",
        "An attribute hidden is not a person hidden",
        "people may still be recognised",
        "sfumato leak",
        "load_dataset(",
        "read_hidden(",
        "1. 10-19",
        "Good for",
        "Not good for",
        "It used no public weights.",
    ):
        assert words in said, words
    front = card.split("---")[1]
    assert "- attribute-hidden\n" in front
    assert "privacy" not in front
    assert not [line for line in card.splitlines() if len(line) > 125]


def test_the_card_names_public_weights_and_shortens_long_lists(tmp_path: Path) -> None:
    images = make_faces()
    facts = make_facts(images, weights=WEIGHTS, values=tuple(map(str, range(120))))
    card = (write_hidden(tmp_path / "h", images, facts) / "README.md").read_text("utf-8")
    assert "Public weights that it used: stable-diffusion-v1-5, SHA-256 0123" in card
    assert "... and 20 more, in `hidden.json`" in card


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    plain = make_faces()
    attributes = {"<b>`x`": plain.attributes["gender"]}
    images = Attributed(plain.pixels, attributes, {"<b>`x`": ("[x](http://a.b)\n# big", "\x1b[31mred")})
    folder = write_hidden(tmp_path / "h", images, make_facts(images, hidden="```<script>"))
    card = (folder / "README.md").read_text()
    assert "<script>" not in card.split("---", 2)[2].replace("\\<", "")
    assert "\x1b" not in card
    assert "\n# big" not in card
    assert verify(folder).intact, verify(folder).text()


def test_every_text_of_a_release_keeps_the_word_to_one_sentence(pristine_hidden: Path) -> None:
    texts = {name: raw.decode() for name, raw in contents(pristine_hidden).items() if not _binary(name)}
    assert texts.keys() == {"README.md", "hidden.json", "SHA256SUMS"}
    for name, text in texts.items():
        assert only_says_there_is_no_epsilon(text), name
        assert not [word for word in PROMISES if word in text], name
    assert "There is no epsilon here" in texts["README.md"]
    for name, raw in contents(pristine_hidden).items():
        assert b"epsilon" not in raw.lower() or not _binary(name), name


def _binary(name: str) -> bool:
    return name.endswith((".parquet", ".png"))


def test_the_preview_has_a_banner(pristine_hidden: Path, tmp_path: Path) -> None:
    with Image.open(pristine_hidden / "preview.png") as picture:
        assert picture.getpixel((2, 2)) == (138, 75, 0)
        rows = 3  # of 12 images
        assert picture.height == 36 + 18 + 46 + rows * (64 + 3) - 3 + 18
    one = make_faces(count=1, side=200)
    write_hidden(tmp_path / "one", one, make_facts(one))


def test_reading_a_changed_or_missing_release_is_refused(hidden: Path, tmp_path: Path) -> None:
    kept = shutil.copytree(hidden, tmp_path / "kept")
    for name in contents(hidden):
        path = hidden / name
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(VerificationFailed):
            read_hidden(hidden)
        path.unlink()
        with pytest.raises(VerificationFailed, match="missing"):
            read_hidden(hidden)
        path.write_bytes(whole)
    assert contents(hidden) == contents(kept)
    read_hidden(hidden)
    with pytest.raises(UsageError):
        read_hidden(tmp_path / "nothing")


def test_reading_what_its_facts_do_not_state_is_refused(hidden: Path) -> None:
    path = hidden / "hidden.json"
    path.write_text(path.read_text().replace('"count": 30', '"count": 31'))
    renew_sums(hidden)
    with pytest.raises(VerificationFailed, match=r"30 images in data/ where hidden\.json states 31"):
        read_hidden(hidden)


def test_more_pixels_than_the_files_can_hold_are_refused(hidden: Path) -> None:
    path = hidden / "hidden.json"
    path.write_text(re.sub('"(height|width)": 8', r'"\1": 16384', path.read_text()))
    renew_sums(hidden)
    with pytest.raises(VerificationFailed, match="cannot be in files of"):
        read_hidden(hidden)


def test_readers_of_other_releases_refuse_it_and_name_what_can_be_done(pristine_hidden: Path) -> None:
    for reader in (read_release, read_model, read_certificate):
        with pytest.raises(SfumatoError) as refused:
            reader(pristine_hidden)
        assert isinstance(refused.value, UsageError)
        assert "hidden attribute" in refused.value.what
        assert "leak" in refused.value.fix
        assert "verify" in refused.value.fix
        assert only_says_there_is_no_epsilon(refused.value.message())


def test_other_releases_are_refused(tmp_path: Path) -> None:
    images = make_images()
    folder = write_release(tmp_path / "r", images, make_certificate(images))
    with pytest.raises(UsageError, match="hidden attribute, got another"):
        read_hidden(folder)

"""A third subset: images with logits of a teacher that sees through a public network, which the certificate names."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from release.making import (
    PUBLIC_NETWORK,
    SAID,
    edit_certificate,
    edit_table,
    make_certificate,
    make_images,
    renew_card,
    renew_sums,
)
from release.test_transfer import TABLES, contents, failed, same
from sfumato.errors import UsageError, VerificationFailed
from sfumato.release import Certificate, layout, read_certificate, read_release, statements, verify, write_release
from sfumato.release.card import render_card

from commands import sfumato

CHECKSUM = PUBLIC_NETWORK.rpartition(" ")[2]


@pytest.fixture(scope="module")
def pristine_three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With images for transfer and for a public network."""
    images = make_images(transfer=25, network=15)
    return write_release(tmp_path_factory.mktemp("n") / "release", images, make_certificate(images))


@pytest.fixture
def three(pristine_three: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(pristine_three, tmp_path / "three"))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("transfer", [0, 25])
def test_round_trip_keeps_the_subsets_apart(channels: int, transfer: int, tmp_path: Path) -> None:
    images = make_images(channels=channels, transfer=transfer, network=15)
    certificate = make_certificate(images)
    folder = write_release(tmp_path / "r", images, certificate)
    again = read_release(folder)
    assert same(again.images, images)
    assert again.images.network is not None
    assert same(again.images.network, images.network)
    assert (again.images.transfer is None) == (transfer == 0)
    assert read_certificate(folder) == certificate
    stated = {"count": 40, "has_logits": False, "network": 15} | ({"transfer": transfer} if transfer else {})
    assert again.certificate["samples"] == stated
    assert again.certificate["public"]["public_network"] == PUBLIC_NETWORK
    verdict = verify(folder)
    assert verdict.ok, verdict.text()
    checks = {check.name: check.detail for check in verdict.checks}
    assert checks["network count"] == "15 images, as stated"
    assert {f"network {name}" for name in ("columns", "count", "images", "labels", "logits")} <= checks.keys()
    assert (verdict.facts["images_for_transfer"], verdict.facts["images_for_network"]) == (transfer, 15)
    assert verdict.facts["assumptions"] == statements.assumptions(public=False, network=True)
    assert "network was trained on none" in " ".join(verdict.text().split())
    assert CHECKSUM not in verdict.text(), "the name of the network is the publisher's word"
    assert len(verdict.text().splitlines()) <= 50, "one screen"


def test_the_folder_holds_only_public_things(pristine_three: Path) -> None:
    names = sorted(contents(pristine_three))
    assert [name for name in names if name.endswith(".parquet")] == [
        f"{subset}/train-00000-of-00001.parquet" for subset in ("data", "network", "transfer")
    ]
    assert all(layout.allowed(name, "images") for name in names)
    assert len(names) == 7


def test_some_of_the_images_are_none_of_the_further_ones() -> None:
    images = make_images(transfer=25, network=15)
    some = images.rows(torch.arange(3))
    assert (some.transfer, some.network) == (None, None)


def test_the_card_names_the_network_and_says_how_its_images_load(pristine_three: Path) -> None:
    card = (pristine_three / "README.md").read_text()
    header = card.split("---")[1]
    assert header.count("config_name") == 3
    assert "config_name: network" in header
    assert "path: network/train-*.parquet" in header
    assert "15 further images, in `network/`, are for students that use a public network" in card
    assert card.count(PUBLIC_NETWORK.replace("_", "\\_")) == 2
    assert f"- {statements.NETWORK}\n" in card
    assert 'load_dataset("path/to/this/folder", "network", split="train")' in card


def test_all_subsets_count_for_the_size(tmp_path: Path) -> None:
    images = make_images(count=400, side=2, transfer=300, network=300)
    assert "- 1K<n<10K\n" in render_card(make_certificate(images), folders=False)
    assert "- n<1K\n" in render_card(make_certificate(replace(images, transfer=None)), folders=False)


def test_datasets_opens_all_three(pristine_three: Path, tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    script = (
        "import json, sys, datasets\n"
        "sets = [datasets.load_dataset(sys.argv[1], n, split='train') for n in ('default', 'transfer', 'network')]\n"
        "print(json.dumps([[len(s) for s in sets], sets[2].column_names, sets[2][3]['logits']]))\n"
    )
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "HF_DATASETS_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", script, str(pristine_three)],
        env=os.environ | offline,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    counts, columns, logits = json.loads(done.stdout)
    assert (counts, columns) == ([40, 25, 15], ["image", "label", "logits"])
    assert logits == pytest.approx(make_images(network=15).network.logits[3].tolist())


TAMPERED = [(what, edit, name, complaint) for what, edit, name, complaint in TABLES if what != "fewer rows"]
TAMPERED.append(("fewer rows", lambda t: t.slice(0, 12), "transfer count", "12 images where the certificate states 15"))


@pytest.mark.parametrize(("edit", "name", "complaint"), [t[1:] for t in TAMPERED], ids=[t[0] for t in TAMPERED])
def test_tampering_is_named_and_exits_with_six(
    edit: Callable[[Any], Any], name: str, complaint: str, three: Path
) -> None:
    edit_table(three, edit, subset="network")
    assert "network/train-00000-of-00001.parquet differs" in failed(three)["sums"]
    renew_sums(three)
    found = failed(three)
    assert complaint in found.get(name.replace("transfer", "network"), ""), found
    assert all(check.startswith("network ") for check in found), "the other subsets are as they were"
    assert sfumato("verify", three).code == 6


def test_images_that_are_stated_must_be_there(three: Path) -> None:
    shutil.rmtree(three / "network")
    renew_sums(three)
    assert failed(three).keys() == {"network columns", "network count"}
    with pytest.raises(VerificationFailed, match="0 images in network/ where the certificate states 15"):
        read_release(three)


def _no_network(values: dict[str, Any]) -> None:
    del values["samples"]["network"]
    del values["public"]["public_network"]
    values["assumptions"].remove(statements.NETWORK)


def test_images_that_are_there_must_be_stated(three: Path) -> None:
    edit_certificate(three, _no_network)
    renew_card(three)
    renew_sums(three)
    assert failed(three) == {"network": "there are files in network/, where the certificate states no such images"}
    assert sfumato("verify", three).code == 6
    shutil.rmtree(three / "network")
    renew_sums(three)
    assert verify(three).ok, "nothing else was wrong with it"


@pytest.mark.parametrize("count", [14, 16])
def test_another_number_than_there_are_is_caught(count: int, three: Path) -> None:
    edit_certificate(three, lambda values: values["samples"].update(network=count))
    renew_card(three)
    renew_sums(three)
    assert failed(three).keys() == {"network count"}
    with pytest.raises(VerificationFailed, match=f"15 images in network/ where the certificate states {count}"):
        read_release(three)


@pytest.mark.parametrize("name", ["network/real.parquet", "network/notes.txt", "networks/train-00000-of-00001.parquet"])
def test_nothing_else_may_lie_beside_them(name: str, three: Path) -> None:
    (three / name).parent.mkdir(exist_ok=True)
    (three / name).write_text("x")
    renew_sums(three)
    assert "does not belong" in failed(three)["file names"]


EDITS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no network": (lambda v: v["public"].pop("public_network"), "no assumption about a public network"),
    "count of zero": (lambda v: v["samples"].update(network=0), "canonical form"),
    "negative count": (lambda v: v["samples"].update(network=-1), "samples.network"),
    "no assumption": (lambda v: v["assumptions"].remove(statements.NETWORK), "1 too few"),
    "assumption twice": (lambda v: v["assumptions"].append(statements.NETWORK), "twice"),
    "assumption in other words": (lambda v: v["assumptions"].append(statements.NETWORK[:-1]), "1 other"),
}


@pytest.mark.parametrize(("edit", "complaint"), EDITS.values(), ids=EDITS)
def test_network_count_and_assumption_need_each_other(
    edit: Callable[[dict[str, Any]], object], complaint: str, three: Path
) -> None:
    edit_certificate(three, edit)
    renew_sums(three)
    assert complaint in failed(three)["certificate"]
    assert sfumato("verify", three).code == 6


def test_images_that_the_certificate_does_not_count_are_not_part_of_a_release(three: Path) -> None:
    edit_certificate(three, lambda values: values["samples"].pop("network"))
    renew_card(three)
    renew_sums(three)
    assert "states no such images" in failed(three)["network"]
    assert sfumato("verify", three).code == 6


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (lambda v: v["assumptions"].append(statements.NETWORK), "because none is named"),
        (lambda v: v["public"].update(public_network=PUBLIC_NETWORK), "1 too few"),
        (lambda v: v["samples"].update(network=5), "only where one is named"),
        (lambda v: v["samples"].update(network=0), "canonical form"),
        (lambda v: v["public"].update(public_network=None), "canonical form"),
    ],
)
def test_a_release_without_a_network_states_nothing_of_one(
    edit: Callable[[dict[str, Any]], object], complaint: str, release: Path
) -> None:
    edit_certificate(release, edit)
    renew_sums(release)
    assert complaint in failed(release)["certificate"]


WRONG_NAMES = {
    "path": f"/home/anna/net.safetensors, SHA-256 {CHECKSUM}",
    "folder": f"nets/net.safetensors, SHA-256 {CHECKSUM}",
    "space": f"my net, SHA-256 {CHECKSUM}",
    "no name": f", SHA-256 {CHECKSUM}",
    "long name": f"{'x' * 101}, SHA-256 {CHECKSUM}",
    "other letters": f"n\u00e9t, SHA-256 {CHECKSUM}",
    "no checksum": "net.safetensors",
    "short checksum": f"net, SHA-256 {CHECKSUM[1:]}",
    "long checksum": f"net, SHA-256 {CHECKSUM}0",
    "large letters": f"net, SHA-256 {CHECKSUM.upper()}",
    "no hex digits": f"net, SHA-256 {'g' * 64}",
    "another sum": f"net, MD5 {CHECKSUM}",
    "end of line": f"net, SHA-256 {CHECKSUM}\n",
    "sentence after it": f"net, SHA-256 {CHECKSUM}. It protects everyone.",
    "second line": f"net\nx, SHA-256 {CHECKSUM}",
    "nothing": "",
}


@pytest.mark.parametrize("name", WRONG_NAMES.values(), ids=WRONG_NAMES)
def test_the_name_of_a_network_has_one_form(name: str, three: Path) -> None:
    edit_certificate(three, lambda values: values["public"].update(public_network=name))
    renew_sums(three)
    assert "public.public_network" in failed(three)["certificate"]


def test_a_name_of_this_form_passes(three: Path) -> None:
    edit_certificate(three, lambda v: v["public"].update(public_network=f"{'Net-1._' * 14}, SHA-256 {CHECKSUM}"))
    renew_card(three)
    renew_sums(three)
    assert verify(three).ok, verify(three).text()


def test_images_that_cannot_be_are_refused(tmp_path: Path) -> None:
    images = make_images(network=15)
    certificate, further = make_certificate(images), images.network
    wrong = {
        "Expected 15 images for the public network as in the certificate, got none": None,
        "images for the public network 15 as in the certificate, got 14": make_images(count=14, logits=True),
        "images for the public network of shape": make_images(count=15, channels=3, logits=True),
        "logits with images for the public network: True": make_images(count=15),
        "another for image 0": replace(further, labels=(further.labels + 1) % 3),
    }
    for sentence, other in wrong.items():
        with pytest.raises(UsageError, match=sentence):
            write_release(tmp_path / "r", replace(images, network=other), certificate)
    with pytest.raises(UsageError, match="images for the public network 0 as in the certificate, got 15"):
        write_release(tmp_path / "r", images, make_certificate(make_images()))
    assert not list(tmp_path.iterdir())


OLDER = {  # a certificate with numbers that no library computes
    "guarantee": {"level": "certified", "epsilon": 1.0, "delta": 1e-5, "epsilon_rdp": 1.25, **SAID}
    | {"accountant": "PLD, dp-accounting 0.6.0"},
    "budget": {"epsilon": 1.0, "delta": 1e-5},
    "mechanisms": [
        {"kind": "gaussian-sum", "purpose": "means", "rounds": 1, "noise_multiplier": 4.5, "sampling": 1.0},
    ],
    "public": {
        "count": 60_000,
        "channels": 1,
        "height": 8,
        "width": 8,
        "classes": ["zero", "one"],
        "public_data": None,
    },
    "method": {"name": "dp-merf", "hyperparameters": {"features": 100}},
    "noise": {"source": "ChaCha20 keyed from OS entropy", "private": True, "lattice_bits": 20},
    "profile": [[0.5, 0.001]],
    "versions": {"sfumato": "0.1.0"},
}


@pytest.mark.parametrize(
    ("transfer", "public_data", "written", "card"),
    [  # sums of the bytes that were written before there were networks
        (
            {},
            None,
            "414ddca6f54401c9471bec0a99ed046018f35115e983493ecec94070d9dbc519",
            "2338cf13bf3d41964905747e75bf70b93a8eb0469d0e4c1bff08ef34e07ff937",
        ),
        (
            {"transfer": 25},
            "textures",
            "272f81d73cc148cdbaa2feec2ee7df2c3549197e0254253a1ccad37998fd15b0",
            "f44be7e797e1b9354e065d497f485d09b042db65abeb154c4245e5a437d04bd5",
        ),
    ],
)
def test_certificates_and_cards_without_a_network_keep_their_bytes(
    transfer: dict[str, int], public_data: str | None, written: str, card: str
) -> None:
    stated = [statements.KNOWN, statements.PERSON, statements.SETTINGS, statements.ALONE]
    values = {
        **OLDER,
        "assumptions": stated if public_data is None else [*stated, statements.PUBLIC],
        "public": {**OLDER["public"], "public_data": public_data},
        "samples": {"count": 40, "has_logits": True, **transfer},
    }
    certificate = Certificate.model_validate_json(json.dumps(values))
    assert hashlib.sha256(certificate.to_json().encode()).hexdigest() == written
    assert hashlib.sha256(render_card(certificate, folders=False).encode()).hexdigest() == card
    assert json.loads(certificate.to_json()) == {**values, "format": "sfumato-release/1"}

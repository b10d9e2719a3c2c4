"""A method that uses a public network: named in the certificate, assumed about, and the same when it is run again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sfumato import contracts
from sfumato.contracts import Reading
from sfumato.errors import DataError, UsageError
from sfumato.making.release import Job, make_release
from sfumato.making.resample import resample_release
from sfumato.release import read_certificate, read_release, statements, verify
from sfumato.values import Images

from commands import request, sfumato, tiny


@pytest.fixture
def network(tmp_path: Path) -> Path:
    folder = tmp_path / "somebody's networks"
    folder.mkdir()
    path = folder / "lite0.safetensors"
    path.write_bytes(b"weights")
    return path


@pytest.fixture
def method(monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    """DP-MERF, with inverted images for whatever network is named."""
    plain, original = contracts.find("methods", "dp-merf"), contracts.find

    @dataclass(frozen=True)
    class Seeing(plain):
        network: str = ""
        images: bool = True
        exchanged: bool = False  # the file was another one when the images were made

        def public_network(self) -> str | None:
            if not self.network:
                return None
            return f"{Path(self.network).name}, SHA-256 {hashlib.sha256(Path(self.network).read_bytes()).hexdigest()}"

        def fit(self, private: object, public: object) -> object:
            sampler = super().fit(private, public)

            def sample(labels: torch.Tensor) -> Images:
                images, logits = sampler(labels), torch.nn.functional.one_hot(labels, 3).float()
                name = "another, SHA-256 " + 64 * "0" if self.exchanged else self.public_network()
                further = Images(255 - images.pixels, labels, images.classes, logits, seen_through=name)
                return replace(images, network=further if self.network and self.images else None)

            return sample

    monkeypatch.setattr(contracts, "find", lambda kind, name: Seeing if kind == "methods" else original(kind, name))
    return Seeing


def job(tmp_path: Path, **settings: object) -> Job:
    small = {"steps": 3, "frequencies": 20, "hidden": 8, "batch": 24} | settings
    written = tuple((name, str(value)) for name, value in small.items())
    return Job(
        str(tiny(tmp_path)), "dp-merf", 8.0, count=12, reading=Reading(classes=("a", "b", "c")), settings=written
    )


def certificate(folder: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((folder / "certificate.json").read_text())
    return values


@pytest.mark.usefixtures("method")
def test_a_network_is_named_without_its_path_and_assumed_about(tmp_path: Path, network: Path) -> None:
    outcome = sfumato(*request(tiny(tmp_path), tmp_path / "r", "--set", f"network={network}"))
    assert "Released 12 images and 12 for the public network at epsilon" in outcome.out, outcome.err
    stated = certificate(tmp_path / "r")
    name = f"lite0.safetensors, SHA-256 {hashlib.sha256(b'weights').hexdigest()}"
    assert stated["public"]["public_network"] == name
    assert stated["assumptions"] == statements.assumptions(public=False, network=True)
    assert stated["samples"] == {"count": 12, "has_logits": False, "network": 12}
    assert stated["method"]["hyperparameters"]["network"] == "lite0.safetensors"
    public = [p.read_bytes() for p in (tmp_path / "r").rglob("*") if p.is_file()]
    assert not any(b"somebody" in text for text in public)
    assert len(read_release(tmp_path / "r").images.network) == 12
    assert verify(tmp_path / "r").ok, verify(tmp_path / "r").text()


@pytest.mark.usefixtures("method")
def test_without_one_nothing_is_said_of_networks(tmp_path: Path) -> None:
    made = make_release(job(tmp_path), tmp_path / "r")
    stated = certificate(made)
    assert "public_network" not in stated["public"]
    assert "network" not in stated["samples"]
    assert stated["assumptions"] == statements.assumptions(public=False, network=False)
    assert "public_network" not in json.loads((tmp_path / "r.lab" / "run.json").read_text())
    assert verify(made).ok


@pytest.mark.usefixtures("method")
def test_another_release_from_the_same_answers_needs_the_same_network(tmp_path: Path, network: Path) -> None:
    made = make_release(job(tmp_path, network=network), tmp_path / "r")
    again = resample_release(made, tmp_path / "r2")
    assert certificate(again)["public"] == certificate(made)["public"]
    assert torch.equal(read_release(again).images.network.pixels, read_release(made).images.network.pixels)
    assert verify(again).ok, verify(again).text()
    network.write_bytes(b"other weights")
    with pytest.raises(DataError, match="Expected the public network that the release was made with"):
        resample_release(made, tmp_path / "r3")
    assert not (tmp_path / "r3.lab").exists()


def test_a_run_is_resumed_with_the_same_network_only(
    tmp_path: Path, network: Path, method: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: object, private: object, public: object) -> object:
        plain(self, private, public)
        raise KeyboardInterrupt

    plain = method.fit
    asked = job(tmp_path, network=network)
    with monkeypatch.context() as patch:
        patch.setattr(method, "fit", broken)
        with pytest.raises(KeyboardInterrupt):
            make_release(asked, tmp_path / "r")
    network.write_bytes(b"other weights")
    with pytest.raises(UsageError, match="Expected the same job"):
        make_release(asked, tmp_path / "r")
    network.write_bytes(b"weights")
    assert verify(make_release(asked, tmp_path / "r")).ok


def test_a_name_that_a_certificate_cannot_hold_is_refused_before_anything_is_asked(
    tmp_path: Path, network: Path, method: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(method, "public_network", lambda self: str(network))
    with pytest.raises(UsageError, match="Expected the name of a public network"):
        make_release(job(tmp_path, network=network), tmp_path / "r")
    assert not (tmp_path / "r").exists()
    assert not (tmp_path / "r.lab").exists()


@pytest.mark.usefixtures("method")
def test_a_network_that_helped_to_ask_is_named_without_images_for_it(tmp_path: Path, network: Path) -> None:
    folder = make_release(job(tmp_path, network=network, images=False), tmp_path / "r")
    named = read_certificate(folder).public.public_network
    assert named == f"{network.name}, SHA-256 {hashlib.sha256(network.read_bytes()).hexdigest()}"
    assert verify(folder).ok, verify(folder).text()


@pytest.mark.usefixtures("method")
def test_a_network_whose_file_was_exchanged_during_the_run_is_not_certified(tmp_path: Path, network: Path) -> None:
    with pytest.raises(DataError, match="to stay as it was during the run"):
        make_release(job(tmp_path, network=network, exchanged=True), tmp_path / "r")
    assert not (tmp_path / "r").exists()

"""Released classifiers: written, read back and verified, and whatever is changed in one is named."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from pydantic import ValidationError
from torch import nn

from release.making import (
    CLASSES,
    OPEN,
    PUBLIC_NETWORK,
    edit_certificate,
    make_certificate,
    make_images,
    renew_card,
    renew_sums,
)
from release.model_making import SHAPE, make_classifier, make_model, make_model_certificate
from release.test_edited_fields import CARDS, edits, publish, remembered, shown
from release.test_network_images import OLDER
from sfumato.errors import EnvironmentProblem, UsageError, VerificationFailed
from sfumato.judging.selection import select_classifier
from sfumato.judging.student import train_student
from sfumato.making.resample import resample_release
from sfumato.networks.public_network import LITE0, certified_name
from sfumato.release import (
    Certificate,
    ModelCertificate,
    ModelFacts,
    layout,
    model_facts,
    read_certificate,
    read_model,
    read_release,
    statements,
    verify,
    write_model,
    write_release,
)
from sfumato.release.card import render_card
from sfumato.release.certificate import parse_certificate
from sfumato.report.confined import write_public_page
from sfumato.report.evaluation import write_page
from sfumato.values import Classifier

__all__ = ["remembered"]  # a fixture: the accountants are asked many times for the same mechanisms

FILES = ["README.md", "SHA256SUMS", "certificate.json", "model.safetensors"]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("original") / "m")


@pytest.fixture
def model(original: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(original, tmp_path / "m"))


def failed(folder: Path) -> dict[str, str]:
    return {check.name: check.detail for check in verify(folder).failed}


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def logits(network: nn.Module, shape: tuple[int, int, int] = SHAPE) -> torch.Tensor:
    images = torch.rand(5, *shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return network.eval()(images)


KINDS: dict[str, tuple[dict[str, Any], tuple[int, int, int]]] = {
    "private-cnn": ({}, SHAPE),
    "wide-resnet": ({"depth": 10, "widen": 1, "norm": "none", "weight_standardisation": False}, (3, 8, 8)),
    "resnet18": ({"width": 16}, (3, 16, 16)),
    "fixed-features": ({"features": "scattering", "hidden": 4}, SHAPE),
}


@pytest.mark.parametrize("architecture", KINDS)
def test_round_trip(architecture: str, tmp_path: Path) -> None:
    settings, shape = KINDS[architecture]
    classifier = make_classifier(architecture, settings, shape=shape)
    certificate = make_model_certificate(classifier, shape=shape)
    folder = write_model(tmp_path / "m", classifier, certificate)
    again = read_model(folder)
    assert torch.equal(logits(again.classifier.network, shape), logits(classifier.network, shape))
    assert (again.classifier.architecture, again.classifier.settings) == (architecture, settings)
    assert (again.path, again.classes, again.shape) == (folder, CLASSES, shape)
    assert again.certificate == certificate.model_dump(mode="json")
    assert not again.classifier.network.training
    assert not any(parameter.requires_grad for parameter in again.classifier.network.parameters())
    assert read_certificate(folder) == certificate
    verdict = verify(folder)
    assert verdict.ok, verdict.text()
    count = sum(tensor.numel() for tensor in classifier.network.state_dict().values())
    assert (verdict.facts["architecture"], verdict.facts["parameters"]) == (architecture, count)
    assert "images" not in verdict.facts
    assert f"a classifier of {count:,} parameters" in verdict.text()
    assert len(verdict.text().splitlines()) <= 45, "one screen"


def test_the_folder_holds_four_files_with_the_same_bytes_each_time(original: Path, tmp_path: Path) -> None:
    again = make_model(tmp_path / "again")
    assert names(original) == names(again) == FILES
    assert [(original / name).read_bytes() for name in FILES] == [(again / name).read_bytes() for name in FILES]
    assert all(layout.allowed(name, "model") for name in FILES)


def test_the_weights_are_as_the_own_writer_of_the_format_writes_them(original: Path) -> None:
    state = make_classifier().network.state_dict()
    assert (original / layout.WEIGHTS).read_bytes() == safetensors.torch.save(state)
    loaded = safetensors.torch.load_file(original / layout.WEIGHTS)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in state.items())


def test_verifying_needs_no_torch(original: Path) -> None:
    script = (
        "import sys\nfrom sfumato.release import verify\n"
        "verdict = verify(sys.argv[1])\nassert verdict.ok, verdict.text()\nverdict.text()\n"
        "assert not {'torch', 'safetensors'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(original)], check=True, timeout=60)


def test_what_is_missing_and_what_exists(original: Path, tmp_path: Path) -> None:
    classifier = make_classifier()
    certificate = make_model_certificate(classifier)
    (tmp_path / "m").mkdir()
    with pytest.raises(UsageError, match="exists"):
        write_model(tmp_path / "m", classifier, certificate)
    with pytest.raises(EnvironmentProblem):
        write_model(tmp_path / "no" / "m", classifier, certificate)
    with pytest.raises(UsageError, match="Expected a release folder"):
        read_model(tmp_path / "nothing")
    assert names(tmp_path) == ["m"]


def with_weights(change: Callable[[torch.Tensor], object]) -> Classifier:
    classifier = make_classifier()
    with torch.no_grad():
        change(next(classifier.network.parameters()))
    return classifier


class Counting(nn.Linear):
    """A layer with a buffer that is a whole number, as batch normalisation has."""

    def __init__(self) -> None:
        super().__init__(2, 3)
        self.register_buffer("seen", torch.tensor(3))


REFUSED: dict[str, tuple[Classifier, str]] = {
    "another network": (make_classifier("fixed-features", {"features": "scattering"}), "the architecture"),
    "other settings": (Classifier("private-cnn", {"width": 3}, make_classifier().network), "the settings"),
    "other tensors": (make_classifier(classes=4), "the tensors"),
    "not a number": (with_weights(lambda tensor: tensor[0].fill_(float("nan"))), "finite"),
    "infinite": (with_weights(lambda tensor: tensor[0].fill_(float("-inf"))), "finite"),
    "doubles": (Classifier("private-cnn", {}, make_classifier().network.double()), "float64"),
    "whole numbers": (Classifier("private-cnn", {}, Counting()), "int64"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_classifier_that_is_not_the_certified_one_is_refused(name: str, tmp_path: Path) -> None:
    classifier, complaint = REFUSED[name]
    with pytest.raises(UsageError, match=complaint):
        write_model(tmp_path / "m", classifier, make_model_certificate(make_classifier()))
    assert names(tmp_path) == []


def _set(*path: Any) -> Callable[[dict[str, Any]], None]:
    *parents, last, value = path

    def change(values: Any) -> None:
        for parent in parents:
            values = values[parent]
        values[last] = value

    return change


def _raise_level(values: dict[str, Any]) -> None:
    values["guarantee"] |= {"level": "certified", "epsilon": 1.0, "epsilon_rdp": 1.1}
    values["budget"]["epsilon"] = 1.0


TAMPERING: dict[str, tuple[Callable[[dict[str, Any]], None], set[str]]] = {
    "less noise": (_set("mechanisms", 0, "noise_multiplier", 4.4), {"epsilon"}),
    "no noise": (_set("mechanisms", 0, "noise_multiplier", 0), {"noise", "epsilon"}),
    "rounds": (_set("mechanisms", 0, "rounds", 2), {"second accountant", "epsilon"}),
    "lower epsilon": (_set("guarantee", "epsilon", 0.5), {"second accountant", "epsilon"}),
    "higher epsilon": (_set("guarantee", "epsilon", 3.0), {"epsilon", "budget"}),
    "budget": (_set("budget", "epsilon", 0.1), {"budget"}),
    "few records": (_set("public", "count", 100_000), {"delta"}),
    "no curve": (_set("profile", []), {"curve"}),
    "seeded noise": (_set("noise", {"source": "SEEDED, NOT PRIVATE", "private": False, "lattice_bits": 20}), {"noise"}),
    "a shape": (_set("model", "tensors", 0, "shape", [8, 4]), {"tensors", "weights"}),
    "a name": (_set("model", "tensors", 0, "name", "a.b"), {"tensors", "weights"}),
    "order of tensors": (lambda values: values["model"]["tensors"].reverse(), {"certificate"}),
    "a tensor twice": (lambda v: v["model"]["tensors"].insert(0, v["model"]["tensors"][0]), {"certificate"}),
    "a tensor less": (lambda v: v["model"]["tensors"].pop(), {"tensors", "weights"}),
    "no tensors": (_set("model", "tensors", []), {"certificate"}),
    "an empty tensor": (_set("model", "tensors", 0, "shape", [0]), {"certificate"}),
    "a nested setting": (_set("model", "settings", {"a": {"b": 1}}), {"certificate"}),
    "a sentence as architecture": (_set("model", "architecture", "the safest of all"), {"certificate"}),
    "images": (_set("samples", {"count": 3, "has_logits": False}), {"certificate"}),
    "the format of images": (_set("format", "sfumato-release/1"), {"certificate"}),
    "another format": (_set("format", "sfumato-model/2"), {"certificate"}),
    "no format": (lambda values: values.pop("format"), {"certificate"}),
    "a network in the settings": (_set("model", "settings", {"network": PUBLIC_NETWORK}), {"certificate"}),
    "an empty network in the settings": (_set("model", "settings", {"network": ""}), {"certificate"}),
    "a network in public": (_set("public", "public_network", PUBLIC_NETWORK), {"certificate"}),
}


@pytest.mark.parametrize("name", TAMPERING)
def test_an_edited_certificate_fails_even_with_a_new_card_and_new_sums(name: str, model: Path) -> None:
    change, named = TAMPERING[name]
    edit_certificate(model, change)
    assert "certificate.json differs" in failed(model)["sums"]
    if "certificate" not in named:
        renew_card(model)
    renew_sums(model)
    found = failed(model)
    assert "sums" not in found
    assert named <= found.keys(), found


def test_other_settings_change_the_card_and_the_network(model: Path) -> None:
    edit_certificate(model, _set("model", "settings", {"hidden": 12}))
    renew_sums(model)
    assert failed(model).keys() == {"card"}
    renew_card(model)
    renew_sums(model)
    with pytest.raises(UsageError, match="settings that private-cnn has"):
        read_model(model)


def test_a_raised_level_fails(tmp_path: Path) -> None:
    classifier = make_classifier()
    certificate = make_model_certificate(classifier, guarantee=OPEN, profile=())
    folder = write_model(tmp_path / "m", classifier, certificate)
    card = (folder / layout.CARD).read_text("utf-8")
    assert "NOT PRIVATE" in card
    assert "- not-private" in card
    assert failed(folder).keys() == {"level", "budget"}
    assert "NOT PRIVATE" in verify(folder).text()
    edit_certificate(folder, _raise_level)
    renew_card(folder)
    renew_sums(folder)
    assert {"epsilon", "curve"} <= failed(folder).keys()


@pytest.mark.parametrize("section", ["format", "model", "public", "guarantee", "method"])
def test_an_edit_of_any_field_fails_or_changes_nothing_that_is_shown(section: str, original: Path, model: Path) -> None:
    values = json.loads((original / layout.CERTIFICATE).read_text("utf-8"))
    before = shown(original)
    kept = {name: (original / name).read_bytes() for name in FILES}
    tried, wrong = set[bytes](), []
    for what, edited in edits(values, section):
        for name, contents in kept.items():
            (model / name).write_bytes(contents)
        if not publish(model, edited) or (text := (model / layout.CERTIFICATE).read_bytes()) in tried:
            continue
        tried.add(text)
        after = shown(model)
        if after[0] and after != before:
            wrong.append(what)
    assert len(tried) >= 10
    assert not wrong, f"{len(wrong)} of {len(tried)} edits pass and change what is shown: {wrong[:10]}"


@pytest.mark.parametrize("name", ["preview.png", "data/train-00000-of-00001.parquet", "model.pt", ".hidden", "a/b"])
def test_an_extra_file_fails_with_and_without_new_sums(name: str, model: Path) -> None:
    (model / name).parent.mkdir(exist_ok=True)
    (model / name).write_bytes(b"x")
    assert failed(model).keys() == {"sums", "file names"}
    renew_sums(model)
    assert failed(model).keys() == {"file names"}


@pytest.mark.parametrize("name", FILES)
def test_a_missing_or_changed_file_fails(name: str, model: Path) -> None:
    contents = (model / name).read_bytes()
    (model / name).write_bytes(contents[:-2] + bytes([contents[-2] ^ 1]) + contents[-1:])
    assert name in failed(model)["sums"] or name == "SHA256SUMS"
    with pytest.raises(VerificationFailed):
        read_model(model)
    (model / name).unlink()
    assert f"{name} is " in failed(model)["sums"]
    if name != "SHA256SUMS":
        renew_sums(model)
        assert not verify(model).ok


def test_the_weights_of_a_classifier_do_not_belong_to_images(tmp_path: Path) -> None:
    images = make_images()
    folder = write_release(tmp_path / "r", images, make_certificate(images))
    (folder / layout.WEIGHTS).write_bytes(b"x")
    renew_sums(folder)
    assert failed(folder).keys() == {"file names"}


def test_links_and_pipes_are_refused_and_nothing_hangs(model: Path, tmp_path: Path) -> None:
    weights = model / layout.WEIGHTS
    weights.rename(tmp_path / "w")
    weights.symlink_to(tmp_path / "w")
    assert {"sums", "tensors", "weights"} <= failed(model).keys()
    weights.unlink()
    os.mkfifo(weights)
    assert {"sums", "tensors", "weights"} <= failed(model).keys()


Header = dict[str, dict[str, Any]]


def packed(header: Header | bytes, numbers: bytes, *, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text) if length is None else length) + text + numbers


def unpacked(contents: bytes) -> tuple[Header, bytes]:
    (length,) = struct.unpack_from("<Q", contents)
    return json.loads(contents[8 : 8 + length]), contents[8 + length :]


def _field(field: str, value: Any) -> Callable[[bytes], bytes]:
    """Another field of the header's first tensor."""

    def edit(contents: bytes) -> bytes:
        header, numbers = unpacked(contents)
        first = next(iter(header))
        return packed({**header, first: {**header[first], field: value}}, numbers)

    return edit


def _header(change: Callable[[Header], Header]) -> Callable[[bytes], bytes]:
    return lambda contents: packed(change(unpacked(contents)[0]), unpacked(contents)[1])


def _overlapping(header: Header) -> Header:
    first, second, *_ = header
    start = header[first]["data_offsets"][0]
    size = header[second]["data_offsets"][1] - header[second]["data_offsets"][0]
    return {**header, second: {**header[second], "data_offsets": [start, start + size]}}


def _with_gap(contents: bytes) -> bytes:
    """Four bytes behind the first tensor, which no tensor holds."""
    header, numbers = unpacked(contents)
    first, *others = header
    end = header[first]["data_offsets"][1]
    for name in others:
        header[name]["data_offsets"] = [at + 4 for at in header[name]["data_offsets"]]
    return packed(header, numbers[:end] + b"anna" + numbers[end:])


def _twice(contents: bytes) -> bytes:
    header, numbers = unpacked(contents)
    first = next(iter(header))
    text = json.dumps(header, separators=(",", ":"))
    return packed(f'{{"{first}":{json.dumps(header[first])},{text[1:]}'.encode(), numbers)


def _halves(contents: bytes) -> bytes:
    """All numbers in half precision, and the header that belongs to it."""
    header, numbers = unpacked(contents)
    for facts in header.values():
        facts |= {"dtype": "F16", "data_offsets": [at // 2 for at in facts["data_offsets"]]}
    return packed(header, np.frombuffer(numbers, "<f4").astype("<f2").tobytes())


def _number(value: float) -> Callable[[bytes], bytes]:
    return lambda contents: contents[:-4] + struct.pack("<f", value)


WEIGHTS: dict[str, tuple[Callable[[bytes], bytes], str, str]] = {
    "overlapping offsets": (_header(_overlapping), "tensors", "another header"),
    "a gap": (_with_gap, "tensors", "another header"),
    "reversed offsets": (_field("data_offsets", [4, 0]), "tensors", "another header"),
    "negative offsets": (_field("data_offsets", [-4, 0]), "tensors", "another header"),
    "trailing bytes": (lambda contents: contents + b"anna", "tensors", "bytes where"),
    "cut": (lambda contents: contents[:-4], "tensors", "bytes where"),
    "metadata": (_header(lambda h: {"__metadata__": {"who": "anna"}, **h}), "tensors", "another header"),
    "a key twice": (_twice, "tensors", "another header"),
    "other type": (_field("dtype", "I32"), "tensors", "another header"),
    "half precision": (_halves, "tensors", "another header"),
    "other shape": (_field("shape", [1]), "tensors", "another header"),
    "a further key": (_field("note", "anna"), "tensors", "another header"),
    "other order": (_header(lambda h: dict(reversed(h.items()))), "tensors", "another header"),
    "spaces": (lambda c: packed(b" " * 8 + json.dumps(unpacked(c)[0]).encode(), unpacked(c)[1]), "tensors", "header"),
    "a huge header": (lambda c: packed(unpacked(c)[0], unpacked(c)[1], length=1 << 62), "tensors", "of 4,611,686"),
    "a header of nothing": (lambda c: packed(unpacked(c)[0], unpacked(c)[1], length=0), "tensors", "of 0 bytes"),
    "deep nesting": (lambda c: packed(b"[" * 100_000, b""), "tensors", "another header"),
    "empty": (lambda contents: b"", "tensors", "another header"),
    "no header": (lambda contents: contents[:8], "tensors", "another header"),
    "NaN": (_number(float("nan")), "weights", "is not finite (number 10418)"),
    "infinity": (_number(float("inf")), "weights", "not finite"),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_tricks_in_the_file_of_the_weights_fail(name: str, model: Path) -> None:
    change, check, complaint = WEIGHTS[name]
    weights = model / layout.WEIGHTS
    changed = change(weights.read_bytes())
    assert changed != weights.read_bytes()
    weights.write_bytes(changed)
    renew_sums(model)
    found = failed(model)
    assert complaint in found[check], found
    assert found.keys() <= {"tensors", "weights"}
    with pytest.raises(VerificationFailed, match="Expected weights as the certificate states them"):
        read_model(model)


def test_a_weight_is_protected_by_its_sum(model: Path) -> None:
    """Other finite numbers are another model, which only the sums tell from this one."""
    weights = model / layout.WEIGHTS
    weights.write_bytes(_number(0.25)(weights.read_bytes()))
    assert "model.safetensors differs" in failed(model)["sums"]
    with pytest.raises(VerificationFailed, match=r"model\.safetensors differs"):
        read_model(model)


@pytest.mark.parametrize("name", [name for name in CARDS if name != "title"])
def test_a_card_with_a_word_of_its_own_fails(name: str, model: Path) -> None:
    card = (model / layout.CARD).read_bytes().decode()
    assert CARDS[name](card) != card
    (model / layout.CARD).write_bytes(CARDS[name](card).encode())
    renew_sums(model)
    assert failed(model).keys() == {"card"}


def test_a_licence_may_be_filled_in(model: Path) -> None:
    card = model / layout.CARD
    card.write_text(re.sub("license: .*", "license: cc0-1.0", card.read_text("utf-8")), "utf-8")
    renew_sums(model)
    assert verify(model).ok, verify(model).text()


def test_the_card_says_how_to_load_it(original: Path) -> None:
    card = (original / layout.CARD).read_text("utf-8")
    snippet = re.findall(r"```python\n(.*?)```", card, re.DOTALL)[0]
    known = {"images": torch.zeros(2, *SHAPE)}
    exec(snippet.replace("path/to/this/folder", str(original)), known)
    assert known["logits"].shape == (2, len(CLASSES))
    for words in ("3 classes", "8 x 8 pixels in grey", "10,419 parameters", "sfumato predict", "sfumato verify"):
        assert words in card


def test_hostile_words_stay_text(tmp_path: Path) -> None:
    classifier = make_classifier("fixed-features", {"features": "scattering"})
    hostile = "<script>alert(1)</script>\n# \x1b[31mred"
    facts = ModelFacts(
        architecture=classifier.architecture,
        settings={"features": hostile, hostile: "x"},
        tensors=model_facts(classifier).tensors,
    )
    certificate = make_model_certificate(classifier, model=facts, method={"name": hostile, "hyperparameters": {}})
    classifier = Classifier(classifier.architecture, dict(facts.settings), classifier.network)
    folder = write_model(tmp_path / "m", classifier, certificate)
    card = (folder / layout.CARD).read_text("utf-8").split("---", 2)[2]
    assert "<script>" not in card.replace("\\<", "")
    assert "\x1b" not in card
    assert "\n# \\" not in card
    assert verify(folder).ok, verify(folder).text()
    with pytest.raises(UsageError, match="settings that fixed-features has"):
        read_model(folder)


def test_a_public_network_is_named_in_both_places_or_in_none(tmp_path: Path) -> None:
    named = certified_name(LITE0)
    shape = (3, 32, 32)
    classifier = make_classifier("fixed-features", {"features": "network", "network": named}, shape=shape)
    plain = make_model_certificate(make_classifier(shape=shape), shape=shape).model_dump(mode="json")
    plain["public"]["public_network"] = named
    plain["assumptions"] = statements.assumptions(public=False, network=True)
    plain["model"] = model_facts(classifier).model_dump(mode="json")
    certificate = parse_certificate(json.dumps(plain).encode())
    assert isinstance(certificate, ModelCertificate)
    folder = write_model(tmp_path / "m", classifier, certificate)
    assert verify(folder).ok, verify(folder).text()
    assert statements.NETWORK in verify(folder).facts["assumptions"]
    assert "which is needed to use it" in (folder / layout.CARD).read_text("utf-8")
    again = read_model(folder).classifier.network
    assert torch.equal(logits(again, shape), logits(classifier.network, shape))
    for settings in ({"features": "network"}, {"features": "network", "network": PUBLIC_NETWORK}):
        plain["model"]["settings"] = settings
        with pytest.raises(VerificationFailed, match="the same public network"):
            parse_certificate(json.dumps(plain).encode())


def test_a_network_that_is_not_there_is_asked_for(tmp_path: Path) -> None:
    classifier = make_classifier("fixed-features", {"features": "scattering"})
    settings = {"features": "network", "network": PUBLIC_NETWORK}
    classifier = Classifier(classifier.architecture, settings, classifier.network)
    values = make_model_certificate(make_classifier()).model_dump()
    values["public"]["public_network"] = PUBLIC_NETWORK
    values["assumptions"] = statements.assumptions(public=False, network=True)
    certificate = ModelCertificate(**{**values, "model": model_facts(classifier)})
    folder = write_model(tmp_path / "m", classifier, certificate)
    assert verify(folder).ok, "an auditor does not need the network"
    with pytest.raises(UsageError, match="Expected the network"):
        read_model(folder)


def test_an_unknown_architecture_verifies_and_cannot_be_built(tmp_path: Path) -> None:
    classifier = make_classifier()
    classifier = Classifier("new-network", {}, classifier.network)
    folder = write_model(tmp_path / "m", classifier, make_model_certificate(classifier))
    assert verify(folder).ok
    with pytest.raises(UsageError, match="Expected one of the architectures"):
        read_model(folder)


MORE, NO_MEMORY = "more parameters than the certificate states", "a network that fits in memory"
BOMBS: dict[str, tuple[str, dict[str, Any], str]] = {
    "wide": ("resnet18", {"width": 1500}, MORE),
    "wider than memory": ("resnet18", {"width": 10**9}, NO_MEMORY),
    "wider than an integer": ("resnet18", {"width": 10**30}, "settings that resnet18 has"),
    "deep": ("wide-resnet", {"depth": 6 * 10**8 + 4, "widen": 1}, MORE),
    "a large hidden layer": ("fixed-features", {"features": "scattering", "hidden": 10**5}, MORE),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_network_much_larger_than_its_weights_is_not_built(name: str, tmp_path: Path) -> None:
    architecture, settings, complaint = BOMBS[name]
    classifier = Classifier(architecture, settings, make_classifier().network)
    write_model(tmp_path / "m", classifier, make_model_certificate(classifier))
    script = (
        "import resource, sys\nimport sfumato\nimport sfumato.networks.models as models\nmodels.model_architectures()\n"
        "size = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (size + (1 << 29),) * 2)\n"
        "try:\n    sfumato.read_model(sys.argv[1])\nexcept sfumato.SfumatoError as error:\n    print(error.what)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "m")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert complaint in done.stdout


def test_images_that_no_reader_makes_are_refused(model: Path) -> None:
    edit_certificate(model, _set("public", "height", 16_384))
    renew_card(model)
    renew_sums(model)
    with pytest.raises(UsageError, match="at most 1024 pixels a side"):
        read_model(model)


def test_tensors_of_another_network_are_refused(model: Path) -> None:
    edit_certificate(model, _set("public", "classes", ["a", "b"]))
    renew_card(model)
    renew_sums(model)
    with pytest.raises(VerificationFailed, match="got other tensors"):
        read_model(model)


IMAGES_ONLY: dict[str, Callable[[Path, Path], object]] = {
    "read_release": lambda model, out: read_release(model),
    "student": lambda model, out: train_student(model, "digits"),
    "select": lambda model, out: select_classifier(model, "digits", epsilon=1.0),
    "resample": lambda model, out: resample_release(model, out),
    "report": lambda model, out: write_public_page(model, out),
}


@pytest.mark.parametrize("name", IMAGES_ONLY)
def test_what_needs_images_refuses_a_classifier(name: str, model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        IMAGES_ONLY[name](model, tmp_path / "out")
    assert refused.value.what == "Expected a release of images, got a classifier."
    assert "verify, predict, evaluate or attack" in refused.value.fix
    assert names(tmp_path) == ["m"]


def test_images_are_no_classifier(pristine: Path) -> None:
    with pytest.raises(UsageError, match="Expected a released classifier, got a release of images"):
        read_model(pristine)


def test_certificates_of_both_kinds_keep_their_canonical_bytes(pristine: Path, original: Path) -> None:
    for folder, kind in ((pristine, Certificate), (original, ModelCertificate)):
        text = (folder / layout.CERTIFICATE).read_bytes()
        certificate = parse_certificate(text)
        assert type(certificate) is kind
        assert certificate.to_json().encode() == text
        with pytest.raises(ValidationError):
            certificate.guarantee = None  # type: ignore[assignment]


@pytest.mark.parametrize("format_", ["sfumato-model/2", "", "sfumato-release/1 ", None, 1, ["sfumato-model/1"], {}])
def test_an_unknown_format_is_refused_in_one_sentence(format_: object, original: Path) -> None:
    values = json.loads((original / layout.CERTIFICATE).read_text("utf-8"))
    with pytest.raises(VerificationFailed) as refused:
        parse_certificate(json.dumps({**values, "format": format_}).encode())
    assert "the format sfumato-release/1 (images) or sfumato-model/1 (a classifier), got another" in refused.value.what
    assert len(refused.value.message().splitlines()) == 3


@pytest.mark.parametrize(
    ("named", "written", "card"),
    [  # sums of the first bytes of this format: whoever changes them gives the format another number
        (
            None,
            "2a6d7831c5ace4a60fc84011d4020430dac422009c8581f0f330e076850bda25",
            "3e03f943b7fb74cbdce1cd951d39e47905db7f11c6c8699108632bb11086a43d",
        ),
        (
            PUBLIC_NETWORK,
            "47f0b36ae3e25682b6de7482ba4fc958d9c62ed07c273aa681545a37a698a8d0",
            "e54aad212a86adc1b36a73f52c824f9c74d1f51436277f5ba477e9cc6892cf78",
        ),
    ],
)
def test_certificates_and_cards_keep_their_bytes(named: str | None, written: str, card: str) -> None:
    network = {} if named is None else {"public_network": named}
    values = {
        **OLDER,
        "format": "sfumato-model/1",
        "assumptions": [
            *(statements.KNOWN, statements.PERSON, statements.SETTINGS, statements.ALONE),
            *([] if named is None else [statements.NETWORK]),
        ],
        "public": {**OLDER["public"], **network},
        "model": {
            "architecture": "fixed-features",
            "settings": {"hidden": 0, "features": "network" if named else "scattering"}
            | ({} if named is None else {"network": named}),
            "tensors": [{"name": "head.bias", "shape": [2]}, {"name": "head.weight", "shape": [2, 500]}],
        },
    }
    certificate = parse_certificate(json.dumps(values).encode())
    assert hashlib.sha256(certificate.to_json().encode()).hexdigest() == written
    assert hashlib.sha256(render_card(certificate).encode()).hexdigest() == card
    assert json.loads(certificate.to_json()) == values


def test_the_page_of_scores_says_what_was_judged(model: Path) -> None:
    page = write_page(model).read_text("utf-8")
    assert "a classifier of 10,419 parameters by dp-linear under epsilon 0.8142" in page

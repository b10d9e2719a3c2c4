"""sfumato train: what it prints and writes, a dry run that touches nothing, and which requests are refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from cli.checking import left_in, refused
from sfumato.data.npz import Npz

from commands import Outcome, sfumato, tiny

NETWORK = ("--arch", "cnn", "--with", "none", "--set", "epochs=1", "--set", "batch=45")


@pytest.fixture(scope="module", autouse=True)
def few_examples() -> Iterator[None]:
    """Few images that are not private, so that a training takes a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sfumato.learners.fixed_features.EXAMPLES", 60)
        yield


def request(data: object, out: object, *more: object) -> tuple[object, ...]:
    """A training of a head on fixed features; of an option that is given twice the last one counts."""
    small = ("--set", "rounds=4", "--set", "sampling=0.5")
    return ("train", data, "--classes", "a,b,c", "--epsilon", "8", *small, "--out", out, *more)


def network_request(data: object, out: object, *more: object) -> tuple[object, ...]:
    return ("train", data, "--classes", "a,b,c", "--epsilon", "8", *NETWORK, "--out", out, *more)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Outcome]:
    """A data set, a classifier of it, and what the command printed."""
    folder = tmp_path_factory.mktemp("model")
    data = tiny(folder)
    return data, folder / "m", sfumato(*request(data, folder / "m"))


def test_train_says_what_to_do_next(model: tuple[Path, Path, Outcome]) -> None:
    _, folder, outcome = model
    assert outcome.code == 0, outcome.err
    assert outcome.err == ""
    assert "Released a classifier at epsilon 8, delta 1e-05." in outcome.out
    for line in (f"sfumato predict {folder} IMAGES", f"sfumato verify {folder}", f"{folder}.lab (private)"):
        assert line in outcome.out
    assert sorted(p.name for p in folder.parent.iterdir()) == ["m", "m.lab", "tiny.npz"]
    assert (folder.parent / "m.lab").stat().st_mode & 0o777 == 0o700
    verdict = sfumato("verify", folder)
    assert verdict.code == 0
    assert "Released: a classifier of" in verdict.out


def test_train_twice_into_one_folder_is_refused(model: tuple[Path, Path, Outcome]) -> None:
    data, folder, _ = model
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}
    refused(sfumato(*request(data, folder)), 2, "got one that exists")
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*")} == before


def test_json_and_a_network_by_dp_sgd(tmp_path: Path) -> None:
    outcome = sfumato(*network_request(tiny(tmp_path), tmp_path / "m", "--json"))
    assert outcome.code == 0, outcome.err
    said = json.loads(outcome.out)
    assert said["release"] == str(tmp_path / "m")
    assert said["lab"] == str(tmp_path / "m.lab")
    assert said["level"] == "certified"
    assert 0 < said["epsilon"] <= 8
    stated = json.loads((tmp_path / "m" / "certificate.json").read_text())
    assert stated["method"]["name"] == "dp-sgd"
    assert stated["model"]["architecture"] == "private-cnn"
    assert sfumato("verify", tmp_path / "m").code == 0


def test_without_a_limit_it_says_so_and_does_not_verify(tmp_path: Path) -> None:
    outcome = sfumato(*request(tiny(tmp_path), tmp_path / "m", "--epsilon", "inf"))
    assert outcome.code == 0
    assert "NOT PRIVATE" in outcome.out
    assert "NOT PRIVATE" in outcome.err
    assert sfumato("verify", tmp_path / "m").code == 6


def test_a_dry_run_touches_nothing(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> object:
        raise AssertionError("a pixel was read")

    monkeypatch.setattr(Npz, "chunks", read)
    plain, machine = (sfumato(*request("tiny.npz", "m", "--dry-run", *more)) for more in ((), ("--json",)))
    assert plain.code == machine.code == 0, (plain.err, machine.err)
    assert "mean of the features of all images" in plain.out
    assert "gradients of the classifier" in plain.out
    planned = json.loads(machine.out)
    assert planned["learner"] == "fixed-features"
    assert planned["spec"]["count"] == 90
    assert 0 < planned["epsilon"] <= 8
    assert [m["rounds"] for m in planned["mechanisms"]] == [1, 4]
    assert planned["seconds"] > 0
    assert left_in(workdir) == []


CHOICES: dict[str, tuple[tuple[str, ...], str, dict[str, object]]] = {
    "nothing": ((), "fixed-features", {"features": "scattering"}),
    "the learner": (("--learner", "dp-sgd"), "dp-sgd", {"arch": "wrn-10-1-fast", "techniques": "standard"}),
    "an architecture": (("--arch", "wrn-16-4"), "dp-sgd", {"arch": "wrn-16-4"}),
    "one that cannot have all techniques": (("--arch", "cnn"), "dp-sgd", {"arch": "cnn"}),
    "one that always has some": (("--arch", "resnet18"), "dp-sgd", {"arch": "resnet18"}),
    "techniques": (("--with", "gn,ws"), "dp-sgd", {"techniques": "gn,ws", "arch": "wrn-10-1-fast"}),
    "both, and the learner": (
        ("--learner", "dp-sgd", "--arch", "cnn", "--with", "sat"),
        "dp-sgd",
        {"techniques": "sat"},
    ),
}


@pytest.mark.parametrize("named", CHOICES)
def test_what_is_named_chooses_the_learner(named: str, workdir: Path) -> None:
    more, learner, settings = CHOICES[named]
    asked = ("train", "tiny.npz", "--classes", "a,b,c", "--epsilon", "inf", "--out", "m", "--dry-run", "--json", *more)
    planned = json.loads(sfumato(*asked).out)
    assert planned["learner"] == learner
    assert settings.items() <= planned["hyperparameters"].items()
    assert left_in(workdir) == []


PARAMETERS: dict[str, tuple[tuple[str, ...], int, str]] = {
    "unknown learner": (("--learner=dp-sdg",), 2, "fixed-features; got 'dp-sdg'"),
    "empty learner": (("--learner=",), 2, "got ''"),
    "learner that is a method": (("--learner=dp-merf",), 2, "got 'dp-merf'"),
    "architecture of another learner": (
        ("--learner=fixed-features", "--arch=cnn"),
        2,
        "the learner dp-sgd with --arch",
    ),
    "techniques of another learner": (("--learner=fixed-features", "--with=gn"), 2, "the learner dp-sgd with --arch"),
    "epsilon zero": (("--epsilon=0",), 2, "Expected epsilon > 0, got 0.0"),
    "epsilon negative": (("--epsilon=-1",), 2, "Expected epsilon > 0, got -1.0"),
    "epsilon not a number": (("--epsilon=nan",), 2, "Expected epsilon > 0, got nan"),
    "epsilon a word": (("--epsilon=abc",), 2, "got 'abc'"),
    "epsilon 20 without the flag": (("--epsilon=20",), 2, "--i-know-epsilon-is-large"),
    "epsilon a billion without the flag": (("--epsilon=1e9",), 2, "--i-know-epsilon-is-large"),
    "epsilon a billion with the flag": (("--epsilon=1e9", "--i-know-epsilon-is-large"), 2, "got 1e+09"),
    "delta zero": (("--delta=0",), 2, "below 1/90"),
    "delta one": (("--delta=1",), 2, "got 1.0"),
    "delta two": (("--delta=2",), 2, "got 2.0"),
    "unknown setting": (("--set=roundz=3",), 2, "rounds, sampling"),
    "setting of the other learner": (("--set=arch=cnn",), 2, "got 'arch'"),
    "setting of the wrong type": (("--set=rounds=many",), 2, "Expected rounds as int, got 'many'"),
    "setting a fraction": (("--set=rounds=1.5",), 2, "Expected rounds as int, got '1.5'"),
    "setting out of range": (("--set=rounds=0",), 2, "Expected rounds from 1"),
    "sampling more than all": (("--set=sampling=2",), 2, "Expected sampling from"),
    "width below nothing": (("--set=hidden=-1",), 2, "Expected hidden from 0"),
    "setting not a number": (("--set=rate=nan",), 2, "rate"),
    "setting without a value": (("--set=rounds",), 2, "Expected --set name=value, got 'rounds'"),
    "setting without a name": (("--set==3",), 2, "got ''"),
    "unknown features": (("--set=features=wavelets",), 2, "scattering, photographs; got 'wavelets'"),
    "network that is not there": (("--set=network=nowhere.pt2",), 2, "got 'nowhere.pt2'"),
    "network in another format": (("--set=network=tiny.npz",), 2, "got 'tiny.npz'"),
    "public data that is not there": (("--public=nowhere",), 2, "nowhere"),
    "processes for one file": (("--processes=2",), 2, "Expected a folder of shards"),
    "no process": (("--processes=0",), 2, "at least 1 process"),
    "ray for one file": (("--engine=ray",), 2, "Expected a folder of shards"),
    "ray and processes": (("--engine=ray", "--processes=2"), 2, "1 process with the engine ray"),
    "an address without ray": (("--address=10.0.0.1:6379",), 2, "engine ray for the address"),
    "an unknown engine": (("--engine=slurm",), 2, "--engine"),
    "a class twice": (("--classes=a,b,a",), 2, "got 'a' twice"),
    "an option of releases": (("--count=3",), 2, "--count"),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter(name: str, workdir: Path) -> None:
    more, code, needle = PARAMETERS[name]
    refused(sfumato(*request("tiny.npz", "m", *more)), code, needle)
    assert left_in(workdir) == []


NETWORKS: dict[str, tuple[tuple[str, ...], str]] = {
    "unknown architecture": (("--arch=vit",), "resnet18, cnn; got 'vit'"),
    "empty architecture": (("--arch=",), "got ''"),
    "unknown technique": (("--with=dropout",), "obs, gn, ws, am, pa, sat; got dropout"),
    "technique that does not fit": (("--arch=cnn", "--with=ws"), "cnn cannot have ws"),
    "technique that is always there": (("--arch=resnet18", "--with=obs"), "resnet18 has gn always"),
    "setting of the other learner": (("--set=rounds=3",), "got 'rounds'"),
    "no epochs": (("--set=epochs=0",), "Expected epochs from"),
    "more versions than can be": (("--set=multiplicity=2000",), "Expected multiplicity from 1 to 1000"),
    "public images": (("--public=tiny.npz",), "no use of public images"),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_parameter_of_a_network(name: str, workdir: Path) -> None:
    more, needle = NETWORKS[name]
    refused(sfumato(*network_request("tiny.npz", "m", *more)), 2, needle)
    assert left_in(workdir) == []


def images(folder: Path, *, shape: tuple[int, ...] = (8, 8), classes: int = 3) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (90, *shape), dtype=np.uint8)
    np.savez(folder / "data.npz", x=pixels, y=np.arange(90) % classes)
    return folder / "data.npz"


def an_empty_folder(folder: Path) -> Path:
    (folder / "data").mkdir()
    return folder / "data"


def a_text(folder: Path) -> Path:
    (folder / "data.npz").write_text("no images")
    return folder / "data.npz"


DATA: dict[str, tuple[Callable[[Path], Path], tuple[str, ...], int, str]] = {
    "nothing": (lambda f: f / "nowhere", (), 2, "a path where nothing is"),
    "an empty folder": (an_empty_folder, (), 3, "got none"),
    "no images": (a_text, (), 3, "data.npz"),
    "one class": (lambda f: images(f, classes=1), ("--classes=a",), 2, "at least 2 classes for a classifier"),
    "one class, to plan": (lambda f: images(f, classes=1), ("--classes=a", "--dry-run"), 2, "at least 2 classes"),
    "too small for photographs": (lambda f: images(f, shape=(6, 6)), ("--set=features=photographs",), 2, "got 6 x 6"),
    "public images of another shape": (lambda f: images(f, shape=(8, 12)), ("--public=tiny.npz",), 2, "(1, 8, 12)"),
}


@pytest.mark.parametrize("name", DATA)
def test_data(name: str, workdir: Path) -> None:
    build, more, code, needle = DATA[name]
    data = build(workdir)
    before = sorted(p.name for p in workdir.iterdir())
    refused(sfumato(*request(data, "m", *more)), code, needle)
    assert sorted(p.name for p in workdir.iterdir()) == before


def test_images_too_small_for_an_architecture(tmp_path: Path) -> None:
    for more in ((), ("--dry-run",)):
        asked = network_request(images(tmp_path, shape=(6, 6)), tmp_path / "m", *more)
        refused(sfumato(*asked), 2, "at least 8 x 8 pixels for cnn, got 6 x 6")
    assert [p.name for p in tmp_path.iterdir()] == ["data.npz"]


def test_a_network_file_that_is_none(workdir: Path) -> None:
    (workdir / "net.pt2").write_bytes(b"no network")
    refused(sfumato(*request("tiny.npz", "m", "--set", "network=net.pt2")), 3, "that torch.export.save wrote")
    assert left_in(workdir) == ["net.pt2"]


REQUESTS: dict[str, tuple[tuple[str, ...], str]] = {
    "without data": (("--epsilon=1", "--out=m"), "Missing argument"),
    "without epsilon": (("tiny.npz", "--out=m"), "Missing option '--epsilon'"),
    "without out": (("tiny.npz", "--epsilon=1"), "Missing option '--out'"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_bad_request(name: str, workdir: Path) -> None:
    arguments, needle = REQUESTS[name]
    refused(sfumato("train", *arguments), 2, needle)
    assert left_in(workdir) == []


def a_folder(folder: Path) -> Path:
    (folder / "m").mkdir()
    return folder / "m"


TARGETS: dict[str, tuple[Callable[[Path], Path], int, str]] = {
    "a folder that exists": (a_folder, 2, "got one that exists"),
    "in a folder that is not there": (lambda f: f / "nowhere" / "m", 2, "Expected the folder around --out to exist"),
    "the data itself": (lambda f: f / "tiny.npz", 2, "got one that exists"),
    "a lab's name": (lambda f: f / "m.lab", 2, "does not end in .lab"),
    "a name too long": (lambda f: f / ("m" * 250), 2, "at most 200 bytes"),
    "where nobody can write": (lambda f: Path("/proc/m"), 5, "The lab folder cannot be used"),
}


@pytest.mark.parametrize("name", TARGETS)
def test_target(name: str, tmp_path: Path) -> None:
    build, code, needle = TARGETS[name]
    data, out = tiny(tmp_path), build(tmp_path)
    before = {p: p.lstat().st_mtime_ns for p in tmp_path.rglob("*")}
    refused(sfumato(*request(data, out)), code, needle)
    assert {p: p.lstat().st_mtime_ns for p in tmp_path.rglob("*")} == before


def test_target_inside_the_data(tmp_path: Path) -> None:
    for label in "abc":
        (tmp_path / "faces" / label).mkdir(parents=True)
    out = tmp_path / "faces" / "a" / "m"
    refused(sfumato(*request(tmp_path / "faces", out)), 2, "outside the private data")
    assert not os.path.lexists(out)


ELSEWHERE: dict[str, Callable[[Path, Path, Path], tuple[object, ...]]] = {
    "report": lambda data, folder, out: ("report", folder, "--public", "--out", out),
    "resample": lambda data, folder, out: ("resample", folder, "--out", out),
    "student": lambda data, folder, out: ("student", folder, "--real", data),
    "select": lambda data, folder, out: ("select", folder, "--real", data, "--epsilon", "0.1"),
}


@pytest.mark.parametrize("command", ELSEWHERE)
def test_commands_for_images_refuse_a_classifier(
    command: str, model: tuple[Path, Path, Outcome], tmp_path: Path
) -> None:
    data, folder, _ = model
    lab = sorted((folder.parent / "m.lab").rglob("*"))
    refused(sfumato(*ELSEWHERE[command](data, folder, tmp_path / "o")), 2, "got a classifier")
    assert left_in(tmp_path) == []
    assert sorted((folder.parent / "m.lab").rglob("*")) == lab


def test_there_are_enough_cases() -> None:
    assert sum(map(len, (PARAMETERS, NETWORKS, DATA, REQUESTS, TARGETS, ELSEWHERE))) >= 60

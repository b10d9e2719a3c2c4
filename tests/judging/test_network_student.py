"""The student that uses a public network: fitted to the images of its own subset, judged and written down as others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from metrics.digits import reference
from networks.exported import export, name_of, seeded
from release.making import make_certificate
from sfumato.errors import DataError
from sfumato.judging.student import train_student
from sfumato.networks import public_network
from sfumato.release import write_release
from sfumato.values import Images, Spec

from commands import Outcome, sfumato

COUNT = 400


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("cache") / "tiny.pt2", seeded())


@pytest.fixture(autouse=True)
def cache(network: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The network is in the cache folder, as a user of a release would put it there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(public_network, "CACHE", network.parent)
    return network.parent


def released(folder: Path, network: Path | None, *, count: int = COUNT) -> Path:
    """Digits for the network with their logits; the images of the classes have wrong labels."""
    train = reference().train
    pixels, labels = train.pixels[:count], train.labels[:count]
    further = Images(pixels, labels, train.classes, 6 * torch.nn.functional.one_hot(labels, 10).float())
    images = Images(pixels[:100], (labels[:100] + 1) % 10, train.classes, network=further if network else None)
    spec = Spec(60_000, 1, 8, 8, train.classes)
    public = {
        **{name: getattr(spec, name) for name in ("count", "channels", "height", "width", "classes")},
        "public_data": None,
        "public_network": name_of(network) if network else None,
    }
    return write_release(folder / "r", images, make_certificate(images, public=public))


def trained(release: Path, *more: object) -> Outcome:
    return sfumato("student", release, "--real", "digits", "--arch", "features", *more)


def test_the_images_for_the_network_teach(tmp_path: Path, network: Path) -> None:
    release = released(tmp_path, network)
    before = sorted(release.rglob("*"))
    outcome = trained(release)
    assert outcome.code == 0, outcome.err
    for words in ("accuracy    0.", "worst class", "with the release's logits", "not for publication"):
        assert words in outcome.out
    assert "+-" not in outcome.out, "it has no seeds to differ by"
    assert sorted(release.rglob("*")) == before
    document = json.loads((tmp_path / "r.lab" / "student-features.json").read_text())
    score = document["score"]
    assert (score["name"], score["standard_error"], document["schedule"]) == ("student-features", None, "least squares")
    assert score["value"] > 0.5
    assert score["details"]["agreement"] > 0.4
    assert score["details"]["kept_from_the_student"] == COUNT // 20
    assert trained(release).out == outcome.out, "nothing is random"


def test_every_run_is_a_row(tmp_path: Path, network: Path) -> None:
    release = released(tmp_path, network)
    for seeds in ("1", "3"):
        printed = json.loads(trained(release, "--seeds", seeds, "--json").out)
        assert (printed["lab"], printed["score"]["seeds"]) == (True, [0])
    lines = (tmp_path / "r.lab" / "students.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| features")]
    assert len(rows) == 2
    assert rows[0] == rows[1], "the number of seeds changes nothing"
    cells = [cell.strip() for cell in rows[0].strip("|").split("|")]
    assert cells[:5] == ["features", "short", "least squares", "1", "1"]
    assert cells[6] == "", "no error of the mean"
    assert cells[-1] == "test split"
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1


def refused(outcome: Outcome, code: int, sentence: str, folder: Path) -> None:
    assert outcome.code == code, outcome
    assert sentence in outcome.said
    assert len(outcome.err.splitlines()) <= 3
    assert "Traceback" not in outcome.err
    assert not (folder / "r.lab").exists(), "a refusal leaves nothing behind"


def test_a_release_without_such_images_is_refused(tmp_path: Path) -> None:
    outcome = trained(released(tmp_path, None))
    refused(outcome, 2, "Expected a release with logits for a public network, got one without.", tmp_path)
    assert "choose another --arch" in outcome.said


@pytest.mark.parametrize(
    "option", ["--loss=logits", "--loss=labels", "--schedule=paper", "--subset=data", "--loss=kl --temperature=4"]
)
def test_settings_of_training_are_refused(option: str, tmp_path: Path, network: Path) -> None:
    outcome = trained(released(tmp_path, network), *option.split())
    refused(outcome, 2, "Expected no schedule, loss, subset or temperature for the student", tmp_path)


def test_without_the_network_nothing_is_begun(tmp_path: Path, network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = released(tmp_path, network)
    monkeypatch.setattr(public_network, "CACHE", tmp_path)
    refused(trained(release), 2, "tiny.pt2'", tmp_path)
    export(tmp_path / "tiny.pt2", seeded(seed=1))
    refused(trained(release), 3, "Expected the public network tiny.pt2, SHA-256", tmp_path)


def test_the_features_that_are_shipped_need_no_network(tmp_path: Path) -> None:
    train = reference().train
    labels = train.labels[:COUNT]
    further = Images(train.pixels[:COUNT], labels, train.classes, 6 * torch.nn.functional.one_hot(labels, 10).float())
    images = Images(train.pixels[:100], (labels[:100] + 1) % 10, train.classes, transfer=further)
    public = {"count": 60_000, "channels": 1, "height": 8, "width": 8, "classes": train.classes, "public_data": None}
    release = write_release(tmp_path / "r", images, make_certificate(images, public=public))
    outcome = sfumato("student", release, "--real", "digits", "--arch", "fixed-features", "--json")
    assert json.loads(outcome.out)["score"]["value"] > 0.6  # 0.1 by chance; nothing is random here
    outcome = sfumato("student", release, "--real", "digits", "--arch", "fixed-features", "--loss", "kl")
    assert outcome.code == 2
    assert "least squares" in outcome.said


def test_too_few_images_are_refused(tmp_path: Path, network: Path) -> None:
    with pytest.raises(DataError, match="at least 20 images, got 19"):
        train_student(released(tmp_path, network, count=19), "digits", arch="features")


def test_an_unknown_architecture_is_answered_with_this_one_too(tmp_path: Path, network: Path) -> None:
    outcome = sfumato("student", released(tmp_path, network), "--real", "digits", "--arch", "feature")
    refused(outcome, 2, ", features, fixed-features; got 'feature'", tmp_path)


def test_evaluate_has_a_row_for_it_and_leaves_it_out_where_there_is_no_network(
    tmp_path: Path, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sfumato import contracts
    from sfumato.judging import evaluate
    from sfumato.judging.evaluate import evaluate_release

    release = released(tmp_path, network)
    (score,) = evaluate_release(release, "digits", metrics=("gen2real-network",))
    assert score.name == "gen2real-network"
    assert score.value > 0.5
    whole = contracts.find("metrics", "gen2real-network")()
    monkeypatch.setattr(evaluate, "panel_of", lambda *_, **__: {"gen2real-network": replace(whole)})
    monkeypatch.setattr(public_network, "CACHE", tmp_path)
    assert evaluate_release(release, "digits") == [], "the other metrics of a panel do not need it"

"""Gen2Real through a public network: far above chance, chance for wrong logits, and else not applicable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from metrics.digits import noise, reference
from networks.exported import export, name_of, seeded
from sfumato.errors import NotApplicable, UsageError
from sfumato.metrics.gen2real_network import Gen2RealNetwork
from sfumato.networks import public_network
from sfumato.values import Images, Reference

METRIC = Gen2RealNetwork()


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("cache") / "tiny.pt2", seeded())


@pytest.fixture(autouse=True)
def _cache(network: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(public_network, "CACHE", network.parent)


def release(network: Path, *, shift: int = 0, images: Images | None = None) -> Images:
    """Noise for the classes; for the network digits with the logits of their class, or of the one `shift` further."""
    train = images or reference().train.rows(torch.arange(600))
    labels = (train.labels + shift) % 10
    logits = 5 * torch.nn.functional.one_hot(labels, 10).float()
    further = Images(train.pixels, labels, train.classes, logits, seen_through=name_of(network))
    return replace(noise(50), network=further)


def test_the_score_is_that_of_a_student_of_the_images_for_the_network(network: Path) -> None:
    score = METRIC(release(network), reference())
    assert score.name == "gen2real-network"
    assert score.value > 0.5, "with a tiny network of random filters; chance is 0.1"
    assert score.higher_is_better
    assert (score.standard_error, score.seeds) == (None, ())
    assert score.details["network"] == name_of(network)
    assert score.details["test_split"]
    assert METRIC(release(network), reference()) == score, "nothing is random"


def test_wrong_logits_teach_nothing(network: Path) -> None:
    assert METRIC(release(network, shift=1), reference()).value < 0.2
    assert METRIC(release(network, images=noise(600)), reference()).value < 0.4


def test_the_score_says_where_there_is_no_test_split(network: Path) -> None:
    assert not METRIC(release(network), Reference(train=reference().train)).details["test_split"]


def test_releases_without_such_images_cannot_be_judged_so(network: Path) -> None:
    unnamed = release(network)
    unnamed = replace(unnamed, network=replace(unnamed.network, seen_through=None))  # type: ignore[type-var]
    for images in (noise(50), unnamed):
        with pytest.raises(NotApplicable, match="Expected a release with logits for a public network, got none"):
            METRIC(images, reference())


def test_without_the_network_or_with_another_they_cannot_either(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = release(network)
    monkeypatch.setattr(public_network, "CACHE", tmp_path)
    with pytest.raises(NotApplicable, match=r"tiny\.pt2'") as refused:
        METRIC(images, reference())
    assert refused.value.fix
    export(tmp_path / "tiny.pt2", seeded(seed=1))
    with pytest.raises(NotApplicable, match=r"Expected the public network tiny\.pt2"):
        METRIC(images, reference())


def test_mismatch_is_refused(network: Path) -> None:
    real = reference()
    with pytest.raises(UsageError, match="shape"):
        METRIC(release(network), Reference(train=replace(real.train, pixels=real.train.pixels[..., :4])))

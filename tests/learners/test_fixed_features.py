"""A head on fixed features: the released layers are what was trained, and public images and networks are used."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from networks.exported import export, name_of, seeded
from sfumato.contracts import Reading
from sfumato.errors import DataError, SfumatoError, UsageError
from sfumato.learners import fixed_features
from sfumato.learners.fixed_features import FixedFeatures
from sfumato.making.model import TrainingJob, train_model
from sfumato.networks.linear_teacher import CONSTANT, WhitenedFeatures
from sfumato.privacy import Budget, Ledger, PrivateImages, SeededNoise
from sfumato.release import read_model, statements, verify
from sfumato.values import Classifier, Images, Spec

from commands import tiny
from toys import ToySource, digits, halves

QUICK = FixedFeatures(rounds=4, sampling=0.5, rate=10.0)
EPSILON = 8.0


@pytest.fixture
def few_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixed_features, "EXAMPLES", 60)


def trained(
    learner: FixedFeatures, source: ToySource | None = None, *, epsilon: float = EPSILON, public: Images | None = None
) -> Classifier:
    private = PrivateImages.seal(source or halves(90), Ledger(Budget(epsilon, 1e-4)), noise=SeededNoise(0))
    try:
        return learner.fit(private, public)
    finally:
        private.close()


def pictures(count: int = 20) -> torch.Tensor:
    return torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> dict[str, nn.Module]:
    """The whitened features and the head as they were trained."""
    found: dict[str, nn.Module] = {}
    original = fixed_features._write_head

    def write_head(network: nn.Module, head: nn.Sequential, seen: WhitenedFeatures) -> None:
        found.update(head=head, seen=seen)
        original(network, head, seen)  # type: ignore[arg-type]

    monkeypatch.setattr(fixed_features, "_write_head", write_head)
    return found


@pytest.mark.usefixtures("few_examples")
@pytest.mark.parametrize("hidden", [0, 7])
def test_the_released_layers_give_the_logits_of_what_was_trained(hidden: int, kept: dict[str, nn.Module]) -> None:
    classifier = trained(FixedFeatures(rounds=4, sampling=0.5, rate=10.0, hidden=hidden))
    with torch.no_grad():
        expected = kept["head"](kept["seen"](pictures()))
        got = classifier.network(pictures())
    assert expected.abs().max() > 0.1, "it was trained"
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4)
    assert classifier.settings == {"features": "scattering", "hidden": hidden}
    assert len(list(classifier.network.parameters())) == (4 if hidden else 2)


def test_a_linear_map_of_affine_features_is_one_of_the_given_ones() -> None:
    class Rows:
        shape = torch.Size((64, 1, 1))

        def __call__(self, images: torch.Tensor) -> torch.Tensor:
            return images.reshape(-1, *self.shape)

    examples = (255 * pictures(200) * torch.linspace(0.1, 1, 8)).byte()
    draw = torch.Generator().manual_seed(1)
    weight = torch.randn(3, 65, generator=draw)
    affine = WhitenedFeatures(Rows(), examples, level=0.1, affine=True)
    kernel, bias = affine.in_given_features(weight)
    rows = affine(pictures()).flatten(1)
    expected = rows @ weight[:, :-1].T + CONSTANT * weight[:, -1]
    torch.testing.assert_close(pictures().flatten(1) @ kernel.T + bias, expected, rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match="Expected affine features"):
        WhitenedFeatures(Rows(), examples, level=0.1).in_given_features(weight)


def test_public_images_take_the_place_of_procedural_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_made(*_: object) -> object:
        raise AssertionError("an image was made")

    pixels = (255 * pictures(50)).byte()
    public = Images(pixels, torch.zeros(50).long(), ("x",))
    monkeypatch.setattr(fixed_features, "procedural_images", none_made)
    monkeypatch.setattr(fixed_features, "EXAMPLES", 30)
    spec = halves(90).spec
    examples = QUICK._examples(spec, public)
    assert len(examples) == 30
    assert {bytes(e.numpy().tobytes()) for e in examples} <= {bytes(p.numpy().tobytes()) for p in pixels}
    assert isinstance(trained(QUICK, public=public), Classifier)
    with pytest.raises(AssertionError, match="an image was made"):
        QUICK._examples(spec, None)


def test_public_images_of_another_shape_are_refused() -> None:
    public = Images(torch.zeros(5, 1, 8, 9, dtype=torch.uint8), torch.zeros(5).long(), ("x",))
    with pytest.raises(UsageError, match=r"shape \(1, 8, 8\), got \(1, 8, 9\)"):
        trained(QUICK, public=public)


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's network in a folder of theirs; readers of a release have it in the cache, which is empty."""
    monkeypatch.setattr("sfumato.networks.public_network.CACHE", tmp_path / "cache")
    (tmp_path / "cache").mkdir()
    (tmp_path / "somebody's networks").mkdir()
    return export(tmp_path / "somebody's networks" / "net.pt2", seeded())


def job(folder: Path, network: Path) -> TrainingJob:
    settings = {"network": str(network), "rounds": "4", "sampling": "0.5", "rate": "10"}
    reading = Reading(classes=("a", "b", "c"))
    return TrainingJob(str(tiny(folder)), epsilon=EPSILON, reading=reading, settings=tuple(settings.items()))


@pytest.mark.usefixtures("few_examples")
def test_a_public_network_is_named_without_its_path_and_the_model_reads_back(
    tmp_path: Path, network: Path, kept: dict[str, nn.Module]
) -> None:
    made = train_model(job(tmp_path, network), tmp_path / "m")
    verdict = verify(made)
    assert verdict.ok, verdict.text()
    stated = json.loads((made / "certificate.json").read_text())
    assert stated["public"]["public_network"] == name_of(network)
    assert stated["assumptions"] == statements.assumptions(public=False, network=True)
    assert stated["model"]["settings"] == {"features": "network", "network": name_of(network), "hidden": 0}
    assert stated["method"]["hyperparameters"]["network"] == "net.pt2"
    assert not any(b"somebody" in path.read_bytes() for path in made.rglob("*") if path.is_file())
    with pytest.raises(SfumatoError, match=r"net\.pt2"):
        read_model(made)  # a reader has to put the network into the cache first
    (tmp_path / "cache" / "net.pt2").write_bytes(network.read_bytes())
    read = read_model(made)
    with torch.no_grad():
        expected = kept["head"](kept["seen"](pictures()))
        torch.testing.assert_close(read.classifier.network(pictures()), expected, rtol=1e-3, atol=1e-4)
    export(tmp_path / "cache" / "net.pt2", seeded(seed=1))
    with pytest.raises(DataError, match="got another"):
        read_model(made)


@pytest.mark.usefixtures("few_examples")
def test_a_network_that_is_exchanged_during_the_run_is_not_certified(
    tmp_path: Path, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original: Callable[..., Classifier] = FixedFeatures.fit

    def fit(self: FixedFeatures, private: PrivateImages, public: Images | None) -> Classifier:
        classifier = original(self, private, public)
        export(network, seeded(seed=1))
        return classifier

    monkeypatch.setattr(FixedFeatures, "fit", fit)
    with pytest.raises(DataError, match="to stay as it was during the run"):
        train_model(job(tmp_path, network), tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_photographs_that_are_too_small_are_refused_in_the_plan() -> None:
    with pytest.raises(UsageError, match="at least 8 x 8 pixels for features=photographs, got 8 x 7"):
        FixedFeatures(features="photographs").plan(Spec(90, 3, 8, 7, ("a", "b")))


def test_it_learns_the_digits() -> None:
    source, held_out, truth = digits()
    learner = FixedFeatures.for_task(source.spec, Budget(4.0, 1e-4))
    network = trained(learner, source, epsilon=4.0).network
    with torch.no_grad():
        guesses = network(torch.from_numpy(held_out).float() / 255).argmax(1).numpy()
    assert np.mean(guesses == truth) > 0.85

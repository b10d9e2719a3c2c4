"""Attacks on a released classifier: one that memorises is caught, a random one is not, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from judging.released import READING, meaningless, released, trained, untrained, written
from metrics.digits import reference
from sfumato import contracts
from sfumato.contracts import ClassifierAttack
from sfumato.errors import DataError, NotApplicable, SfumatoError, UsageError
from sfumato.judging.attack import attack_release
from sfumato.judging.exposure import expose_trained
from sfumato.judging.lineup import line_up
from sfumato.judging.model_attack import ModelAttackPlan, attack_model, plan_model_attacks, with_shadows
from sfumato.judging.model_evaluation import evaluate_model
from sfumato.judging.refitting import fitted_again, stated_in
from sfumato.privacy import Budget
from sfumato.release import read_model
from sfumato.report.evaluation import write_page
from sfumato.values import Groups, Images, ModelRelease, Reference, Score, Spec

from commands import sfumato
from toys import LinearLearner

ON_ANSWERS = ("attack-forest", "attack-mlp", "loss-threshold", "modified-entropy")
ON_SHADOWS = ("lira", "shadow-forest", "shadow-mlp")


@pytest.fixture(scope="module")
def real() -> Reference:
    return meaningless()


@pytest.fixture(scope="module")
def memorising(real: Reference, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A network that knows the random label of every training record, and its data; the claim is epsilon 1 or so."""
    folder = tmp_path_factory.mktemp("memorising")
    network = trained(real.train, steps=120)
    return released(folder / "m", network, real.train), written(real, folder / "data.npz")


def by_name(scores: list[Score]) -> dict[str, Score]:
    return {score.name: score for score in scores}


def test_a_network_that_memorises_is_caught_and_above_its_claim(memorising: tuple[Path, str]) -> None:
    folder, data = memorising
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    scores = by_name(attack_release(folder, data, reading=READING))
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert set(scores) == {f"attack-{name}" for name in ON_ANSWERS}
    assert scores["attack-loss-threshold"].value > 0.98
    assert scores["attack-modified-entropy"].value > 0.98
    for score in scores.values():
        assert score.value > 0.9
        assert not score.higher_is_better
        assert [part.name.rsplit("-", 1)[1] for part in score.parts] == ["0.01", "0.001"]
        assert (score.details["members"], score.details["others"]) == (60, 60)
    assert scores["attack-loss-threshold"].details["epsilon_lower_bound"] > 1
    assert scores["attack-loss-threshold"].details["above_claim"] is True
    lab = folder.with_name("m.lab")
    text = (lab / "attacks.md").read_text()
    assert text.startswith("PRIVATE")
    assert "| YES |" in text
    assert "Near duplicates" not in text
    assert (lab / "attacks.png").read_bytes().startswith(b"\x89PNG")
    assert not (lab / "near_duplicates.png").exists()
    rows = json.loads((lab / "scores.json").read_text())["scores"]
    assert {row["judges"] for row in rows} == {"privacy"}
    page = write_page(folder).read_text()
    assert "Do not publish" in page
    assert "What attacks find out from the classifier" in page


def test_a_network_that_saw_nothing_gives_nothing_away(real: Reference, tmp_path: Path) -> None:
    """Seeded throughout; 4 standard errors are exceeded by chance once in 16,000 seeds."""
    release = read_model(released(tmp_path / "m", untrained(), real.train))
    for score in attack_model(release, real):
        assert abs(score.value - 0.5) < 4 * score.standard_error
        assert not score.details["above_claim"]


def test_a_panel_is_the_attacks_on_answers_or_every_attack_on_classifiers() -> None:
    default, full = plan_model_attacks((), "default"), plan_model_attacks((), "full")
    assert default == ModelAttackPlan(ON_ANSWERS, ())
    assert (set(full.on_answers), set(full.on_shadows)) == (set(ON_ANSWERS), set(ON_SHADOWS))
    assert sorted((*full.on_answers, *full.on_shadows)) == list(contracts.names_of("attacks", ClassifierAttack))
    assert plan_model_attacks(("lira",), "default") == ModelAttackPlan((), ("lira",))


# --- shadows


def in_memory(path: Path, real: Reference, monkeypatch: pytest.MonkeyPatch, **stated: object) -> ModelRelease:
    """A linear layer without noise, by a learner that only the tests have; without clipping it is the same twice."""
    usual = contracts.find
    monkeypatch.setattr(
        contracts, "find", lambda kind, name: LinearLearner if kind == "learners" else usual(kind, name)
    )
    classifier = fitted_again(LinearLearner(), Budget(math.inf, 1e-5), real.train, None)
    certificate = {
        "guarantee": {"epsilon": None, "delta": 1e-5},
        "budget": {"epsilon": None, "delta": 1e-5},
        "method": {"name": "linear", "hyperparameters": asdict(LinearLearner())},
        **stated,
    }
    return ModelRelease(path, certificate, classifier, real.train.classes, (1, 8, 8))


def test_shadows_are_made_by_the_learner_of_as_many_records(
    real: Reference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = in_memory(tmp_path / "m", real, monkeypatch)
    fitted_on: list[Images] = []

    def noting(learner: LinearLearner, budget: Budget, images: Images, public: Images | None) -> object:
        fitted_on.append(images)
        assert budget == Budget(math.inf, 1e-5)
        return fitted_again(learner, budget, images, public)

    monkeypatch.setattr("sfumato.judging.model_attack.fitted_again", noting)
    lineup = line_up(real)
    exposed = expose_trained(release.classifier.network, lineup.members, lineup.others)
    found = with_shadows(exposed, release, real, lineup, shadows=2, seconds=60)
    assert found.shadow_logits.shape == (2, 120, 10)
    assert [len(images) for images in fitted_on] == [200, 200] == [len(real.train)] * 2
    assert (found.shadow_members.sum(0) == 1).all(), "the second of a pair has what the first has not"
    assert torch.equal(found.logits, exposed.logits)
    candidates = torch.cat([lineup.members.pixels, lineup.others.pixels])
    for images, inside in zip(fitted_on, found.shadow_members, strict=True):
        there = {image.numpy().tobytes() for image in images.pixels}
        assert [image.numpy().tobytes() in there for image in candidates] == inside.tolist()


def test_shadows_catch_a_layer_that_memorises(real: Reference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = in_memory(tmp_path / "m", real, monkeypatch)
    scores = by_name(attack_model(release, real, attacks=(*ON_SHADOWS, "loss-threshold"), shadows=4))
    assert set(scores) == {f"attack-{name}" for name in (*ON_SHADOWS, "loss-threshold")}
    assert scores["attack-lira"].value > 0.8
    assert scores["attack-lira"].value > scores["attack-loss-threshold"].value
    for name in ON_SHADOWS:
        details = scores[f"attack-{name}"].details
        assert scores[f"attack-{name}"].value > 0.55
        assert (details["shadows"], details["records_of_a_shadow"]) == (4, 200)
        assert "for the lab alone" in details["limit"]
    assert "none: not private" in (tmp_path / "m.lab" / "attacks.md").read_text()


@pytest.mark.parametrize(
    ("stated", "seconds", "reason"),
    [
        (
            {"method": {"name": "linear", "hyperparameters": {"novelty": 3}}},
            60,
            "learner and hyperparameters that this",
        ),
        ({}, 1, "Expected 8 shadows in 1 s; they would take 8 s"),
    ],
)
def test_attacks_without_shadows_are_left_out_with_the_reason(
    stated: dict[str, object],
    seconds: float,
    reason: str,
    real: Reference,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release = in_memory(tmp_path / "m", real, monkeypatch, **stated)
    scores = by_name(attack_model(release, real, panel="full", seconds=seconds))
    assert set(scores) == {f"attack-{name}" for name in ON_ANSWERS}
    left_out = json.loads((tmp_path / "m.lab" / "scores.json").read_text())["left_out"]
    assert set(left_out) == set(ON_SHADOWS)
    assert all(reason in why for why in left_out.values())


def test_a_learner_that_needs_public_images_is_left_out_without_them(
    real: Reference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LinearLearner, "public_images", "needed")
    release = in_memory(tmp_path / "m", real, monkeypatch)
    assert attack_model(release, real, attacks=("lira",)) == []
    assert "public images" in (tmp_path / "m.lab" / "attacks.md").read_text()


def test_a_public_network_that_is_not_here_leaves_shadows_out() -> None:
    method = {"name": "fixed-features", "hyperparameters": {"network": "absent.safetensors"}}
    certificate = {"budget": {"epsilon": 1.0, "delta": 1e-5}, "method": method}
    with pytest.raises(NotApplicable, match="that this version knows"):
        stated_in(certificate, "learners", Spec(200, 3, 32, 32, ("a", "b")))


def test_a_release_on_disk_names_its_learner(memorising: tuple[Path, str], real: Reference, tmp_path: Path) -> None:
    """Nothing is asserted of what the noise decides."""
    stated = asdict(contracts.find("learners", "dp-sgd")(arch="cnn", techniques="none", epochs=1.0, batch=50))
    method = {"name": "dp-sgd", "hyperparameters": stated}
    folder = released(tmp_path / "m", untrained(), real.train, method=method)
    (score,) = attack_release(folder, memorising[1], attacks=("lira",), shadows=2, reading=READING)
    assert score.name == "attack-lira"
    assert score.details["shadows"] == 2
    assert json.loads((tmp_path / "m.lab" / "scores.json").read_text())["left_out"] == {}


# --- with an evaluation


def test_evaluation_and_attack_give_a_harmonic_score(real: Reference, tmp_path: Path) -> None:
    release = read_model(released(tmp_path / "m", untrained(), real.train))
    assert real.test is not None
    groups = Groups(("even", "odd"), torch.arange(len(real.train)) % 2, torch.arange(len(real.test)) % 2)
    scores = by_name(evaluate_model(release, replace(real, groups=groups)))
    assert "harmonic-score" not in scores
    harmonic = by_name(attack_model(release, real))["harmonic-score"]
    assert harmonic.details["of"]["accuracy"] == {"score": "accuracy", "value": scores["accuracy"].value}
    assert harmonic.details["of"]["bias"] == {"score": "classifier-bias", "value": scores["classifier-bias"].value}
    assert harmonic.details["variant"] == "bounded"


def test_the_command_raises_an_alarm(memorising: tuple[Path, str]) -> None:
    folder, data = memorising
    classes = ("--classes", ",".join(reference().train.classes))
    outcome = sfumato("attack", folder, "--real", data, *classes, "--attack", "loss-threshold")
    assert outcome.code == 6
    assert "ALARM: attack-loss-threshold" in outcome.err


# --- refusals


def few(real: Reference) -> Reference:
    assert real.test is not None
    return Reference(real.train, real.test.rows(torch.arange(30)))


Attacked = Callable[[Path, str, ModelRelease, Reference], object]
REFUSALS: dict[str, tuple[Attacked, type[SfumatoError], str]] = {
    "an attack on images": (
        lambda m, d, r, real: attack_release(m, d, attacks=("gan-leaks",), reading=READING),
        UsageError,
        "Expected attacks on a classifier, got gan-leaks, which attacks a release of images",
    ),
    "shadow releases": (
        lambda m, d, r, real: attack_release(m, d, attacks=("shadow-lira",), reading=READING),
        UsageError,
        "got shadow-lira, which attacks a release of images",
    ),
    "no attack at all": (
        lambda m, d, r, real: attack_release(m, d, attacks=("mind-reading",), reading=READING),
        UsageError,
        "'mind-reading'",
    ),
    "an unknown panel": (
        lambda m, d, r, real: attack_release(m, d, panel="all", reading=READING),
        UsageError,
        "Expected the panel default or full",
    ),
    "no shadow": (lambda m, d, r, real: attack_model(r, real, shadows=0), UsageError, "even number of shadows"),
    "an odd number of shadows": (
        lambda m, d, r, real: attack_release(m, d, panel="full", shadows=7, reading=READING),
        UsageError,
        "even number of shadows from 2 on, got 7",
    ),
    "no test split": (
        lambda m, d, r, real: attack_model(r, replace(real, test=None)),
        NotApplicable,
        "Expected a data set with a test split",
    ),
    "too few records": (lambda m, d, r, real: attack_model(r, few(real)), DataError, "Expected 20 training records"),
    "training records as test records": (
        lambda m, d, r, real: attack_model(r, replace(real, test=real.train)),
        DataError,
        "got 200 and 0",
    ),
    "other classes": (
        lambda m, d, r, real: attack_release(m, d, reading=replace(READING, classes=tuple("abcdefghij"))),
        UsageError,
        "with the released classes",
    ),
    "no release": (lambda m, d, r, real: attack_release(m / "none", d), UsageError, "Expected a release folder"),
    "weights that give no numbers": (
        lambda m, d, r, real: attack_model(broken(r), real),
        DataError,
        "Expected finite logits to attack",
    ),
}


def broken(release: ModelRelease) -> ModelRelease:
    network = untrained()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(torch.nan)
    return replace(release, classifier=replace(release.classifier, network=network))


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_attacked_is_refused(name: str, memorising: tuple[Path, str], real: Reference) -> None:
    attack, error, said = REFUSALS[name]
    with pytest.raises(error, match=said):
        attack(*memorising, read_model(memorising[0]), real)

"""Resampling: another release from the same noisy answers, without the data and without another cost."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

from sfumato import contracts
from sfumato.contracts import Reading
from sfumato.errors import DataError, UsageError, VerificationFailed
from sfumato.making import certify
from sfumato.making.release import Job, make_release
from sfumato.making.resample import resample_release
from sfumato.privacy import Noise, SeededNoise
from sfumato.release import read_release, statements, verify
from sfumato.values import Images

from commands import Outcome, request, sfumato, tiny

SETTINGS = (("steps", "3"), ("frequencies", "20"), ("hidden", "8"), ("batch", "24"))


def files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def certificate(folder: Path) -> dict:
    return json.loads((folder / "certificate.json").read_text())


def images_of(folder: Path) -> dict[str, bytes]:
    return {name: raw for name, raw in files(folder).items() if name.endswith(".parquet")}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a release `r` and its lab; the private data is gone."""
    folder = tmp_path_factory.mktemp("finished")
    data = tiny(folder)
    assert sfumato(*request(data, folder / "r")).code == 0
    data.unlink()
    return folder


@pytest.fixture
def place(finished: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(finished, tmp_path / "place"))


def resampled(place: Path, *more: object, out: str = "r2") -> Outcome:
    return sfumato("resample", place / "r", "--out", place / out, *more)


def test_the_same_count_gives_the_same_images_at_the_same_epsilon(place: Path) -> None:
    before = files(place)
    outcome = resampled(place)
    assert outcome.code == 0, outcome.err
    assert "Released 12 images at epsilon" in outcome.out
    assert "once together with the release that the answers are from" in outcome.out
    first, second = certificate(place / "r"), certificate(place / "r2")
    assert images_of(place / "r2") == images_of(place / "r")
    added = [text for text in second["assumptions"] if text not in first["assumptions"]]
    assert {**first, "assumptions": None} == {**second, "assumptions": None}
    assert len(added) == 1
    assert "once, together" in added[0]
    assert all(text in second["assumptions"] for text in first["assumptions"])
    assert any("except from the same noisy answers" in text for text in first["assumptions"])
    assert verify(place / "r2").ok, verify(place / "r2").text()
    assert {name: raw for name, raw in files(place).items() if name in before} == before, "the first is as it was"


def test_more_images_of_the_same_sampler(place: Path) -> None:
    made = resample_release(place / "r", place / "r2", count=500, folders=True)
    first, more = read_release(place / "r").images, read_release(made).images
    assert np.bincount(more.labels.numpy()).tolist() == [167, 167, 166]
    assert len({image.tobytes() for image in more.pixels.numpy()}) > 400, "not the same images again"
    assert torch.equal(more.labels[:12], first.labels)
    assert len(list((made / "images").rglob("*.png"))) == 500
    assert verify(made).ok
    assert certificate(made)["mechanisms"] == certificate(place / "r")["mechanisms"]


def test_what_is_done_with_the_answers_may_change(place: Path) -> None:
    made = resample_release(place / "r", place / "r2", settings=(("steps", "5"), ("latent", "3")))
    assert certificate(made)["method"]["hyperparameters"]["steps"] == 5
    assert certificate(made)["guarantee"] == certificate(place / "r")["guarantee"]
    assert images_of(made) != images_of(place / "r")
    assert verify(made).ok
    same = resample_release(place / "r", place / "r3", settings=(("frequencies", "20"), ("seed", "0")))
    assert images_of(same) == images_of(place / "r"), "what is named but not changed is no change"


@pytest.mark.parametrize("setting", ["seed=1", "frequencies=21", "length_scales=0.4", "count_share=0.2"])
def test_what_changes_the_question_may_not(setting: str, place: Path) -> None:
    outcome = resampled(place, "--set", setting)
    assert outcome.code == 2
    assert "alone, because" in outcome.said
    assert setting.split("=")[0] in outcome.said
    assert not (place / "r2").exists()
    assert not (place / "r2.lab").exists()


def test_a_change_of_the_plan_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = contracts.find("methods", "dp-merf")

    @dataclass(frozen=True)
    class Careless(plain):
        free: ClassVar = frozenset({"frequencies"})

        def plan(self, spec: object) -> list:
            return [replace(m, rounds=1 + self.frequencies // 21) for m in super().plan(spec)]

    monkeypatch.setattr(contracts, "find", lambda kind, name: Careless)
    with pytest.raises(UsageError, match="ask other questions"):
        resample_release(place / "r", place / "r2", settings=(("frequencies", "21"),))


def test_a_question_of_another_size_is_refused_even_if_a_method_calls_it_free(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = contracts.find("methods", "dp-merf")

    @dataclass(frozen=True)
    class Careless(plain):
        free: ClassVar = frozenset({"frequencies"})

    monkeypatch.setattr(contracts, "find", lambda kind, name: Careless)
    with pytest.raises(VerificationFailed, match="another size"):
        resample_release(place / "r", place / "r2", settings=(("frequencies", "21"),))
    assert not (place / "r2").exists()


def test_json_and_lab_and_judging(place: Path) -> None:
    printed = json.loads(resampled(place, "--json", "--count", "30").out)
    assert printed["release"] == str(place / "r2")
    assert printed["epsilon"] == certificate(place / "r")["guarantee"]["epsilon"]
    lab = place / "r2.lab"
    assert set(files(lab)) == {"PRIVATE", "lock", "resampled.json"}
    assert json.loads((lab / "resampled.json").read_text())["release"] == str(place / "r")
    assert (lab.stat().st_mode & 0o777) == 0o700
    judged = sfumato("evaluate", place / "r2", "--real", tiny(place), "--classes", "a,b,c", "--metric", "nearest")
    assert judged.code == 0, judged.err
    assert (lab / "report.html").exists() or list(lab.glob("*.html"))


def test_resampling_twice_names_the_original(place: Path) -> None:
    assert resampled(place).code == 0
    outcome = sfumato("resample", place / "r2", "--out", place / "r3")
    assert outcome.code == 2
    assert "resampled itself" in outcome.said
    assert str(place / "r") in outcome.said
    assert not (place / "r3").exists()


def _short_of(name: str):
    return lambda place: (place / "r.lab" / name).unlink()


def _shorter_ledger(place: Path) -> None:
    path = place / "r.lab" / "ledger.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def _other_certificate(place: Path) -> None:
    path = place / "r" / "certificate.json"
    certificate = json.loads(path.read_text())
    certificate["mechanisms"][0]["purpose"] = "something else"
    path.write_text(json.dumps(certificate, sort_keys=True, indent=2, ensure_ascii=False) + "\n")


BAD = {
    "no release": (lambda place: shutil.rmtree(place / "r"), 2, "Expected a release folder, got none"),
    "no lab": (lambda place: shutil.rmtree(place / "r.lab"), 2, "Expected the lab of the release beside it"),
    "no run": (_short_of("run.json"), 2, "got no run.json"),
    "no ledger": (_short_of("ledger.jsonl"), 2, "got no ledger.jsonl"),
    "no tape": (lambda place: shutil.rmtree(place / "r.lab" / "tape"), 2, "got no tape"),
    "no answer": (_short_of("tape/0000-00000000.npz"), 6, "This question was not asked"),
    "an unfinished ledger": (_shorter_ledger, 2, "got a run with questions left"),
    "an empty ledger": (lambda place: (place / "r.lab" / "ledger.jsonl").write_bytes(b""), 6, "ledger is damaged"),
    "another release's ledger": (_other_certificate, 6, "Expected the ledger that the release was certified from"),
    "a method of the future": (
        lambda place: (place / "r.lab" / "run.json").write_text(
            (place / "r.lab" / "run.json").read_text().replace('"dp-merf"', '"dp-new"')
        ),
        2,
        "that this version knows",
    ),
    "out is there": (lambda place: (place / "r2").mkdir(), 2, "got one that exists"),
    "out was begun": (lambda place: shutil.copytree(place / "r.lab", place / "r2.lab"), 2, "a run that was begun"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_missing_is_said_in_a_sentence(name: str, place: Path) -> None:
    spoil, code, sentence = BAD[name]
    spoil(place)
    before = files(place)
    outcome = resampled(place)
    assert (outcome.code, sentence in outcome.said) == (code, True), outcome
    assert len(outcome.err.splitlines()) <= 3
    assert {k: v for k, v in files(place).items() if not k.startswith("r2.lab/")} == {
        k: v for k, v in before.items() if not k.startswith("r2.lab/")
    }


@pytest.mark.parametrize("out", ["r/r2", "r.lab/r2"])
def test_a_release_lies_in_no_other(out: str, place: Path) -> None:
    before = files(place)
    outcome = resampled(place, out=out)
    assert outcome.code == 2
    assert "outside the release and its lab" in outcome.said
    assert files(place) == before


@pytest.mark.parametrize("count", [0, 10**8])
def test_impossible_counts(count: int, place: Path) -> None:
    with pytest.raises(UsageError, match="Expected a count"):
        resample_release(place / "r", place / "r2", count=count)


@pytest.mark.parametrize(("epsilon", "noise"), [(8.0, SeededNoise(0)), (float("inf"), Noise())])
def test_what_is_not_private_stays_so(epsilon: float, noise: Noise, tmp_path: Path) -> None:
    job = Job(
        str(tiny(tmp_path)), "dp-merf", epsilon, count=12, reading=Reading(classes=("a", "b", "c")), settings=SETTINGS
    )
    make_release(job, tmp_path / "r", noise=noise)
    outcome = resampled(tmp_path)
    assert outcome.code == 0, outcome.err
    assert "NOT PRIVATE" in outcome.out
    assert certificate(tmp_path / "r2")["guarantee"]["level"] == "not-private"
    assert certificate(tmp_path / "r2")["noise"] == certificate(tmp_path / "r")["noise"]
    assert not verify(tmp_path / "r2").ok


def test_a_ledger_from_before_says_it_in_the_new_words() -> None:
    old = "No other release was made from the same data; the epsilons and deltas of several releases add up."
    assert certify.resampled([old, "Another."]) == [statements.ALONE, "Another.", statements.TOGETHER]
    assert certify.resampled([old, statements.ALONE]) == [statements.ALONE, statements.TOGETHER], (
        "a resumed run has both"
    )


def test_other_versions_are_warned_of(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfumato.making.resample.version", lambda name: "99.0")
    outcome = resampled(place)
    assert outcome.code == 0
    assert "images may come out otherwise" in outcome.said


def test_public_images_are_read_again_and_must_be_the_same(tmp_path: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "public.npz", x=pixels, y=np.zeros(40, np.int64))
    settings = (("rounds", "4"), ("steps", "2"))
    job = Job(
        str(tiny(tmp_path)),
        "dp-imgsyn",
        8.0,
        count=12,
        public=str(tmp_path / "public.npz"),
        reading=Reading(classes=("a", "b", "c")),
        settings=settings,
    )
    make_release(job, tmp_path / "r")
    (tmp_path / "tiny.npz").unlink()
    assert images_of(resample_release(tmp_path / "r", tmp_path / "r2")) == images_of(tmp_path / "r")
    # the published code keeps the best step, which may be none; the form of the paper keeps the last
    changed = resample_release(tmp_path / "r", tmp_path / "r3", settings=(("form", "paper"),))
    assert images_of(changed) != images_of(tmp_path / "r")
    with pytest.raises(UsageError, match="ask other questions"):
        resample_release(tmp_path / "r", tmp_path / "r4", settings=(("steps", "0"),))
    np.savez(tmp_path / "public.npz", x=255 - pixels, y=np.zeros(40, np.int64))
    with pytest.raises(DataError, match="Expected the public images"):
        resample_release(tmp_path / "r", tmp_path / "r4")


def test_a_transfer_set_is_made_and_resampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = contracts.find("methods", "dp-merf")

    @dataclass(frozen=True)
    class Teaching(plain):
        def fit(self, private: object, public: object) -> object:
            sampler = super().fit(private, public)

            def sample(labels: torch.Tensor) -> Images:
                images, logits = sampler(labels), torch.nn.functional.one_hot(labels, 3).float()
                further = Images(255 - images.pixels, labels, images.classes, logits)
                return replace(images, transfer=further)

            return sample

    monkeypatch.setattr(contracts, "find", _teaching(Teaching))
    outcome = sfumato(*request(tiny(tmp_path), tmp_path / "r"))
    assert "Released 12 images and 12 for transfer" in outcome.out, outcome.err
    made = resample_release(tmp_path / "r", tmp_path / "r2")
    assert set(images_of(made)) == {f"{s}/train-00000-of-00001.parquet" for s in ("data", "transfer")}
    assert images_of(made) == images_of(tmp_path / "r")
    assert verify(made).ok, verify(made).text()


def _teaching(method: type):
    original = contracts.find
    return lambda kind, name: method if kind == "methods" else original(kind, name)

"""The leak of a release on disk: numbers in its lab, added and not replaced, and a sentence for everything wrong."""

from __future__ import annotations

import importlib.util
import json
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load as load_safely
from safetensors.torch import save

from judging.hiding import hidden_release, on_disk
from judging.shapes import shapes
from release.making import make_certificate
from sfumato.contracts import Reading
from sfumato.data import load, load_attributed
from sfumato.errors import DataError, EnvironmentProblem, SfumatoError, UsageError, VerificationFailed
from sfumato.judging import attribute_judges
from sfumato.judging import leak as leak_module
from sfumato.judging.attribute_judges import Answers, PaperJudge, SmallJudge
from sfumato.judging.leak import PICTURE, measure_leak, pairs_of
from sfumato.judging.leak_table import HEAD, score_rows
from sfumato.lab.folder import Lab
from sfumato.lab.provenance import PARTS, TENSORS, Provenance, read_provenance
from sfumato.making.hide import HidingJob, hide_attribute
from sfumato.release import write_release
from sfumato.statistics import faces
from sfumato.values import Attributed

from attributed import write_folder


@pytest.fixture(autouse=True)
def short_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(attribute_judges.JUDGES, "small", SmallJudge(epochs=3, batch=16))
    monkeypatch.setitem(attribute_judges.JUDGES, "resnet18", PaperJudge(epochs=1, batch=16))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A data set, and a release of its parts v and g."""
    folder = tmp_path_factory.mktemp("hidden")
    data = on_disk(folder / "pictures", 120)
    return data, hidden_release(folder / "h", data)


@pytest.fixture
def copy(made: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """The same in a place of its own, which a test may spoil."""
    data, release = made
    shutil.copytree(release, tmp_path / "h")
    shutil.copytree(Lab.beside(release).folder, tmp_path / "h.lab")
    return data, tmp_path / "h"


def leaks(release: Path) -> list[dict[str, Any]]:
    return json.loads(Lab.beside(release).folder.joinpath("leak.json").read_text())["leaks"]


def test_the_numbers_are_in_the_lab(copy: tuple[Path, Path]) -> None:
    data, release = copy
    found = measure_leak(release, str(data), seeds=1)
    assert (found.attribute, found.keep, found.parts) == ("colour", ("brightness", "shape"), "v+g")
    assert (found.trained_on, found.real["shape"].images) == (72, 24)
    assert found.told is not None
    assert found.told.accuracy == 1
    (written,) = leaks(release)
    assert written["released"]["colour"]["accuracy"] == found.released["colour"].accuracy
    lab = Lab.beside(release).folder
    assert stat.S_IMODE(lab.stat().st_mode) == 0o700
    assert (lab / PICTURE).read_bytes().startswith(b"\x89PNG")
    table = (lab / "leak.md").read_text()
    assert table.startswith("PRIVATE")
    assert "There is no epsilon here" in table
    assert table.lower().count("epsilon") == table.count("There is no epsilon here")
    assert "An attribute hidden is not a person hidden" in table
    assert "The harmonic score does not apply" in table
    assert "| colour, PT (the method's head) | - | 100.0 ±" in table


def test_seeds_give_the_same_bytes(copy: tuple[Path, Path]) -> None:
    data, release = copy
    lab = Lab.beside(release).folder
    written = []
    for _ in range(2):
        measure_leak(release, str(data), seeds=1, keep=("shape",))
        written.append([(lab / name).read_bytes() for name in ("leak.json", "leak.md", PICTURE)])
    assert written[0] == written[1]  # and the second took the place of the first
    assert len(leaks(release)) == 1


def test_another_judge_and_other_parts_are_added(copy: tuple[Path, Path]) -> None:
    data, release = copy
    for judge, parts in (("small", None), ("resnet18", "v"), ("small", "g"), ("small", "g+v")):
        measure_leak(release, str(data), seeds=1, judge=judge, parts=parts, keep=())
    assert [(one["judge"], one["parts"], one["trained_on"]) for one in leaks(release)] == [
        ("resnet18", "v", 24),
        ("small", "g", 48),
        ("small", "v+g", 72),
    ]


def test_nothing_is_told_of_images_that_trained_the_head(tmp_path: Path, made: tuple[Path, Path]) -> None:
    release = hidden_release(tmp_path / "h", made[0], parts=("tr", "v", "g"))
    assert measure_leak(release, str(made[0]), seeds=1).told is None
    (written,) = leaks(release)
    first = next(iter(score_rows(written)))
    assert first == ("colour, PT (the method's head)", *["-"] * (len(HEAD) - 1))
    assert measure_leak(release, str(made[0]), seeds=1, parts="v+g").told is not None


def test_a_head_that_learnt_from_others_is_asked_about_all(tmp_path: Path, made: tuple[Path, Path]) -> None:
    """And the frequent class is that of the images that it learnt from, here green."""
    release = hidden_release(tmp_path / "h", made[0], parts=("tr", "v", "g"))
    lab = Lab.beside(release)
    trained = shapes(60).labelled("colour")
    others = replace(trained, labels=trained.labels.new_tensor([2] * 50 + [1] * 10))
    came = read_provenance(lab.folder)
    with lab:
        came.with_head(came.told, others, ("blue", "green", "red"), tr_trained=False).write(lab)
    told = measure_leak(release, str(made[0]), seeds=1, keep=()).told
    assert told is not None
    assert (told.accuracy, told.images) == (1, 96)
    assert told.majority == told.recalls["green"] / 4  # a quarter of the images is green


def test_the_head_of_an_earlier_lab_is_not_asked(copy: tuple[Path, Path]) -> None:
    """It does not say what trained the head."""
    data, release = copy
    path = Lab.beside(release).folder / TENSORS
    path.write_bytes(save({name: value for name, value in load_tensors(path).items() if name != "head_learnt"}))
    assert measure_leak(release, str(data), seeds=1, keep=()).told is None


def test_a_head_tells_values_by_name_where_a_class_is_absent() -> None:
    """Of a fixed list such as race; a head knows the values that are there."""
    known = shapes(60)
    classes = {**known.classes, "colour": ("purple", "blue", "red", "green")}
    images = Attributed(known.pixels, {**known.attributes, "colour": known.attributes["colour"] + 1}, classes)
    parts = torch.arange(60) % 4
    sources = (parts != PARTS.index("test")).nonzero()[:, 0]
    told = torch.nn.functional.one_hot(known.attributes["colour"][sources], 3).float()
    came = Provenance("colour", tuple(classes), None, parts, sources, None, "").with_head(
        told, known.labelled("colour"), classes["colour"], tr_trained=True
    )
    released = Attributed(images.pixels[sources], {}, {})
    found = pairs_of(released, images, came, ("v", "g"), values=("blue", "red", "green"))
    assert found.head is not None
    assert found.head.equal(found.real.attributes["colour"])
    assert found.head_learnt.bincount().tolist() == [0, 30, 15, 15]
    for values in (("blue", "red"), ("blue", "red", "pink")):
        with pytest.raises(DataError, match="Expected a head that tells the values"):
            pairs_of(released, images, came, ("g",), values=values)


@dataclass(frozen=True)
class Noting(SmallJudge):
    """A judge that notes what it was given to learn."""

    learnt: list[list[str]] = field(default_factory=list)

    def train(self, images: Attributed, asked: tuple[str, ...], *, seed: int, what: str) -> Answers:
        self.learnt.append(sorted(images.attributes))
        return super().train(images, asked, seed=seed, what=what)


def test_who_is_on_an_image_is_not_learnt_and_counts_as_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = Noting(epochs=1, batch=16)
    monkeypatch.setitem(attribute_judges.JUDGES, "small", judge)
    pictures = write_folder(tmp_path / "pictures")
    job = HidingJob(str(pictures), "colour", person="who", method="transport", settings=(("codes", "20"),))
    release = hide_attribute(job, tmp_path / "h")
    found = measure_leak(release, str(pictures), seeds=1)
    assert len(judge.learnt) == 3
    assert all(names == ["brightness", "colour", "shape"] for names in judge.learnt)
    assert found.recognition.by_pixels.by_person
    assert found.recognition.by_pixels.chance == pytest.approx(3 / found.trained_on)  # of each there are three images
    assert "shows the same person" in Lab.beside(release).folder.joinpath("leak.md").read_text()


def test_a_method_without_a_head_tells_nothing(tmp_path: Path, made: tuple[Path, Path]) -> None:
    release = hidden_release(tmp_path / "h", made[0], head=False)
    assert measure_leak(release, str(made[0]), seeds=1, keep=()).told is None


def test_real_images_are_read_as_large_as_the_released_ones(tmp_path: Path, made: tuple[Path, Path]) -> None:
    release = hidden_release(tmp_path / "h", made[0], reading=Reading(size=8, mode="grey"))
    assert measure_leak(release, str(made[0]), seeds=1, keep=()).trained_on == 72


def foreign_table(release: Path) -> None:
    Lab.beside(release).folder.joinpath("leak.json").write_text('{"leaks": [{"attribute": "colour"}]}')


def foreign_provenance(release: Path) -> None:
    Lab.beside(release).folder.joinpath("provenance.json").write_text("[]")


def no_lab(release: Path) -> None:
    shutil.rmtree(Lab.beside(release).folder)


def another_release(release: Path) -> None:
    shutil.rmtree(release)
    images = load("digits").rows(torch.arange(20))
    write_release(release, images, make_certificate(images))


def edited(release: Path) -> None:
    shard = next((release / "data").glob("*.parquet"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")


def changed_lab(**tensors: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Path], None]:
    def change(release: Path) -> None:
        path = Lab.beside(release).folder / TENSORS
        kept = load_tensors(path)
        path.write_bytes(save({name: tensors.get(name, torch.clone)(value) for name, value in kept.items()}))

    return change


def load_tensors(path: Path) -> dict[str, torch.Tensor]:
    return load_safely(path.read_bytes())  # type: ignore[no-any-return]


BAD: dict[str, tuple[dict[str, Any], Callable[[Path], None] | None, type[SfumatoError], str]] = {
    "another attribute": ({"attribute": "shape"}, None, UsageError, "that is hidden here, colour; got 'shape'"),
    "an unknown attribute": ({"attribute": "race"}, None, UsageError, "that is hidden here, colour; got 'race'"),
    "keeping what is hidden": ({"keep": ("colour",)}, None, UsageError, "among brightness, shape; got 'colour'"),
    "keeping what is not there": ({"keep": ("age",)}, None, UsageError, "among brightness, shape; got 'age'"),
    "unknown judge": ({"judge": "vgg"}, None, UsageError, "the judges small, resnet18; got 'vgg'"),
    "no seeds": ({"seeds": 0}, None, UsageError, "Expected 1 to 100 seeds, got 0"),
    "too many seeds": ({"seeds": 101}, None, UsageError, "Expected 1 to 100 seeds, got 101"),
    "parts not released": ({"parts": "tr+g"}, None, UsageError, "parts that were released, v+g; got 'tr+g'"),
    "the part test": ({"parts": "test"}, None, UsageError, "parts that were released, v+g; got 'test'"),
    "no part at all": ({"parts": ""}, None, UsageError, "parts that were released, v+g; got ''"),
    "unknown front": ({"front": "all"}, None, UsageError, "front as no or test, got 'all'"),
    "other size": (
        {"reading": Reading(size=8)},
        None,
        UsageError,
        "Expected the images that the release was made from",
    ),
    "real data not there": ({"real": "nowhere"}, None, SfumatoError, "got a path where nothing is"),
    "real data without attributes": (
        {"real": "digits"},
        None,
        UsageError,
        "Expected a data set with several attributes",
    ),
    "a foreign table": ({}, foreign_table, DataError, "Expected a table of leaks that Sfumato wrote"),
    "a foreign provenance": ({}, foreign_provenance, DataError, "Expected the lab folder that `hide` wrote"),
    "no lab": ({}, no_lab, DataError, "Expected the lab folder that `hide` wrote"),
    "a release of another kind": ({}, another_release, SfumatoError, "Expected a release of images with a hidden"),
    "an edited release": ({}, edited, VerificationFailed, ""),
    "fewer sources": ({}, changed_lab(sources=lambda s: s[1:]), DataError, "as the lab says"),
    "other sources": ({}, changed_lab(sources=lambda s: s.roll(1)), DataError, "of each released image to be that"),
    "no test part": ({}, changed_lab(parts=lambda p: p.clamp(max=2)), UsageError, "real images of the part test"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str, copy: tuple[Path, Path]) -> None:
    given, spoil, kind, needle = BAD[name]
    data, release = copy
    if spoil is not None:
        spoil(release)
    before = sorted(path.name for path in release.parent.rglob("*"))
    with pytest.raises(kind) as refused:
        measure_leak(release, **{"real": str(data), **given})
    assert needle in refused.value.what
    assert refused.value.what.count("\n") == 0
    assert sorted(path.name for path in release.parent.rglob("*")) == before  # nothing was written


def test_faces_from_the_front_where_there_are_none(made: tuple[Path, Path]) -> None:
    pytest.importorskip("dlib", reason="needs dlib")
    data, release = made
    with pytest.raises(UsageError, match="in none of which dlib finds a face"):
        measure_leak(release, str(data), front="test")


def test_images_without_a_face_from_the_front_are_not_tested(
    copy: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With bright pictures in the place of faces, because the pictures of this test show none."""

    def bright(pixels: torch.Tensor) -> torch.Tensor:
        return pixels.float().mean((1, 2, 3)) > 70

    monkeypatch.setattr(leak_module, "front_faces", bright)
    data, release = copy
    found = measure_leak(release, str(data), seeds=1, front="test", keep=())
    images = load_attributed(data, ("colour",))
    parts = read_provenance(Lab.beside(release).folder).parts
    assert 0 < found.real["colour"].images == int(bright(images.pixels[parts == 3]).sum()) < 24
    assert found.told is not None
    assert found.told.images == int(bright(images.pixels[(parts == 1) | (parts == 2)]).sum()) < 72
    measure_leak(release, str(data), seeds=1, keep=())
    assert [one["front"] for one in leaks(release)] == ["test", "no"]
    assert "tested on 24" in Lab.beside(release).folder.joinpath("leak.md").read_text()
    assert f"tested on {found.real['colour'].images}, faces from the front" in (
        Lab.beside(release).folder.joinpath("leak.md").read_text()
    )


def test_faces_from_the_front_without_dlib(made: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    data, release = made
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    faces._detector.cache_clear()
    with pytest.raises(EnvironmentProblem, match="got no dlib"):
        measure_leak(release, str(data), front="test")


def test_no_release_at_all(tmp_path: Path) -> None:
    with pytest.raises(SfumatoError, match="Expected"):
        measure_leak(tmp_path / "nothing", "digits")

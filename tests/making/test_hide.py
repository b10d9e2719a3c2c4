"""Hiding an attribute, from a folder of images to a release on disk."""

from __future__ import annotations

import random
import shutil
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sfumato import data
from sfumato.contracts import Reading
from sfumato.errors import DataError, UsageError
from sfumato.hiding.ce import CE
from sfumato.hiding.transport import Transport
from sfumato.lab.provenance import PARTS, read_provenance
from sfumato.making import hide
from sfumato.making.hide import HidingJob, hide_attribute, plan_hiding
from sfumato.release import read_hidden, verify
from sfumato.values import Rewriter

from attributed import CLASSES, write_folder


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("hide") / "pictures")


@pytest.fixture
def job(faces: Path) -> HidingJob:
    return HidingJob(str(faces), "colour", keep=("shape", "brightness"), settings=(("codes", "20"),))


def sums(folder: Path) -> str:
    return (folder / "SHA256SUMS").read_text()


def test_one_image_comes_out_for_one_image_with_the_labels_of_its_source(job: HidingJob, tmp_path: Path) -> None:
    made = read_hidden(hide_attribute(job, tmp_path / "h"))
    real = data.load_attributed(job.data, ("colour", "shape", "brightness"))
    came = read_provenance(tmp_path / "h.lab")
    came.check(real)
    assert sorted(came.sources.tolist()) == torch.nonzero(came.parts != PARTS.index("test"))[:, 0].tolist()
    assert len(made.images) == len(came.sources) > 90
    assert set(made.images.attributes) == {"shape", "brightness"}
    for name in ("shape", "brightness"):
        assert made.images.attributes[name].equal(real.attributes[name][came.sources])
        assert made.images.classes[name] == CLASSES[name]
    near = (made.images.pixels.float() - real.pixels[came.sources].float()).abs().mean((1, 2, 3))
    far = (made.images.pixels.float() - real.pixels[came.sources.roll(1)].float()).abs().mean((1, 2, 3))
    assert near.mean() < far.mean()


def test_what_is_released_says_that_there_is_no_guarantee(job: HidingJob, tmp_path: Path) -> None:
    verdict = verify(hide_attribute(job, tmp_path / "h"))
    assert not verdict.ok
    assert not verdict.failed
    assert "no epsilon here" in verdict.text().splitlines()[0]


def test_the_hidden_attribute_and_the_identifier_are_not_released(faces: Path, tmp_path: Path) -> None:
    folder = hide_attribute(HidingJob(str(faces), "colour", person="who"), tmp_path / "h")
    assert set(read_hidden(folder).images.attributes) == {"shape", "brightness"}
    stored = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert b"person 17" not in stored
    assert stat.S_IMODE((tmp_path / "h.lab").stat().st_mode) == 0o700


def test_several_attributes_are_hidden_together(faces: Path, tmp_path: Path) -> None:
    job = HidingJob(str(faces), "colour+shape", settings=(("codes", "20"),))
    made = read_hidden(hide_attribute(job, tmp_path / "h"))
    assert made.facts.hidden == "colour+shape"
    assert len(made.facts.values) == 6
    assert set(made.images.attributes) == {"brightness"}
    with pytest.raises(UsageError, match=r"other labels to keep .* got 'shape'"):
        plan_hiding(replace(job, keep=("shape",)))


def test_all_images_of_a_person_are_in_one_part(faces: Path, tmp_path: Path) -> None:
    hide_attribute(HidingJob(str(faces), "colour", person="who"), tmp_path / "h")
    parts = read_provenance(tmp_path / "h.lab").parts
    for person in range(40):
        assert len(set(parts[torch.arange(120) % 40 == person].tolist())) == 1


def the_same_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the operating system gives is the same for every run from here on."""
    monkeypatch.setattr(hide.secrets, "SystemRandom", lambda: random.Random(5))
    monkeypatch.setattr(hide.secrets, "randbits", lambda bits: 5)


def test_by_the_same_chance_two_runs_give_the_same_bytes_and_another_seed_others(
    job: HidingJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    the_same_chance(monkeypatch)
    first, second, third = (tmp_path / name for name in "abc")
    hide_attribute(job, first)
    torch.manual_seed(77)
    hide_attribute(job, second)
    hide_attribute(replace(job, seed=1), third)
    assert sums(first) == sums(second) != sums(third)


def test_no_seed_leads_back_to_the_order_of_the_files(job: HidingJob, tmp_path: Path) -> None:
    """Nor to what was drawn for an image: two runs of a job differ in both.

    That 100 images are dealt into the same order twice has a chance below 1 in 10^150.
    """
    orders = []
    for name in "ab":
        hide_attribute(job, tmp_path / name)
        came = read_provenance(tmp_path / f"{name}.lab")
        orders.append(came.sources)
        of_the_files = came.sources.sort().values
        for seed in range(20):
            shuffled = of_the_files[torch.randperm(len(of_the_files), generator=torch.Generator().manual_seed(seed))]
            assert not shuffled.equal(came.sources)
    assert not orders[0].equal(orders[1])
    assert orders[0].sort().values.equal(orders[1].sort().values)
    made = [
        read_hidden(tmp_path / name).images.pixels[order.argsort()] for name, order in zip("ab", orders, strict=True)
    ]
    assert not made[0].equal(made[1])


def add_column(faces: Path, to: Path, name: str, values: Sequence[str]) -> str:
    """The same pictures with one more column in their table."""
    shutil.copytree(faces, to)
    head, *rows = (to / "table.csv").read_text().splitlines()
    (to / "table.csv").write_text(
        "\n".join([f"{head},{name}", *(f"{r},{v}" for r, v in zip(rows, values, strict=True))])
    )
    return str(to)


def test_a_label_that_tells_the_attribute_under_another_name_is_not_released(faces: Path, tmp_path: Path) -> None:
    colours = [line.split(",")[1] for line in (faces / "table.csv").read_text().splitlines()[1:]]
    shades = [f"{'dark' if at % 3 else 'pale'} {colour}" for at, colour in enumerate(colours)]
    job = HidingJob(add_column(faces, tmp_path / "d", "shade", shades), "colour")
    plan = plan_hiding(job)
    assert plan.keep == ("shape", "brightness")
    assert plan.left_out == ("who", "shade")
    with pytest.raises(UsageError, match="who knows 'shade' knows it"):
        plan_hiding(replace(job, keep=("shade",)))
    made = read_hidden(hide_attribute(replace(job, settings=(("codes", "20"),)), tmp_path / "h"))
    assert set(made.images.attributes) == {"shape", "brightness"}


def test_the_attribute_is_no_part_of_a_label(job: HidingJob) -> None:
    with pytest.raises(UsageError, match=r"Expected other labels to keep .* got 'colour\+shape'"):
        plan_hiding(replace(job, keep=("colour+shape",)))


def test_where_weights_lie_is_not_released(job: HidingJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CE, "public_weights", lambda self: "weights, SHA-256 " + 64 * "0")
    read = hide._read(job, job.data, ("shape",))
    plan = replace(plan_hiding(job), hider=CE(weights="/home/alice/weights"), keep=("shape",))
    assert "alice" not in hide._facts(job, plan, read).model_dump_json()


def test_the_parts_that_are_asked_for_are_released(job: HidingJob, tmp_path: Path) -> None:
    counts = plan_hiding(job).counts
    for parts in ("g", "v+g"):
        folder = hide_attribute(replace(job, parts=parts), tmp_path / parts)
        assert len(read_hidden(folder).images) == sum(counts[name] for name in parts.split("+"))


def test_a_plan_says_what_is_learnt_from_and_released(job: HidingJob) -> None:
    plan = plan_hiding(job)
    assert sum(plan.counts.values()) == 120
    assert plan.spec.count == plan.counts["tr"]
    assert plan.released == 120 - plan.counts["test"]
    assert plan.spec.classes == CLASSES["colour"]
    assert plan.keep == ("shape", "brightness")
    assert plan.seconds > 0


def test_another_data_set_can_be_learnt_from(job: HidingJob, tmp_path: Path) -> None:
    other = write_folder(tmp_path / "others", 90, seed=5)
    there = replace(job, train_on=(str(other),))
    plan = plan_hiding(there)
    assert plan.spec.count == pytest.approx(0.55 * 90, abs=3)
    both = plan_hiding(replace(job, train_on=(job.data, str(other))))
    assert both.spec.count == plan.spec.count + plan_hiding(job).spec.count
    made = hide_attribute(there, tmp_path / "h")
    assert sums(made) != sums(hide_attribute(job, tmp_path / "own"))


def test_the_lab_says_what_trained_the_head(job: HidingJob, tmp_path: Path) -> None:
    """By the classes of the data that is released, where those of which there is no image have a number, too."""
    settings = (("width", "8"), ("updates", "2"), ("epochs", "1"), ("steps", "2"))
    races = {"blue": "White", "green": "Indian", "red": "Others"}
    folders = [write_folder(tmp_path / "own"), write_folder(tmp_path / "others", 90, seed=5)]
    for folder in folders:
        text = (folder / "table.csv").read_text().replace("colour", "race")
        for colour, race in races.items():
            text = text.replace(f",{colour},", f",{race},")
        (folder / "table.csv").write_text(text)
    own, other = (str(folder) for folder in folders)
    ours = HidingJob(own, "race", method="ce", keep=("shape",), settings=settings)
    counts = []
    for folder, train_on in ((own, ()), (other, (other,))):
        images, came = hide.real_side(replace(ours, data=folder))
        assert came.head_learnt is None
        counts.append(images.attributes["race"][came.parts == PARTS.index("tr")].bincount(minlength=5))
        hide_attribute(replace(ours, train_on=train_on), tmp_path / f"h{len(train_on)}")
        learnt = read_provenance(tmp_path / f"h{len(train_on)}.lab")
        assert learnt.head_learnt is not None
        assert learnt.head_learnt.equal(counts[-1])
        assert learnt.tr_trained == (not train_on)
        assert learnt.told is not None
        assert learnt.told.shape[1] == 3
    assert (counts[0] == 0).tolist() == (counts[1] == 0).tolist() == [False, True, True, False, False]
    hide_attribute(replace(ours, train_on=(own, other)), tmp_path / "both")
    both = read_provenance(tmp_path / "both.lab")
    assert both.tr_trained
    assert both.head_learnt is not None
    assert both.head_learnt.equal(counts[0] + counts[1])


def test_another_data_set_can_be_read_in_another_way(job: HidingJob, tmp_path: Path) -> None:
    """Here in the size of the data to release, which its own is not."""
    other = str(write_folder(tmp_path / "others", 90, seed=5))
    small = replace(job, train_on=(other,), reading=Reading(size=8))
    assert plan_hiding(small).spec.height == plan_hiding(replace(small, train_readings=(Reading(size=8),))).spec.height
    with pytest.raises(DataError, match="Expected images of"):
        plan_hiding(replace(small, train_readings=(Reading(),)))
    with pytest.raises(UsageError, match="Expected a reading for each of 1 data sets"):
        plan_hiding(replace(small, train_readings=(Reading(), Reading())))


def test_a_run_that_is_stopped_goes_on_to_the_same_bytes(
    job: HidingJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped after each piece of re-generation in turn; what is done is not done again."""
    the_same_chance(monkeypatch)
    monkeypatch.setattr(hide, "AT_A_TIME", 30)
    whole = hide_attribute(job, tmp_path / "whole")
    calls: list[int] = []
    fit = Transport.fit

    class Stopped(Exception):
        """As a signal would."""

    def stopping(self: Transport, *args: object, **named: object) -> Rewriter:
        inner = fit(self, *args, **named)  # type: ignore[arg-type]

        def rewrite(images, generator):  # type: ignore[no-untyped-def]
            calls.append(len(images))
            if len(calls) % 2 == 0:
                raise Stopped
            return inner.rewrite(images, generator)

        return Rewriter(rewrite)

    monkeypatch.setattr(Transport, "fit", stopping)
    for _ in range(20):
        try:
            made = hide_attribute(job, tmp_path / "stopped")
            break
        except Stopped:
            assert not (tmp_path / "stopped").exists()
    assert sums(made) == sums(whole)
    assert len(calls) == 4 + 3  # a stop before each piece but the first


def test_a_run_with_other_settings_does_not_go_on(job: HidingJob, tmp_path: Path) -> None:
    hide_attribute(job, tmp_path / "h")
    (tmp_path / "h").rename(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="same job"):
        hide_attribute(replace(job, seed=3), tmp_path / "h")


def test_bad_requests_get_one_sentence(job: HidingJob, faces: Path, tmp_path: Path) -> None:
    one_value = tmp_path / "one"
    one_value.mkdir()
    for picture in faces.glob("*.png"):
        (one_value / picture.name).write_bytes(picture.read_bytes())
    text = (faces / "table.csv").read_text()
    (one_value / "table.csv").write_text(text.replace("green", "blue").replace("red", "blue"))
    others = write_folder(tmp_path / "others", 40)
    (others / "table.csv").write_text((others / "table.csv").read_text().replace("red", "pink"))
    cases: list[tuple[HidingJob, type[Exception], str]] = [
        (replace(job, attribute="race"), UsageError, "attributes among"),
        (replace(job, keep=("colour",)), UsageError, "Expected other labels to keep"),
        (replace(job, person="colour"), UsageError, "another attribute as --person"),
        (replace(job, keep=("who",), person="who"), UsageError, "Expected other labels to keep"),
        (replace(job, reading=Reading(label="shape")), UsageError, "neither --label nor --classes"),
        (replace(job, method="ce", settings=(), reading=Reading(size=20)), UsageError, "multiples of 8"),
        (replace(job, keep=("size",)), UsageError, "attributes among"),
        (replace(job, attribute="who", keep=()), DataError, "at least 2 images of who"),
        (replace(job, data=str(one_value)), DataError, "at least two values"),
        (replace(job, method="magic"), UsageError, "Expected one of the hiding"),
        (replace(job, settings=(("strength", "2"),)), UsageError, "Expected strength from 0 to 1"),
        (replace(job, settings=(("power", "2"),)), UsageError, "Expected one of the settings"),
        (replace(job, shares=(1, 1, 0, 1), parts="g"), UsageError, "Expected images in the parts g"),
        (replace(job, shares=(1, 1, 1)), UsageError, "Expected 4 shares"),
        (replace(job, shares=(0, 0, 1, 1)), DataError, "to learn from"),
        (replace(job, person="name"), UsageError, "attributes among"),
        (replace(job, train_on=(str(others),)), DataError, "whose colour is one of blue, green, red"),
        (replace(job, data=str(tmp_path / "nothing")), UsageError, "Expected a folder"),
    ]
    for case, kind, said in cases:
        with pytest.raises(kind, match=said) as raised:
            hide_attribute(case, tmp_path / "never")
        assert len(str(raised.value).splitlines()) <= 3
        assert not (tmp_path / "never").exists()


def test_a_value_that_nobody_has_is_no_value(tmp_path: Path) -> None:
    """Race is read in five classes, whichever of them are there."""
    folder = write_folder(tmp_path / "pictures")
    table = folder / "table.csv"
    text = table.read_text().replace("colour", "race")
    table.write_text(text.replace("blue", "White").replace("green", "Black").replace("red", "Indian"))
    plan = plan_hiding(HidingJob(str(folder), "race", keep=("shape",)))
    assert plan.spec.classes == ("White", "Black", "Indian")
    made = hide_attribute(HidingJob(str(folder), "race", keep=("shape",), settings=(("codes", "20"),)), tmp_path / "h")
    assert len(read_hidden(made).images) == plan.released

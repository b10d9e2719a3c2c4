"""Releases of data in shards: the same images as from one file, and one sentence for what cannot be done."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from sfumato import contracts
from sfumato.contracts import Reading
from sfumato.errors import SfumatoError, UsageError
from sfumato.making.release import Job, make_release, plan_release
from sfumato.making.resample import resample_release
from sfumato.making.shards import open_records
from sfumato.privacy import Mechanism, NoisyChoice, SeededNoise, ShardedAnswers, ShardedSums
from sfumato.release import read_release, verify

pytest.importorskip("cloudpickle")

SETTINGS = (("steps", "3"), ("frequencies", "40"))
CUTS = (0, 11, 40, 60)  # three shards of different sizes


def records() -> tuple[np.ndarray, np.ndarray]:
    return np.random.default_rng(0).integers(0, 256, (60, 8, 8), dtype=np.uint8), np.arange(60) % 3


def write_parquet(path: Path, pixels: np.ndarray, labels: np.ndarray) -> None:
    def encoded(image: np.ndarray) -> dict[str, Any]:
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "PNG")
        return {"bytes": buffer.getvalue(), "path": None}

    pq.write_table(pa.table({"image": [encoded(image) for image in pixels], "label": labels.tolist()}), path)


@pytest.fixture
def one_file(tmp_path: Path) -> Job:
    write_parquet(tmp_path / "all.parquet", *records())
    reading = Reading(classes=("a", "b", "c"))
    return Job(str(tmp_path / "all.parquet"), "dp-merf", 1.0, reading=reading, settings=SETTINGS, count=9)


@pytest.fixture
def sharded(one_file: Job, tmp_path: Path) -> Job:
    (tmp_path / "shards").mkdir()
    pixels, labels = records()
    for name, start, end in zip("abc", CUTS, CUTS[1:], strict=False):
        write_parquet(tmp_path / "shards" / f"{name}.parquet", pixels[start:end], labels[start:end])
    return replace(one_file, data=str(tmp_path / "shards"), processes=2)


def files_of(release: Path) -> dict[str, bytes]:
    return {str(p.relative_to(release)): p.read_bytes() for p in release.rglob("*") if p.is_file()}


def test_shards_give_the_release_of_one_file(one_file: Job, sharded: Job, tmp_path: Path) -> None:
    alone = make_release(one_file, tmp_path / "alone", noise=SeededNoise(0))
    together = make_release(sharded, tmp_path / "together", noise=SeededNoise(0))
    assert torch.equal(read_release(alone).images.pixels, read_release(together).images.pixels)
    assert files_of(alone) == files_of(together), "nothing reveals how the data was stored"
    run = json.loads((tmp_path / "together.lab" / "run.json").read_text())
    assert run["shards"] == [{"name": f"{n}.parquet", "count": c} for n, c in (("a", 11), ("b", 29), ("c", 20))]
    again = resample_release(together, tmp_path / "again")
    assert torch.equal(read_release(again).images.pixels, read_release(together).images.pixels)


def test_a_cluster_gives_the_release_of_one_file(
    lasting_nodes: Any, one_file: Job, sharded: Job, tmp_path: Path
) -> None:
    alone = make_release(one_file, tmp_path / "alone", noise=SeededNoise(0))
    job = replace(sharded, engine="ray", processes=1)
    together = make_release(job, tmp_path / "together", noise=SeededNoise(0))
    assert files_of(alone) == files_of(together)


def test_the_run_of_one_file_is_recorded_as_before_there_were_shards(one_file: Job, tmp_path: Path) -> None:
    make_release(one_file, tmp_path / "r")
    run = json.loads((tmp_path / "r.lab" / "run.json").read_text())
    assert not {"engine", "address", "processes", "shards"} & set(run)


def test_a_run_resumes_with_the_same_shards_only(sharded: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sfumato.making import release

    with monkeypatch.context() as patch:
        patch.setattr(release, "write_release", lambda *_, **__: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception, match="killed"):
            make_release(sharded, tmp_path / "r")
    Path(sharded.data, "c.parquet").rename(Path(sharded.data, "d.parquet"))
    with pytest.raises(UsageError, match="Expected the same job"):
        make_release(sharded, tmp_path / "r")
    Path(sharded.data, "d.parquet").rename(Path(sharded.data, "c.parquet"))
    assert verify(make_release(sharded, tmp_path / "r")).ok


def test_shards_may_be_archives_and_folders(sharded: Job, tmp_path: Path) -> None:
    pixels, labels = records()
    np.savez(Path(sharded.data) / "d.npz", x=pixels[:10], y=labels[:10])
    for name in "abc":
        (Path(sharded.data) / "e" / name).mkdir(parents=True)
    Image.fromarray(pixels[0]).save(Path(sharded.data) / "e" / "a" / "0.png")
    assert open_records(sharded).spec.count == 71


def test_of_split_names_the_wanted_ones_are_shards(sharded: Job) -> None:
    folder = Path(sharded.data)
    for old, new in (("a", "train-0"), ("b", "train-1"), ("c", "test-0")):
        (folder / f"{old}.parquet").rename(folder / f"{new}.parquet")
    assert open_records(sharded).spec.count == 40


def broken(change: Callable[[Path], object]) -> Callable[[Job], Job]:
    def changed(job: Job) -> Job:
        change(Path(job.data))
        return job

    return changed


REFUSALS: dict[str, tuple[Callable[[Job], Job], str]] = {
    "one file": (lambda job: replace(job, data=job.data.replace("shards", "all.parquet")), "got one file"),
    "a name": (lambda job: replace(job, data="digits"), "got something else"),
    "one file for ray": (
        lambda job: replace(job, data=job.data.replace("shards", "all.parquet"), engine="ray", processes=1),
        "Expected a folder of shards",
    ),
    "an unknown engine": (lambda job: replace(job, engine="slurm"), "engine local or ray"),
    "no process": (lambda job: replace(job, processes=0), "at least 1 process, got 0"),
    "more processes than shards": (lambda job: replace(job, processes=4), "at least 4 shards"),
    "ray and processes": (lambda job: replace(job, engine="ray"), "1 process with the engine ray"),
    "an address without ray": (lambda job: replace(job, address="10.0.0.1:6379"), "engine ray for the address"),
    "another file": (broken(lambda folder: (folder / "README.md").write_text("x")), "got one with README.md"),
    "a folder of pictures": (broken(lambda folder: (folder / "cats").mkdir()), "cannot be read as one: cats"),
    "another shape": (
        broken(lambda folder: np.savez(folder / "d.npz", x=np.zeros((3, 9, 9), np.uint8), y=np.zeros(3, np.int64))),
        "the same shape and classes",
    ),
    "splits in some names": (
        broken(lambda folder: (folder / "a.parquet").rename(folder / "test.parquet")),
        "shards of the train split",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_are_one_sentence(case: str, sharded: Job, tmp_path: Path) -> None:
    change, sentence = REFUSALS[case]
    with pytest.raises(SfumatoError, match=sentence) as refusal:
        make_release(change(sharded), tmp_path / "r")
    assert refusal.value.what.count("\n") == 0
    assert refusal.value.what.endswith(".")
    assert refusal.value.fix
    assert not (tmp_path / "r.lab").exists()


@pytest.mark.parametrize("mechanism", [NoisyChoice(candidates=2), ShardedAnswers(shards=3), ShardedSums(shards=3)])
def test_a_method_that_needs_the_records_in_one_place_is_refused_before_it_is_charged(
    mechanism: Mechanism, sharded: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = contracts.find("methods", "dp-merf")

    @dataclass(frozen=True)
    class Chooses(plain):  # type: ignore[misc,valid-type]
        def plan(self, spec: object) -> Sequence[Mechanism]:
            return [*super().plan(spec), mechanism]

    find = contracts.find
    monkeypatch.setattr(contracts, "find", lambda kind, name: Chooses if kind == "methods" else find(kind, name))
    for attempt in (lambda: plan_release(sharded), lambda: make_release(sharded, tmp_path / "r")):
        with pytest.raises(UsageError, match="asks for sums alone of data in shards, got dp-merf"):
            attempt()
    assert not (tmp_path / "r.lab").exists()
    plan_release(replace(sharded, data=sharded.data.replace("shards", "all.parquet"), processes=1))

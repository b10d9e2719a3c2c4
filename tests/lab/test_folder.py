"""The lab: private, beside the release and never inside it; and nothing of it in what is published."""

from __future__ import annotations

import getpass
import io
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sfumato.contracts import Reading, find
from sfumato.errors import EnvironmentProblem, UsageError
from sfumato.lab.folder import NOTICE, Lab
from sfumato.making.release import Job, make_release
from sfumato.release import layout
from sfumato.values import Images

from commands import request, sfumato, tiny

PUBLIC = {"SHA256SUMS", "README.md", "certificate.json", "preview.png", "data/train-00000-of-00001.parquet"}
LAB = {"PRIVATE", "lock", "run.json", "ledger.jsonl", "tape/0000-00000000.npz"}
SETTINGS = (("steps", "3"), ("frequencies", "20"), ("hidden", "8"), ("batch", "24"))


def files(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of a data set whose path would be noticed anywhere."""
    folder = tmp_path_factory.mktemp("ward-seventeen")
    data = tiny(folder).rename(folder / "biopsies-of-ms-moriarty.npz")
    assert sfumato(*request(data, folder / "r")).code == 0
    return folder / "r"


def faces(folder: Path, *, bad: int) -> Path:
    """A folder of class folders in which some files are no pictures."""
    rng = np.random.default_rng(0)
    for label in "abc":
        (folder / "faces" / label).mkdir(parents=True)
        for k in range(10):
            Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8)).save(folder / "faces" / label / f"{k}.png")
    for k in range(bad):
        (folder / "faces" / "a" / f"jane-doe-{k}.png").write_bytes(b"no picture")
    return folder / "faces"


def job(data: Path) -> Job:
    return Job(str(data), "dp-merf", 8.0, count=12, reading=Reading(classes=("a", "b", "c")), settings=SETTINGS)


def test_lab_is_beside_the_release_and_only_its_owner_can_look(made: Path) -> None:
    lab = made.with_name("r.lab")
    assert mode(lab) == 0o700
    assert files(lab) == LAB
    assert (lab / "PRIVATE").read_text() == NOTICE
    assert made not in lab.parents


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_lab_is_closed_whatever_the_umask_is(mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        assert sfumato(*request(tiny(tmp_path), tmp_path / "r")).code == 0
    finally:
        os.umask(before)
    assert mode(tmp_path / "r.lab") == 0o700
    assert mode(tmp_path / "r.lab" / "tape") == 0o700
    assert mode(tmp_path / "r.lab" / "ledger.jsonl") == 0o600


def test_lab_folder_that_was_open_is_closed(tmp_path: Path) -> None:
    (tmp_path / "r.lab").mkdir()
    (tmp_path / "r.lab").chmod(0o777)
    with Lab.beside(tmp_path / "r"):
        assert mode(tmp_path / "r.lab") == 0o700


def test_release_is_what_is_listed_and_no_more(made: Path) -> None:
    assert files(made) == PUBLIC
    assert all(layout.allowed(name, "images") for name in files(made))


def searched(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every file of a release as bytes, and every picture in it as text chunks would show."""
    for name in sorted(files(folder)):
        yield name, (folder / name).read_bytes()
    with Image.open(io.BytesIO((folder / "preview.png").read_bytes())) as picture:
        yield "what the preview says", repr(picture.info).encode()


def test_release_names_neither_path_nor_machine_nor_user(made: Path) -> None:
    secrets = ["moriarty", "ward-seventeen", str(made.parent), str(Path.home()), "r.lab"]
    # as words, because a short name such as "root" or "vm" may be part of another, or of a picture's bytes
    names = (getpass.getuser(), socket.gethostname())
    words = [f"{before}{name}{after}" for name in names for before in ' "/' for after in ' "/\n']
    for name, raw in searched(made):
        text = raw.decode("latin-1")
        assert not [s for s in secrets + words if s in text], name


def test_release_holds_no_time(tmp_path: Path, made: Path) -> None:
    """A release states no moment: the same images and certificate are the same bytes on any day."""
    year = str(np.datetime64("now").astype("datetime64[Y]"))
    for name in ("README.md", "certificate.json"):
        assert f"{year}-" not in (made / name).read_text()


def test_working_copy_is_gone_after_success(made: Path) -> None:
    assert "sealed.pixels" not in files(made.with_name("r.lab"))


def mapped_files(folder: Path) -> int:
    """Files of a folder that this process has mapped, with a name or without."""
    return sum(str(folder) in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_working_copy_is_there_during_a_fit_and_gone_after_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, seen = tmp_path / "r.lab", []

    def fails(*_: object) -> None:
        seen.append((mapped_files(lab), [p.name for p in lab.glob("sealed*")]))
        raise RuntimeError("a method with a defect")

    monkeypatch.setattr(find("methods", "dp-merf"), "fit", fails)
    with pytest.raises(RuntimeError, match="a method with a defect"):
        make_release(job(tiny(tmp_path)), tmp_path / "r")
    assert seen == [(1, [])], "one copy, without a name"
    assert mapped_files(lab) == 0
    assert not (tmp_path / "r").exists()


def test_working_copy_is_gone_before_anything_is_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method, seen = find("methods", "dp-merf"), []
    original = method.fit

    def watched(*arguments: object) -> object:
        sampler = original(*arguments)

        def sample(labels: object) -> Images:
            seen.append(mapped_files(tmp_path / "r.lab"))
            return sampler(labels)

        return sample

    monkeypatch.setattr(method, "fit", watched)
    make_release(job(tiny(tmp_path)), tmp_path / "r")
    assert seen == [0]


def test_working_copy_is_gone_after_data_that_could_not_be_read(tmp_path: Path) -> None:
    assert sfumato(*request(faces(tmp_path, bad=1), tmp_path / "r")).code == 3
    assert files(tmp_path / "r.lab") <= LAB


def test_working_copy_is_gone_after_data_that_broke_half_way(tmp_path: Path) -> None:
    last = faces(tmp_path, bad=0) / "c" / "9.png"
    last.write_bytes(last.read_bytes()[:-30])  # its header is whole, so it shows only when pixels are read
    assert sfumato(*request(tmp_path / "faces", tmp_path / "r")).code == 3
    assert files(tmp_path / "r.lab") <= LAB


def test_skipped_files_are_named_in_the_lab_only(tmp_path: Path) -> None:
    outcome = sfumato(*request(faces(tmp_path, bad=2), tmp_path / "r", "--skip-bad"))
    assert outcome.code == 0, outcome.err
    listed = (tmp_path / "r.lab" / "skipped_files.txt").read_text()
    assert listed.startswith(NOTICE)
    assert "2 skipped" in listed
    assert "jane-doe-0.png" in listed
    assert "jane-doe-1.png" in listed
    assert "jane-doe" not in outcome.out + outcome.err
    assert files(tmp_path / "r") == PUBLIC
    for name, raw in searched(tmp_path / "r"):
        assert b"jane-doe" not in raw, name
        assert b"skipped" not in raw, name


def test_without_bad_files_there_is_no_list(made: Path) -> None:
    assert not (made.with_name("r.lab") / "skipped_files.txt").exists()


SCORES = {"scores.json", "scores.md", "scores.html", "scores.parquet", "real_vs_synthetic.png"}


def test_scores_go_to_the_lab(made: Path) -> None:
    real = ("--real", made.with_name("biopsies-of-ms-moriarty.npz"), "--classes", "a,b,c")
    assert sfumato("evaluate", made, *real, "--metric", "nearest").code == 0
    assert files(made) == PUBLIC
    assert files(made.with_name("r.lab")) == LAB | SCORES


def test_one_run_at_a_time(tmp_path: Path) -> None:
    with (
        Lab.beside(tmp_path / "r"),
        pytest.raises(EnvironmentProblem, match="Another run"),
        Lab.beside(tmp_path / "r"),
    ):
        pass
    with Lab.beside(tmp_path / "r"):
        pass


def test_another_job_is_refused_and_the_first_is_remembered(tmp_path: Path) -> None:
    with Lab.beside(tmp_path / "r") as lab:
        lab.remember({"epsilon": 1.0})
        lab.remember({"epsilon": 1.0})
        with pytest.raises(UsageError, match="the same job"):
            lab.remember({"epsilon": 2.0})
        lab.remember({"epsilon": 1.0})


def test_a_forgotten_job_frees_its_folder_for_another(tmp_path: Path) -> None:
    with Lab.beside(tmp_path / "r") as lab:
        lab.remember({"epsilon": 1.0})
        lab.forget()
    assert not lab.folder.exists(), "an empty lab would only puzzle"
    with lab:
        lab.remember({"epsilon": 2.0})
        lab.write("scores.md", "text")
        lab.forget()
    assert (lab.folder / "scores.md").read_text() == "text"


def test_file_of_the_lab_is_whole_or_absent(tmp_path: Path) -> None:
    with Lab.beside(tmp_path / "r") as lab:
        (lab.folder / "scores.md").mkdir()
        (lab.folder / "scores.md" / "in the way").touch()
        with pytest.raises(EnvironmentProblem, match="could not be written"):
            lab.write("scores.md", "text")
        assert not [p for p in lab.folder.iterdir() if ".tmp" in p.name]

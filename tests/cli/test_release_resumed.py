"""sfumato release after a run that stopped: the same job resumes; other jobs and damaged files are refused."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cli.checking import DRAWS, Change, content, drawn, nothing_half_written, refused, resumed, writes_up_to

from commands import Outcome, request, sfumato, tiny


def spent(lab: Path) -> list[dict]:
    """What the ledger has charged."""
    lines = (lab / "ledger.jsonl").read_bytes().splitlines()
    return [r["mechanism"] for r in map(content, lines) if r["record"] == "charge"]


def refused_or_valid(outcome: Outcome, stopped: Path, lab: Path) -> None:
    """A refusal, or a release that verifies, states what was charged, and rests on no draw that was not paid."""
    assert "Traceback" not in outcome.err
    if outcome.code:
        assert outcome.code in (2, 4, 5, 6), outcome
        assert 1 <= len(outcome.err.splitlines()) <= 3, outcome.err
        nothing_half_written(lab.parent)
        return
    certificate, whole = (
        json.loads((folder / "certificate.json").read_text()) for folder in (lab.with_name("r"), stopped / "whole")
    )
    stated = [{k: v for k, v in m.items() if k != "purpose"} for m in certificate["mechanisms"]]
    assert stated == spent(lab)
    assert certificate["guarantee"]["epsilon"] >= whole["guarantee"]["epsilon"]
    assert drawn(lab) <= DRAWS * sum(m["rounds"] for m in stated), "more was drawn than was paid for"


def test_the_same_command_resumes_without_a_new_draw(stopped: Path, lab: Path) -> None:
    answer, before = (lab / "tape" / "0000-00000000.npz").read_bytes(), (lab / "ledger.jsonl").read_bytes()
    outcome = resumed(stopped, lab)
    assert outcome.code == 0, outcome.err
    refused_or_valid(outcome, stopped, lab)
    assert (lab / "tape" / "0000-00000000.npz").read_bytes() == answer
    assert (lab / "ledger.jsonl").read_bytes() == before


CHANGED: dict[str, tuple[str, ...]] = {
    "epsilon": ("--epsilon=2",),
    "delta": ("--delta=1e-6",),
    "count": ("--count=13",),
    "a setting": ("--set=steps=4",),
    "the classes": ("--classes=x,y,z",),
    "the size": ("--size=4",),
    "skipping bad files": ("--skip-bad",),
}


@pytest.mark.parametrize("what", CHANGED)
def test_changed_on_resume(what: str, stopped: Path, lab: Path) -> None:
    refused(resumed(stopped, lab, *CHANGED[what]), 2, "Expected the same job as the run that was started here")
    nothing_half_written(lab.parent)


def test_method_changed_on_resume(stopped: Path, lab: Path) -> None:
    text = (lab / "run.json").read_text()
    (lab / "run.json").write_text(text.replace('"dp-merf"', '"another"'))
    refused(resumed(stopped, lab), 2, "Expected the same job")


def test_data_of_another_path_on_resume(lab: Path, tmp_path: Path) -> None:
    refused(sfumato(*request(tiny(tmp_path, seed=1), lab.with_name("r"))), 2, "Expected the same job")


def test_data_with_more_records_on_resume(tmp_path: Path) -> None:
    data = tiny(tmp_path)
    with writes_up_to(1000):
        refused(sfumato(*request(data, tmp_path / "r")), 5, "could not be written")
    assert sfumato(*request(tiny(tmp_path, count=99), tmp_path / "r")).code == 0, "nothing was paid: a free start"
    shutil.rmtree(tmp_path / "r")
    refused(sfumato(*request(tiny(tmp_path, count=93), tmp_path / "r")), 2, "Expected the same job")


@pytest.mark.parametrize("other", ["--count=9", "--skip-bad", "--epsilon=1"])
def test_a_refused_run_that_paid_nothing_leaves_its_place_free(other: str, tmp_path: Path) -> None:
    data = tmp_path / "faces"
    for label in "abc":
        (data / label).mkdir(parents=True)
        (data / label / "0.png").write_bytes(b"no picture")
    refused(sfumato(*request(data, tmp_path / "r", "--size=8")), 3, "0.png")
    nothing_half_written(tmp_path)
    second = sfumato(*request(tiny(tmp_path), tmp_path / "r", other))
    assert second.code == 0, second.err


def chained(records: list[dict]) -> bytes:
    """A ledger whose hash chain holds, as someone who wants to deceive would write it."""
    written, previous = b"", "0" * 64
    for record in records:
        body = json.dumps({**record, "previous": previous}, sort_keys=True)
        previous = hashlib.sha256(body.encode()).hexdigest()
        written += f"{previous} {body}\n".encode()
    return written


def rewritten(number: int, **fields: object) -> Change:
    """One record of the ledger says something else, and the chain is mended."""

    def change(lab: Path) -> None:
        records = [content(line) for line in (lab / "ledger.jsonl").read_bytes().splitlines()]
        records[number].update(fields)
        (lab / "ledger.jsonl").write_bytes(chained(records))

    return change


def lines(order: Callable[[list[bytes]], list[bytes]]) -> Change:
    """Lines of the ledger dropped, doubled or moved."""

    def change(lab: Path) -> None:
        path = lab / "ledger.jsonl"
        path.write_bytes(b"".join(order(path.read_bytes().splitlines(keepends=True))))

    return change


def appended(more: bytes) -> Change:
    return lines(lambda all_: [*all_, more])


def linked(lab: Path) -> None:
    (lab / "ledger.jsonl").rename(lab / "other.jsonl")
    (lab / "ledger.jsonl").symlink_to(lab / "other.jsonl")


def a_folder(lab: Path) -> None:
    (lab / "ledger.jsonl").unlink()
    (lab / "ledger.jsonl").mkdir()


OPEN, CHARGE, FIRST_MARK = 0, 5, 6  # places in the ledger of a finished run; four assumptions lie between
WITHOUT_NOISE = {"kind": "gaussian-sum", "rounds": 1, "noise_multiplier": 0.0, "sampling": 1.0}
LOUDER = {"kind": "gaussian-sum", "rounds": 1, "noise_multiplier": 50.0, "sampling": 1.0}

LEDGERS: dict[str, tuple[Change, int, str]] = {
    "missing": (lambda lab: (lab / "ledger.jsonl").unlink(), 6, "older than the answers"),
    "empty": (lambda lab: (lab / "ledger.jsonl").write_bytes(b""), 6, "older than the answers"),
    "only opened": (lines(lambda all_: all_[:1]), 6, "older than the answers"),
    "rolled back to the charge": (lines(lambda all_: all_[: CHARGE + 1]), 6, "older than the answers"),
    "a record deleted": (lines(lambda all_: all_[:3] + all_[4:]), 6, "hash chain"),
    "the opening deleted": (lines(lambda all_: all_[1:]), 6, "hash chain"),
    "a mark deleted in the middle": (lines(lambda all_: all_[:8] + all_[9:]), 6, "hash chain"),
    "two records changed places": (lines(lambda all_: [*all_[:7], all_[8], all_[7], *all_[9:]]), 6, "hash chain"),
    "a record twice": (lines(lambda all_: [*all_, all_[-1]]), 6, "hash chain"),
    "twice in a row": (lines(lambda all_: all_ + all_), 6, "hash chain"),
    "of another budget": (rewritten(OPEN, epsilon="2.0"), 2, "Expected the budget of the run"),
    "of another delta": (rewritten(OPEN, delta=1e-6), 2, "Expected the budget of the run"),
    "of another version": (rewritten(OPEN, version=2), 6, "version"),
    "with a record of unknown kind": (rewritten(CHARGE, record="refund"), 6, "damaged"),
    "with more noise than was drawn": (rewritten(CHARGE, mechanism=LOUDER), 2, "Expected the resumed run"),
    "with a charge without noise": (rewritten(CHARGE, mechanism=WITHOUT_NOISE), 2, "Expected the resumed run"),
    "with a mechanism of unknown kind": (rewritten(CHARGE, mechanism={"kind": "laplace"}), 6, "damaged"),
    "with a mechanism that is a list": (rewritten(CHARGE, mechanism=[1]), 6, "damaged"),
    "with noise as text": (rewritten(CHARGE, mechanism={**LOUDER, "noise_multiplier": "9"}), 6, "damaged"),
    "with another purpose": (rewritten(CHARGE, purpose="class sizes"), 2, "Expected the resumed run"),
    "with a mark of no charge": (rewritten(FIRST_MARK, charge=7), 6, "damaged"),
    "with a mark in words": (rewritten(FIRST_MARK, draws="many"), 6, "damaged"),
    "with a line that is no record": (appended(b"[]\n"), 6, "damaged"),
    "with an empty line": (appended(b"\n"), 6, "damaged"),
    "with a NUL": (appended(b"\0\n"), 6, "damaged"),
    "with a huge line": (appended(b"x" * 20_000_000 + b"\n"), 6, "damaged"),
    "with a deep line": (appended(b"0" * 64 + b" " + b"[" * 100_000 + b"\n"), 6, "damaged"),
    "a link": (linked, 5, "The ledger cannot be opened"),
    "a folder": (a_folder, 5, "The ledger cannot be opened"),
}


@pytest.mark.parametrize("name", LEDGERS)
def test_ledger(name: str, stopped: Path, lab: Path) -> None:
    change, code, needle = LEDGERS[name]
    change(lab)
    outcome = resumed(stopped, lab)
    refused(outcome, code, needle)
    refused_or_valid(outcome, stopped, lab)
    again = resumed(stopped, lab)
    assert again.code == code, "the second request is refused as the first"


@pytest.mark.parametrize("name", ["a mark of the last charge from the end", "a mark taken back", "half a mark"])
def test_ledger_with_a_mark_that_still_counts(name: str, stopped: Path, lab: Path) -> None:
    fields = {"a mark of the last charge from the end": {"charge": -1}, "a mark taken back": {"draws": -5}}
    rewritten(FIRST_MARK, **fields.get(name, {"draws": 0.5}))(lab)
    refused_or_valid(resumed(stopped, lab), stopped, lab)


def test_ledger_with_a_statement_that_is_no_text(stopped: Path, lab: Path) -> None:
    rewritten(2, statement=[3])(lab)
    refused_or_valid(resumed(stopped, lab), stopped, lab)


@pytest.mark.parametrize("marks", range(1, DRAWS + 1))
def test_ledger_rolled_back_to_an_older_copy(marks: int, stopped: Path, lab: Path) -> None:
    lines(lambda all_: all_[: FIRST_MARK + marks])(lab)
    refused_or_valid(resumed(stopped, lab), stopped, lab)


def truncated(stopped: Path, tmp_path: Path, sizes: range) -> None:
    whole = (stopped / "r.lab" / "ledger.jsonl").read_bytes()
    for size in sizes:
        here = tmp_path / str(size)
        lab = Path(shutil.copytree(stopped / "r.lab", here / "r.lab"))
        (lab / "ledger.jsonl").write_bytes(whole[:size])
        refused_or_valid(resumed(stopped, lab), stopped, lab)
        shutil.rmtree(here)


def first_mark(stopped: Path) -> int:
    """Where the first mark begins, in bytes."""
    return len(b"".join((stopped / "r.lab" / "ledger.jsonl").read_bytes().splitlines(keepends=True)[:FIRST_MARK]))


def test_ledger_truncated_at_every_50th_byte_before_the_marks(stopped: Path, tmp_path: Path) -> None:
    truncated(stopped, tmp_path, range(0, first_mark(stopped), 50))


def test_ledger_truncated_at_every_50th_byte_of_the_marks(stopped: Path, tmp_path: Path) -> None:
    truncated(stopped, tmp_path, range(first_mark(stopped), (stopped / "r.lab" / "ledger.jsonl").stat().st_size, 50))


@pytest.mark.parametrize("bit", [0, 3, 7])
def test_ledger_with_a_flipped_bit(bit: int, stopped: Path, lab: Path) -> None:
    whole = (lab / "ledger.jsonl").read_bytes()
    for place in range(bit, len(whole) - 1, 197):
        spoilt = bytearray(whole)
        spoilt[place] ^= 1 << bit
        (lab / "ledger.jsonl").write_bytes(spoilt)
        outcome = resumed(stopped, lab)
        assert outcome.code == 6, (place, outcome)
        assert (lab / "ledger.jsonl").read_bytes() == spoilt, "evidence was changed"
        refused_or_valid(outcome, stopped, lab)


def test_ledger_without_its_last_line_end(stopped: Path, lab: Path) -> None:
    (lab / "ledger.jsonl").write_bytes((lab / "ledger.jsonl").read_bytes()[:-1])
    outcome = resumed(stopped, lab)
    assert outcome.code == 0, outcome.err
    refused_or_valid(outcome, stopped, lab)


def answer(make: Callable[[bytes], bytes]) -> Change:
    """The one recorded answer, with other bytes."""

    def change(lab: Path) -> None:
        path = lab / "tape" / "0000-00000000.npz"
        path.write_bytes(make(path.read_bytes()))

    return change


def other_answer(**arrays: object) -> Change:
    def change(lab: Path) -> None:
        with np.load(lab / "tape" / "0000-00000000.npz") as packed:
            whole = dict(packed)
        np.savez(lab / "tape" / "0000-00000000.npz", **{**whole, **arrays})

    return change


def no_tape(lab: Path) -> None:
    shutil.rmtree(lab / "tape")
    (lab / "tape").write_text("")


def renamed(name: str) -> Change:
    return lambda lab: (lab / "tape" / "0000-00000000.npz").rename(lab / "tape" / name)


TAPES: dict[str, tuple[Change, int, str]] = {
    "a flipped bit": (answer(lambda b: b[:400] + bytes([b[400] ^ 1]) + b[401:]), 6, "damaged"),
    "of another shape": (other_answer(total=np.zeros(3, np.int64)), 6, "another size"),
    "of floats": (other_answer(total=np.zeros(123)), 6, "damaged"),
    "of several draws": (other_answer(draws=np.zeros(3)), 6, "damaged"),
    "pickled": (other_answer(total=np.array([{}], dtype=object)), 6, "damaged"),
    "truncated": (answer(lambda b: b[:500]), 6, "damaged"),
    "text": (answer(lambda b: b"hello"), 6, "damaged"),
    "deleted": (lambda lab: (lab / "tape" / "0000-00000000.npz").unlink(), 4, "paid for"),
    "a file for a folder": (no_tape, 5, "tape"),
}


@pytest.mark.parametrize("name", TAPES)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # numpy leaves a broken file open
def test_tape(name: str, stopped: Path, lab: Path) -> None:
    change, code, needle = TAPES[name]
    change(lab)
    outcome = resumed(stopped, lab)
    refused(outcome, code, needle)
    refused_or_valid(outcome, stopped, lab)


CARELESS_TAPES: dict[str, Change] = {
    "empty": answer(lambda b: b""),
    "of no draws": other_answer(draws=np.int64(0)),
    "of negative draws": other_answer(draws=np.int64(-1)),
    "of more draws than were paid": other_answer(draws=np.int64(100)),
    "of a strange name": renamed("a-b.npz"),
    "of a longer name": renamed("0-1-2.npz"),
}


@pytest.mark.parametrize("name", CARELESS_TAPES)
def test_tape_that_must_be_read_with_care(name: str, stopped: Path, lab: Path) -> None:
    CARELESS_TAPES[name](lab)
    refused(resumed(stopped, lab), 6, "")


@pytest.mark.parametrize("raw", [b"", b"\xff\xfe", b"{}", b"null"])
def test_job_file_damaged(raw: bytes, stopped: Path, lab: Path) -> None:
    (lab / "run.json").write_bytes(raw)
    refused(resumed(stopped, lab), 2, "Expected the same job")


def test_job_file_missing_is_covered_by_the_ledger(stopped: Path, lab: Path) -> None:
    (lab / "run.json").unlink()
    refused(resumed(stopped, lab, "--epsilon=2"), 2, "Expected the budget of the run")


def test_there_are_enough_cases() -> None:
    assert sum(map(len, (CHANGED, LEDGERS, TAPES, CARELESS_TAPES))) >= 51

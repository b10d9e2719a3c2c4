"""The tape: the noisy answers of a run, kept in the lab so that a killed run resumes without asking twice.

A checkpoint takes the place of the answers before it: what a training had computed from them.

Guarantee: only answers whose noise was paid for and added, and what was computed from such answers, are written; exact
sums never are. A checkpoint counts the draws of the answers that it replaces.
"""

from __future__ import annotations

import contextlib
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from sfumato.errors import EnvironmentProblem, VerificationFailed
from sfumato.files import write_whole


class Answer(NamedTuple):
    """A noisy total on the lattice, and how many draws of noise it adds up."""

    total: NDArray[np.int64]
    draws: int


class Checkpoint(NamedTuple):
    """What was computed from the first rounds of a charge, and how many draws of noise their answers had."""

    rounds: int
    draws: int
    state: dict[str, NDArray[Any]]


class Tape:
    """Answers by charge and round, in a folder, or in memory if no folder is given."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._answers: dict[tuple[int, int], Answer] = {}  # used only if there is no folder
        self._draws: dict[tuple[int, int], int] = {}
        self._checkpoints: dict[int, Checkpoint] = {}  # without their states, which may be large
        if folder is not None:
            folder.mkdir(mode=0o700, exist_ok=True)
            # every file is read in full here, so that damage is found before anything is spent
            self._checkpoints = {
                _charge(path): _load_checkpoint(path)._replace(state={}) for path in sorted(folder.glob("*.checkpoint"))
            }
            self._draws = {_key(path): _load(path).draws for path in sorted(folder.glob("*.npz"))}
            for charge in self._checkpoints:  # a process that was killed may have left some of the replaced answers
                self._drop_replaced(charge)

    def recall(self, charge: int, number: int) -> Answer | None:
        if self._folder is None or (charge, number) not in self._draws:
            return self._answers.get((charge, number))
        return _load(_path(self._folder, charge, number))

    def recorded(self, charge: int) -> int:
        """How many rounds of a charge have an answer, or are part of its checkpoint."""
        return self._replaced(charge).rounds + sum(key[0] == charge for key in self._draws)

    def draws(self, charge: int) -> int:
        """How many draws of noise the answers of a charge contain; a ledger with fewer draws begun is outdated."""
        return self._replaced(charge).draws + sum(draws for key, draws in self._draws.items() if key[0] == charge)

    def checkpoint(self, charge: int) -> Checkpoint | None:
        """What was computed from the first rounds of a charge, if it was kept."""
        if self._folder is None or charge not in self._checkpoints:
            return None
        return _load_checkpoint(_checkpoint_path(self._folder, charge))

    def keep(self, charge: int, rounds: int, state: dict[str, NDArray[Any]]) -> None:
        """Keep what was computed from the first rounds of a charge in place of their answers."""
        replaced = self._replaced(charge)
        draws = replaced.draws + sum(n for (c, number), n in self._draws.items() if c == charge and number < rounds)
        if self._folder is not None:
            _save_checkpoint(_checkpoint_path(self._folder, charge), Checkpoint(rounds, draws, state))
        self._checkpoints[charge] = Checkpoint(rounds, draws, {})
        self._drop_replaced(charge)

    def _replaced(self, charge: int) -> Checkpoint:
        return self._checkpoints.get(charge, Checkpoint(0, 0, {}))

    def _drop_replaced(self, charge: int) -> None:
        """Delete the answers that a checkpoint, which is on disk by now, has replaced."""
        rounds = self._replaced(charge).rounds
        for key in [key for key in self._draws if key[0] == charge and key[1] < rounds]:
            if self._folder is not None:
                _path(self._folder, *key).unlink(missing_ok=True)
            self._answers.pop(key, None)
            del self._draws[key]

    def settle(self, charge: int, number: int, answer: Answer, *, exact: NDArray[np.int64], reach: float) -> Answer:
        """Store an answer and return it.

        `exact` (vectors, values) and `reach`, how far one record may move a vector in L2, are for the
        replay tool, which compares them; they are not stored here.
        """
        self._draws[charge, number] = answer.draws
        if self._folder is None:
            self._answers[charge, number] = answer
        else:
            _save(_path(self._folder, charge, number), answer)
        return answer


def _path(folder: Path, charge: int, number: int) -> Path:
    return folder / f"{charge:04d}-{number:08d}.npz"


def _checkpoint_path(folder: Path, charge: int) -> Path:
    return folder / f"{charge:04d}.checkpoint"


def _save(path: Path, answer: Answer) -> None:
    total = answer.total
    if np.abs(total).max(initial=0) < 2**31:  # true of most answers, and int32 takes half the disk space
        total = total.astype(np.int32)
    _write(path, {"total": total, "draws": np.int64(answer.draws)})


def _save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    state = {f"state.{name}": value for name, value in checkpoint.state.items()}
    _write(path, {"rounds": np.int64(checkpoint.rounds), "draws": np.int64(checkpoint.draws), **state})


def _write(path: Path, arrays: dict[str, Any]) -> None:
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    try:
        write_whole(path, packed.getvalue(), durable=True)
    except OSError as error:
        raise EnvironmentProblem(
            f"A noisy answer could not be written ({error.strerror}).", where=path, fix="free some space; then resume"
        ) from error


def _key(path: Path) -> tuple[int, int]:
    charge, dash, number = path.stem.partition("-")
    if not (dash and charge.isdecimal() and number.isdecimal()):
        raise VerificationFailed("Expected only recorded answers here.", where=path, fix="take that file away")
    return int(charge), int(number)


def _charge(path: Path) -> int:
    if not path.stem.isdecimal():
        raise VerificationFailed("Expected only checkpoints of a run here.", where=path, fix="take that file away")
    return int(path.stem)


def _load(path: Path) -> Answer:
    with _read(path, "A recorded answer", fix="delete that file; its draws stay counted as lost") as packed:
        answer = Answer(packed["total"].astype(np.int64, casting="safe"), int(packed["draws"]))
        if answer.draws < 1:
            raise ValueError("an answer without noise")
    return answer


def _load_checkpoint(path: Path) -> Checkpoint:
    with _read(path, "A checkpoint", fix="restore it from a backup, or choose another --out") as packed:
        state = {name.removeprefix("state."): packed[name] for name in packed.files if name.startswith("state.")}
        checkpoint = Checkpoint(int(packed["rounds"]), int(packed["draws"]), state)
        if not 1 <= checkpoint.rounds <= checkpoint.draws:
            raise ValueError("fewer draws than rounds")
    return checkpoint


@contextlib.contextmanager
def _read(path: Path, what: str, *, fix: str) -> Iterator[NpzFile]:
    """The arrays of a file; what is wrong with them, here or in the block, is damage."""
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as packed:
            yield packed
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise VerificationFailed(f"{what} is damaged.", where=path, fix=fix) from error

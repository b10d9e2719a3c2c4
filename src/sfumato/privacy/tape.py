"""The tape: the noisy answers of a run, kept in the lab so that a killed run resumes without asking twice.

Guarantee: only answers whose noise was paid for and added are written; exact sums never are.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import EnvironmentProblem, VerificationFailed
from sfumato.files import write_whole


class Answer(NamedTuple):
    """A noisy total on the lattice, and how many draws of noise it adds up."""

    total: NDArray[np.int64]
    draws: int


class Tape:
    """Answers by charge and round, in a folder, or in memory if no folder is given."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._answers: dict[tuple[int, int], Answer] = {}  # used only if there is no folder
        self._draws: dict[tuple[int, int], int] = {}
        if folder is not None:
            folder.mkdir(mode=0o700, exist_ok=True)
            # every file is read in full here, so that damage is found before anything is spent
            self._draws = {_key(path): _load(path).draws for path in sorted(folder.glob("*.npz"))}

    def recall(self, charge: int, number: int) -> Answer | None:
        if self._folder is None or (charge, number) not in self._draws:
            return self._answers.get((charge, number))
        return _load(_path(self._folder, charge, number))

    def recorded(self, charge: int) -> int:
        """How many rounds of a charge have an answer."""
        return sum(key[0] == charge for key in self._draws)

    def draws(self, charge: int) -> int:
        """How many draws of noise the answers of a charge contain; a ledger with fewer draws begun is outdated."""
        return sum(draws for key, draws in self._draws.items() if key[0] == charge)

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


def _save(path: Path, answer: Answer) -> None:
    packed = io.BytesIO()
    total = answer.total
    if np.abs(total).max(initial=0) < 2**31:  # true of most answers, and int32 takes half the disk space
        total = total.astype(np.int32)
    np.savez(packed, total=total, draws=np.int64(answer.draws))
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


def _load(path: Path) -> Answer:
    try:
        contents = io.BytesIO(path.read_bytes())
        with np.load(contents, allow_pickle=False) as packed:
            total = packed["total"].astype(np.int64, casting="safe")
            answer = Answer(total, int(packed["draws"]))
        if answer.draws < 1:
            raise ValueError("an answer without noise")
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise VerificationFailed(
            "A recorded answer is damaged.", where=path, fix="delete that file; its draws stay counted as lost"
        ) from error
    return answer

"""Record and replay: run on data, then on a neighbour with the same noisy answers; everything else must agree.

Re:cord-play (PETS 2026) checks mechanisms this way; here the whole release is checked. It detects
an answer that moves further than its declared reach, control flow that depends on the data, and, because the two
releases are compared byte by byte, any private information in them that did not pass through a mechanism.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.privacy.noise import Noise
from sfumato.privacy.tape import Answer, Tape


@dataclass
class Recording:
    """What a run drew and answered, and what a replay found wrong. Holds exact sums: lab material, never stored."""

    draws: list[tuple[str, NDArray[Any]]] = field(default_factory=list)
    answers: list[tuple[int, int, Answer, NDArray[np.int64], float]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    worst: float = 0.0  # the largest move seen, as a fraction of the declared reach

    def recorder(self) -> tuple[Noise, Tape]:
        return _RecordingNoise(self), _RecordingTape(self)

    def player(self) -> tuple[Noise, Tape]:
        return _PlayingNoise(self), _PlayingTape(self)


class _RecordingNoise(Noise):
    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording

    def _keep(self, kind: str, drawn: NDArray[Any]) -> NDArray[Any]:
        self._recording.draws.append((kind, drawn))
        return drawn

    def included(self, count: int, rate: float) -> NDArray[np.bool_]:
        return self._keep("included", super().included(count, rate))

    def drawn_shards(self, count: int, shards: int) -> NDArray[np.int64]:
        return self._keep("shards", super().drawn_shards(count, shards))

    def permutation(self, count: int) -> NDArray[np.int64]:
        return self._keep("permutation", super().permutation(count))


class _PlayingNoise(Noise):
    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording
        self._next = 0

    def _again(self, kind: str, count: int, fallback: NDArray[Any]) -> NDArray[Any]:
        recorded = self._recording.draws[self._next : self._next + 1]
        self._next += 1
        if not recorded or recorded[0][0] != kind or len(recorded[0][1]) != count:
            self._recording.violations.append(f"control flow: draw {self._next} ({kind} of {count}) was another one")
            return fallback
        return recorded[0][1]

    def included(self, count: int, rate: float) -> NDArray[np.bool_]:
        return self._again("included", count, super().included(count, rate))

    def drawn_shards(self, count: int, shards: int) -> NDArray[np.int64]:
        return self._again("shards", count, super().drawn_shards(count, shards))

    def permutation(self, count: int) -> NDArray[np.int64]:
        return self._again("permutation", count, super().permutation(count))


class _RecordingTape(Tape):
    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording

    def settle(self, charge: int, number: int, answer: Answer, *, exact: NDArray[np.int64], reach: float) -> Answer:
        self._recording.answers.append((charge, number, answer, exact, reach))
        return super().settle(charge, number, answer, exact=exact, reach=reach)


class _PlayingTape(Tape):
    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording
        self._next = 0

    def settle(self, charge: int, number: int, answer: Answer, *, exact: NDArray[np.int64], reach: float) -> Answer:
        recorded = self._recording.answers[self._next : self._next + 1]
        self._next += 1
        if not recorded or recorded[0][:2] != (charge, number) or recorded[0][3].shape != exact.shape:
            self._recording.violations.append(f"control flow: answer {self._next} is not the recorded one")
            return super().settle(charge, number, answer, exact=exact, reach=reach)
        _, _, answer, before, declared = recorded[0]
        moved = float(np.linalg.norm((exact - before).astype(np.float64), axis=1).max(initial=0.0)) / declared
        self._recording.worst = max(self._recording.worst, moved)
        if reach != declared or moved > 1:
            self._recording.violations.append(f"charge {charge}, round {number}: moved {moved:.3f} of its reach")
        return super().settle(charge, number, answer, exact=exact, reach=reach)

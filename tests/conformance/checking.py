"""What the conformance of methods and of learners share: records, their neighbours, and how a run is looked at."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType, ModuleType

import numpy as np
import torch

from sfumato.contracts import Asking
from sfumato.privacy import Budget, Ledger, Noise, PrivateImages, Query, Recording, Tape
from sfumato.values import Images, Spec

from toys import ToySource

Records = tuple[np.ndarray, np.ndarray]  # pixels and labels
CLASSES = ("round", "square", "tall", "rare")
# the hard cases for a leak, by the record that becomes nothing
ODD = {"a white outlier": 7, "a black record": 8, "a checkerboard": 9, "the only one of its class": 10}
NEVER = 11  # a record that never had a class, whose pixels must not matter
SEVERAL = "all of these at once"  # further from the data than a neighbour, so that the reach does not hold
SPECS = (
    Spec(1000, 1, 28, 28, ("a",) * 10),
    Spec(50_000, 3, 32, 32, ("a",) * 100),
    Spec(200, 3, 64, 64, ("a",) * 2),
)


def shapes(count: int = 90, channels: int = 1) -> Records:
    """Three kinds of 8x8 picture with a little jitter, and some odd records."""
    rng = np.random.default_rng(3)
    yy, xx = np.mgrid[:8, :8]
    kinds = [(yy - 3.5) ** 2 + (xx - 3.5) ** 2 < 9, (abs(yy - 3.5) < 3) & (abs(xx - 3.5) < 3), abs(xx - 3.5) < 1.5]
    labels = np.arange(count) % 3
    pixels = np.stack([np.roll(kinds[k] * 200, rng.integers(-1, 2), 1) for k in labels])[:, None]
    pixels = np.clip(pixels + rng.integers(0, 40, (count, channels, 8, 8)), 0, 255).astype(np.uint8)
    pixels[7], pixels[8], pixels[9] = 255, 0, (np.indices((8, 8)).sum(0) % 2) * 255
    labels[10], labels[NEVER] = 3, -1
    return pixels, labels


def photographs() -> Records:
    """The shapes in colour, and large enough to have fine structure."""
    pixels, labels = shapes(channels=3)
    return pixels.repeat(2, axis=2).repeat(2, axis=3), labels


def public_images(channels: int = 1) -> Images:
    """Forty pictures that have nothing to do with the shapes."""
    rng = np.random.default_rng(4)
    return Images(
        torch.from_numpy(rng.integers(0, 256, (40, channels, 8, 8), np.uint8)), torch.zeros(40).long(), ("x",)
    )


def written(folder: Path, pixels: np.ndarray, labels: np.ndarray) -> str:
    """The records in a file that a job can name."""
    path = folder / f"{abs(hash(labels.tobytes() + pixels.tobytes()))}.npz"
    np.savez(path, x=pixels.transpose(0, 2, 3, 1), y=labels)
    return str(path)


class Blind(ToySource):
    """Public facts without records."""

    def chunks(self) -> object:
        raise AssertionError("a plan read the data")


def expect_charged_as_planned(certificate: dict, planned: Sequence) -> None:
    """What a certificate states was asked is what was planned, each question with a purpose of its own."""
    charged = [{k: v for k, v in m.items() if k != "purpose"} for m in certificate["mechanisms"]]
    assert charged == [m.to_dict() for m in planned]
    purposes = [m["purpose"] for m in certificate["mechanisms"]]
    assert purposes == [m.purpose for m in planned], "a question's purpose is part of the plan"
    assert len(set(purposes)) == len(purposes)
    assert all(" " in purpose for purpose in purposes), f"expected a phrase that anyone understands, got {purposes}"


def expect_defaults(kind: type[Asking], specs: Sequence[Spec] = SPECS, epsilons: Sequence[float] = (1.0,)) -> None:
    """Hyperparameters for data sets of many kinds, by which a plan can be made."""
    for spec in specs:
        for epsilon in epsilons:
            made = kind.for_task(spec, Budget(epsilon, 1e-5))
            assert made.plan(spec)
            assert 0 < made.seconds(spec) < math.inf


def fit(asking: Asking, public: Images | None) -> object:
    """What is fitted to the shapes; the records are gone when it comes back."""
    private = PrivateImages.seal(ToySource(*shapes(), CLASSES), Ledger(Budget(1.0, 1e-5)))
    fitted = asking.fit(private, public)  # type: ignore[attr-defined]
    private.close()
    return fitted


def handles(root: object) -> list[object]:
    """What an object holds on to by which private records could be asked."""
    return [thing for thing in reachable(root) if isinstance(thing, PrivateImages | Query | Ledger)]


def reachable(root: object) -> list[object]:
    """Everything that an object holds on to, modules and types aside."""
    seen, todo, found = set(), [root], []
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, ModuleType | type):
            continue
        seen.add(id(thing))
        found.append(thing)
        if isinstance(thing, FunctionType):  # its globals are the module's, not its own
            todo += [cell.cell_contents for cell in thing.__closure__ or () if cell.cell_contents is not None]
            todo += list(thing.__defaults__ or ())
        elif not isinstance(thing, dict) or "__builtins__" not in thing:
            todo += gc.get_referents(thing)
    return found


def neighbours(pixels: np.ndarray, labels: np.ndarray) -> dict[str, Records]:
    """Data sets in which one record has become nothing, or in which one that was nothing has other pixels."""

    def without(record: int) -> Records:
        absent = labels.copy()
        absent[record] = -1
        return pixels, absent

    other = pixels.copy()
    other[NEVER] = 0
    gone = {"the first record": 0, "the last record": len(labels) - 1, **ODD}
    few = labels.copy()
    few[list(gone.values())] = -1
    return {
        **{kind: without(record) for kind, record in gone.items()},
        "a record that never had a class": (other, labels),
        SEVERAL: (other, few),
    }


def replay_problems(
    make: Callable[[Records, Path, Noise, Tape], Path],
    folder: Path,
    kinds: Sequence[str],
    *,
    images: Callable[[], Records] = shapes,
) -> list[str]:
    """Record one run, then replay it on neighbours: what else may differ? Nothing."""
    recording, problems = Recording(), []
    made = make(images(), folder / "recorded", *recording.recorder())
    assert recording.answers, "nothing was asked"
    for kind in kinds:
        again = make(neighbours(*images())[kind], folder / kind, *recording.player())
        found = [v for v in recording.violations if kind != SEVERAL or v.startswith("control flow")]
        problems += [f"{kind}: {violation}" for violation in found]
        recording.violations.clear()
        if files(made) != files(again):
            problems.append(f"{kind}: the release depends on the record outside of the answers")
    return problems


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def leaks() -> dict[str, Callable[[PrivateImages], object]]:
    """What may be let out around the ledger; record and replay must notice."""
    from sfumato.privacy.private import unlock

    return {
        "class sizes": lambda private: np.bincount(unlock(private).labels[unlock(private).present]),
        "a raw pixel": lambda private: unlock(private).pixels[7].sum() * unlock(private).present[7],
        "a private mean": lambda private: unlock(private).pixels[unlock(private).present].mean(),
        "how many are valid": lambda private: unlock(private).present.sum(),
    }


def secret(leak: str, private: PrivateImages) -> int:
    """What is let out, as a number from 0 to 250."""
    found = np.asarray(leaks()[leak](private))
    return int(found.astype(np.int64).sum() + found.ravel()[-1]) % 251

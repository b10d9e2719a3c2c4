"""What can be added (methods, learners, hiders, metrics, attacks, data sets), and how each is found by its file."""

from __future__ import annotations

import ast
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from sfumato.discovery import modules
from sfumato.errors import UsageError
from sfumato.values import Checkpoints as Checkpoints
from sfumato.values import Classifier, Exposed, Images, Reference, Release, Rewriter, Score, Spec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from sfumato.privacy import Budget, Mechanism, PrivateImages

Sampler = Callable[["Tensor"], Images]  # labels in, images out; holds what fit learnt and nothing else
Kind = Literal["methods", "learners", "hiding", "metrics", "attacks", "data"]
Judgement = Literal["utility", "fidelity", "privacy", "fairness"]
DEFAULT_METHOD = "sfumato"
DEFAULT_LEARNER = "fixed-features"
DEFAULT_HIDER = "transport"


class Asking(ABC):
    """What synthesizers and learners have in common: what they ask, and how long they take, from public facts alone."""

    public_images: ClassVar[Literal["unused", "welcome", "needed"]] = "unused"

    @classmethod
    @abstractmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        """Good hyperparameters from public facts alone."""

    @abstractmethod
    def plan(self, spec: Spec) -> Sequence[Mechanism]:
        """What will be asked of the private data; noise multipliers are left to the ledger."""

    @abstractmethod
    def seconds(self, spec: Spec) -> float:
        """A rough run time on two laptop cores, from public facts alone."""

    def public_network(self) -> str | None:
        """The public network that is used, as the certificate names it: name and checksum; None where there is none."""
        return None


class Synthesizer(Asking):
    """A way to make a synthetic data set: a frozen dataclass whose fields are public hyperparameters."""

    free: ClassVar[frozenset[str]] = frozenset()  # hyperparameters that change nothing of what is asked

    @abstractmethod
    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        """Ask what was planned, learn from the answers, and return a sampler that holds only those."""


class Learner(Asking):
    """A way to make a classifier that may be published: a frozen dataclass whose fields are public hyperparameters."""

    @abstractmethod
    def fit(self, private: PrivateImages, public: Images | None) -> Classifier:
        """Ask what was planned, train on the answers, and return a classifier that holds only what came from those."""


class Hider(ABC):
    """A way to re-generate images so that an attribute can no longer be told: a frozen dataclass of hyperparameters.

    It is given the attribute that is to be hidden and no other, so that nobody has to know what the images will be
    used for. There is no epsilon here: what it hides is measured.
    """

    @classmethod
    @abstractmethod
    def for_task(cls, spec: Spec) -> Self:
        """Good hyperparameters for images of this number, shape and classes of the attribute."""

    def check(self, spec: Spec) -> None:  # noqa: B027 - most take all images
        """Refuse images that it cannot take, before any work."""

    @abstractmethod
    def fit(self, train: Images, validation: Images, *, checkpoints: Checkpoints) -> Rewriter:
        """Learn from images whose labels are the attribute to hide; choices and early stops look at `validation`."""

    @abstractmethod
    def seconds(self, spec: Spec) -> float:
        """A rough run time on two laptop cores, to train and to re-generate every image once."""

    def public_weights(self) -> str | None:
        """The weights that others trained and that are used, as a release names them; None where there are none."""
        return None


class Metric(ABC):
    """One judgement of a release against real images: a frozen dataclass whose fields are its settings."""

    judges: ClassVar[Judgement]
    panel: ClassVar[Literal["default", "full"]] = "default"  # the smallest panel that it belongs to
    higher_is_better: ClassVar[bool]

    @abstractmethod
    def __call__(self, synthetic: Images, real: Reference) -> Score:
        """Raises NotApplicable where these images cannot be judged so (no groups, no colour, ...)."""


class ClassifierMetric(ABC):
    """One judgement of a released classifier by its answers to real images: a frozen dataclass with its settings."""

    judges: ClassVar[Judgement]
    panel: ClassVar[Literal["default", "full"]] = "default"
    higher_is_better: ClassVar[bool]

    @abstractmethod
    def __call__(self, classifier: Callable[[Tensor], Tensor], real: Reference) -> Score:
        """`classifier` takes pixels (n, c, h, w) uint8 and gives logits (n, k). Raises NotApplicable, as a Metric."""


class Attack(ABC):
    """One attacker of a release: how much like a training record does each candidate look?"""

    panel: ClassVar[Literal["default", "full"]] = "default"
    floor_on_copies: ClassVar[float] = 0.95  # the least area under the curve that it must reach on plain copies

    @abstractmethod
    def score(self, release: Release, candidates: Images, *, population: Images) -> Tensor:
        """One number per candidate, higher for a likelier member; `population` are real images that are none."""


class ClassifierAttack(ABC):
    """One attacker of a classifier: how much like a training record does each candidate look, by its answers?"""

    panel: ClassVar[Literal["default", "full"]] = "default"
    needs_shadows: ClassVar[bool] = False  # whether it learns from shadow classifiers

    @abstractmethod
    def score(self, exposed: Exposed) -> Tensor:
        """One number per candidate, higher for a likelier member."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How a user wants a data set read; every field is a public choice."""

    split: Literal["train", "test"] = "train"
    label: str | None = None  # the column of an attribute table
    size: int | None = None  # side in pixels after resizing; None keeps a common size
    mode: Literal["grey", "colour"] | None = None
    skip_bad: bool = False  # drop unreadable files instead of stopping
    classes: tuple[str, ...] | None = None  # the public list of classes, where the data does not name it


class Dataset(ABC):
    """A way to read images; an instance is one opened split (a `Source`)."""

    @classmethod
    @abstractmethod
    def recognises(cls, where: str) -> bool:
        """Whether this reader is the one for that path or name; looks at names only, never at pixels."""

    @abstractmethod
    def __init__(self, where: str, reading: Reading) -> None: ...

    @property
    @abstractmethod
    def spec(self) -> Spec: ...

    @property
    @abstractmethod
    def name(self) -> str: ...

    @abstractmethod
    def chunks(self) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]: ...


def names(kind: Kind) -> dict[str, str]:
    """All files of a kind by name, with the sentence that describes each; imports none of them."""
    documented = {name: ast.get_docstring(ast.parse(file.read_text("utf-8"))) for name, file in _files(kind).items()}
    return {name: (text or "").split("\n")[0] for name, text in documented.items()}


def names_of(kind: Kind, contract: type[Any]) -> tuple[str, ...]:
    """The names of a kind whose classes derive from a contract; imports all of them."""
    return tuple(name for name in _files(kind) if issubclass(find(kind, name), contract))


def _files(kind: Kind) -> dict[str, Path]:
    """The files of a kind's folder by the names that they register."""
    return {name.replace("_", "-"): file for name, file in modules(kind).items()}


_CONTRACTS: dict[str, tuple[type[Any], ...]] = {
    "methods": (Synthesizer,),
    "learners": (Learner,),
    "hiding": (Hider,),
    "metrics": (Metric, ClassifierMetric),
    "attacks": (Attack, ClassifierAttack),
    "data": (Dataset,),
}


def find(kind: Kind, name: str) -> type[Any]:
    """The class that a file in the kind's folder defines; the file's name is its registration."""
    known = _files(kind)
    if name not in known:
        raise UsageError(
            f"Expected one of the {kind} {', '.join(known) or '(there are none)'}; got {name!r}.",
            fix=f"run `sfumato list {'datasets' if kind == 'data' else kind}` to see what there is",
        )
    module = importlib.import_module(f"sfumato.{kind}.{name.replace('-', '_')}")
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, _CONTRACTS[kind]) and value.__module__ == module.__name__:
            return value
    raise TypeError(f"{module.__name__} defines no {_CONTRACTS[kind][0].__name__}.")

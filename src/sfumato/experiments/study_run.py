"""One run of a study: train a classifier of a condition with one seed, measure it, and store what was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sfumato.errors import SfumatoError
from sfumato.experiments.cell import Outcome, measured, sentence
from sfumato.experiments.study_data import Held, Material, Place, load_material
from sfumato.experiments.study_format import Condition, Kind
from sfumato.experiments.study_measures import measure, riskiest, rows_of, tracker_of
from sfumato.lab.store import Store, Stored
from sfumato.learners.dp_sgd import DPSGD
from sfumato.privacy import Budget, Ledger, PrivateImages
from sfumato.progress import heard_by
from sfumato.training.plain import PlainTraining, train_plainly
from sfumato.values import Images

DONE = "done"  # the measure of a classifier, and of a curve; a round of removal has one of its own

Callback = Callable[[float, nn.Module], None]


@dataclass(frozen=True, slots=True)
class StudyRun:
    """A run as an engine is handed it."""

    kind: Kind
    condition: Condition
    seed: int
    place: Place
    content: str  # a digest of the data, wherever it lies
    settings: DPSGD | PlainTraining
    records: int
    candidates: int
    delta: float
    checkpoints: int
    rounds: int
    removed: int

    @property
    def name(self) -> str:
        return f"{self.condition.name}, seed {self.seed}"

    def inputs(self) -> dict[str, Any]:
        """What the run depends on: two recipes that need the same run share it."""
        own: dict[str, Any] = {"kind": "classifier"}
        if self.kind == "memorisation":
            own = {"kind": self.kind, "checkpoints": self.checkpoints}
        if self.kind == "outliers":
            own = {"kind": self.kind, "removed": self.removed}  # more rounds go on from those that are there
        return {
            **own,
            "data": self.condition.data,
            "method": "dp-sgd" if self.condition.private else "plain",
            "epsilon": self.condition.epsilon,
            "delta": self.delta if self.condition.private else None,
            "settings": asdict(self.settings),
            "repeat": self.seed,
            "records": self.records,
            "candidates": self.candidates,
            "reading": asdict(self.place.reading),
            "group": self.place.group,
            "data_content": self.content,
            "sfumato": version("sfumato"),
        }

    def stored(self, store: Path) -> Stored:
        return Store(store).study(self.inputs())

    def wanted(self) -> list[str]:
        """The names under which its measures are filed."""
        return [f"round-{number}" for number in range(self.rounds + 1)] if self.kind == "outliers" else [DONE]

    def finished(self, store: Path) -> bool:
        stored = self.stored(store)
        return all(stored.has(name) for name in self.wanted())

    def run(self, store: Path) -> Outcome:
        stored = self.stored(store)
        try:
            if not self.finished(store):
                with stored.lab, heard_by(stored.say):
                    self._fill(stored)
            return Outcome(self.name, stored.digest)
        except SfumatoError as error:
            return Outcome(self.name, stored.digest, sentence(error))

    def _fill(self, stored: Stored) -> None:
        material = load_material(self.place, records=self.records, others=self.candidates)
        if self.kind == "outliers":
            self._remove_in_rounds(stored, material)
        else:
            with measured() as cost:
                found = self._curve(material) if self.kind == "memorisation" else self._measures(material)
            stored.add(DONE, {**found, **cost})

    def _measures(self, material: Material) -> dict[str, Any]:
        network = self._train(material.train, None)
        return {"value": measure(network, material, self.candidates, seed=self.seed)}

    def _curve(self, material: Material) -> dict[str, Any]:
        tracker = tracker_of(material, self.candidates)
        network = self._train(material.train, tracker)
        return {
            "value": measure(network, material, self.candidates, seed=self.seed),
            "rows": rows_of(tracker.checkpoints),
            "epochs": self.settings.epochs,
        }

    def _remove_in_rounds(self, stored: Stored, material: Material) -> None:
        """Round 0 has all records; before each later round those with the highest risk are removed, and a new
        classifier is trained from scratch on the rest and judged on the rest: a new layer may be at risk then."""
        kept = torch.arange(len(material.train))
        for name in self.wanted():
            if not stored.has(name):
                with measured() as cost:
                    rest = replace(material, train=material.train.rows(kept))
                    network = self._train(rest.train, None)
                    value = measure(network, rest, self.candidates, seed=self.seed)
                    removed, risk = riskiest(network, rest.train, rest.others, self.removed)
                    value["risk"] = risk
                left = kept[~torch.isin(torch.arange(len(kept)), removed)].tolist()
                stored.add(name, {"value": value, "trained_on": len(kept), "kept": left, **cost})
            kept = torch.tensor(stored.measures()[name]["kept"], dtype=torch.int64)

    def _train(self, train: Images, callback: Callback | None) -> nn.Module:
        if isinstance(self.settings, PlainTraining):
            made = train_plainly(
                train, self.settings, what="classifier", callback=callback, checkpoints=self.checkpoints
            )
            return made.network

        budget = Budget.of(self.condition.epsilon, count=len(train), delta=self.delta)
        private = PrivateImages.seal(Held(train), Ledger(budget))
        try:
            return self.settings.fit_watched(private, callback, calls=self.checkpoints).network
        finally:
            private.close()

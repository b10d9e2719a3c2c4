"""Checkpoints of a long training in the lab: tensors under a name, each written whole in the place of the last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfumato.errors import DataError
from sfumato.lab.folder import Lab

if TYPE_CHECKING:
    from torch import Tensor

FOLDER = "checkpoints"


@dataclass(frozen=True, slots=True)
class LabCheckpoints:
    """Those of one run; `contracts.Checkpoints`. They were made from real images, so they stay in the lab."""

    lab: Lab

    def restore(self, name: str) -> dict[str, Tensor] | None:
        from safetensors.torch import load

        path = self.lab.folder / FOLDER / f"{name}.safetensors"
        if not path.exists():
            return None
        try:
            return load(path.read_bytes())
        except (OSError, ValueError) as error:
            raise DataError(
                "Expected a checkpoint that can be read, got another file.",
                where=path,
                fix="remove it, and the same command begins this part anew",
            ) from error

    def keep(self, name: str, state: dict[str, Tensor]) -> None:
        from safetensors.torch import save

        (self.lab.folder / FOLDER).mkdir(exist_ok=True)
        self.lab.write(f"{FOLDER}/{name}.safetensors", save({key: part.contiguous() for key, part in state.items()}))

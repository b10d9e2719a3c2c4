"""Checkpoints of a long training in the lab: tensors under a name, each written whole in the place of the last."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.errors import DataError
from sfumato.lab.folder import Lab

if TYPE_CHECKING:
    from torch import Tensor

FOLDER = "checkpoints"


@dataclass(frozen=True, slots=True)
class LabCheckpoints:
    """Those of one run; `contracts.Checkpoints`. They were made from real images, so they stay in the lab.

    A name that says all that a training depends on may be found in the lab of another run, too.
    """

    lab: Lab
    others: tuple[Path, ...] = ()  # labs of other runs

    def restore(self, name: str) -> dict[str, Tensor] | None:
        from safetensors import SafetensorError
        from safetensors.torch import load

        folders = (self.lab.folder, *self.others)
        paths = (folder / FOLDER / f"{name}.safetensors" for folder in folders)
        path = next((path for path in paths if path.exists()), None)
        if path is None:
            return None
        try:
            return load(path.read_bytes())
        except (OSError, SafetensorError) as error:
            raise DataError(
                "Expected a checkpoint that can be read, got another file.",
                where=path,
                fix="remove it, and the same command begins this part anew",
            ) from error

    def keep(self, name: str, state: dict[str, Tensor]) -> None:
        from safetensors.torch import save

        (self.lab.folder / FOLDER).mkdir(exist_ok=True)
        self.lab.write(f"{FOLDER}/{name}.safetensors", save({key: part.contiguous() for key, part in state.items()}))

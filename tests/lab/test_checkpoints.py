"""Checkpoints of a run in its lab, and those of other runs that it may take over."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sfumato.errors import DataError
from sfumato.lab.checkpoints import LabCheckpoints
from sfumato.lab.folder import Lab


def test_what_is_kept_comes_back_and_takes_the_place_of_the_last(tmp_path: Path) -> None:
    with Lab(tmp_path / "a.lab") as lab:
        checkpoints = LabCheckpoints(lab)
        assert checkpoints.restore("model") is None
        for number in (1, 2):
            checkpoints.keep("model", {"step": torch.tensor(number)})
        kept = checkpoints.restore("model")
        assert kept is not None
        assert int(kept["step"]) == 2


def test_those_of_other_runs_are_found_and_ones_own_come_first(tmp_path: Path) -> None:
    with Lab(tmp_path / "a.lab") as lab:
        LabCheckpoints(lab).keep("model", {"step": torch.tensor(7)})
    with Lab(tmp_path / "b.lab") as lab:
        checkpoints = LabCheckpoints(lab, (tmp_path / "none.lab", tmp_path / "a.lab"))
        found = checkpoints.restore("model")
        assert found is not None
        assert int(found["step"]) == 7
        checkpoints.keep("model", {"step": torch.tensor(8)})
        own = checkpoints.restore("model")
        assert own is not None
        assert int(own["step"]) == 8


def test_another_file_in_its_place_is_refused(tmp_path: Path) -> None:
    with Lab(tmp_path / "a.lab") as lab:
        checkpoints = LabCheckpoints(lab)
        checkpoints.keep("model", {"step": torch.tensor(1)})
        (lab.folder / "checkpoints" / "model.safetensors").write_bytes(b"no tensors")
        with pytest.raises(DataError, match="Expected a checkpoint that can be read"):
            checkpoints.restore("model")

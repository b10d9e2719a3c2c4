"""A training that was killed and goes on gives the same bytes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sfumato.training import saved_state
from sfumato.training.saved_state import SavedState, part, training_name
from sfumato.values import Images

from toys import CheckpointsInMemory

IMAGES = Images(torch.zeros(2, 1, 4, 4).byte(), torch.zeros(2).long(), ("x",))


class Fitting:
    """A linear layer on random targets, its optimiser and its source of random numbers."""

    def __init__(self) -> None:
        self.network = nn.Linear(3, 2)
        nn.init.ones_(self.network.weight)
        nn.init.zeros_(self.network.bias)
        self.optimizer = torch.optim.AdamW(self.network.parameters(), 0.1)
        self.draw = torch.Generator().manual_seed(0)
        self.saved = SavedState({"net": self.network}, {"adam": self.optimizer}, self.draw)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.network(torch.randn(4, 3, generator=self.draw)).square().sum().backward()
            self.optimizer.step()


def test_going_on_is_as_if_nothing_had_happened() -> None:
    whole, killed, resumed = Fitting(), Fitting(), Fitting()
    whole.run(7)
    killed.run(3)
    tensors = killed.saved.tensors(3)
    killed.run(1)  # what comes after is not in what was saved
    assert resumed.saved.restore(tensors) == 3
    resumed.run(4)
    assert torch.equal(whole.network.weight, resumed.network.weight)
    wanted, found = whole.saved.tensors(7), resumed.saved.tensors(7)
    assert wanted.keys() == found.keys()
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)


def test_a_training_that_has_not_begun_can_be_saved() -> None:
    begun = Fitting()
    assert begun.saved.restore(Fitting().saved.tensors(0)) == 0


def test_parts_are_found_by_their_whole_name() -> None:
    assert part({"a/x": torch.ones(1), "ab/x": torch.zeros(1)}, "a") == {"x": torch.ones(1)}


def changed(how: str) -> dict[str, torch.Tensor]:
    """What a training kept, with something about it that is not as it should be."""
    killed = Fitting()
    killed.run(3)
    kept = killed.saved.tensors(3)
    if how == "lacking":
        del kept["net/bias"]
    elif how == "lacking a moment":
        del kept["adam/1/exp_avg_sq"]
    elif how == "without the step":
        del kept["step"]
    elif how == "with another":
        kept["net/further"] = torch.zeros(2)
    elif how == "of another optimiser":
        kept["sgd/0/momentum"] = torch.zeros(2, 3)
    elif how == "of more weights":
        kept |= {f"adam/7/{moment}": kept[f"adam/1/{moment}"] for moment in ("step", "exp_avg", "exp_avg_sq")}
    elif how == "without a number":
        kept["adam/x/step"] = kept["adam/0/step"]
    elif how == "of another shape":
        kept["net/weight"] = torch.zeros(2, 4)
    elif how == "of another type":
        kept["net/weight"] = kept["net/weight"].double()
    elif how == "moments of another shape":
        kept["adam/0/exp_avg"] = torch.zeros(7)
    elif how == "another source of random numbers":
        kept["draw"] = torch.zeros(3, dtype=torch.uint8)
    return kept


DAMAGES = (
    *("lacking", "lacking a moment", "without the step", "with another", "of another optimiser", "of more weights"),
    *("without a number", "of another shape", "of another type", "moments of another shape"),
    "another source of random numbers",
)


@pytest.mark.parametrize("how", DAMAGES)
def test_a_state_of_another_layout_begins_the_training_anew(how: str) -> None:
    checkpoints = CheckpointsInMemory()
    checkpoints.keep("a", changed(how))
    begun, fresh = Fitting(), Fitting()
    assert begun.saved.resume(checkpoints, "a") == 0
    for fitting in (begun, fresh):
        fitting.run(2)
    assert torch.equal(begun.network.weight, fresh.network.weight)  # nothing of it was taken


def test_a_state_of_this_layout_goes_on_even_if_some_weights_were_never_trained() -> None:
    checkpoints = CheckpointsInMemory()
    kept = changed("in nothing")
    checkpoints.keep("all", kept)
    checkpoints.keep("some", {name: value for name, value in kept.items() if not name.startswith("adam/0/")})
    for name in ("all", "some"):
        assert Fitting().saved.resume(checkpoints, name) == 3
    assert Fitting().saved.resume(checkpoints, "other") == 0
    assert Fitting().saved.resume(None, "all") == 0


def test_another_release_or_layout_is_another_training(monkeypatch: pytest.MonkeyPatch) -> None:
    class Renamed(nn.Module):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.register_buffer(name, torch.ones(2))

    names = {training_name("x", IMAGES, Renamed(key)) for key in ("a", "b")}
    assert names == {training_name("x", IMAGES, Renamed(key)) for key in ("a", "b")}
    for module, attribute, value in (
        (saved_state, "FORMAT", 2),
        (saved_state, "release_of", lambda package: "99" if package == "sfumato" else "1"),
        (saved_state, "release_of", lambda package: "99" if package == "torch" else "1"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, attribute, value)
            names.add(training_name("x", IMAGES, Renamed("a")))
    assert len(names) == 5

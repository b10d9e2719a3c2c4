"""The training of adapters: what it changes, what it stops at, and that a killed one gives the same bytes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from sfumato.networks.filter_generating import ChannelFilter
from sfumato.networks.low_rank import Adapters
from sfumato.synthesis import decoupling
from sfumato.synthesis.attribute_head import AttributeHead
from sfumato.synthesis.decoupling import Adaptation, Objective, decouple
from sfumato.synthesis.denoiser import Denoiser
from sfumato.values import Images

from toys import CheckpointsInMemory, KilledError, coloured_squares

SETTINGS = Adaptation(rank=2, epochs=2, batch=16, rate=1e-3, weight=0.1, seed=0)
TRAIN = coloured_squares(48)
VALIDATION = coloured_squares(12)


def model() -> Denoiser:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = Denoiser((3, 16, 16), width=8).eval()
        for parameter in made.parameters():  # zeros would stop the gradient at the attention's output
            nn.init.normal_(parameter, std=0.1)
    made.whiten(TRAIN.pixels)
    return made


def head(reading: str = "remove") -> AttributeHead:
    return AttributeHead(16, TRAIN.labels, 3, reading=reading, seed=0)


def run(
    kept: CheckpointsInMemory, objective: Objective | None = None, settings: Adaptation = SETTINGS, mask: bool = False
) -> dict[str, Tensor]:
    """All that was learnt, by name."""
    objective, draw = objective or head(), torch.Generator().manual_seed(0)
    filtered = ChannelFilter(16, draw=draw) if mask else None
    adapters = decouple(model(), objective, settings, TRAIN, VALIDATION, kept, name="toy", mask=filtered)
    learnt = {f"{i}/{k}": v.detach() for i, each in enumerate(adapters) for k, v in each.learnt.items()}
    return learnt | (objective.head.state_dict() if objective.head else {})


class Scripted:
    """An objective whose validation losses are given; nothing else is asked of the features."""

    head: nn.Module | None = None

    def __init__(self, losses: list[float]) -> None:
        self.losses, self.judged = losses, 0

    def for_head(self, pooled: Tensor, labels: Tensor) -> Tensor:
        raise AssertionError("There is no head.")

    def for_adapters(self, pooled: Tensor, labels: Tensor, draw: torch.Generator) -> Tensor:
        return pooled.sum() * 0

    def for_validation(self, pooled: Tensor, labels: Tensor, draw: torch.Generator) -> Tensor:
        self.judged += 1
        return torch.tensor(1e6 * self.losses[self.judged - 1])


def best_after(epochs: int, settings: Adaptation) -> dict[str, Tensor]:
    """The best adapters of a training that was killed after so many epochs, each better than the one before."""
    kept = CheckpointsInMemory(lasting=epochs)
    with pytest.raises(KilledError):
        run(kept, Scripted([3, 2, 1]), settings)
    return {k.removeprefix("best/adapters "): v for k, v in kept.kept["toy"].items() if k.startswith("best/")}


def test_adapters_learn_and_the_network_itself_does_not() -> None:
    made, before = model(), model()
    (adapters,) = decouple(made, head(), SETTINGS, TRAIN, VALIDATION, CheckpointsInMemory(), name="toy")
    assert isinstance(adapters, Adapters)
    assert all(layer.up.any() for layer in adapters.layers.values())
    after = {name.replace(".frozen", ""): value for name, value in made.state_dict().items()}
    assert all(torch.equal(value, after[name]) for name, value in before.state_dict().items())


def test_the_filter_gets_an_adapter_of_its_own() -> None:
    learnt = run(CheckpointsInMemory(), mask=True)
    assert learnt["1/scores/up"].any()


@pytest.mark.parametrize("mask", [False, True])
def test_a_killed_training_goes_on_to_the_same_bytes(mask: bool) -> None:
    whole = run(CheckpointsInMemory(), mask=mask)
    for lasting in (1, 2):  # epochs, of which the first is the head's alone
        kept = CheckpointsInMemory(lasting)
        with pytest.raises(KilledError):
            run(kept, mask=mask)
        kept.lasting = None
        resumed = run(kept, mask=mask)
        assert whole.keys() == resumed.keys()
        assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_the_weights_with_the_lowest_validation_loss_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoupling, "PATIENCE", 2)
    settings = replace(SETTINGS, epochs=9)
    stopped = Scripted([3, 1, 2, 2.5, 0, 0, 0, 0, 0])
    found = run(CheckpointsInMemory(), stopped, settings)
    assert stopped.judged == 4  # two epochs in a row were no better than the second
    first, second = best_after(1, settings), best_after(2, settings)
    assert all(torch.equal(found[name], second[name]) for name in found)
    assert not all(torch.equal(found[name], first[name]) for name in found)


def test_early_stopping_survives_a_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoupling, "PATIENCE", 2)
    settings, kept = replace(SETTINGS, epochs=9), CheckpointsInMemory(lasting=3)
    with pytest.raises(KilledError):
        run(kept, Scripted([3, 1, 2]), settings)
    kept.lasting = None
    later = Scripted([2.5, 0, 0])
    found = run(kept, later, settings)
    assert later.judged == 1
    second = best_after(2, settings)
    assert all(torch.equal(found[name], second[name]) for name in found)


def test_adapters_follow_the_objective(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a head that stays as it is, its answers come nearer to the shares of the classes."""
    monkeypatch.setattr(decoupling, "HEAD_RATE", 0.0)
    settings = replace(SETTINGS, epochs=16, rate=0.02, batch=8)
    told = {}
    for weight in (0.0, 10.0):
        objective, made = head(), model()
        for parameter in objective.head.parameters():
            parameter.data = parameter.data * 5
        decouple(made, objective, replace(settings, weight=weight), TRAIN, TRAIN, CheckpointsInMemory(), name="toy")
        with torch.no_grad():
            pooled = made.denoise(made.encode(TRAIN.pixels), torch.full((48,), 50))[1].mean((2, 3))
            told[weight] = float(objective.for_adapters(pooled, TRAIN.labels, torch.Generator()))
    least = math.log(3)  # the entropy of equal shares
    assert told[10.0] - least < 0.5 * (told[0.0] - least)


def test_one_class_or_one_image_in_the_last_batch_does_no_harm() -> None:
    few = Images(TRAIN.pixels[:17], torch.zeros(17, dtype=torch.int64), TRAIN.classes)
    decouple(model(), head(), SETTINGS, few, few.rows(torch.arange(1)), CheckpointsInMemory(), name="toy")

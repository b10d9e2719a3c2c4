"""Training without privacy: each technique does what its formula says, and is off when it is switched off."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from sfumato.errors import DataError, UsageError
from sfumato.learners.dp_sgd import DPSGD
from sfumato.networks.models import build_model
from sfumato.privacy import Budget, Ledger, PrivateImages, SeededNoise
from sfumato.training import plain
from sfumato.training.augmentation import random_versions
from sfumato.training.plain import PlainTraining, choose_batch, train_plainly
from sfumato.training.student import outputs, predict, unit
from sfumato.values import Images

from toys import ToySource

CLASSES = ("dark", "bright")
SHORT = PlainTraining(epochs=2, batch=8, chosen_batch=4, multiplicity=2, averaging=0.9)


def photographs(count: int = 24, *, seed: int = 0, side: int = 8) -> Images:
    """Noise in colour, dark or bright."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    pixels = torch.randint(0, 128, (count, 3, side, side), generator=draw) + 127 * labels[:, None, None, None]
    return Images(pixels.to(torch.uint8), labels, CLASSES)


def weights(settings: PlainTraining, images: Images | None = None) -> list[Tensor]:
    trained = train_plainly(images or photographs(), settings, what="test")
    return list(trained.network.state_dict().values())


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(map(torch.equal, first, second))


def apart(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """The length of the difference, relative to the length of the second."""
    first, second = (torch.cat([part.flatten() for part in parts]) for parts in (ours, theirs))
    return float((first - second).norm() / second.norm())


def test_training_is_seeded_and_learns() -> None:
    settings = replace(SHORT, epochs=6)
    trained = train_plainly(photographs(), settings, what="test")
    held_out = photographs(seed=1)
    assert (predict(trained.network, held_out.pixels) == held_out.labels).float().mean() > 0.9
    assert same(list(trained.network.state_dict().values()), weights(settings))
    assert not same(weights(settings), weights(replace(settings, seed=1)))
    assert not trained.network.training


def test_the_network_can_be_built_again_from_what_is_said_of_it() -> None:
    trained = train_plainly(photographs(), replace(SHORT, techniques="gn,ws"), what="test")
    again = build_model(trained.architecture, (3, 8, 8), 2, trained.settings)
    again.load_state_dict(trained.network.state_dict())
    pixels = photographs(seed=2).pixels
    torch.testing.assert_close(outputs(trained.network, pixels), outputs(again.eval(), pixels), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("techniques", "norm", "standardised"), [("none", "batch", False), ("gn", "group", False), ("gn,ws", "group", True)]
)
def test_norm_and_weight_standardisation_are_switches(techniques: str, norm: str, standardised: bool) -> None:
    settings = replace(SHORT, techniques=techniques)
    assert settings.architecture()["norm"] == norm
    assert settings.architecture()["weight_standardisation"] is standardised


def test_steps_are_plain_gradient_descent_with_momentum_and_a_cosine() -> None:
    """Against a loop that is written out."""
    images, settings = photographs(side=16), replace(SHORT, techniques="gn", rate=1.0, weight_decay=0.01)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = build_model("wide-resnet", (3, 8, 8), 2, settings.architecture())
    network.to(memory_format=torch.channels_last)
    order, rows = torch.Generator().manual_seed(0), torch.empty(0, dtype=torch.int64)
    momenta = [torch.zeros_like(weight) for weight in network.parameters()]
    for step in range(6):
        rows = torch.randperm(24, generator=order) if len(rows) < 8 else rows
        batch, rows = rows[:8], rows[8:]
        network.zero_grad()
        cross_entropy(network(unit(images.pixels[batch])), images.labels[batch]).backward()
        rate = 1.0 * 8 / 128 * 0.5 * (1 + math.cos(math.pi * step / 6))
        with torch.no_grad():
            for weight, momentum in zip(network.parameters(), momenta, strict=True):
                momentum.mul_(0.9).add_(weight.grad + 0.01 * weight)
                weight.sub_(rate * momentum)
    assert apart(weights(settings, images), list(network.state_dict().values())) < 1e-4
    assert apart(weights(replace(settings, momentum=0.8), images), list(network.state_dict().values())) > 1e-3


def test_large_batches_are_a_switch() -> None:
    assert same(weights(replace(SHORT, techniques="obs")), weights(replace(SHORT, batch=4)))
    assert not same(weights(replace(SHORT, techniques="obs")), weights(SHORT))


def test_the_better_of_two_batch_sizes_is_chosen_on_held_out_training_images() -> None:
    settings, images = replace(SHORT, rate=0.02), photographs(200)
    # four steps in all are too few to learn as much as in ninety
    assert choose_batch(images, settings, (80, 4), what="test") == 4
    assert choose_batch(images, settings, (4, 80), what="test") == 4


def test_averages_follow_the_formula_and_so_do_batch_norm_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    plainly = []

    def last(network: nn.Module, *arguments: object) -> object:
        for step in steps(network, *arguments):
            plainly.append(copy.deepcopy(network.state_dict()))
            yield step

    steps = plain._steps
    monkeypatch.setattr(plain, "_steps", last)
    settings = replace(SHORT, techniques="pa", averaging=0.3, epochs=2)
    averaged = train_plainly(photographs(), settings, what="test").network.state_dict()
    monkeypatch.undo()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        expected = build_model("wide-resnet", (3, 8, 8), 2, settings.architecture()).state_dict()
    for step, state in enumerate(plainly):
        stays = min(0.3, (1 + step) / (10 + step))
        for name, value in expected.items():
            if value.is_floating_point():
                expected[name] = stays * value + (1 - stays) * state[name]
    assert any("running_mean" in name for name in expected)
    for name, value in expected.items():
        if value.is_floating_point():
            torch.testing.assert_close(averaged[name], value, rtol=1e-5, atol=1e-6)
    assert [settings.staying(step) for step in (0, 2, 5)] == [0.1, 0.25, 0.3]


def test_one_version_without_a_shift_is_the_baseline() -> None:
    """Images of one colour have no other version than themselves."""
    images = photographs()
    flat = Images(images.pixels[:, :, :1, :1].expand_as(images.pixels).contiguous(), images.labels, CLASSES)
    one = replace(SHORT, techniques="am", multiplicity=1)
    assert same(weights(one, flat), weights(SHORT, flat))
    assert not same(weights(one), weights(SHORT))


def test_the_loss_is_averaged_over_versions_of_each_image() -> None:
    images, rows, settings = photographs(side=16), torch.tensor([3, 4, 8]), replace(SHORT, techniques="am")
    pixels, labels = plain._shown(images, rows, settings, torch.Generator().manual_seed(5))
    draw = torch.Generator().manual_seed(5)
    expected = [random_versions(unit(images.pixels[rows]), mirror=True, draw=draw) for _ in range(2)]
    assert torch.equal(pixels, torch.cat(expected))
    assert labels.tolist() == [1, 0, 0, 1, 0, 0]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = build_model("wide-resnet", (3, 16, 16), 2, replace(settings, techniques="gn").architecture())
    plain._gradient(network, pixels, labels)
    together = [weight.grad.clone() for weight in network.parameters()]
    network.zero_grad()
    for part in expected:
        (cross_entropy(network(part), images.labels[rows]) / 2).backward()
    assert apart(together, [weight.grad for weight in network.parameters()]) < 1e-4


@pytest.mark.parametrize("others", ["none", "gn,ws", "am,pa"])
def test_sharpness_aware_training_without_ascent_is_the_baseline_bit_by_bit(others: str) -> None:
    """The second gradient is computed here too, so this holds statistics and weights to what they were."""
    still = replace(SHORT, techniques=f"{others},sat", ascent=0.0)
    assert same(weights(still), weights(replace(SHORT, techniques=others)))
    assert not same(weights(replace(still, ascent=0.5)), weights(still))


def test_sharpness_aware_training_goes_along_the_gradient_and_back() -> None:
    network = build_model("wide-resnet", (3, 8, 8), 2, SHORT.architecture())
    images = photographs()
    plain._gradient(network, unit(images.pixels), images.labels)
    before = [weight.detach().clone() for weight in network.parameters()]
    gradient = torch.cat([weight.grad.flatten() for weight in network.parameters()])
    with plain._uphill(list(network.parameters()), 0.7):
        moved = [weight.detach() - old for weight, old in zip(network.parameters(), before, strict=True)]
        step = torch.cat([part.flatten() for part in moved])
        torch.testing.assert_close(step, 0.7 * gradient / gradient.norm(), rtol=1e-3, atol=1e-6)
    assert same([weight.detach() for weight in network.parameters()], before)


def test_weights_come_back_also_when_a_gradient_fails() -> None:
    network = build_model("wide-resnet", (3, 8, 8), 2, SHORT.architecture())
    images = photographs()
    plain._gradient(network, unit(images.pixels), images.labels)
    before = [weight.detach().clone() for weight in network.parameters()]
    with pytest.raises(ZeroDivisionError), plain._uphill(list(network.parameters()), 1.0):
        raise ZeroDivisionError
    assert same([weight.detach() for weight in network.parameters()], before)


@pytest.mark.parametrize("techniques", ["none", "pa"])
def test_a_callback_is_shown_the_network_on_the_way_and_changes_nothing(techniques: str) -> None:
    seen: list[tuple[float, list[Tensor]]] = []

    def look(done: float, network: nn.Module) -> None:
        assert not network.training
        seen.append((done, [value.clone() for value in network.state_dict().values()]))
        torch.rand(3)  # draws of its own
        with torch.no_grad():
            for weight in network.parameters():
                weight.zero_()

    settings = replace(SHORT, techniques=techniques)
    result = train_plainly(photographs(), settings, what="test", callback=look, checkpoints=3)
    assert [done for done, _ in seen] == [2 / 6, 4 / 6, 1.0]
    assert same(list(result.network.state_dict().values()), weights(settings))
    assert same(seen[-1][1], weights(settings))


def test_batch_norm_is_refused_under_privacy(monkeypatch: pytest.MonkeyPatch) -> None:
    images = photographs()
    source = ToySource(images.pixels.numpy(), images.labels.numpy(), CLASSES)
    private = PrivateImages.seal(source, Ledger(Budget(8.0, 1e-3)), noise=SeededNoise(0))
    learner = DPSGD(epochs=1, batch=8, techniques="none")
    norm = {**learner._architecture()[1], "norm": "batch"}
    monkeypatch.setattr(DPSGD, "_architecture", lambda _: ("wide-resnet", norm))
    with pytest.raises(UsageError, match=r"BatchNorm|batch norm"):
        learner.fit(private, None)
    private.close()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"techniques": "gn,dropout"}, "dropout"),
        ({"arch": "cnn"}, "arch"),
        ({"batch": 1}, "batch"),
        ({"averaging": 1.0}, "averaging"),
    ],
)
def test_wrong_settings_are_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        replace(SHORT, **change)


def test_one_image_is_refused() -> None:
    with pytest.raises(DataError, match="at least 2"):
        train_plainly(photographs(1), SHORT, what="test")

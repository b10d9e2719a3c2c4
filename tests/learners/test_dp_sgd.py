"""DP-SGD on a network: each technique is a switch with the effect that it names, and none of them changes the cost."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.errors import UsageError
from sfumato.learners import dp_sgd
from sfumato.learners.dp_sgd import DPSGD, TECHNIQUES
from sfumato.privacy import Budget, Descent, Ledger, PrivateImages, Recording, SeededNoise, calibrate
from sfumato.standardised_convolution import StandardisedConv2d
from sfumato.training.augmentation import Window, versions
from sfumato.values import Classifier, Spec

from toys import ToySource, halves, toy

SMALL = DPSGD(arch="cnn", techniques="none", epochs=3.0, batch=20)  # six rounds of half of 40 records
FREE = ("gn", "ws", "am", "pa", "sat")  # techniques that have no part in what is asked


def trained(learner: DPSGD, source: ToySource | None = None, epsilon: float = 8.0) -> Classifier:
    """With seeded noise, so that two trainings get the same."""
    source = source or toy(40, side=8)
    private = PrivateImages.seal(source, Ledger(Budget(epsilon, 1e-4)), noise=SeededNoise(0))
    try:
        return learner.fit(private, None)
    finally:
        private.close()


def weights(classifier: Classifier) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in classifier.network.parameters()])


def built(techniques: str) -> list[nn.Module]:
    """The layers of a network that was not trained far."""
    learner = DPSGD(techniques=techniques, epochs=1.0, batch=40, large_batch=40)
    return list(trained(learner, epsilon=math.inf).network.modules())


@pytest.mark.parametrize("techniques", ["none", "gn", "ws", "gn,ws"])
def test_group_norm_and_weight_standardisation_are_layers_of_the_network(techniques: str) -> None:
    layers, on = built(techniques), techniques.split(",")
    assert any(isinstance(layer, nn.GroupNorm) for layer in layers) == ("gn" in on)
    convolutions = {type(layer) for layer in layers if isinstance(layer, nn.Conv2d)}
    assert convolutions == {StandardisedConv2d if "ws" in on else nn.Conv2d}
    assert not [layer for layer in layers if isinstance(layer, nn.modules.batchnorm._BatchNorm)]


def row_of(learner: DPSGD, image: np.ndarray) -> tuple[np.ndarray, float]:
    """The row of one record in one round, on the lattice, and how long it may be."""
    noise, tape = (recording := Recording()).recorder()
    private = PrivateImages.seal(ToySource(image, np.zeros(1)), Ledger(Budget(1.0, 1e-4)), noise=noise, tape=tape)
    learner.fit(private, None)
    private.close()
    (row,) = {exact.tobytes(): exact[0] for _, _, _, exact, _ in recording.answers}.values()
    return row.astype(np.float64), recording.answers[0][4]


ONE = replace(SMALL, batch=1, large_batch=1, epochs=1.0, l2_bound=0.01)  # one round, of all of one record
ALONE = np.random.default_rng(0).integers(0, 256, (1, 1, 8, 8))


def test_the_versions_of_a_record_are_one_row_within_the_bound() -> None:
    plain, reach = row_of(ONE, ALONE)
    seen, same = row_of(replace(ONE, techniques="am", multiplicity=9), ALONE)
    assert same == reach
    for row in (plain, seen):  # the bound is so small that both rows are clipped
        assert 0.98 * reach < np.linalg.norm(row) <= reach
    assert plain @ seen < 0.999 * reach**2, "versions have another gradient than the record"


def test_as_many_copies_of_a_record_have_the_gradient_of_one() -> None:
    even = np.full((1, 1, 8, 8), 90)  # all of its versions are copies
    plain, reach = row_of(replace(ONE, l2_bound=100.0), even)
    seen, _ = row_of(replace(ONE, l2_bound=100.0, techniques="am", multiplicity=7), even)
    assert 0 < np.linalg.norm(plain) < 0.5 * reach, "not clipped"
    np.testing.assert_allclose(seen, plain, atol=1e-3 * np.linalg.norm(plain))


def test_a_row_is_the_mean_gradient_over_the_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    windows, drawn = [Window(0, 2, False), Window(1, 1, False), Window(2, 0, True)], []

    def draw_windows(count: int, side: int, *, mirror: bool, draw: torch.Generator) -> list[Window]:
        drawn.append((count, side, mirror))
        return windows

    monkeypatch.setattr(dp_sgd, "draw_windows", draw_windows)
    learner = replace(ONE, l2_bound=100.0, techniques="am", multiplicity=3)
    seen, _ = row_of(learner, ALONE)
    assert set(drawn) == {(3, 8, False)}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(learner.seed)
        network = dp_sgd.build_model("private-cnn", (1, 8, 8), 3, {})
    image = torch.from_numpy(ALONE[0]).float() / 255
    losses = [F.cross_entropy(network(part[None]), torch.tensor([0])) for part in versions(image, windows)]
    torch.stack(losses).mean().backward()
    expected = torch.cat([parameter.grad.flatten() for parameter in network.parameters()]).numpy()
    lattice = 100.0 * 2.0**-20
    np.testing.assert_allclose(seen * lattice, expected, atol=2 * lattice + 2e-3 * np.abs(expected).max())


def test_windows_are_new_in_each_round_the_same_in_each_run_and_mirrored_in_colour_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[list[Window]] = []
    original = dp_sgd.draw_windows

    def draw_windows(*given: object, **named: object) -> list[Window]:
        drawn.append(original(*given, **named))  # type: ignore[arg-type]
        return drawn[-1]

    monkeypatch.setattr(dp_sgd, "draw_windows", draw_windows)
    learner = replace(SMALL, techniques="am", multiplicity=8)
    for spec, mirrored in ((Spec(40, 1, 8, 8, ("a",)), False), (Spec(40, 3, 8, 8, ("a",)), True)):
        for _ in range(2):
            of_round = learner._losses(spec)
            for number in range(6):
                of_round(number)
        first, again = drawn[:6], drawn[6:]
        assert first == again
        assert all(one != other for one, other in itertools.pairwise(first))
        assert any(window.mirrored for windows in first for window in windows) == mirrored
        drawn.clear()


def test_parameter_averaging_is_switched_on_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Descent] = []
    original = dp_sgd.descend

    def descend(query: object, network: object, losses: object, descent: Descent, **named: object) -> None:
        taken.append(descent)
        original(query, network, losses, descent, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(dp_sgd, "descend", descend)
    last, averaged = (weights(trained(replace(SMALL, techniques=named))) for named in ("none", "pa"))
    assert [taken[0].staying(step) for step in range(6)] == [0.0] * 6, "the last weights are the result"
    expected = [min(0.999, (1 + step) / (10 + step)) for step in (0, 1, 100, 10**6)]
    assert [taken[1].staying(step) for step in (0, 1, 100, 10**6)] == expected
    assert not torch.equal(last, averaged)
    assert torch.equal(last, weights(trained(replace(SMALL, techniques="pa", averaging=0.0))))


def test_sharpness_aware_training_that_goes_nowhere_is_dp_sgd_bit_by_bit() -> None:
    plain, nowhere, uphill = (
        weights(trained(replace(SMALL, techniques=named, ascent=ascent)))
        for named, ascent in (("none", 0.03), ("sat", 0.0), ("sat", 0.3))
    )
    assert torch.equal(plain, nowhere)
    assert not torch.equal(plain, uphill)


def test_large_batches_change_batch_sampling_and_rounds_and_keep_the_epochs() -> None:
    spec = Spec(10_000, 1, 8, 8, ("a", "b"))
    learner = DPSGD(epochs=20, batch=100, large_batch=2_000)
    (small,) = replace(learner, techniques="gn,ws").plan(spec)
    (large,) = replace(learner, techniques="gn,ws,obs").plan(spec)
    assert (small.sampling, small.rounds) == (0.01, 2_000)
    assert (large.sampling, large.rounds) == (0.2, 100)
    assert small.sampling * small.rounds == large.sampling * large.rounds == 20


def test_the_rate_is_proportional_to_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []

    def descend(query: object, network: object, losses: object, descent: Descent, **named: object) -> None:
        rates.append(descent.rate)

    monkeypatch.setattr(dp_sgd, "descend", descend)
    for techniques in ("obs", "none"):
        trained(replace(SMALL, techniques=techniques, batch=10, large_batch=40, rate=3.0), epsilon=math.inf)
    assert rates == [3.0, 0.75]


@pytest.mark.parametrize("obs", ["", "obs"])
def test_no_other_technique_changes_what_is_charged(obs: str) -> None:
    spec = Spec(5_000, 3, 32, 32, ("a", "b"))
    subsets = [",".join((obs, *some)) for size in range(6) for some in itertools.combinations(FREE, size)]
    assert len(subsets) == 32
    plans = {tuple(DPSGD(techniques=some).plan(spec)) for some in subsets}
    assert len(plans) == 1
    charged = {tuple(calibrate(plan, epsilon=1.0, delta=1e-5)) for plan in plans}
    assert len(charged) == 1


def test_batch_norm_is_refused_before_anything_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def settings(self: DPSGD) -> tuple[str, dict[str, object]]:
        return "wide-resnet", {"depth": 10, "widen": 1, "norm": "batch"}

    monkeypatch.setattr(DPSGD, "_architecture", settings)
    recording = Recording()
    noise, tape = recording.recorder()
    private = PrivateImages.seal(toy(40, side=8), Ledger(Budget(math.inf, 1e-4)), noise=noise, tape=tape)
    with pytest.raises(UsageError, match="without batch norm"):
        DPSGD(epochs=1.0).fit(private, None)
    private.close()
    assert not recording.answers


@pytest.mark.parametrize(
    ("arch", "techniques", "sentence"),
    [
        ("cnn", "ws", "cnn cannot have ws"),
        ("cnn", "obs,gn", "cnn cannot have gn"),
        ("resnet18", "gn,ws", "resnet18 cannot have ws"),
        ("resnet18", "obs", "resnet18 has gn always"),
        ("wrn-16-4", "gn,dropout", "got dropout"),
        ("wrn-16-4", "GN", "got GN"),
    ],
)
def test_techniques_that_do_not_fit_are_refused(arch: str, techniques: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as refusal:
        DPSGD(arch=arch, techniques=techniques)
    assert refusal.value.fix


def test_names_may_have_spaces_and_none_is_none() -> None:
    assert DPSGD(techniques=" gn , ws").switched_on() == {"gn", "ws"}
    assert DPSGD(techniques="none").switched_on() == DPSGD(techniques="").switched_on() == set()
    assert DPSGD(techniques=",".join(TECHNIQUES)).switched_on() == set(TECHNIQUES)


@pytest.mark.parametrize(
    ("arch", "on"), [("wrn-16-4", "obs,gn,ws,am,pa"), ("resnet18", "obs,gn,am,pa"), ("cnn", "obs,am,pa")]
)
def test_without_a_word_on_techniques_an_architecture_has_those_that_fit(arch: str, on: str) -> None:
    assert DPSGD(arch=arch).switched_on() == set(on.split(","))


def test_the_global_seed_has_no_part_in_it() -> None:
    made = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        made.append(weights(trained(replace(SMALL, techniques="am"))))
        assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], weights(trained(replace(SMALL, techniques="am", seed=1))))


def test_it_learns() -> None:
    source = halves(300)
    learner = DPSGD(arch="cnn", techniques="obs,am,pa", epochs=20, large_batch=60, averaging=0.9, rate=1.0)
    network = trained(learner, source).network
    with torch.no_grad():
        guesses = network(torch.from_numpy(source.pixels).float() / 255).argmax(1)
    assert (guesses.numpy() == source.labels).mean() > 0.7, "chance is a third"

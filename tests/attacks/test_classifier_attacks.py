"""Attacks on a classifier: formulas by hand, what an attack may look at, and an overfitted target that is caught."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.metrics import roc_auc_score
from torch import Tensor

from sfumato import contracts, data
from sfumato.attacks.attack_forest import AttackForest
from sfumato.attacks.attack_mlp import AttackMLP
from sfumato.attacks.lira import Lira
from sfumato.attacks.loss_threshold import LossThreshold
from sfumato.attacks.modified_entropy import ModifiedEntropy
from sfumato.attacks.shadow_forest import ShadowForest
from sfumato.attacks.shadow_mlp import ShadowMLP
from sfumato.contracts import ClassifierAttack
from sfumato.errors import DataError, NotApplicable, UsageError
from sfumato.judging.exposure import attack_classifier, expose, membership_probability
from sfumato.statistics.outputs import confidence, log_probability, modified_entropy
from sfumato.training.student import Schedule, outputs, train
from sfumato.values import Exposed, Images

EACH = 128  # members, and as many others
OVERFITTED = Schedule(arch="small-cnn", loss="labels", batch=32, least_batches=1, max_epochs=10)
HASTY = Schedule(arch="small-cnn", loss="labels", batch=16, least_batches=1, max_epochs=1)
ACROSS_FOLDS = [AttackMLP(hidden=(8,), iterations=50), AttackForest(trees=20, leaf=1)]
WITH_SHADOWS = [ShadowMLP(hidden=(8,), iterations=20), ShadowForest(trees=10), Lira()]
EVERY = [LossThreshold(), ModifiedEntropy(), *ACROSS_FOLDS, *WITH_SHADOWS]


def digits(count: int, *, skip: int = 0) -> Images:
    """Some digits, three in ten of them with a wrong label: what cannot be learnt must be remembered."""
    images = data.load("digits")  # writer after writer, so neighbours are not drawn alike
    rows = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[skip : skip + count]
    wrong = (torch.arange(count) % 10 < 3).long()
    return Images(
        images.pixels[rows], (images.labels[rows] + wrong * (1 + torch.arange(count) % 9)) % 10, images.classes
    )


def random_exposed(count: int, *, classes: int = 4, shadows: int = 6, seed: int = 0) -> Exposed:
    """Answers that say nothing about membership."""
    draw = torch.Generator().manual_seed(seed)
    return Exposed(
        logits=3 * torch.randn(count, classes, generator=draw),
        labels=torch.randint(classes, (count,), generator=draw),
        members=torch.randperm(count, generator=draw) < count // 2,
        shadow_logits=3 * torch.randn(shadows, count, classes, generator=draw),
        shadow_members=torch.rand(shadows, count, generator=draw) < 0.5,
    )


def of_two(confidences: Tensor) -> Tensor:
    """Logits of two classes so that class 0 has these confidences."""
    return torch.stack([confidences, torch.zeros_like(confidences)], -1)


def auc(exposed: Exposed, scores: Tensor) -> float:
    return roc_auc_score(exposed.members.numpy(), scores.numpy())


@pytest.fixture(scope="module")
def overfitted() -> Exposed:
    return expose(digits(EACH), digits(EACH, skip=EACH), OVERFITTED, shadows=6)


def test_formulas_by_hand() -> None:
    logits = torch.tensor([[0.7, 0.2, 0.1]] * 2, dtype=torch.float64).log() + 5
    labels = torch.tensor([0, 2])
    torch.testing.assert_close(confidence(logits, labels), torch.tensor([0.7 / 0.3, 0.1 / 0.9]).double().log())
    torch.testing.assert_close(log_probability(logits, labels), torch.tensor([0.7, 0.1]).double().log())
    first = -0.3 * math.log(0.7) - 0.2 * math.log(0.8) - 0.1 * math.log(0.9)
    second = -0.9 * math.log(0.1) - 0.7 * math.log(0.3) - 0.2 * math.log(0.8)
    expected = torch.tensor([first, second], dtype=torch.float64)
    torch.testing.assert_close(modified_entropy(logits, labels), expected)
    exposed = replace(random_exposed(2), logits=logits, labels=labels)
    torch.testing.assert_close(ModifiedEntropy().score(exposed), -expected)
    torch.testing.assert_close(LossThreshold().score(exposed), torch.tensor([0.7, 0.1]).double().log())


def test_modified_entropy_is_the_plain_formula_where_that_is_safe() -> None:
    exposed = random_exposed(200, classes=7)
    p = exposed.logits.double().softmax(1)
    own = torch.nn.functional.one_hot(exposed.labels, 7).bool()
    plain = torch.where(own, -(1 - p) * p.log(), -p * (1 - p).log()).sum(1)
    torch.testing.assert_close(modified_entropy(exposed.logits, exposed.labels), plain)


def test_formulas_keep_their_digits_where_the_network_is_sure() -> None:
    logits, right, wrong = torch.tensor([[60.0, 0.0]]), torch.tensor([0]), torch.tensor([1])
    assert log_probability(logits, right).item() == pytest.approx(-math.exp(-60), rel=1e-12)
    assert log_probability(logits, wrong).item() == pytest.approx(-60)
    # (1 - p) log p and p_c log(1 - p_c) are both about exp(-120).
    assert modified_entropy(logits, right).item() == pytest.approx(2 * math.exp(-120), rel=1e-9)
    assert modified_entropy(logits, wrong).item() == pytest.approx(120)
    huge = torch.tensor([[2e4, -2e4, 0.0]])
    assert confidence(huge, right).item() == pytest.approx(2e4)
    assert modified_entropy(huge, wrong).isfinite().all()


def lira_by_hand() -> Exposed:
    """Four shadows, three candidates: two in and two out, one in and three out, none in."""
    return Exposed(
        logits=of_two(torch.tensor([2.0, 1.0, 0.5])),
        labels=torch.zeros(3, dtype=torch.int64),
        members=torch.tensor([True, False, False]),
        shadow_logits=of_two(torch.tensor([[3.0, 4.0, 1.0], [5.0, 0.0, 2.0], [1.0, -1.0, 3.0], [-1.0, -2.0, 6.0]])),
        shadow_members=torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]]).bool(),
    )


def test_lira_by_hand_with_pooled_variances() -> None:
    # In: 3, 5 about 4; 4 about 4; one degree of freedom, 2 squares. Out: 1, -1 about 0; 0, -1, -2 about -1;
    # 1, 2, 3, 6 about 3; squares 2 + 2 + 14 over 1 + 2 + 3.
    inside, outside = math.sqrt(2 / 1), math.sqrt(18 / 6)
    everybody = norm(4, math.sqrt(2 / 3))  # 3, 5, 4: for the candidate that no shadow was trained on
    expected = [
        norm(4, inside).logpdf(2.0) - norm(0, outside).logpdf(2.0),
        norm(4, inside).logpdf(1.0) - norm(-1, outside).logpdf(1.0),
        everybody.logpdf(0.5) - norm(3, outside).logpdf(0.5),
    ]
    assert Lira().score(lira_by_hand()).tolist() == pytest.approx(expected)


def test_lira_takes_a_candidates_own_variance_where_it_has_shadows_enough() -> None:
    outside = (math.sqrt(2 / 1), math.sqrt(2 / 2), math.sqrt(14 / 3))
    inside = norm(4, math.sqrt(2)), norm(4, math.sqrt(2)), norm(4, math.sqrt(2 / 3))
    means, targets = (0, -1, 3), (2.0, 1.0, 0.5)
    expected = [i.logpdf(t) - norm(m, s).logpdf(t) for i, m, s, t in zip(inside, means, outside, targets, strict=True)]
    assert Lira(own_variance=2).score(lira_by_hand()).tolist() == pytest.approx(expected)


def test_lira_survives_shadows_that_agree_and_a_single_one() -> None:
    exposed = lira_by_hand()
    same = replace(exposed, shadow_logits=torch.ones_like(exposed.shadow_logits))
    assert Lira().score(same).isfinite().all()
    single = replace(exposed, shadow_logits=exposed.shadow_logits[:1], shadow_members=exposed.shadow_members[:1])
    assert Lira().score(single).isfinite().all()


@pytest.mark.parametrize("attack", ACROSS_FOLDS, ids=str)
def test_random_answers_give_an_attack_across_folds_nothing(attack: ClassifierAttack) -> None:
    """A forest with single records in its leaves reaches 1.0 on records that it was trained on."""
    exposed = random_exposed(600)
    assert 0.42 < auc(exposed, attack.score(exposed)) < 0.58


@pytest.mark.parametrize("attack", ACROSS_FOLDS, ids=str)
def test_a_score_does_not_depend_on_the_candidates_own_membership(attack: ClassifierAttack) -> None:
    exposed = random_exposed(120)
    before = attack.score(exposed)
    for candidate in (0, 17, 119):
        members = exposed.members.clone()
        members[candidate] ^= True
        after = attack.score(replace(exposed, members=members))
        assert after[candidate] == before[candidate]
        assert 0.3 < (after == before).double().mean() < 0.7  # its fold is the same, and the other one learnt from it


@pytest.mark.parametrize("attack", [LossThreshold(), ModifiedEntropy(), *WITH_SHADOWS], ids=str)
def test_other_attacks_do_not_look_at_memberships(attack: ClassifierAttack) -> None:
    exposed = random_exposed(60)
    assert attack.score(exposed).equal(attack.score(replace(exposed, members=~exposed.members)))


@pytest.mark.parametrize("attack", EVERY, ids=str)
def test_it_does_not_matter_how_candidates_are_listed(attack: ClassifierAttack) -> None:
    exposed = random_exposed(120)
    order = torch.randperm(120, generator=torch.Generator().manual_seed(1))
    listed_anew = Exposed(
        exposed.logits[order],
        exposed.labels[order],
        exposed.members[order],
        exposed.shadow_logits[:, order],
        exposed.shadow_members[:, order],
    )
    torch.testing.assert_close(attack.score(listed_anew), attack.score(exposed)[order], rtol=1e-9, atol=1e-9)


def test_attacks_leave_the_global_randomness_alone() -> None:
    before, numpys = torch.get_rng_state(), np.random.get_state()[1].copy()
    for attack in EVERY:
        attack.score(random_exposed(60))
    assert torch.get_rng_state().equal(before)
    assert (np.random.get_state()[1] == numpys).all()


def test_an_attack_without_what_it_needs_says_so() -> None:
    exposed = random_exposed(60, shadows=0)
    for attack in WITH_SHADOWS:
        with pytest.raises(NotApplicable, match="Expected shadow classifiers"):
            attack.score(exposed)
    for attack in ACROSS_FOLDS:
        with pytest.raises(NotApplicable, match="one kind alone"):
            attack.score(replace(exposed, members=torch.ones(60, dtype=torch.bool)))
    for attack in EVERY:
        with pytest.raises(DataError, match="finite"):
            attack.score(replace(exposed, logits=exposed.logits / 0))


def test_attacks_are_run_by_name_and_left_out_where_they_do_not_apply() -> None:
    exposed = random_exposed(60, shadows=0)
    without = attack_classifier(exposed, attacks=("loss-threshold", "modified-entropy", "lira"))
    assert list(without) == ["loss-threshold", "modified-entropy"]
    assert without["loss-threshold"].equal(LossThreshold().score(exposed))
    with pytest.raises(UsageError, match="which attacks a release of images"):
        attack_classifier(exposed, attacks=("nearest-neighbour",))


def test_membership_probability_by_hand() -> None:
    """Losses 1e-6, 1e-3 and 1 lie in the first, the middle and the last bin."""
    losses = torch.tensor([1e-6] * 4 + [1e-3] * 2 + [1.0] * 3, dtype=torch.float64)
    members = torch.tensor([1, 1, 1, 0, 1, 1, 0, 0, 1]).bool()  # six members, three others
    exposed = replace(
        random_exposed(9), logits=of_two(-torch.expm1(losses).log()), labels=torch.zeros(9).long(), members=members
    )
    first, last = (3 / 6) / (3 / 6 + 1 / 3), (1 / 6) / (1 / 6 + 2 / 3)
    assert membership_probability(exposed).tolist() == pytest.approx([first] * 4 + [1.0] * 2 + [last] * 3)


def test_membership_probability_where_losses_are_alike() -> None:
    exposed = replace(random_exposed(8), labels=torch.zeros(8).long())
    assert membership_probability(replace(exposed, logits=torch.ones(8, 3))).tolist() == [0.5] * 8
    sure = of_two(torch.linspace(100, 700, 8, dtype=torch.float64))
    assert membership_probability(replace(exposed, logits=sure)).tolist() == [0.5] * 8
    alone = replace(exposed, members=torch.ones(8, dtype=torch.bool))
    assert membership_probability(alone).tolist() == [1.0] * 8


def test_exposing_trains_the_target_on_members_and_shadows_on_halves() -> None:
    members, others = digits(40), digits(60, skip=40)
    before = torch.get_rng_state()
    exposed = expose(members, others, HASTY, shadows=2, seed=3)
    assert torch.get_rng_state().equal(before)
    assert exposed.members.tolist() == [True] * 40 + [False] * 40
    assert (exposed.shadow_members.sum(0) == 1).all()
    assert exposed.shadow_members.sum(1).tolist() == [40, 40]
    target = train(members, HASTY, seed=3, what="target")
    torch.testing.assert_close(exposed.logits[:40], outputs(target, members.pixels))
    drawn = others.pixels[torch.randperm(60, generator=torch.Generator().manual_seed(3))[:40]]
    pool = torch.cat([members.pixels, drawn])
    half = exposed.shadow_members[0]
    shadow = train(Images(pool[half], exposed.labels[half], members.classes), HASTY, seed=4, what="shadow")
    torch.testing.assert_close(exposed.shadow_logits[0], outputs(shadow, pool))
    assert exposed.shadow_logits.equal(expose(members, others, HASTY, shadows=2, seed=3).shadow_logits)


def test_exposing_takes_as_many_members_as_others() -> None:
    exposed = expose(digits(50), digits(20, skip=50), HASTY, shadows=0)
    assert exposed.members.tolist() == [True] * 20 + [False] * 20
    assert exposed.shadow_logits.shape == (0, 40, 10)
    assert exposed.shadow_members.shape == (0, 40)
    with pytest.raises(UsageError, match="0 or more shadows"):
        expose(digits(50), digits(20), HASTY, shadows=-1)
    with pytest.raises(DataError, match="got 50 and 0"):
        expose(digits(50), digits(0), HASTY)


def test_an_overfitted_target_is_caught_by_all_and_best_by_lira(overfitted: Exposed) -> None:
    found = {name: auc(overfitted, scores) for name, scores in attack_classifier(overfitted).items()}
    there = {name: contracts.find("attacks", name) for name in contracts.names("attacks")}
    assert set(found) == {name for name, attack in there.items() if issubclass(attack, ClassifierAttack)}
    assert min(found.values()) > 0.7, found
    assert found["lira"] > 0.85, found
    assert max(found, key=found.__getitem__) == "lira", found
    assert auc(overfitted, membership_probability(overfitted)) > 0.7


def test_a_target_that_saw_neither_gives_nothing_away(overfitted: Exposed) -> None:
    """Those that learn from shadows are slow, and in the conformance tests."""
    candidates = torch.cat([digits(EACH).pixels, digits(EACH, skip=EACH).pixels])
    independent = train(digits(EACH, skip=2 * EACH), OVERFITTED, seed=0, what="independent")
    exposed = replace(overfitted, logits=outputs(independent, candidates))
    quick = ("loss-threshold", "modified-entropy", "attack-mlp", "attack-forest", "lira")
    found = {name: auc(exposed, scores) for name, scores in attack_classifier(exposed, attacks=quick).items()}
    assert set(found) == set(quick)
    assert all(0.4 < area < 0.6 for area in found.values()), found

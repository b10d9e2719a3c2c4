"""What every attack on a classifier is held to, the moment its file exists."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from sfumato import contracts, data
from sfumato.contracts import ClassifierAttack
from sfumato.judging.exposure import expose
from sfumato.training.student import Schedule, outputs, train
from sfumato.values import Exposed, Images

EACH = 128  # members, and as many others
SCHEDULE = Schedule(arch="small-cnn", loss="labels", batch=32, least_batches=1, max_epochs=10)
ATTACKS = contracts.names_of("attacks", ClassifierAttack)


@pytest.fixture(scope="module")
def thirds() -> list[Images]:
    """Members, others and records that are neither; three labels in ten are wrong, so a target must memorise them."""
    images = data.load("digits")
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    numbers = torch.arange(EACH)
    wrong = torch.where(numbers % 10 < 3, 1 + numbers % 9, 0)
    parts = order[: 3 * EACH].split(EACH)
    return [Images(images.pixels[rows], (images.labels[rows] + wrong) % 10, images.classes) for rows in parts]


@pytest.fixture(scope="module")
def overfitted(thirds: list[Images]) -> Exposed:
    members, others, _ = thirds
    return expose(members, others, SCHEDULE, shadows=6)


@pytest.fixture(scope="module")
def unconcerned(thirds: list[Images], overfitted: Exposed) -> Exposed:
    """The same candidates, and a target that saw none of them."""
    members, others, neither = thirds
    target = train(neither, SCHEDULE, seed=0, what="unconcerned target")
    return replace(overfitted, logits=outputs(target, torch.cat([members.pixels, others.pixels])))


def area(exposed: Exposed, scores: Tensor) -> float:
    assert scores.shape == exposed.labels.shape
    assert scores.isfinite().all()
    return roc_auc_score(exposed.members.numpy(), scores.numpy())


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_catches_an_overfitted_target_and_no_other(
    name: str, overfitted: Exposed, unconcerned: Exposed
) -> None:
    attack = contracts.find("attacks", name)()
    assert area(overfitted, attack.score(overfitted)) > 0.6
    assert 0.4 < area(unconcerned, attack.score(unconcerned)) < 0.6

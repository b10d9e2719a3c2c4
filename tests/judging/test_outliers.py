"""Removal of outliers: who is removed, what is measured again, the onion, and that it says what it is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from judging.released import meaningless
from sfumato.errors import DataError, NotApplicable, UsageError
from sfumato.judging.outliers import NOT_PRIVATE, Onion, lira_risk, membership_risk, remove_outliers
from sfumato.values import Groups, Images, Reference

CLASSES = ("left", "right")


def halves(count: int, seed: int) -> Images:
    """Images bright on the side that the label says, under noise; each is different from all others."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    side = (torch.arange(4) >= 2).long()[None, :] == labels[:, None]  # (n, 4)
    light = 80 + 60 * side[:, None, :] + 30 * torch.randn(count, 4, 4, generator=draw)
    return Images(light.clamp(0, 255).to(torch.uint8)[:, None], labels, CLASSES)


def spoilt(count: int = 80, wrong: int = 8) -> Reference:
    """The first so many training records have the wrong label."""
    train = halves(count, 0)
    labels = torch.where(torch.arange(count) < wrong, 1 - train.labels, train.labels)
    return Reference(replace(train, labels=labels), halves(80, 1))


class Copying(nn.Module):
    """It answers a training image with its label, and any other by the brighter side: perfect memory."""

    def __init__(self, images: Images) -> None:
        super().__init__()
        known = zip(images.pixels, images.labels.tolist(), strict=True)
        self.known = {image.numpy().tobytes(): label for image, label in known}

    def forward(self, images: Tensor) -> Tensor:
        bright = images[:, 0, :, 2:].mean((1, 2)) - images[:, 0, :, :2].mean((1, 2))
        logits = torch.stack([-bright, bright], 1) * 8
        pixels = (255 * images).round().to(torch.uint8)
        for row, image in enumerate(pixels):
            label = self.known.get(image.contiguous().numpy().tobytes())
            if label is not None:
                logits[row] = torch.tensor([6.0, -6.0]) if label == 0 else torch.tensor([-6.0, 6.0])
        return logits


def copying(images: Images, seed: int) -> nn.Module:
    return Copying(images)


def by_place(ranks: dict[bytes, float]) -> object:
    """Risks that are known beforehand, by image."""

    def risk(network: nn.Module, members: Images, others: Images) -> Tensor:
        return torch.tensor([ranks[image.numpy().tobytes()] for image in members.pixels])

    return risk


def test_the_riskiest_are_removed_in_rounds_and_all_others_measured_again() -> None:
    real = spoilt()
    ranks = {image.numpy().tobytes(): float(number) for number, image in enumerate(real.train.pixels)}
    trained_on: list[tuple[int, int]] = []

    def train(images: Images, seed: int) -> nn.Module:
        trained_on.append((len(images), seed))
        return Copying(images)

    study = remove_outliers(real, train, each=5, rounds=2, risk=by_place(ranks), seed=7)
    assert study.removed.tolist() == [79, 78, 77, 76, 75, 74, 73, 72, 71, 70]
    assert trained_on == [(80, 7), (75, 7), (70, 7)]
    assert [(done.removed, done.records) for done in study.rounds] == [(0, 80), (5, 75), (10, 70)]
    assert [done.mean_risk for done in study.rounds] == [pytest.approx(39.5), pytest.approx(37), pytest.approx(34.5)]
    assert study.rounds[0].onion is None
    # these risks do not depend on the training: the next five have the same before and after
    assert study.rounds[1].onion == Onion(5, 72, 72)
    assert study.rounds[2].onion == Onion(5, 67, 67)


def test_the_onion_by_hand() -> None:
    """A record becomes riskier by 10 when those above it are gone."""
    real = spoilt()
    numbers = {image.numpy().tobytes(): number for number, image in enumerate(real.train.pixels)}

    def risk(network: nn.Module, members: Images, others: Images) -> Tensor:
        gone = len(real.train) - len(members)
        return torch.tensor([float(numbers[image.numpy().tobytes()] + 10 * (gone > 0)) for image in members.pixels])

    study = remove_outliers(real, copying, each=4, rounds=1, risk=risk)
    onion = study.rounds[1].onion
    assert onion == Onion(4, before=(75 + 74 + 73 + 72) / 4, after=(85 + 84 + 83 + 82) / 4)
    assert onion.rise == 10


def test_figures_are_those_of_the_network_of_each_round() -> None:
    """The copyist knows every training label, so it is caught; its accuracy on others is that of the brighter side."""
    study = remove_outliers(spoilt(), copying, each=8, rounds=1)
    first, second = study.rounds
    assert first.auc > 0.9
    assert first.accuracy.value > 0.9
    assert first.bias is None, "grey images without groups"
    assert first.accuracy.value == second.accuracy.value
    assert second.auc > 0.9
    assert second.mean_risk > 0.5


def test_bias_is_measured_where_there_are_groups() -> None:
    real = spoilt()
    grouped = replace(real, groups=Groups(("g", "h"), torch.arange(80) // 40, torch.arange(80) // 40))
    study = remove_outliers(grouped, copying, each=4)
    assert all(done.bias is not None and 0 <= done.bias.value < 0.2 for done in study.rounds)


def linear(images: Images, seed: int) -> nn.Module:
    """A linear layer after some steps on all images; the seed changes nothing: it begins at zero."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(images.pixels[0].numel(), len(images.classes)))
    for parameter in network.parameters():
        nn.init.zeros_(parameter)
    optimizer = torch.optim.Adam(network.parameters(), 0.05)
    for _ in range(150):
        loss = nn.functional.cross_entropy(network(images.unit()), images.labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network.eval()


def test_lira_puts_records_with_wrong_labels_first() -> None:
    real = spoilt()
    risk = lira_risk(linear, shadows=8)
    ranks = risk(linear(real.train, 0), real.train, real.test).argsort(descending=True)
    assert ranks.shape == (80,)
    assert len(set(ranks[:16].tolist()) & set(range(8))) >= 6, "a wrong label must be memorised"
    study = remove_outliers(real, linear, each=8, rounds=1, risk=risk)
    assert study.rounds[1].accuracy.value > study.rounds[0].accuracy.value


def test_the_default_risk_is_the_membership_probability() -> None:
    real = meaningless()
    assert real.test is not None
    risks = membership_risk(linear(real.train, 0), real.train, real.test)
    assert risks.shape == (len(real.train),)
    assert ((risks >= 0) & (risks <= 1)).all()
    study = remove_outliers(real, linear, each=10)
    assert study.rounds[0].mean_risk == pytest.approx(float(risks.mean()))
    assert set(study.removed.tolist()) == set(risks.argsort(descending=True, stable=True)[:10].tolist())


def test_the_study_says_that_removal_is_not_private() -> None:
    study = remove_outliers(spoilt(), copying, each=4)
    assert "not private" in NOT_PRIVATE
    assert study.limit == NOT_PRIVATE
    text = study.text()
    assert text.startswith("PRIVATE")
    assert NOT_PRIVATE in text
    assert text.count("\n| ") == 4  # head, line, and two rounds
    assert "| 4 | 76 |" in text


def test_what_cannot_be_studied_is_refused() -> None:
    real = spoilt()
    with pytest.raises(NotApplicable, match="test split"):
        remove_outliers(replace(real, test=None), copying, each=4)
    for each, rounds in ((0, 1), (4, 0)):
        with pytest.raises(UsageError, match="at least 1 round and 1 record"):
            remove_outliers(real, copying, each=each, rounds=rounds)
    with pytest.raises(DataError, match="got 0 and 80"):
        remove_outliers(real, copying, each=40)
    with pytest.raises(DataError, match="got 72 and 0"):
        remove_outliers(replace(real, test=real.train), copying, each=4)
    for shadows in (0, 3):
        with pytest.raises(UsageError, match="even number of shadows"):
            lira_risk(linear, shadows=shadows)

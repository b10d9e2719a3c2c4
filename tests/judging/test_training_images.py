"""Where a release has images for transfer, training by logits uses those, and training by labels the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest
import torch

from metrics.digits import reference
from release.making import make_certificate
from sfumato.errors import UsageError
from sfumato.judging import attack, selection
from sfumato.metrics import equalised_odds, model_bias
from sfumato.release import write_release
from sfumato.statistics import panels
from sfumato.training.student import Schedule, training_images, with_hard_labels
from sfumato.values import Images


class Trained(Exception):
    """With which images a classifier would have been trained, and how."""


def stop(images: Images, schedule: Schedule, **_: object) -> NoReturn:
    raise Trained(images, schedule)


def digits(*, transfer: bool) -> Images:
    train = reference().train.rows(torch.arange(120))
    further = Images(255 - train.pixels, train.labels, train.classes, torch.nn.functional.one_hot(train.labels).float())
    return replace(train, transfer=further if transfer else None)


@pytest.mark.parametrize("loss", [None, "logits", "kl", "labels"])
def test_one_function_chooses_the_images(loss: str | None) -> None:
    both, alone = digits(transfer=True), digits(transfer=False)
    assert training_images(alone, loss) is alone
    assert training_images(both, loss) is (both if loss == "labels" else both.transfer)
    soft = replace(alone, logits=both.transfer.logits)
    assert training_images(soft, loss) is soft
    assert training_images(both, loss, "data") is both
    assert training_images(both, loss, "transfer") is both.transfer
    assert with_hard_labels(replace(soft, transfer=both.transfer)) == with_hard_labels(soft)
    assert with_hard_labels(soft).logits is None
    if loss in ("logits", "kl"):
        with pytest.raises(UsageError, match="Expected the loss labels"):
            training_images(both, loss, "all")
        return
    everything = training_images(both, loss, "all")
    assert torch.equal(everything.pixels, torch.cat([both.pixels, both.transfer.pixels]))
    assert torch.equal(everything.labels, torch.cat([both.labels, both.transfer.labels]))
    assert everything.logits is None


def select(images: Images, folder: Path) -> object:
    return selection.select_classifier(
        write_release(folder / "r", images, make_certificate(images)), "digits", epsilon=1.0
    )


TESTED = SimpleNamespace(images=digits(transfer=False), views=[])  # nothing is trained here, so it is not read
TRAINING: dict[str, tuple[object, Callable[[Images, Path], object]]] = {
    "selection": (selection, select),
    "attacks on a student": (attack, lambda images, folder: attack._attack_student((), images, None, None)),
    "equalised odds": (panels, lambda images, folder: equalised_odds.EqualisedOdds()._answers(images, TESTED)),
    "model bias": (panels, lambda images, folder: model_bias.ModelBias()._answers(images, TESTED)),
}


@pytest.mark.parametrize("transfer", [True, False])
@pytest.mark.parametrize("who", TRAINING)
def test_every_caller_trains_on_those(
    who: str, transfer: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, run = TRAINING[who]
    monkeypatch.setattr(module, "train", stop)
    images = digits(transfer=transfer)
    with pytest.raises(Trained) as trained:
        run(images, tmp_path)
    seen, schedule = trained.value.args
    source = images.transfer if transfer else images
    known = {row.numpy().tobytes() for row in source.pixels}
    assert all(row.numpy().tobytes() in known for row in seen.pixels)
    assert (seen.logits is not None) is transfer
    assert schedule == Schedule.short(schedule.arch, soft=transfer, images_seen=schedule.images_seen)

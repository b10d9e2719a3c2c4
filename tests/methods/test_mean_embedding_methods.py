"""What holds for every method that matches a mean embedding: one charge, determinism, unusual classes, utility."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sfumato.contracts import Synthesizer
from sfumato.methods.dp_hp import DPHP
from sfumato.methods.dp_kernel import DPKernel
from sfumato.methods.dp_mepf import DPMEPF
from sfumato.methods.dp_merf import DPMERF
from sfumato.methods.dp_ntk import DPNTK
from sfumato.privacy import Budget, Ledger, PrivateImages

from toys import ToySource, digits, digits_known, expect_randomness_of_its_own, fitted, halves

TINY: dict[str, Synthesizer] = {
    "dp-merf": DPMERF(frequencies=200, length_scales=(0.3,), steps=5, batch=96, latent=4, hidden=64, codes=4),
    "dp-hp": DPHP(sets=40, steps=5, batch=48, latent=4, hidden=32, codes=4),
    "dp-ntk": DPNTK(width=6, grid=4, steps=3, batch=48, latent=3, hidden=16, codes=4),
    "dp-kernel": DPKernel(frequencies=60, glimpse=20, steps=3, batch=48, latent=3, hidden=16, codes=4),
    "dp-mepf": DPMEPF("scattering", steps=5, batch=48, latent=4, hidden=32, codes=4),
}
# Fewer steps than the defaults to save time, images that a classifier is trained on, its least accuracy on digits.
UTILITY: dict[str, tuple[dict[str, int], int, float]] = {
    "dp-merf": ({"steps": 200}, 1_000, 0.7),  # 0.83 when measured
    "dp-hp": ({"steps": 200}, 1_500, 0.7),  # 0.83
    "dp-ntk": ({"steps": 200}, 1_000, 0.75),  # 0.85
    "dp-kernel": ({}, 1_000, 0.75),  # 0.83
    "dp-mepf": ({"steps": 100}, 1_500, 0.7),  # 0.82
}


def unusual_classes() -> dict[str, ToySource]:
    """The same pictures in other classes: one of them empty, one alone, many."""
    source = halves()
    return {
        "an empty class": ToySource(source.pixels, np.where(source.labels == 1, 0, source.labels), source.spec.classes),
        "one class alone": ToySource(source.pixels, source.labels * 0, ("only",)),
        "many classes": ToySource(source.pixels, np.arange(300) % 50, tuple(map(str, range(50)))),
    }


@pytest.mark.parametrize("name", TINY)
def test_one_charge_of_one_round_pays_for_every_class(name: str) -> None:
    source, ledger = halves(), Ledger(Budget(1.0, 1e-4))
    private = PrivateImages.seal(source, ledger)
    sampler = TINY[name].fit(private, None)
    assert [charge.mechanism.rounds for charge in ledger.charges] == [1]
    private.close()
    assert sampler(torch.tensor([2, 0, 1, 1])).classes == source.spec.classes


@pytest.mark.parametrize("name", TINY)
def test_the_same_answers_give_the_same_bytes_whatever_the_global_seed(name: str) -> None:
    expect_randomness_of_its_own(TINY[name], halves())


@pytest.mark.parametrize("case", unusual_classes())
@pytest.mark.parametrize("name", TINY)
def test_an_empty_class_one_class_alone_and_many_work(name: str, case: str) -> None:
    source = unusual_classes()[case]
    images = fitted(TINY[name], source, 1.0, count=150)
    assert len(images) == 150
    assert set(images.labels.tolist()) == set(range(len(source.spec.classes)))


@pytest.mark.parametrize("name", TINY)
def test_a_record_is_more_like_its_class_than_like_another_or_than_noise_is(name: str) -> None:
    source = halves()
    private = PrivateImages.seal(source, Ledger(Budget(100.0, 1e-4)))
    likeness = TINY[name].fit(private, None).likeness
    private.close()
    images, labels = torch.from_numpy(source.pixels) / 255, torch.from_numpy(source.labels)
    noise = torch.rand(images.shape, generator=torch.Generator().manual_seed(0)).round()
    with torch.no_grad():
        own, other = likeness(images, labels).mean(), likeness(images, (labels + 1) % 3).mean()
        assert own > max(other, likeness(noise, labels).mean())


@pytest.mark.parametrize("name", UTILITY)
def test_a_classifier_learns_digits(name: str) -> None:
    quicker, count, least = UTILITY[name]
    source = digits()[0]
    method = replace(type(TINY[name]).for_task(source.spec, Budget(10.0, 1e-4)), **quicker)
    assert digits_known(fitted(method, source, 10.0, count=count)) > least

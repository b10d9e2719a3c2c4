"""P3GM: bounded rows, noise that is taken off, a mixture that follows the data, and nothing exact in the model."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from sfumato.errors import UsageError
from sfumato.methods.p3gm import (
    P3GM,
    LatentMixture,
    clipped,
    cosine_waves,
    denoised_eigenvalues,
    m_step,
    packed,
    positive_definite,
    responsibilities,
    shrunk_towards,
    unpacked,
)
from sfumato.privacy import Budget, Ledger, PrivateImages
from sfumato.values import Spec

from toys import ToySource, digits, digits_known, expect_randomness_of_its_own, fitted, fitted_sampler, halves

DIGITS = tuple("0123456789")
NETWORK = P3GM(components=2, decoder="network", steps=3, sampling=0.5)


def test_the_norm_of_a_packed_row_is_the_squared_norm_of_its_vector() -> None:
    draw = torch.Generator().manual_seed(0)
    for x in (*torch.randn(20, 7, generator=draw), torch.eye(7)[3], torch.zeros(7)):
        assert packed(x, 0.5).norm().item() == pytest.approx(x.square().sum().item() + 0.25, rel=1e-5)


def test_no_entry_is_released_twice_and_all_come_back() -> None:
    x = torch.tensor([1.0, -2.0, 3.0])
    assert len(packed(x, 2.0)) == 4 * 5 // 2
    u = torch.tensor([1.0, -2.0, 3.0, 2.0])
    torch.testing.assert_close(unpacked(packed(x, 2.0)[None].double())[0], torch.outer(u, u).double())


def test_a_row_by_hand() -> None:
    assert packed(torch.tensor([3.0]), 2.0).tolist() == pytest.approx([9.0, 6 * math.sqrt(2), 4.0])


def test_no_latent_and_no_image_is_longer_than_its_bound() -> None:
    assert clipped(torch.full((4,), 1e6), 3.0).norm().item() == pytest.approx(3.0)
    assert clipped(torch.tensor([1.0, 2.0]), 3.0).tolist() == [1.0, 2.0]
    encoder = fitted_sampler(P3GM(components=1), halves(), 1.0)._decoder.encoder
    for image in (torch.zeros(1, 8, 8), torch.ones(1, 8, 8), torch.rand(1, 8, 8, generator=torch.Generator())):
        assert encoder(image).norm().item() <= encoder.longest * (1 + 1e-6)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 8), (1, 28, 28), (3, 64, 64)])
def test_waves_are_orthonormal_and_begin_with_the_longest(shape: tuple[int, int, int]) -> None:
    waves = cosine_waves(shape, 100)
    torch.testing.assert_close(waves @ waves.T, torch.eye(len(waves)), atol=1e-5, rtol=0)
    torch.testing.assert_close(waves[0], torch.full_like(waves[0], 1 / math.sqrt(math.prod(shape))))
    if math.prod(shape) == 64:
        torch.testing.assert_close(waves.T @ waves, torch.eye(64), atol=1e-5, rtol=0)


def test_shrinkage_finds_a_spike_in_noise_and_nothing_in_noise_alone() -> None:
    draw = torch.Generator().manual_seed(0)
    size, noise = 200, 0.1
    matrix = torch.randn(size, size, generator=draw, dtype=torch.float64)
    pure = noise * (matrix + matrix.T) / math.sqrt(2)
    assert int((denoised_eigenvalues(pure, noise)[0] > 0).sum()) <= 2  # the edge itself wavers a little
    direction = torch.nn.functional.normalize(torch.randn(size, generator=draw, dtype=torch.float64), dim=0)
    edge = 2 * noise * math.sqrt(size)
    values, vectors = denoised_eigenvalues(pure + 1.5 * edge * torch.outer(direction, direction), noise)
    # y = s + (edge/2)^2 / s and sqrt(y^2 - edge^2) = s - (edge/2)^2 / s
    assert values[0].item() == pytest.approx(edge * (1.5 - 1 / 6), rel=0.08)
    assert (vectors[:, 0] @ direction).square().item() == pytest.approx(1 - 1 / 9, abs=0.05)


def test_what_is_mostly_noise_gives_way_to_the_prior() -> None:
    draw = torch.Generator().manual_seed(0)
    found = torch.randn(50, 30, generator=draw)
    assert shrunk_towards(torch.zeros(50, 30), found, torch.ones(50), dims=1).square().mean() < 0.15
    assert torch.equal(shrunk_towards(torch.zeros(50, 30), found, torch.zeros(50), dims=1), found)


def test_beliefs_are_those_of_bayes() -> None:
    mixture = LatentMixture(
        torch.tensor([[1.0, 3.0]]).double(),
        torch.tensor([[[0.0], [2.0]]]).double(),
        torch.tensor([[[[1.0]], [[4.0]]]]).double(),
        torch.zeros(1, 2),
    )
    densities = torch.tensor([1 * math.exp(-0.5), 3 / 2 * math.exp(-1 / 8)])
    got = responsibilities(mixture)(torch.tensor([1.0]), torch.tensor(0))
    torch.testing.assert_close(got, densities / densities.sum())


def test_components_add_up_to_their_class() -> None:
    whole = torch.tensor([[2.0, 0.3], [0.3, 1.0]]).double()
    classes = LatentMixture(torch.ones(1, 1), torch.zeros(1, 1, 2).double(), whole[None, None], torch.zeros(1, 1))
    means = torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]]).double()
    loud = torch.full((1, 2), 1e3).double()  # covariances that say nothing, beside exact means
    found = LatentMixture(torch.ones(1, 2).double(), means, torch.zeros(1, 2, 2, 2).double(), loud)
    made = m_step(found, classes, 1e9, 1e-6)
    between = torch.einsum("ja,jb->ab", made.means[0], made.means[0]) / 2
    torch.testing.assert_close(made.covariances[0, 1] + between, whole)
    assert torch.linalg.eigvalsh(positive_definite(-whole, 0.1)).min().item() == pytest.approx(0.1)


@pytest.mark.parametrize("decoder", ["linear", "network"])
@pytest.mark.parametrize("components", [1, 2])
def test_samples_follow_the_data_without_noise(decoder: str, components: int) -> None:
    source = halves()
    wide = P3GM(components=components, reach=1.0, radius=3.0, coefficients=64)
    method = replace(wide, decoder=decoder, steps=20, sampling=0.5, learning_rate=0.05)
    images = fitted(method, source, math.inf)
    for c in range(3):
        theirs = torch.from_numpy(source.pixels[source.labels == c]).float().mean(0) / 255
        assert (images.unit()[images.labels == c].mean(0) - theirs).abs().mean() < 0.03


def test_the_network_begins_as_the_linear_decoder_and_learns_beyond_it() -> None:
    source, held_out, _ = digits()
    method = P3GM(components=1, latent=8, decoder="network", steps=60, sampling=0.3, learning_rate=0.05)
    sampler = fitted_sampler(method, source, math.inf)
    painter, pixels = sampler._decoder, torch.from_numpy(held_out).float() / 255
    z = torch.stack([painter.encoder(image) for image in pixels])
    trained = (painter.images(z) - pixels.flatten(1)).square().mean()
    with torch.no_grad():
        painter.last.weight.zero_()
    torch.testing.assert_close(painter(z), z @ painter.encoder.directions.T)
    linear = (painter.images(z) - pixels.flatten(1)).square().mean()
    assert trained < 0.97 * linear


@pytest.mark.parametrize(("decoder", "epsilon"), [("linear", 10.0), ("network", math.inf)])
def test_released_digits_teach(decoder: str, epsilon: float) -> None:
    source = digits()[0]
    method = replace(P3GM.for_task(source.spec, Budget(epsilon, 1e-4)), decoder=decoder, steps=60)
    assert digits_known(fitted(method, source, epsilon, count=1_500)) > 0.75


def test_the_mean_in_the_model_is_as_noisy_as_was_paid_for() -> None:
    """The public code keeps the exact mean of the private images; here a small budget hides it."""
    source = halves()
    exact = torch.from_numpy(source.pixels).float().flatten(1).mean(0) / 255
    errors = []
    for epsilon in (math.inf, 0.05):
        encoder = fitted_sampler(P3GM(components=1, reach=1.0), source, epsilon)._decoder.encoder
        errors.append((encoder.mean @ encoder.waves + encoder.centre - exact).norm().item())
    assert errors[0] < 1e-2
    assert errors[1] > 1.0


def test_what_is_not_used_is_not_paid_for() -> None:
    spec = halves().spec
    assert [m.rounds for m in P3GM(components=1).plan(spec)] == [1, 1]
    assert [m.rounds for m in P3GM(components=2, rounds=3).plan(spec)] == [1, 4]
    ledger = Ledger(Budget(math.inf, 1e-4))
    NETWORK.fit(PrivateImages.seal(halves(), ledger), None)
    assert [c.purpose for c in ledger.charges] == [
        "how images vary around their mean, over all classes",
        "mean and spread of compressed images, by class",
        "gradients of the decoder",
    ]


def test_the_same_answers_give_the_same_bytes_whatever_the_global_seed() -> None:
    expect_randomness_of_its_own(NETWORK, halves())


@pytest.mark.parametrize("epsilon", [0.2, 10.0])
def test_colour_an_empty_class_and_many_classes_are_no_trouble(epsilon: float) -> None:
    rng = np.random.default_rng(0)
    source = ToySource(rng.integers(0, 256, (90, 3, 16, 12)), np.arange(90) % 40, tuple(map(str, range(50))))
    images = fitted_sampler(P3GM(components=2, coefficients=60), source, epsilon)(torch.tensor([49, 0, 3]))
    assert images.pixels.shape == (3, 3, 16, 12)
    assert images.labels.tolist() == [49, 0, 3]


def test_defaults_follow_public_facts() -> None:
    few, many = Spec(1_400, 1, 8, 8, DIGITS), Spec(60_000, 1, 28, 28, DIGITS)
    assert P3GM.for_task(few, Budget(1.0, 1e-4)).components == 1
    assert P3GM.for_task(many, Budget(1.0, 1e-5)).components == 1
    assert P3GM.for_task(many, Budget(math.inf, 1e-5)).components == 10
    assert P3GM().seconds(few) < P3GM().seconds(many)


@pytest.mark.parametrize(
    "setting",
    [
        {"decoder": "deep"},
        {"coefficients": 631},
        {"latent": 0},
        {"centre": 1.5},
        {"reach": 0.0},
        {"sampling": 1.1},
        {"pca_share": -1.0},
        {"radius": math.nan},
        {"seed": -1},
    ],
)
def test_bad_settings_are_refused(setting: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="Expected"):
        P3GM(**setting)

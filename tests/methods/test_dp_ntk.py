"""DP-NTK: gradients in closed form and of unit length, and an embedding of all records."""

from __future__ import annotations

import math

import pytest
import torch

from sfumato.errors import UsageError
from sfumato.methods.dp_ntk import DPNTK, LARGEST_ANSWER, SineNetwork, grid_averages
from sfumato.privacy import Budget, Ledger, PrivateImages, SeededNoise
from sfumato.synthesis.embedding import squared_mmd
from sfumato.values import Spec

from toys import ToySource, toy

TINY = DPNTK(width=6, grid=4, steps=3, batch=48, latent=3, hidden=16, codes=4)


def network(width: int = 5, side: int = 4, seed: int = 0) -> SineNetwork:
    directions = torch.randn(width, 3 * side * side, generator=torch.Generator().manual_seed(seed))
    return SineNetwork(directions, grid_averages(Spec(1, 3, side, side, ("a",)), 2), 0.7)


def written_out(net: SineNetwork, images: torch.Tensor) -> torch.Tensor:
    """The features as rows: the outer products that the method never makes of its own images."""
    units, inputs = net.factors(images)
    return (units[..., :, None] * inputs[..., None, :]).flatten(-2)


def by_autograd(net: SineNetwork, image: torch.Tensor) -> torch.Tensor:
    """The same network as a network: the gradient of its output with respect to v, b and a, at unit length."""
    m = len(net.directions)
    weights = torch.zeros(2 * m, len(net.coarse)).double().requires_grad_()
    phases = torch.cat([torch.zeros(m), torch.full((m,), math.pi / 2)]).double().requires_grad_()
    signs = torch.randint(2, (2 * m,), generator=torch.Generator().manual_seed(1)).double() * 2 - 1
    outer = (net.outer * signs).requires_grad_()
    centred = image.double() - 0.5
    angles = net.directions.double().repeat(2, 1) @ centred + weights @ net.coarse.double() @ centred + phases
    output = outer @ torch.cos(angles)
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(output, (weights, phases, outer))])
    return gradient / gradient.norm()


def sealed(data: ToySource, epsilon: float) -> PrivateImages:
    return PrivateImages.seal(data, Ledger(Budget(epsilon, 1e-4)), noise=SeededNoise(0))


def test_the_closed_form_has_the_inner_products_of_the_networks_gradients():
    net = network()
    images = torch.rand(7, 48, generator=torch.Generator().manual_seed(2))
    gradients = torch.stack([by_autograd(net, image) for image in images]).float()
    features = written_out(net, images)
    torch.testing.assert_close(features @ features.T, gradients @ gradients.T)


def test_the_kernel_is_the_fourier_kernel_times_a_linear_one():
    net = SineNetwork(torch.randn(20_000, 12, generator=torch.Generator().manual_seed(3)) / 2, torch.eye(12), 0.5)
    x, y = torch.rand(2, 12, generator=torch.Generator().manual_seed(4))
    (u, v), (s, t) = zip(net.factors(x), net.factors(y), strict=True)
    gaussian = math.exp(-(x - y).square().sum() / (2 * 4))
    linear = [0.25 * float((a - 0.5) @ (b - 0.5)) + 1.25 for a, b in ((x, y), (x, x), (y, y))]
    assert float((u @ v) * (s @ t)) == pytest.approx(gaussian * linear[0] / math.sqrt(linear[1] * linear[2]), abs=0.02)


def test_rows_have_unit_norm_for_every_image():
    images = torch.rand(30, 192, generator=torch.Generator().manual_seed(5))
    images[0], images[1], images[2] = 0, 1, 0.5
    torch.testing.assert_close(written_out(network(9, 8), images).norm(dim=1), torch.ones(30))


def test_cells_are_orthonormal_means_and_a_fine_grid_is_every_pixel():
    spec = Spec(1, 3, 7, 10, ("a",))
    coarse = grid_averages(spec, 3)
    torch.testing.assert_close(coarse @ coarse.T, torch.eye(27))
    first = torch.zeros(3, 7, 10)
    first[0, :3, :4] = 1 / math.sqrt(12)  # rows 0-2 and columns 0-3 of red
    torch.testing.assert_close(coarse[0], first.flatten())
    assert torch.equal(grid_averages(spec, 99), torch.eye(210))


def test_means_and_distance_are_those_of_the_features_written_out():
    net = network()
    images = torch.rand(3, 8, 48, generator=torch.Generator().manual_seed(6))
    rows = written_out(net, images)
    mean = net.mean_gradients(images)
    torch.testing.assert_close(mean.flatten(1), rows.mean(1))
    target = torch.randn(3, rows.shape[-1], generator=torch.Generator().manual_seed(7)) / 10
    b = images.shape[1]
    ours = (b * mean.square().sum((-2, -1)) - 1) / (b - 1) - 2 * (mean.flatten(1) * target).sum(-1)
    torch.testing.assert_close(ours, squared_mmd(rows, target) - target.square().sum(-1))


def test_the_embedding_is_of_all_records_and_not_of_the_first_batch():
    data = toy(6_000, side=8)  # more than the 5,000 of the public code's only batch
    data.pixels[5_000:] = 255 - data.pixels[5_000:] // 8  # and the rest is different
    net = TINY.network(data.spec, torch.Generator().manual_seed(0))
    embedding, reliability = TINY.release(sealed(data, math.inf), net)
    records = torch.from_numpy(data.pixels).float().flatten(1) / 255
    for c in range(3):
        wanted = written_out(net, records[data.labels == c]).mean(0)
        first = written_out(net, records[:5_000][data.labels[:5_000] == c]).mean(0)
        torch.testing.assert_close(embedding[c].flatten(), wanted, atol=1e-5, rtol=1e-4)
        assert (wanted - first).norm() > 0.05
    assert reliability.tolist() == [1, 1, 1]


def test_the_noise_goes_down_with_the_size_of_a_class():
    def noise(count: int) -> float:
        data = toy(count, side=8)
        net = TINY.network(data.spec, torch.Generator().manual_seed(0))
        noisy, clean = (TINY.release(sealed(data, epsilon), net)[0] for epsilon in (10.0, math.inf))
        return float((noisy - clean).std())

    assert noise(600) / noise(6_000) == pytest.approx(10, rel=0.2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"width": 0},
        {"grid": 0},
        {"steps": 0},
        {"length_scales": ()},
        {"length_scales": (0.1, -1.0)},
        {"count_share": 0.0},
        {"outer_weight": 0.0},
        {"learning_rate": 0.0},
        {"seed": 2**31},
    ],
)
def test_bad_settings_are_refused(wrong: dict[str, object]):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        DPNTK(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("classes", [2, 10, 100])
@pytest.mark.parametrize("side", [8, 28, 64])
def test_the_answer_stays_moderate(side: int, classes: int):
    spec = Spec(60_000, 3, side, side, ("a",) * classes)
    method = DPNTK.for_task(spec, Budget(1.0, 1e-5))
    net = method.network(spec, torch.Generator())
    assert method.row(spec) == 2 * len(net.directions) * (len(net.coarse) + 1)
    assert method.row(spec) * classes <= LARGEST_ANSWER

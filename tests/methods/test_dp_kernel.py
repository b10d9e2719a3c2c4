"""DP-Kernel: the released function is f_D plus a path of the process, and its noise is part of every gradient."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from sfumato.errors import UsageError
from sfumato.methods.dp_kernel import DPKernel, Witness, features
from sfumato.privacy import Budget, Ledger, PrivateImages, SeededNoise
from sfumato.values import Spec

from toys import ToySource

TINY = DPKernel(frequencies=60, glimpse=20, steps=3, batch=48, latent=3, hidden=16, codes=4)


def source(count: int = 300, classes: int = 3) -> ToySource:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 1, 8, 8))
    return ToySource(pixels, np.arange(count) % classes, tuple(map(str, range(classes))))


def released(method: DPKernel, data: ToySource, epsilon: float, noise_seed: int = 0) -> tuple[Witness, torch.Tensor]:
    private = PrivateImages.seal(data, Ledger(Budget(epsilon, 1e-4)), noise=SeededNoise(noise_seed))
    made = method.release(private, torch.Generator().manual_seed(method.seed))
    private.close()
    return made


def noise_of(epsilon: float) -> float:
    (mechanism,) = Ledger(Budget(epsilon, 1e-4)).calibrate(*TINY.plan(source().spec))
    return mechanism.noise_multiplier


def gradients(witness: Witness, images: torch.Tensor) -> torch.Tensor:
    images = images.clone().requires_grad_()
    return torch.autograd.grad(witness.loss(images).sum(), images)[0].flatten()


def test_a_record_has_unit_norm_in_the_rkhs():
    draw = torch.Generator().manual_seed(0)
    images = torch.rand(50, 3 * 32 * 32, generator=draw)
    images[0], images[1] = 0, 1
    omega = torch.randn(123, 3 * 32 * 32, generator=draw)
    torch.testing.assert_close(features(images, omega).norm(dim=1), torch.ones(50))


def test_the_kernel_is_the_mean_of_the_published_gaussians():
    method = dataclasses.replace(TINY, frequencies=40_000)
    omega = method._frequencies(Spec(1, 1, 28, 28, ("a",)), torch.Generator().manual_seed(0))
    a = torch.rand(784, generator=torch.Generator().manual_seed(1))
    for far in (0.01, 0.05, 0.2):
        b = (a + far).clamp(0, 1)
        squared = (2 * a - 2 * b).square().sum()  # pixels in [-1, 1]
        kernel = torch.stack([torch.exp(-squared / (2 * s * s)) for s in (1, 2, 4, 8, 16)]).mean()
        torch.testing.assert_close(features(a, omega) @ features(b, omega), kernel, atol=0.02, rtol=0)


def test_without_noise_the_witness_is_the_mean_of_kernels_at_the_records():
    data = source(60)
    witness, reliability = released(TINY, data, math.inf)
    points = torch.rand(3, 5, 64, generator=torch.Generator().manual_seed(2))
    records = torch.from_numpy(data.pixels).float().flatten(1) / 255
    for c in range(3):
        kernel = features(records[data.labels == c], witness.omega) @ features(points[c], witness.omega).T
        torch.testing.assert_close(witness(points[c], torch.tensor(c)), kernel.mean(0), atol=1e-4, rtol=0)
    assert reliability.tolist() == [1, 1, 1]


def test_the_noise_is_a_path_of_the_process_with_the_kernel_as_covariance():
    classes, count, draws, epsilon = 100, 20_000, 10, 1.0  # each class of each draw is a path of its own
    method = dataclasses.replace(TINY, count_share=0.9999)  # sizes are then as good as known, and all else is noise
    data = source(count, classes)
    points = torch.rand(6, 64, generator=torch.Generator().manual_seed(3))
    points[1] = points[0] + 0.05 * (points[1] - points[0])
    everywhere, each = points.expand(classes, -1, -1), torch.arange(classes)[:, None]
    clean = released(method, data, math.inf)[0]
    paths = [
        released(method, data, epsilon, seed)[0](everywhere, each) - clean(everywhere, each) for seed in range(draws)
    ]
    spread = noise_of(epsilon) / (count / classes) / math.sqrt(1 - method.count_share)
    found = torch.cat(paths).T.cov() / spread**2
    wanted = features(points, clean.omega) @ features(points, clean.omega).T
    assert wanted[0, 1] > 0.7 > 0.4 > wanted[0, 2]  # near and far points
    torch.testing.assert_close(found, wanted, atol=5 / math.sqrt(classes * draws), rtol=0)


def test_asking_again_is_the_same_path_and_near_duplicates_are_no_way_around_it():
    witness, _ = released(TINY, source(), 1.0)
    images = torch.rand(3, 4, 64, generator=torch.Generator().manual_seed(4))
    images[:, 1] = images[:, 0]  # a covariance at these points is singular, where the public code drops its noise
    labels = torch.arange(3)[:, None]
    values = witness(images, labels)
    assert torch.equal(values, witness(images, labels))
    torch.testing.assert_close(values[:, 0], values[:, 1])
    clean, _ = released(TINY, source(), math.inf)
    assert (values - clean(images, labels)).abs().min() > 1e-4


def test_noise_is_part_of_the_gradient_and_the_clean_direction_is_not_in_it():
    images = torch.rand(3, 8, 64, generator=torch.Generator().manual_seed(5))
    clean = gradients(released(TINY, source(), math.inf)[0], images)
    noisy = torch.stack([gradients(released(TINY, source(), 0.2, seed)[0], images) for seed in range(4)])
    along = torch.nn.functional.cosine_similarity(noisy, clean[None]).abs()
    assert along.max() < 0.7  # the public code: 1 at any noise
    among = torch.corrcoef(noisy) - torch.eye(4)
    assert among.abs().max() < 0.7  # another draw, another direction


def test_the_loss_is_the_squared_distance_but_for_a_constant():
    witness, _ = released(TINY, source(60), math.inf)
    images = torch.rand(3, 7, 64, generator=torch.Generator().manual_seed(6))
    for c in range(3):
        kernel = features(images[c], witness.omega) @ features(images[c], witness.omega).T
        pairs = (kernel.sum() - kernel.trace()) / (7 * 6)
        torch.testing.assert_close(
            witness.loss(images)[c], pairs - 2 * witness(images[c], torch.tensor(c)).mean(), atol=1e-5, rtol=0
        )


def test_a_glimpse_is_right_on_average():
    witness, _ = released(TINY, source(60), 10.0)
    images = torch.rand(3, 7, 64, generator=torch.Generator().manual_seed(7))
    draw = torch.Generator().manual_seed(8)
    glimpses = torch.stack([witness.part(20, draw).loss(images) for _ in range(3_000)])
    error = (glimpses.mean(0) - witness.loss(images)).abs()
    assert (error < 4 * glimpses.std(0) / math.sqrt(3_000)).all()
    assert len(witness.part(20, draw).omega) == 20
    assert witness.part(10_000, draw) is witness


def test_the_labels_of_made_images_are_uniform_whatever_the_private_ones_are(monkeypatch: pytest.MonkeyPatch):
    from sfumato.synthesis import generator_training

    seen, original = [], generator_training.PatchGenerator.forward

    def watching(self: object, latents: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        seen.append(labels.bincount(minlength=3).tolist())
        return original(self, latents, labels)  # type: ignore[arg-type]

    monkeypatch.setattr(generator_training.PatchGenerator, "forward", watching)
    data = source()
    skewed = ToySource(data.pixels, np.where(np.arange(300) < 280, 0, data.labels), data.spec.classes)
    private = PrivateImages.seal(skewed, Ledger(Budget(1.0, 1e-4)))
    TINY.fit(private, None)
    assert seen == [[16, 16, 16]] * 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"frequencies": 0},
        {"glimpse": 0},
        {"steps": 0},
        {"widths": ()},
        {"widths": (1.0, 0.0)},
        {"count_share": 1.0},
        {"learning_rate": 0.0},
        {"seed": -1},
    ],
)
def test_bad_settings_are_refused(wrong: dict[str, object]):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        DPKernel(**wrong)  # type: ignore[arg-type]


def test_defaults_follow_public_facts():
    few, many = Spec(1_438, 1, 8, 8, ("a",) * 10), Spec(60_000, 1, 28, 28, ("a",) * 10)
    assert DPKernel.for_task(few, Budget(1.0, 1e-4)).seconds(few) < DPKernel.for_task(many, Budget(1.0, 1e-5)).seconds(
        many
    )

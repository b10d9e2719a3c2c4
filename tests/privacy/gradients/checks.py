"""The guarantees of the fast path as checks that raise when they do not hold."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.privacy import Budget, GaussianSum, Ledger, PrivateImages, Recording, noisy_gradient
from sfumato.privacy.gradients import fast_path, layers
from sfumato.standardised_convolution import StandardisedConv2d

from privacy.gradients.models import (
    BIG,
    batch,
    both,
    chosen_by_the_record,
    cross_entropy,
    flat_gradient,
    hostile,
    models,
    small_cnn,
    summed,
    wide_layers,
)
from toys import toy


def the_fast_path_equals_the_reference() -> None:
    for name, (model, shape) in models().items():
        data = batch(shape, 9)
        for clip in (True, False):
            fast, reference = (summed(rows, *data, clip=clip) for rows in both(model, shape))
            if clip:  # the fast path cuts a little shorter
                width = fast.numel()
                reference *= (1 - width**0.5 / BIG - fast_path.SLACK) / (1 - width**0.5 / BIG / 2 - 1e-5)
            assert float((fast - reference).norm() / reference.norm()) < 1e-4, (name, clip)


def several_versions_of_a_record_are_one_row() -> None:
    """Augmented at random in each evaluation, and as a batch within one evaluation."""

    def augmented(call: Callable[..., Tensor], image: Tensor, label: Tensor) -> Tensor:
        return cross_entropy(call, image + 0.5 * torch.randn(image.shape), label)

    def together(call: Callable[..., Tensor], image: Tensor, label: Tensor) -> Tensor:
        versions = torch.stack([image, image.flip(2), 0.5 * image])
        return F.cross_entropy(call(versions), label.expand(3))

    for loss, multiplicity in ((augmented, 3), (together, 1), (together, 2)):
        for name in ("cnn", "residual", "standardised", "twice"):
            model, shape = models()[name]
            rows = both(model, shape, loss, l2_bound=1e-3, multiplicity=multiplicity)
            fast, reference = (summed(kind, *batch(shape, 6), clip=False) for kind in rows)
            assert float((fast - reference).norm() / reference.norm()) < 1e-4, (name, multiplicity)
            moved = float(summed(rows[0], *batch(shape, 1), clip=True).norm()) / BIG
            assert 0.99 < moved <= 1, (name, multiplicity, moved)


def one_record_changes_a_fast_path_sum_by_at_most_its_bound() -> None:
    """Over hostile records whose inputs and output gradients are both theirs to choose."""
    worst = 0.0
    for seed in range(8):
        for name, (model, shape, loss) in chosen_by_the_record().items():
            for rows in both(model, shape, loss, l2_bound=(1.0, 1e-6)[seed % 2]):
                images, labels, present = hostile(shape, seed)
                whole = summed(rows, images, labels, present, clip=True)
                assert torch.isfinite(whole).all()
                for record in range(len(images)):
                    kept = present.clone()
                    kept[record] = False
                    moved = float((whole - summed(rows, images, labels, kept, clip=True)).norm()) / BIG
                    assert moved <= 1, (name, seed, record, moved)
                    worst = max(worst, moved)
    assert worst > 0.99, "the check must come near the bound to mean something"


def a_ghost_norm_is_never_too_small() -> None:
    """Where terms cancel, what is summed after scaling must still be within the bound."""
    for seed in range(200):
        generator = torch.Generator().manual_seed(seed)
        positions, wide = int(torch.randint(2, 9, (), generator=generator)) * 2, 200
        a = torch.randn(1, 1, wide, generator=generator).repeat(1, positions, 1) * 10.0 ** (seed % 7 - 3)
        a = a * (1 + 1e-7 * (seed % 3) * torch.randn(a.shape, generator=generator))
        g = torch.randn(1, 1, wide, generator=generator) * torch.tensor([1.0, -1.0]).repeat(positions // 2)[:, None]
        gradient = layers._ghost(a, g)
        assert (
            float(gradient.weighted_sum((1 / gradient.squared_norms.sqrt()).float()).norm()) < 1 + fast_path.SLACK / 2
        ), seed
        a, g = (
            torch.randn(1, positions, wide, generator=generator),
            torch.randn(1, positions, wide, generator=generator),
        )
        true = float((g.double().transpose(1, 2) @ a.double()).square().sum())
        assert 1 <= float(layers._ghost(a, g).squared_norms) / true < 1.001, seed


def a_standardised_norm_is_never_too_small() -> None:
    """Where a kernel's gradient lies along what standardisation takes out, so that little is left of it."""
    for seed in range(200):
        torch.manual_seed(seed)
        layer = StandardisedConv2d(24, 8, 3)
        kernel = layer.standardised(layer.weight.detach())[0].flatten(1)
        gone = (torch.ones_like(kernel), kernel, torch.ones_like(kernel) - 3 * kernel)[seed % 3]
        rows = (gone + 10.0 ** -(seed % 7) * torch.randn(gone.shape))[None] * 10.0 ** (seed % 5 - 2)
        gradient = layers._through_standardisation(layer, rows)["weight"]
        moved = float(gradient.weighted_sum((1 / gradient.squared_norms.sqrt()).float()).norm())
        assert moved < 1 + fast_path.SLACK / 2, seed
        assert seed % 7 > 1 or moved > 0.9, seed  # and not needlessly large


def a_wide_gradient_keeps_its_bound() -> None:
    """Layers of millions of weights, and records on which one float32 sum of their squares comes out too small."""
    for name, (layer, shape, loss) in wide_layers().items():
        images = torch.ones(3, *shape)
        images[0].view(-1)[:8] = 4100.0  # to its square, 2^24, a float32 cannot add the 1 of the others
        images[1].view(-1)[:16] = 3000.0
        images[2] = 0.01
        rows, _ = both(layer, shape, loss, l2_bound=1e-3)
        for record in range(3):
            one = images[record : record + 1], torch.zeros(1, dtype=torch.int64), torch.ones(1, dtype=torch.bool)
            moved = float(summed(rows, *one, clip=True).norm()) / BIG
            assert moved <= 1, (name, record, moved)
            assert moved > 0.99, (name, record, moved)


def absent_or_infinite_records_count_as_nothing() -> None:
    for name, (model, shape) in models().items():
        images, labels, present = batch(shape, 8)
        rows, _ = both(model, shape)
        expected = summed(rows, images[:5], labels[:5], present[:5], clip=True)
        images[5], images[6, 0, 0, 0], present[7] = torch.inf, torch.nan, False
        for clip in (True, False):
            alone = expected if clip else summed(rows, images[:5], labels[:5], present[:5], clip=False)
            got = summed(rows, images, labels, present, clip=clip)
            assert float((got - alone).norm()) <= 1e-5 * float(alone.norm()), name


def microbatches_do_not_change_a_fast_path_sum() -> None:
    data = toy(60, side=8)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.Tanh(), nn.Flatten(), nn.Linear(36, 3))
    found = []
    for microbatch in (1, 7, 60):
        private = PrivateImages.seal(data, Ledger(Budget(math.inf, 1e-5)))
        query = private.open(GaussianSum(noise_multiplier=0.0), purpose="m", microbatch=microbatch)
        noisy_gradient(query, model, cross_entropy, l2_bound=1.0)
        found.append(flat_gradient(model))
    assert torch.allclose(found[0], found[1], rtol=1e-4, atol=1e-7)
    assert torch.allclose(found[0], found[2], rtol=1e-4, atol=1e-7)


def a_fast_path_round_replays_on_a_neighbour() -> None:
    data = toy(40, side=8)
    data.pixels[3] = 255
    for record in (0, 3):
        recording = Recording()
        for source, (noise, tape) in ((data, recording.recorder()), (data.without(record), recording.player())):
            private = PrivateImages.seal(source, Ledger(Budget(math.inf, 1e-5)), noise=noise, tape=tape)
            query = private.open(GaussianSum(noise_multiplier=5.0), purpose="gradients")
            model = small_cnn()
            noisy_gradient(query, model, lambda call, x, y: 100 * cross_entropy(call, x, y), l2_bound=0.5)
        assert not recording.violations, recording.violations
        assert recording.worst > 0.9


CHECKS = [
    the_fast_path_equals_the_reference,
    several_versions_of_a_record_are_one_row,
    one_record_changes_a_fast_path_sum_by_at_most_its_bound,
    a_ghost_norm_is_never_too_small,
    a_standardised_norm_is_never_too_small,
    a_wide_gradient_keeps_its_bound,
    absent_or_infinite_records_count_as_nothing,
    microbatches_do_not_change_a_fast_path_sum,
    a_fast_path_round_replays_on_a_neighbour,
]

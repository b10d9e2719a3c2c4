"""Public networks: features of one image alone, a user's own network from its file, and what is refused."""

from __future__ import annotations

import logging
import logging.handlers
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from networks.exported import DIMENSIONS, AmongOthers, Tiny, export, name_of, seeded
from sfumato.errors import DataError, EnvironmentProblem, SfumatoError, UsageError
from sfumato.networks import efficientnet_lite0, public_network
from sfumato.networks.efficientnet_lite0 import LITE0_SHA256, PACKAGE
from sfumato.networks.public_network import LITE0, NetworkFeatures, certified_name, named_features, public_features

MISSING = "the weights' package is not installed"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("own") / "tiny.pt2", seeded())


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and a current folder without networks."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(public_network, "CACHE", tmp_path / "cache")
    return tmp_path / "cache"


def pictures(count: int, *shape: int) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(1))


def expect_features_of_one_image_alone(features: NetworkFeatures, images: Tensor) -> None:
    with torch.no_grad():
        made = features(images)
        mirrored = features(images.flip(3))
        alone = torch.func.vmap(lambda image: features(image[None])[0], chunk_size=4)(images)
    assert made.shape[1:] == features.shape
    assert torch.allclose(made.flatten(1).norm(dim=1), torch.ones(len(images)), atol=1e-4)
    assert torch.allclose(alone, made, atol=1e-4)
    assert torch.allclose(mirrored, made, atol=1e-5)
    assert (made[0] - made[1]).norm() > 1e-3, "another image has other features"


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (3, 48, 40)])
def test_features_by_lite0_have_length_one_and_are_of_one_image_alone(shape: tuple[int, int, int]) -> None:
    pytest.importorskip(PACKAGE, reason=MISSING)
    features = public_features(LITE0, shape)
    expect_features_of_one_image_alone(features, pictures(5, *shape))
    assert features.shape == (4 * (40 + 112 + 320), 1, 1)


def test_lite0_is_named_by_its_published_checksum() -> None:
    pytest.importorskip(PACKAGE, reason=MISSING)
    name = f"{LITE0}, SHA-256 {LITE0_SHA256}"
    assert certified_name(LITE0) == name
    assert named_features(name, (1, 8, 8)).shape[0] > 1_000


def test_lite0_without_its_package_is_refused_when_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficientnet_lite0, "has_lite0", lambda: False)
    for asked in (lambda: certified_name(LITE0), lambda: public_features(LITE0, (1, 8, 8))):
        with pytest.raises(EnvironmentProblem, match=f"Expected the package {PACKAGE}, .* got none") as refused:
            asked()
        assert "pip install" in refused.value.fix


@pytest.mark.parametrize("channels", [1, 3])
def test_features_by_ones_own_network_have_length_one_and_are_of_one_image_alone(own: Path, channels: int) -> None:
    features = public_features(str(own), (channels, 8, 8))
    assert features.shape == (DIMENSIONS, 1, 1)
    expect_features_of_one_image_alone(features, pictures(9, channels, 8, 8))
    assert not any(weights.requires_grad for weights in features.parameters())


def test_they_are_those_of_the_network_that_was_exported(own: Path) -> None:
    network, images = seeded(), pictures(3, 3, 8, 8)
    with torch.no_grad():
        expected = nn.functional.normalize(network(images) + network(images.flip(3)), dim=1)
        made = public_features(str(own), (3, 8, 8))(images).flatten(1)
    assert torch.allclose(made, expected, atol=1e-5)


def test_many_images_are_seen_in_parts(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    features, images = public_features(str(own), (3, 8, 8)), pictures(7, 3, 8, 8)
    whole = features(images)
    monkeypatch.setattr(public_network, "CHUNK", 3)
    assert torch.allclose(features(images), whole, atol=1e-6)


def test_an_exported_network_has_one_mode_and_works_in_inference_mode(own: Path) -> None:
    features = public_features(str(own), (3, 8, 8))
    images = pictures(2, 3, 8, 8)
    assert torch.equal(features.train()(images), features.eval()(images))
    with torch.inference_mode():
        assert features(images).isfinite().all()


def test_a_black_image_has_finite_features(own: Path) -> None:
    assert public_features(str(own), (1, 8, 8))(torch.zeros(1, 1, 8, 8)).isfinite().all()


def test_a_network_that_a_certificate_names_is_looked_for_in_the_cache_alone(
    own: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = name_of(own)
    assert certified_name(str(own)) == name
    monkeypatch.chdir(own.parent)  # a publisher could put a file beside a release, and loading it can run code
    with pytest.raises(UsageError, match=r"\.pt2"):
        named_features(name, (3, 8, 8))
    (cache / own.name).write_bytes(own.read_bytes())
    images = pictures(2, 3, 8, 8)
    assert torch.equal(named_features(name, (3, 8, 8))(images), public_features(str(own), (3, 8, 8))(images))


def test_another_network_of_the_same_name_is_refused(own: Path, cache: Path) -> None:
    export(cache / own.name, seeded(seed=1))
    then, now = name_of(own), name_of(cache / own.name)
    with pytest.raises(DataError) as refused:
        named_features(then, (3, 8, 8))
    # Both names with the first sixteen digits of their checksums, and no more.
    assert refused.value.what == f"Expected the public network {then[:-48]}..., got another ({now[:-48]}...)."
    assert "publisher" in refused.value.fix


def in_a_sentence(error: SfumatoError) -> bool:
    return error.what.startswith("Expected ") and error.what.endswith(".") and "\n" not in error.what


@pytest.mark.parametrize("network", ["nowhere.pt2", "lite0", "", "here"])
def test_a_network_that_is_not_there_is_refused(network: str) -> None:
    for asked in (lambda: certified_name(network), lambda: public_features(network, (1, 8, 8))):
        with pytest.raises(UsageError, match=f"Expected the network {LITE0}, or a file .* got '{network}'") as no:
            asked()
        assert in_a_sentence(no.value)
        assert "give the path of such a file" in no.value.fix


def test_a_file_of_another_kind_is_refused_by_its_ending(tmp_path: Path) -> None:
    torch.save(seeded().state_dict(), tmp_path / "weights.pt")
    with pytest.raises(UsageError, match=r"weights\.pt'"):
        certified_name(str(tmp_path / "weights.pt"))


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x05\x06" + bytes(18)], ids=["empty", "text", "empty archive"])
def test_a_file_that_is_no_network_is_refused_in_one_sentence(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger, logged = logging.getLogger("torch.export"), logging.handlers.BufferingHandler(1_000)
    monkeypatch.setattr(logger, "handlers", [*logger.handlers, logged])
    path = tmp_path / "net.pt2"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"network that torch\.export\.save wrote, got a file that is") as refused:
        public_features(str(path), (1, 8, 8))
    assert in_a_sentence(refused.value)
    assert refused.value.where == path
    assert not logged.buffer, "the loader's own traceback is not shown"
    assert not logger.disabled


def test_a_file_that_was_cut_short_is_refused(own: Path, tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(own.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"Expected a network that torch\.export\.save wrote"):
        public_features(str(path), (3, 8, 8))


class Maps(Tiny):
    def forward(self, images: Tensor) -> Tensor:
        return self.filters(images)


class Pair(Tiny):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images), images.mean((1, 2, 3))  # type: ignore[return-value]


class OneRow(Tiny):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).mean(0, keepdim=True)


class Double(Tiny):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).double()


class Infinite(Tiny):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) / 0


class Dropping(Tiny):
    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.dropout(super().forward(images), training=True)


WRONG: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "maps": (lambda: seeded(Maps), r"gives torch.float32 \(3, d\) for 3 images, got torch.float32 \(3, 6, 4, 4\)"),
    "two results": (lambda: seeded(Pair), r"gives torch.float32 \(3, d\) for 3 images, got tuple"),
    "one row for all": (lambda: seeded(OneRow), r"for 3 images, got torch.float32 \(1, 24\)"),
    "another precision": (lambda: seeded(Double), r"for 3 images, got torch.float64 \(3, 24\)"),
    "infinite features": (lambda: seeded(Infinite), "Expected a network that gives finite features"),
    "features that depend on the batch": (lambda: seeded(AmongOthers), "the same features alone and among others"),
    "dropout": (lambda: seeded(Dropping), "torch.func.vmap can map over images"),
    "a network in training mode": (lambda: seeded().train(), "torch.func.vmap can map over images"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_network_that_gives_something_else_is_refused(kind: str, tmp_path: Path) -> None:
    make, sentence = WRONG[kind]
    path = export(tmp_path / "net.pt2", make())
    with pytest.raises(DataError, match=sentence) as refused:
        public_features(str(path), (1, 8, 8))
    assert in_a_sentence(refused.value)
    assert refused.value.where == path
    assert "export" in refused.value.fix


def test_a_network_for_another_size_or_number_of_images_is_refused(own: Path, tmp_path: Path) -> None:
    fixed = export(tmp_path / "net.pt2", seeded(), dynamic=False)
    for path, side in ((own, 12), (fixed, 8)):
        with pytest.raises(DataError, match=rf"any number of images \(b, 3, {side}, {side}\), got: ") as refused:
            public_features(str(path), (1, side, side))
        assert in_a_sentence(refused.value)
        assert "dynamic batch size" in refused.value.fix

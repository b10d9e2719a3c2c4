"""The architectures of released classifiers: found by name, and clear errors for what cannot be built."""

from __future__ import annotations

import pytest
import torch

from sfumato.errors import UsageError
from sfumato.networks.models import Setting, build_model, model_architectures

SETTINGS: dict[str, dict[str, Setting]] = {
    "fixed-features": {"features": "scattering"},
    "private-cnn": {},
    "resnet18": {"width": 4},
    "wide-resnet": {"depth": 10, "widen": 1},
}


def test_every_architecture_is_found() -> None:
    assert set(model_architectures()) == set(SETTINGS), "give the settings of a new one here"


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (3, 20, 33)], ids=str)
@pytest.mark.parametrize("name", SETTINGS)
def test_it_gives_a_logit_for_each_class(name: str, shape: tuple[int, int, int]) -> None:
    network = build_model(name, shape, 5, SETTINGS[name])
    with torch.inference_mode():
        logits = network(torch.rand(2, *shape, generator=torch.Generator().manual_seed(0)))
    assert logits.shape == (2, 5)
    assert logits.isfinite().all()
    assert {tensor.dtype for tensor in network.state_dict().values()} == {torch.float32}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_state_is_all_that_it_takes_to_build_it_again(name: str) -> None:
    first, second = (build_model(name, (3, 16, 16), 4, SETTINGS[name]) for _ in range(2))
    second.load_state_dict(first.state_dict(), strict=True)
    images = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        assert torch.equal(first.eval()(images), second.eval()(images))


@pytest.mark.parametrize(
    ("name", "shape", "settings", "sentence"),
    [
        ("vit", (1, 8, 8), {}, "one of the architectures .*wide-resnet.*; got 'vit'"),
        ("", (1, 8, 8), {}, "got ''"),
        ("wide-resnet", (1, 8, 8), {}, "settings that wide-resnet has.*depth"),
        ("wide-resnet", (1, 8, 8), {"depth": 11, "widen": 1}, "a depth of 6 n"),
        ("wide-resnet", (1, 8, 8), {"depth": "ten", "widen": 1}, "settings that wide-resnet has"),
        ("wide-resnet", (1, 8, 8), {"depth": 10, "widen": 1, "norm": "layer"}, "the norm group, batch or none"),
        ("wide-resnet", (1, 8, 8), {"depth": 10, "widen": 1, "colour": True}, "colour"),
        ("private-cnn", (1, 7, 8), {}, "at least 8 x 8 pixels, got 7 x 8"),
        ("private-cnn", (1, 8, 8), {"width": 3}, "width"),
        ("fixed-features", (1, 8, 8), {}, "features"),
        ("fixed-features", (1, 8, 8), {"features": "wavelets"}, "scattering, photographs, network; got 'wavelets'"),
        ("fixed-features", (3, 7, 9), {"features": "photographs"}, "at least 8 x 8"),
        ("fixed-features", (1, 8, 8), {"features": "network"}, "the name of a public network"),
        ("fixed-features", (1, 8, 8), {"features": "scattering", "network": "x"}, "the name of a public network"),
        ("fixed-features", (1, 8, 8), {"features": "scattering", "hidden": -1}, "settings that fixed-features has"),
    ],
)
def test_what_cannot_be_built_is_a_clear_error(
    name: str, shape: tuple[int, int, int], settings: dict[str, Setting], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence) as refusal:
        build_model(name, shape, 3, settings)
    assert refusal.value.fix
    assert "\n" not in refusal.value.what

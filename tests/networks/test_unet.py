"""The U-Net: shapes, what it can be adapted by, and that it runs under vmap, record by record."""

from __future__ import annotations

import pytest
import torch
from torch.func import functional_call, grad, vmap

from sfumato.networks.unet import UNet
from sfumato.networks.unet_blocks import embedded_time


def network(**settings: int) -> UNet:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = UNet(4, **{"width": 8, **settings})
        for parameter in made.parameters():  # zeros would hide that something is not connected
            torch.nn.init.normal_(parameter, std=0.2)
    return made


def some(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("size", [(4, 4), (6, 10), (9, 5)])
@pytest.mark.parametrize("settings", [{}, {"levels": 3}, {"levels": 1}, {"blocks": 2}])
def test_it_predicts_what_has_the_shape_of_its_input(settings: dict[str, int], size: tuple[int, int]) -> None:
    prediction, features = network(**settings)(some(2, 4, *size), torch.tensor([0.1, 0.9]))
    assert prediction.shape == (2, 4, *size)
    assert features.shape[:2] == (2, 8 * 2 ** (settings.get("levels", 2) - 1))
    assert prediction.isfinite().all()


def test_the_map_is_applied_to_the_middle_block() -> None:
    unet, noisy, times = network(), some(2, 4, 8, 8), torch.tensor([0.1, 0.9])
    plain, features = unet(noisy, times)
    changed, halved = unet(noisy, times, lambda z: z / 2)
    torch.testing.assert_close(halved, features / 2)
    assert not torch.allclose(plain, changed)


def test_its_attention_projections_are_linear_layers() -> None:
    unet = network()
    assert len(unet.attention_projections) == 3 * 4  # before, in and after the middle
    assert all(isinstance(unet.get_submodule(name), torch.nn.Linear) for name in unet.attention_projections)


def test_gradients_of_single_records_under_vmap_are_those_of_each_alone() -> None:
    unet, noisy, times = network(), some(3, 4, 4, 4), torch.tensor([0.1, 0.5, 0.9])
    weights = dict(unet.named_parameters())

    def loss(values: dict[str, torch.Tensor], x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return functional_call(unet, values, (x[None], t[None]))[0].square().mean()

    together = vmap(grad(loss), in_dims=(None, 0, 0))(weights, noisy, times)
    alone = grad(loss)(weights, noisy[1], times[1])
    for name, value in alone.items():
        torch.testing.assert_close(together[name][1], value, rtol=1e-3, atol=1e-5)


def test_labels_change_the_prediction_and_each_has_a_row_of_its_own() -> None:
    unet, noisy, times = network(classes=3), some(4, 4, 4, 4), torch.full((4,), 0.5)
    same = noisy[:1].expand(4, -1, -1, -1)
    predictions, _ = unet(same, times, labels=torch.arange(4))  # the last stands for none
    apart = torch.cdist(predictions.flatten(1), predictions.flatten(1)) + torch.eye(4)
    assert (apart > 1e-3).all()
    assert unet.of_class.weight.shape[0] == 4


def test_the_waves_that_tell_the_time_can_be_slower() -> None:
    slow, fast = (embedded_time(torch.tensor([0.5, 0.501]), 16, fastest) for fastest in (16.0, 1000.0))
    assert (slow[0] - slow[1]).abs().max() < 0.1 < (fast[0] - fast[1]).abs().max()

"""SDEdit by hand: what strength, steps and guidance do (checklist 8)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from sfumato.errors import UsageError
from sfumato.synthesis.regeneration import BATCH, noised, regenerate


class Known:
    """A model whose latents are pixels and whose every image is the same; it writes down what it was asked."""

    signal = torch.linspace(0.999, 0.01, 100)

    def __init__(self, prompted: float = 100.0, unprompted: float = 100.0) -> None:
        self.prompted, self.unprompted = prompted, unprompted
        self.asked: list[tuple[int, bool]] = []

    def encode(self, pixels: Tensor) -> Tensor:
        return pixels.float() / 100

    def decode(self, latents: Tensor) -> Tensor:
        return (latents * 100).round().clamp(0, 255).to(torch.uint8)

    def denoise(
        self,
        noisy: Tensor,
        steps: Tensor,
        *,
        prompted: bool = True,
        through: Callable[[Tensor], Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The noise that is right if the clean image is of this brightness."""
        self.asked.append((int(steps[0]), prompted))
        brightness = torch.full_like(noisy, self.prompted if prompted else self.unprompted) / 100
        if through is not None:
            brightness = through(brightness)
        signal = self.signal[steps][:, None, None, None]
        return (noisy - signal.sqrt() * brightness) / (1 - signal).sqrt(), brightness

    @property
    def network(self) -> nn.Module:
        return nn.Identity()

    adaptable: tuple[str, ...] = ()


class Blind(Known):
    """It predicts no noise, so that what comes out shows what went in."""

    def denoise(self, noisy: Tensor, steps: Tensor, **how: object) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return torch.zeros_like(noisy), noisy


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(count: int = 3, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (count, 3, 4, 4), generator=draw(seed), dtype=torch.uint8)


def test_strength_zero_returns_the_images_without_asking() -> None:
    model = Known()
    assert torch.equal(regenerate(model, images(), strength=0, steps=50, generator=draw()), images())
    assert model.asked == []


def test_strength_one_forgets_the_images() -> None:
    made = [regenerate(Blind(), images(seed=s), strength=1, steps=5, generator=draw()) for s in (0, 1)]
    assert torch.equal(*made)
    less = [regenerate(Blind(), images(seed=s), strength=0.8, steps=5, generator=draw()) for s in (0, 1)]
    assert not torch.equal(*less)


@pytest.mark.parametrize(("strength", "steps", "taken"), [(0.75, 50, 37), (0.75, 20, 15), (1, 20, 20), (0.5, 1, 0)])
def test_so_many_steps_are_done(strength: float, steps: int, taken: int) -> None:
    model = Known()
    regenerate(model, images(), strength=strength, steps=steps, generator=draw())
    asked = [step for step, _ in model.asked]
    assert len(asked) == taken == int(strength * steps)
    assert asked == sorted(asked, reverse=True)
    if strength == 1:
        assert asked[0] == len(Known.signal) - 1


def test_a_right_prediction_leads_to_the_image_that_it_means() -> None:
    made = regenerate(Known(prompted=130), images(), steps=20, generator=draw())
    assert (made == 130).all()


def test_two_steps_of_ddim_by_hand() -> None:
    """Without predicted noise a step divides by the root of the signal and multiplies by that of the next."""
    model = Blind()
    model.signal = torch.tensor([0.81, 0.64, 0.49, 0.25])
    made = regenerate(model, images(), strength=0.5, steps=4, generator=draw())
    noise = torch.randn(3, 3, 4, 4, generator=draw())
    first = 0.8 * images().float() / 100 + 0.6 * noise  # at the second step, where the signal is 0.64
    assert torch.equal(made, model.decode(first / 0.8))


def test_noising_by_hand() -> None:
    model, x = Known(), torch.tensor([[2.0], [2.0]])
    model.signal = torch.tensor([0.81, 0.36])
    found = noised(model, x, torch.tensor([0, 1]), torch.ones(2, 1))
    torch.testing.assert_close(found, torch.tensor([[1.8 + 0.19**0.5], [1.2 + 0.8]]))


def test_guidance_goes_from_the_unprompted_prediction_through_the_prompted_one() -> None:
    made = regenerate(Known(100, 90), images(), steps=10, guidance=3, generator=draw())
    assert (made == 120).all()  # 90 + 3 (100 - 90)
    assert (regenerate(Known(100, 90), images(), steps=10, guidance=0, generator=draw()) == 90).all()


def test_a_guidance_of_one_makes_one_prediction_for_a_step() -> None:
    one, two = Known(100, 90), Known(100, 90)
    assert (regenerate(one, images(), steps=8, guidance=1, generator=draw()) == 100).all()
    regenerate(two, images(), steps=8, guidance=7.5, generator=draw())
    assert [prompted for _, prompted in one.asked] == [True] * 6
    assert [prompted for _, prompted in two.asked] == [True, False] * 6


def test_features_go_through_the_map_in_every_prediction() -> None:
    made = regenerate(Known(100, 60), images(), steps=8, guidance=2, through=lambda z: z / 2, generator=draw())
    assert (made == 70).all()  # 30 + 2 (50 - 30)


def test_one_image_for_one_image_by_the_seed_alone() -> None:
    many = images(BATCH + 5)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = regenerate(Blind(), many, steps=4, generator=draw())
    assert torch.equal(state, torch.get_rng_state())
    assert first.shape == many.shape
    assert first.dtype == torch.uint8
    assert torch.equal(first, regenerate(Blind(), many, steps=4, generator=draw()))
    assert not torch.equal(first, regenerate(Blind(), many, steps=4, generator=draw(1)))
    assert regenerate(Blind(), many[:0], steps=4, generator=draw()).shape == (0, 3, 4, 4)


@pytest.mark.parametrize("settings", [{"strength": 1.1}, {"strength": -0.1}, {"steps": 0}])
def test_settings_out_of_range_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="Expected st"):
        regenerate(Known(), images(), generator=draw(), **settings)  # type: ignore[arg-type]

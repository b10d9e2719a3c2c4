"""An adversarial pair: generated images weigh as much as records, and both networks go on where they were."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch.func import functional_call, grad

from sfumato.errors import UsageError
from sfumato.networks.conditional_discriminators import ProjectionDiscriminator
from sfumato.networks.generator import PatchGenerator
from sfumato.synthesis.adversarial_training import CROSS_ENTROPY, HINGE, AdversarialGAN, Adversary, Losses
from sfumato.synthesis.guided_generator import GuidedGenerator

SHAPE = (1, 8, 8)
SETTINGS = AdversarialGAN(
    l2_bound=0.1,
    rate=1e-3,
    generator_rate=1e-2,
    head_start=0.0,
    every=3,
    fakes=12,
    batch=12,
    averaging=0.9,
    diversity=0.0,
)


def drawn(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def guided() -> GuidedGenerator:
    generator = PatchGenerator(SHAPE, 2, latent=3, hidden=16, codes=4, draw=drawn())
    return GuidedGenerator(generator, 2, rate=0.02, steps=10, averaging=0.9, diversity=0.0, draw=drawn(1))


def discriminator() -> ProjectionDiscriminator:
    return ProjectionDiscriminator(SHAPE, 2, width=4, draw=drawn(2))


def gradient_of(adversary: Adversary, model: torch.nn.Module) -> torch.Tensor:
    parts = torch.autograd.grad(adversary.loss(model), list(model.parameters()))
    return torch.cat([part.flatten() for part in parts])


@pytest.mark.parametrize("losses", [HINGE, CROSS_ENTROPY])
def test_gradients_of_generated_images_are_bounded_one_by_one(losses: Losses) -> None:
    model, generator = discriminator(), guided()
    expected = []
    before = generator.state()
    images, labels = generator.fakes(SETTINGS.fakes)
    generator.restore(before)  # so that the adversary draws the same
    weights = dict(model.named_parameters())
    for image, label in zip(images, labels, strict=True):
        one = grad(lambda w, x=image, y=label: losses.fake(functional_call(model, w, (x[None], y[None])))[0])(weights)
        flat = torch.cat([part.flatten() for part in one.values()])
        expected.append(flat * (0.1 / flat.norm()).clamp(max=1))
        assert flat.norm() > 0.1
    ours = gradient_of(Adversary(generator, losses, SETTINGS, l2_bound=0.1), model)
    torch.testing.assert_close(ours, torch.stack(expected).mean(0), atol=1e-6, rtol=1e-4)


def test_without_a_bound_their_gradient_is_that_of_the_mean_loss() -> None:
    model, generator = discriminator(), guided()
    before = generator.state()
    images, labels = generator.fakes(SETTINGS.fakes)
    generator.restore(before)
    expected = torch.autograd.grad(HINGE.fake(model(images, labels)).mean(), list(model.parameters()))
    ours = gradient_of(Adversary(generator, HINGE, SETTINGS, l2_bound=math.inf), model)
    torch.testing.assert_close(ours, torch.cat([part.flatten() for part in expected]))


def test_losses_pull_scores_apart_and_the_generator_pulls_its_own_up() -> None:
    for losses in (HINGE, CROSS_ENTROPY):
        scores = torch.zeros(3, requires_grad=True)
        slopes = [torch.autograd.grad(of(scores).sum(), scores)[0] for of in (losses.real, losses.fake)]
        assert (slopes[0] < 0).all()
        assert torch.equal(slopes[0], -slopes[1])
        assert (torch.autograd.grad(losses.generator(scores).sum(), scores)[0] < 0).all()


def test_the_generator_steps_after_every_third_step_and_leaves_the_discriminator_alone() -> None:
    model, generator = discriminator(), guided()
    adversary = Adversary(generator, HINGE, SETTINGS, l2_bound=0.1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for step in range(7):
        adversary.step(model, step)
    assert generator.step == 2
    late = Adversary(generator, HINGE, SETTINGS, l2_bound=0.1, alone=4)
    for step in range(7):
        late.step(model, step)
    assert generator.step == 3  # of those two the first was too early
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())


def test_the_generator_learns_to_deceive() -> None:
    model, generator = discriminator(), guided()
    adversary = Adversary(generator, HINGE, SETTINGS, l2_bound=0.1)
    before = model(*generator.fakes(200)).mean().item()
    for step in range(30):
        adversary.step(model, step)
    assert model(*generator.fakes(200)).mean().item() > before


def test_it_goes_on_where_it_was_bit_by_bit() -> None:
    model = discriminator()
    whole, first, second = (Adversary(guided(), HINGE, SETTINGS, l2_bound=0.1) for _ in range(3))

    def run(adversary: Adversary, steps: range) -> None:
        for step in steps:
            adversary.loss(model)
            adversary.step(model, step)

    run(whole, range(12))
    run(first, range(5))
    second.restore({name: value.clone() for name, value in first.state().items()})
    run(second, range(5, 12))
    for one, other in zip(whole.state().values(), second.state().values(), strict=True):
        assert torch.equal(one, other)


def test_settings_outside_their_limits_are_refused() -> None:
    with pytest.raises(UsageError, match="every"):
        replace(SETTINGS, every=0)

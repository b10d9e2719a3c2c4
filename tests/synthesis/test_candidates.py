"""Candidate sources: shapes and ranges, degrees that matter, their own randomness, and what they refuse."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Generator, Tensor

from sfumato.errors import EnvironmentProblem, UsageError
from sfumato.synthesis.candidates import (
    CandidateSource,
    Pipeline,
    PublicImages,
    Simulator,
    blended,
    candidate_source,
    recoloured,
    warped,
)
from sfumato.values import Images, Spec

GREY, COLOUR, OBLONG = (Spec(9, c, h, w, ("a",)) for c, h, w in ((1, 28, 28), (3, 32, 32), (1, 8, 13)))


def draw(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def public(spec: Spec, count: int = 40) -> PublicImages:
    return PublicImages(torch.randint(0, 256, (count, *spec.shape), generator=draw(7), dtype=torch.uint8))


class StandIn:
    """The call of an image-to-image pipeline of diffusers, by its documented names; it adds noise of that strength."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[int, ...], float]] = []

    def __call__(
        self,
        *,
        prompt: list[str],
        image: Tensor,
        strength: float,
        num_inference_steps: int,
        generator: Generator,
        output_type: str,
    ) -> SimpleNamespace:
        assert output_type == "pt"
        assert len(prompt) == len(image)
        assert int(strength * num_inference_steps) >= 1
        assert 0 <= image.min() <= image.max() <= 1
        self.calls.append((tuple(image.shape), strength))
        noise = torch.rand(image.shape, generator=generator)
        return SimpleNamespace(images=torch.lerp(image, noise, strength))


def sources(spec: Spec) -> list[CandidateSource]:
    return [Simulator(), public(spec), Pipeline(StandIn(), side=16, batch=4)]


@pytest.mark.parametrize("spec", [GREY, COLOUR, OBLONG])
def test_images_have_the_shape_and_range_and_come_from_the_given_generator_alone(spec: Spec) -> None:
    before = torch.get_rng_state()
    for source in sources(spec):
        images = source.random(9, spec, draw())
        assert images.shape == (9, *spec.shape)
        assert images.dtype == torch.float32
        assert 0 <= images.min() <= images.max() <= 1
        assert torch.equal(images, source.random(9, spec, draw()))
        assert not torch.equal(images, source.random(9, spec, draw(1)))
        varied = source.vary(images, 0.5, draw())
        assert varied.shape == images.shape
        assert 0 <= varied.min() <= varied.max() <= 1
        assert torch.equal(varied, source.vary(images, 0.5, draw()))
        assert len(varied.flatten(1).unique(dim=0)) == 9
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("spec", [GREY, COLOUR])
def test_a_greater_degree_is_a_greater_change_and_none_is_none(spec: Spec) -> None:
    images = Simulator().random(300, spec, draw(3))
    for source in (Simulator(), public(spec)):
        changes = [(source.vary(images, degree, draw()) - images).abs().mean() for degree in (0.0, 0.1, 0.4, 1.0)]
        assert changes[0] < 1e-5
        assert changes[1] > 1e-3
        assert all(1.3 * small < large for small, large in pairwise(changes[1:]))


def test_varying_nothing_gives_nothing() -> None:
    for source in (Simulator(), public(GREY)):
        assert source.vary(torch.zeros(0, *GREY.shape), 0.5, draw()).shape == (0, *GREY.shape)


def test_public_images_are_all_dealt_before_any_comes_again() -> None:
    source = public(GREY)
    dealt = source.random(100, GREY, draw())
    as_pixels = dealt.mul(255).round().to(torch.uint8)
    assert len(as_pixels[:40].flatten(1).unique(dim=0)) == 40
    assert torch.equal(as_pixels[:40].flatten(1).unique(dim=0), source.pixels.flatten(1).unique(dim=0))
    assert len(as_pixels.flatten(1).unique(dim=0)) == 100
    with pytest.raises(UsageError, match="Expected public images of shape"):
        source.random(3, COLOUR, draw())


def test_simulated_pictures_differ_in_ground_brightness_shape_and_colour() -> None:
    grey = Simulator().random(400, GREY, draw())
    assert len(grey.flatten(1).unique(dim=0)) == 400
    black = (grey < 0.02).flatten(1).float().mean(1)
    assert 0.2 < (black > 0.3).float().mean() < 0.8  # black grounds are common, and not the rule
    assert grey.mean((1, 2, 3)).std() > 0.1
    assert grey.flatten(1).std(1).median() > 0.1
    colour = Simulator().random(200, COLOUR, draw())
    assert (colour.amax(1) - colour.amin(1)).mean() > 0.05


def test_a_move_without_degree_is_none_and_the_border_is_repeated() -> None:
    white = torch.ones(20, *GREY.shape)
    torch.testing.assert_close(warped(white, 1.0, draw()), white)
    images = torch.rand(20, *GREY.shape, generator=draw())
    torch.testing.assert_close(warped(images, 0.0, draw()), images, atol=1e-4, rtol=0)


def test_blending_stays_between_its_parents() -> None:
    images = torch.tensor([0.0, 1.0]).reshape(2, 1, 1, 1).repeat(200, 1, 4, 4)
    made = blended(images, 1.0, draw())
    away = (made - images).abs()[:, 0, 0, 0]
    assert 0.4 < away.max() <= 0.5
    assert 0.1 < (away > 0).float().mean() < 0.4  # half are blended, and half of those with one of the same kind


def test_a_tone_of_no_degree_changes_nothing() -> None:
    images = torch.rand(20, *COLOUR.shape, generator=draw())
    assert torch.equal(recoloured(images, 0.0, draw()), images)


def test_auto_is_public_images_where_there_are_some() -> None:
    some = Images(public(GREY).pixels, torch.zeros(40).long(), ("x",))
    none = Images(some.pixels[:0], some.labels[:0], ("x",))
    assert isinstance(candidate_source("auto", some), PublicImages)
    assert isinstance(candidate_source("auto", None), Simulator)
    assert isinstance(candidate_source("auto", none), Simulator)
    assert isinstance(candidate_source("simulator", some), Simulator)
    for missing in (None, none):
        with pytest.raises(UsageError, match="Expected public images"):
            candidate_source("public", missing)


def test_a_pipeline_is_called_as_documented_and_its_answer_brought_back() -> None:
    stand_in = StandIn()
    source = Pipeline(stand_in, side=32, batch=4, steps=20)
    images = torch.rand(6, *GREY.shape, generator=draw())
    varied = source.vary(images, 0.25, draw())
    assert stand_in.calls == [((4, 3, 32, 32), 0.25), ((2, 3, 32, 32), 0.25)]
    assert varied.shape == images.shape
    assert source.vary(images, 0.0, draw()).sub(images).abs().mean() < varied.sub(images).abs().mean()
    assert source.random(3, COLOUR, draw()).shape == (3, 3, 32, 32)
    assert stand_in.calls[-1] == ((3, 3, 32, 32), 1.0)


def test_a_pipeline_that_cannot_be_loaded_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for nowhere in ("", str(tmp_path / "nothing")):
        with pytest.raises(UsageError, match="Expected weights as the folder"):
            candidate_source("pipeline", None, nowhere)
    monkeypatch.setitem(sys.modules, "diffusers", None)  # as where it is not installed
    with pytest.raises(EnvironmentProblem, match="Expected the package diffusers"):
        candidate_source("pipeline", None, str(tmp_path))

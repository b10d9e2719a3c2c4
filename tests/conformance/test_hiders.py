"""What every hider is held to, the moment its file exists."""

from __future__ import annotations

import contextlib
import functools
import math
import re
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace

import pytest
import torch

from conformance.checking import SPECS
from sfumato import contracts
from sfumato.contracts import Checkpoints, Hider
from sfumato.errors import SfumatoError
from sfumato.values import Images, Rewriter, Spec

from toys import CheckpointsInMemory, KilledError, coloured_squares

HIDERS = list(contracts.names("hiding"))
TRAIN, VALIDATION, OTHERS = (coloured_squares(60).rows(torch.arange(*part)) for part in ((0, 36), (36, 45), (45, 60)))
TOY = Spec(60, 3, 16, 16, TRAIN.classes)
LEAST: dict[str, float] = {"updates": 4, "epochs": 1, "steps": 4, "width": 8}  # a few steps show the boundary


def hider_of(name: str, spec: Spec = TOY, **changed: object) -> Hider:
    """The hider as it is by default for a task, with fewer steps where it has such settings."""
    found = contracts.find("hiding", name)
    known = {f.name for f in fields(found)}
    return replace(found.for_task(spec), **{k: v for k, v in (LEAST | changed).items() if k in known})  # type: ignore[type-var]


def fitted(name: str, checkpoints: Checkpoints | None = None, **changed: object) -> Rewriter:
    return hider_of(name, **changed).fit(TRAIN, VALIDATION, checkpoints=checkpoints or CheckpointsInMemory())


def rewritten(rewriter: Rewriter, images: Images = OTHERS, seed: int = 0) -> torch.Tensor:
    return rewriter.rewrite(images, torch.Generator().manual_seed(seed))


@functools.cache
def usual(name: str) -> tuple[Rewriter, torch.Tensor]:
    """One training that several tests look at, and what it makes of images that trained nothing."""
    made = fitted(name)
    return made, rewritten(made)


@pytest.mark.parametrize("name", HIDERS)
def test_it_is_a_frozen_dataclass_with_defaults_from_public_facts(name: str) -> None:
    found = contracts.find("hiding", name)
    assert is_dataclass(found)
    for spec in (*SPECS, TOY, Spec(1, 1, 16, 16, ("a", "b"))):
        made = found.for_task(spec)
        assert found.for_task(spec) == made
        assert 0 < made.seconds(spec) < math.inf
        more = Spec(10 * spec.count, spec.channels, spec.height, spec.width, spec.classes)
        assert made.seconds(more) >= made.seconds(spec)
    with pytest.raises(AttributeError):
        found.for_task(TOY).seed = 1


@pytest.mark.parametrize("name", HIDERS)
def test_one_image_comes_out_for_one_image(name: str) -> None:
    rewriter, made = usual(name)
    assert made.dtype == torch.uint8
    assert made.shape == OTHERS.pixels.shape
    for few in (torch.arange(1), torch.arange(0)):
        assert rewritten(rewriter, OTHERS.rows(few)).shape == OTHERS.pixels[few].shape


@pytest.mark.parametrize("name", HIDERS)
def test_it_leaves_the_images_that_it_is_given_alone(name: str) -> None:
    pixels, labels = OTHERS.pixels.clone(), OTHERS.labels.clone()
    rewriter, _ = usual(name)
    rewritten(rewriter)
    assert torch.equal(pixels, OTHERS.pixels)
    assert torch.equal(labels, OTHERS.labels)


@pytest.mark.parametrize("name", HIDERS)
def test_what_it_makes_is_decided_by_its_seeds_alone(name: str) -> None:
    """The same bytes whatever the global seed, which is left alone; twice from one rewriter too."""
    rewriter, wanted = usual(name)
    assert torch.equal(rewritten(rewriter), wanted)
    torch.manual_seed(12345)
    before = torch.get_rng_state()
    assert torch.equal(rewritten(fitted(name)), wanted)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("name", HIDERS)
def test_the_draw_changes_what_it_makes(name: str) -> None:
    rewriter, made = usual(name)
    assert not torch.equal(rewritten(rewriter, seed=1), made)


@pytest.mark.parametrize("name", HIDERS)
def test_a_killed_training_goes_on_to_the_same_bytes(name: str) -> None:
    _, wanted = usual(name)
    kept = CheckpointsInMemory(lasting=1)
    with contextlib.suppress(KilledError):  # one that keeps nothing begins again
        fitted(name, kept)
    kept.lasting = None
    assert torch.equal(rewritten(fitted(name, kept)), wanted)
    finished = dict(kept.kept)
    assert torch.equal(rewritten(fitted(name, kept)), wanted)
    assert finished.keys() == kept.kept.keys()


@pytest.mark.parametrize("name", HIDERS)
def test_what_it_keeps_is_named_tensors(name: str) -> None:
    kept = CheckpointsInMemory()
    fitted(name, kept)
    for file, state in kept.kept.items():
        assert re.fullmatch(r"[a-z0-9-]+", file)
        assert all(isinstance(key, str) and type(value) is torch.Tensor for key, value in state.items())
        assert all(value.is_contiguous() and not value.requires_grad for value in state.values())


@pytest.mark.parametrize("name", HIDERS)
def test_what_it_tells_are_logits_of_every_class(name: str) -> None:
    rewriter, made = usual(name)
    if rewriter.tells is None:
        return
    logits = rewriter.tells(made)
    assert logits.shape == (len(OTHERS), len(TRAIN.classes))
    assert logits.isfinite().all()
    assert not logits.requires_grad
    assert torch.equal(logits, rewriter.tells(made))


@pytest.mark.parametrize("name", HIDERS)
def test_numbers_that_are_no_settings_are_refused(name: str) -> None:
    numbers = [f.name for f in fields(contracts.find("hiding", name)) if f.type in ("int", "float")]
    assert "seed" in numbers
    for setting in numbers:
        for value in (-1e12, math.inf, math.nan):
            with pytest.raises(SfumatoError, match=setting):
                hider_of(name, **{setting: value})


@pytest.mark.parametrize("name", HIDERS)
def test_it_takes_images_in_grey(name: str) -> None:
    grey = coloured_squares(24, channels=1)
    hider = hider_of(name, Spec(24, 1, 16, 16, grey.classes))
    rewriter = hider.fit(grey, grey.rows(torch.arange(6)), checkpoints=CheckpointsInMemory())
    assert rewritten(rewriter, grey).shape == grey.pixels.shape


@pytest.mark.parametrize("name", HIDERS)
def test_its_page_says_that_there_is_no_epsilon(name: str) -> None:
    found = contracts.find("hiding", name)
    text = f"{found.__doc__} {sys.modules[found.__module__].__doc__}"
    assert "epsilon" not in text.replace("there is no epsilon here", "").replace("There is no epsilon here", "")


class Careless(Hider):
    """A hider that does what none may: it draws from the global source, and forgets an image."""

    def __init__(self, fault: str) -> None:
        self.fault = fault

    @classmethod
    def for_task(cls, spec: Spec) -> Careless:
        return cls("")

    def seconds(self, spec: Spec) -> float:
        return 1.0

    def fit(self, train: Images, validation: Images, *, checkpoints: Checkpoints) -> Rewriter:
        noise = torch.randint(0, 9, train.pixels.shape[1:]) if self.fault == "global draw" else 0
        lost = 1 if self.fault == "lost image" else 0
        return Rewriter(lambda images, draw: (images.pixels[lost:] // 2 + noise).to(torch.uint8))


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("lost image", test_one_image_comes_out_for_one_image),
        ("global draw", test_what_it_makes_is_decided_by_its_seeds_alone),
        ("no draw", test_the_draw_changes_what_it_makes),
    ],
)
def test_a_careless_hider_is_noticed(fault: str, check: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"careless: {fault}"
    monkeypatch.setitem(globals(), "hider_of", lambda *_, **__: Careless(fault))
    with pytest.raises(AssertionError):
        check(name)

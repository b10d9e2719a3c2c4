"""Data in shards: the same answers as in one place, one draw of noise, and lost workers that cost nothing."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

from sfumato.errors import DataError, EnvironmentProblem, UsageError
from sfumato.methods.dp_merf import DPMERF
from sfumato.privacy import (
    Budget,
    Descent,
    GaussianSum,
    GlooCrew,
    Ledger,
    NoisyChoice,
    PrivateImages,
    RayCrew,
    SeededNoise,
    descend,
)
from sfumato.privacy.private import unlock
from sfumato.privacy.shards import Question, spec_of_shards, streamed
from sfumato.values import Source

from toys import ToySource, halves, toy

cloudpickle = pytest.importorskip("cloudpickle")
ray = pytest.importorskip("ray")
for pickle in (cloudpickle, ray.cloudpickle):  # workers cannot import this file
    pickle.register_pickle_by_value(sys.modules[__name__])

CUTS = (70, 200)  # three shards of different sizes, in chunks of 50


def one_absent() -> ToySource:
    source = halves()
    source.labels[::7] = -1
    return source


def shard(source: ToySource, number: int, cuts: tuple[int, ...] = CUTS) -> Source:
    edges = (0, *cuts, len(source.labels))
    part = slice(edges[number], edges[number + 1])
    return ToySource(source.pixels[part], source.labels[part], source.spec.classes)


def openers(source: ToySource, cuts: tuple[int, ...] = CUTS) -> list[Any]:
    return [functools.partial(shard, source, number, cuts) for number in range(len(cuts) + 1)]


class Counted(SeededNoise):
    """Repeatable noise that counts its draws."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.draws = 0

    def lattice_gaussian(self, count: int, scale: float) -> NDArray[np.int64]:
        self.draws += 1
        return super().lattice_gaussian(count, scale)


def ledger(epsilon: float = 50.0) -> Ledger:
    return Ledger(Budget(epsilon, 1e-4))


def pixels(image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    return image.flatten()


def small(image: torch.Tensor) -> torch.Tensor:
    return F.avg_pool2d(image, 2)


def asked(private: PrivateImages, *, sampling: float = 1.0, mapped: bool = False) -> list[torch.Tensor]:
    """Three kinds of sum, each of its own charge."""
    seen = private.mapped(small) if mapped else private
    mechanism = GaussianSum(noise_multiplier=3.0, rounds=1, sampling=sampling)
    return [
        seen.open(mechanism, purpose="sum")(pixels, l2_bound=4.0),
        seen.open(mechanism, purpose="classes").per_class(pixels, l2_bound=4.0),
        seen.open(mechanism, purpose="bins").histogram(lambda image, label: (5 * image.mean()).long(), bins=5),
    ]


@pytest.mark.parametrize("chunked", [False, True])
def test_one_pass_over_chunks_is_the_sum_of_the_whole(chunked: bool) -> None:
    source = one_absent()
    private = PrivateImages.seal(source, ledger())
    vault = unlock(private.mapped(small) if chunked else private)
    from sfumato.privacy.rows import Rows

    rows = Rows(pixels, 4.0, blocks=3)
    included = np.random.default_rng(0).random(300) < 0.6
    question = Question(rows, rows.shape(vault.spec).numel(), 0, small if chunked else None, clip=True, microbatch=None)
    whole = vault.total(rows, included, clip=True, microbatch=None)
    assert np.array_equal(streamed(source, question, included), whole)


def test_a_shard_that_changed_is_refused() -> None:
    from sfumato.privacy.rows import Rows

    question = Question(Rows(pixels, 4.0), 64, 0, None, clip=True, microbatch=None)
    with pytest.raises(DataError, match="Expected 301 records, got 300"):
        streamed(halves(), question, np.ones(301, bool))


def test_shards_must_be_alike() -> None:
    spec, counts = spec_of_shards(openers(halves()))
    assert (spec, counts) == (halves().spec, (70, 130, 100))
    with pytest.raises(DataError, match="2 kinds"):
        spec_of_shards([halves, toy])
    with pytest.raises(UsageError, match="at least one shard"):
        spec_of_shards([])


@pytest.mark.parametrize(("sampling", "mapped"), [(1.0, False), (0.5, True)])
def test_a_cluster_answers_bit_by_bit_as_one_machine_with_one_draw_of_noise(
    lasting_nodes: Any, sampling: float, mapped: bool
) -> None:
    source, noise, known = one_absent(), Counted(), Counted()
    alone = asked(PrivateImages.seal(source, ledger(), noise=known), sampling=sampling, mapped=mapped)
    private = PrivateImages.seal(RayCrew(openers(source)), ledger(), noise=noise)
    together = asked(private, sampling=sampling, mapped=mapped)
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))
    assert noise.draws == known.draws  # however many shards


def slow(image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    time.sleep(0.2)  # once in a microbatch
    return image.flatten()


def asked_slowly(private: PrivateImages) -> torch.Tensor:
    mechanism = GaussianSum(noise_multiplier=3.0, rounds=1)
    return private.open(mechanism, purpose="slow sum", microbatch=16)(slow, l2_bound=4.0)


def test_a_method_does_not_know_where_its_data_lies(lasting_nodes: Any) -> None:
    source = halves()
    method = DPMERF(frequencies=100, length_scales=(0.3,), steps=5, batch=48, latent=4, hidden=32, codes=4)
    alone = method.fit(PrivateImages.seal(source, ledger(), noise=Counted()), None)
    sharded = method.fit(PrivateImages.seal(RayCrew(openers(source)), ledger(), noise=Counted()), None)
    labels = torch.arange(3).repeat(5)
    assert torch.equal(alone(labels).pixels, sharded(labels).pixels)


def test_a_problem_in_a_task_is_reported_unchanged(lasting_nodes: Any) -> None:
    def broken() -> Source:
        source = halves()
        source.pixels = source.pixels[:-1]  # fewer than the spec says
        source.labels = source.labels[:-1]
        return source

    private = PrivateImages.seal(RayCrew([halves, broken]), ledger())
    with pytest.raises(DataError, match="Expected 300 records, got 299"):
        asked(private)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3))


def cross_entropy(model: Any, image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(image[None]), label[None])


def trained(private: PrivateImages, *, noise_multiplier: float) -> torch.Tensor:
    mechanism = GaussianSum(noise_multiplier=noise_multiplier, rounds=6, sampling=0.5)
    model = network()
    descend(private.open(mechanism, purpose="teacher"), model, lambda _: cross_entropy, Descent(1.0, 0.5), what="test")
    private.close()
    return torch.cat([p.flatten() for p in model.parameters()])


def test_two_processes_descend_as_one_with_noise_added_once() -> None:
    source, noise = one_absent(), Counted()
    alone = trained(PrivateImages.seal(source, ledger(), noise=Counted()), noise_multiplier=2.0)
    private = PrivateImages.seal(GlooCrew(openers(source, (120,))), ledger(), noise=noise)
    assert torch.allclose(trained(private, noise_multiplier=2.0), alone, atol=1e-5)
    assert noise.draws == 6


def test_the_sum_before_noise_of_two_processes_is_that_of_one() -> None:
    source = one_absent()
    alone = [answer.clone() for answer in asked(PrivateImages.seal(source, ledger(), noise=Counted()), mapped=True)]
    private = PrivateImages.seal(GlooCrew(openers(source, (120,))), ledger(), noise=Counted())
    together = asked(private, mapped=True)
    private.close()
    # the same noise on both sides: what is equal after it was equal before
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


def test_a_lost_process_is_a_sentence_and_the_run_resumes_without_asking_twice(tmp_path: Path) -> None:
    source, path = halves(), tmp_path / "ledger.jsonl"
    crew = GlooCrew(openers(source, (120,)))
    private = PrivateImages.seal(crew, Ledger(Budget(50.0, 1e-4), path), folder=tmp_path)
    query = private.open(GaussianSum(noise_multiplier=3.0, rounds=3), purpose="sums")
    first = query(pixels, l2_bound=4.0)
    os.kill(crew._workers[0].pid, signal.SIGKILL)
    with pytest.raises(EnvironmentProblem, match="A worker was lost"):
        query(pixels, l2_bound=4.0)
    private.close()
    private.ledger.close()
    again = PrivateImages.seal(GlooCrew(openers(source, (120,))), Ledger(Budget(50.0, 1e-4), path), folder=tmp_path)
    query = again.open(GaussianSum(noise_multiplier=3.0, rounds=3), purpose="sums")
    assert torch.equal(query(pixels, l2_bound=4.0), first)
    again.close()


def test_a_worker_that_does_not_come_is_not_waited_for() -> None:
    def nowhere() -> Source:
        if multiprocessing.parent_process() is not None:
            os._exit(1)
        return halves()

    private = PrivateImages.seal(GlooCrew([halves, nowhere]), ledger())
    with pytest.raises(EnvironmentProblem, match="A worker was lost"):
        asked(private)
    private.close()


def test_what_is_no_sum_is_refused_and_a_handle_does_not_travel() -> None:
    private = PrivateImages.seal(GlooCrew(openers(halves(), (120,))), ledger())
    with pytest.raises(UsageError, match="a question that is a sum"):
        private.choose(
            NoisyChoice(noise_multiplier=10.0, candidates=2), purpose="choice", score=lambda image, label: torch.ones(2)
        )
    with pytest.raises(TypeError, match="cannot be read, counted, copied or stored"):
        private.open(GaussianSum(noise_multiplier=9.0, rounds=1), purpose="sum")(
            lambda image, label: image.flatten() * private.spec.count, l2_bound=1.0
        )
    private.close()

"""A node that dies in the middle of a sum over shards is not missed."""

from __future__ import annotations

import functools
import sys
import threading
import time
from typing import Any

import pytest
import torch

from sfumato.privacy import Budget, GaussianSum, Ledger, PrivateImages, RayCrew, SeededNoise
from sfumato.values import Source

from toys import ToySource, halves

ray = pytest.importorskip("ray")
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this file


def shard(source: ToySource, start: int) -> Source:
    part = slice(start, start + 25)
    return ToySource(source.pixels[part], source.labels[part], source.spec.classes)


def slow(image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    time.sleep(0.2)  # once in a microbatch
    return image.flatten()


def asked(records: Any) -> torch.Tensor:
    """A noisy sum; the same noise on both sides, so that answers are equal where the sums before it were."""
    private = PrivateImages.seal(records, Ledger(Budget(50.0, 1e-4)), noise=SeededNoise(0))
    mechanism = GaussianSum(noise_multiplier=3.0, rounds=1)
    return private.open(mechanism, purpose="slow sum", microbatch=16)(slow, l2_bound=4.0)


def test_a_lost_node_is_not_missed_in_a_sum(two_nodes: Any) -> None:
    source = halves()
    crew = RayCrew([functools.partial(shard, source, start) for start in range(0, 300, 25)])
    worker = next(iter(two_nodes.worker_nodes))
    threading.Timer(3.0, lambda: two_nodes.remove_node(worker, allow_graceful=False)).start()
    assert torch.equal(asked(crew), asked(source))
    assert not two_nodes.worker_nodes

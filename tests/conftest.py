"""One thread for each test process: the tensors here are small, and two workers share two cores."""

import itertools
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hypothesis
import pytest

import sfumato  # noqa: F401 - sets OpenMP up, which must come before torch

# isort: split
import torch

pytest_plugins = ("timing",)

torch.set_num_threads(1)
# What tests train on public images is not kept in the user's own cache; each test has a folder of its own, which it
# makes if it keeps anything. Fixtures of a module or a session share the one that they are in.
_CACHE = tempfile.TemporaryDirectory(prefix="sfumato-cache-", ignore_cleanup_errors=True)
os.environ["SFUMATO_CACHE"] = _CACHE.name
_NUMBERS = itertools.count()
# the same examples in every run: a test that passes once passes always
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def own_cache() -> Iterator[None]:
    """What one test keeps, no other one finds."""
    shared = os.environ["SFUMATO_CACHE"]
    os.environ["SFUMATO_CACHE"] = str(Path(_CACHE.name) / f"test{next(_NUMBERS)}")
    yield
    os.environ["SFUMATO_CACHE"] = shared


@contextmanager
def _cluster() -> Iterator[Any]:
    """A real Ray cluster of two nodes on this machine."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))  # workers find what a test finds
        two = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        two.add_node(num_cpus=1)
        ray.init(address=two.address, log_to_driver=False)
        try:
            yield two
        finally:
            ray.shutdown()
            two.shutdown()


@pytest.fixture
def two_nodes() -> Iterator[Any]:
    """One to lose a node of."""
    with _cluster() as two:
        yield two


@pytest.fixture(scope="module")
def lasting_nodes() -> Iterator[Any]:
    """One for all tests of a module that do it no harm: to start one takes longer than a test."""
    with _cluster() as two:
        yield two

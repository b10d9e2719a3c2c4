"""One thread for each test process: the tensors here are small, and two workers share two cores."""

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A real Ray cluster of two nodes on this machine."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))  # workers find what a test finds
    two = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    two.add_node(num_cpus=1)
    ray.init(address=two.address, log_to_driver=False)
    yield two
    ray.shutdown()
    two.shutdown()

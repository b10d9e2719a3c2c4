"""A local Ray cluster is out of reach for other machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sfumato.cluster import Cluster
from sfumato.errors import EnvironmentProblem
from sockets import needs_proc

ray = pytest.importorskip("ray")

# in a process of its own: Ray keeps settings of the first cluster that a process starts
PROBE = """
import json, os, sys
from sockets import beyond_loopback, family, listening
from sfumato.cluster import Cluster

with Cluster(workers=1) as cluster:
    worker = cluster.ray.get(cluster.task(lambda: os.getpid()).remote())
    kin = family(os.getpid())
    print(json.dumps({"worker": worker in kin, "all": sum(len(listening(pid)) for pid in kin),
                      "beyond": [address for pid in kin for address in beyond_loopback(pid)]}))
"""


def test_a_local_cluster_listens_on_loopback_alone(tmp_path: Path) -> None:
    needs_proc()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    search = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        env=clean | {"HOME": str(tmp_path), "PYTHONPATH": search},  # Ray leaves its token there
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["worker"], "the task ran in a process that was looked at"
    assert seen["all"] >= 5, "Ray does listen"
    assert seen["beyond"] == []


def test_a_ray_that_cannot_be_kept_on_loopback_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    from ray._private import ray_constants

    monkeypatch.delattr(ray_constants, "ENABLE_RAY_CLUSTER")
    with pytest.raises(EnvironmentProblem, match="kept on loopback"):
        Cluster(workers=1)
    assert not ray.is_initialized()

"""A Ray cluster that work is sent to: one that is there already, or a local one for as long as it is needed."""

from __future__ import annotations

import os
from typing import Any, Self

from sfumato.errors import EnvironmentProblem

ATTEMPTS = 3  # at a task whose worker or node was lost


class Cluster:
    """Ray, connected; `ray` is its module."""

    def __init__(self, *, address: str | None = None, workers: int | None = None) -> None:
        self.ray = _ray()
        self._own = not self.ray.is_initialized()
        if self._own:
            self.ray.init(address=address, num_cpus=None if address else workers, include_dashboard=False,
                          log_to_driver=False, configure_logging=False)  # fmt: skip

    def task(self, work: Any) -> Any:
        """The function as a task for one core, tried again where it was lost."""
        return self.ray.remote(num_cpus=1, max_retries=ATTEMPTS)(work)

    def close(self) -> None:
        if self._own:
            self.ray.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing about private work is sent anywhere
    try:
        import ray  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise EnvironmentProblem(
            "Expected the package ray for a cluster, got none.", fix="pip install 'sfumato[cluster]'"
        ) from error
    return ray

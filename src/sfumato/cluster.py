"""A Ray cluster that runs tasks: an existing one, or a local one that is started and ended with the work.

A local one listens on loopback only. Other users of this machine can still reach it there: Ray 2.60 asks them for the
token in ~/.ray/auth_token, earlier versions do not, or (from 2.52 on) only with RAY_AUTH_MODE=token. Ray's files below
/tmp/ray are open to them too, unless RAY_TMPDIR names a folder of your own.

An existing cluster is as safe as its owner made it. Ray runs whatever code it is sent, does not encrypt by
default, and listens at all addresses: run it in a private network, with RAY_AUTH_MODE=token on all of its nodes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from sfumato.errors import EnvironmentProblem

ATTEMPTS = 3  # at a task whose worker or node was lost
LOOPBACK = "127.0.0.1"


class Cluster:
    """Ray, connected; `ray` is its module."""

    def __init__(self, *, address: str | None = None, workers: int | None = None) -> None:
        self.ray = _ray()
        self._own = not self.ray.is_initialized()
        if not self._own:
            return
        quiet = {"include_dashboard": False, "log_to_driver": False, "configure_logging": False}
        if address or os.environ.get("RAY_ADDRESS"):  # which Ray reads if no address is given
            self.ray.init(address=address, **quiet)
            return
        with _loopback_kept():
            self.ray.init(num_cpus=workers, _node_ip_address=LOOPBACK, **quiet)
        if (got := self.ray.util.get_node_ip_address()) != LOOPBACK:
            self.ray.shutdown()
            raise EnvironmentProblem(
                f"Expected a local Ray cluster on {LOOPBACK} alone, got one on {got}.",
                fix="pip install 'ray==2.60.0', or give the address of a cluster",
            )

    def task(self, work: Any) -> Any:
        """The function as a task for one core, which is run again if its worker was lost."""
        return self.ray.remote(num_cpus=1, max_retries=ATTEMPTS)(work)

    def close(self) -> None:
        if self._own:
            self.ray.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def _loopback_kept() -> Iterator[None]:
    """Ray replaces a loopback address by the one that other machines see, except where it has switched clusters off.

    It does so on Windows and macOS, by this constant; its servers listen on loopback if that is the node's address.
    """
    constants = _ray_constants()
    before = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


def _ray_constants() -> Any:
    try:
        from ray._private import ray_constants  # type: ignore[import-not-found,import-untyped,unused-ignore]

        known = hasattr(ray_constants, "ENABLE_RAY_CLUSTER")
    except ImportError:
        known = False
    if not known:
        raise EnvironmentProblem(
            "Expected a version of Ray that can be kept on loopback (it has ENABLE_RAY_CLUSTER), got another.",
            fix="pip install 'ray==2.60.0', or give the address of a cluster",
        )
    return ray_constants


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing about private work is sent anywhere
    try:
        import ray  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise EnvironmentProblem(
            "Expected the package ray for a cluster, got none.", fix="pip install 'sfumato[cluster]'"
        ) from error
    return ray

"""The metrics that a process exposes at /metrics: those that its role counts, aggregated over all processes of a port."""

import os
import platform
from collections.abc import Collection, Iterable
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from forwarder import __version__
from forwarder.observability.metrics import BUILD, DEFERRED, FROM_0
from forwarder.observability.snapshots import ProcessesTogether, SnapshotsOfAll

_WITH_EVERYTHING: Final = (None, "up", "console")


def tell_build(role: str, revision: str) -> None:
    """Sets the build metric of `role`."""
    BUILD.labels(role, __version__, revision, platform.python_version()).set(1)


def registry(role: str | None = None) -> CollectorRegistry:
    """The registry to expose: of all processes on this port if `PROMETHEUS_MULTIPROC_DIR` is set, else of this one. Without what
    only other roles count; with everything for a process with all roles."""
    DEFERRED.flush()
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        every = REGISTRY
    else:
        every = CollectorRegistry()
        MultiProcessCollector(every)  # type: ignore[no-untyped-call]
        every.register(SnapshotsOfAll())
        every.register(ProcessesTogether())
    if role in _WITH_EVERYTHING:
        return every
    own = FROM_0.get(role, ())
    foreign = {metric for metrics in FROM_0.values() for metric in metrics if metric not in own}
    of_role = CollectorRegistry()
    of_role.register(_Shown(every, {described.name for metric in foreign for described in metric.describe()}))
    return of_role


class _Shown(Collector):
    """The metrics in `registry` except those with the names `hidden`."""

    def __init__(self, registry: CollectorRegistry, hidden: Collection[str]) -> None:
        self._registry = registry
        self._hidden = hidden

    def collect(self) -> Iterable[Metric]:
        return (metric for metric in self._registry.collect() if metric.name not in self._hidden)

"""The metrics that a process exposes at /metrics: its role's part of the catalogue, aggregated over all processes of a port."""

import os
import platform
from collections.abc import Iterable
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from forwarder import __version__
from forwarder.observability.metrics import (
    ACCOUNTS,
    BAD_TOKENS,
    BREAKER_OPENINGS,
    BREAKERS,
    BUILD,
    CANCELLATIONS,
    CARD_KEYS_MISSING,
    CARDS_GONE,
    CONNECTIONS,
    CONNECTIONS_ENDED,
    CONTAINED_FAULTS,
    DEAD_LETTERS,
    DEFERRED,
    DOUBLES,
    DUE,
    FAILING_CHECKS,
    HELD,
    HOLD_OFFS,
    IN_DOUBT,
    INTAKE_STALLED_SECONDS,
    KEYS_ENDING,
    LAG_MESSAGES,
    LAG_SECONDS,
    LOG_LINES_DROPPED,
    MESSAGES_LOST,
    OLDEST_DUE_SECONDS,
    OLDEST_IN_DOUBT_SECONDS,
    OLDEST_PENDING_SECONDS,
    OPEN_BREAKERS,
    OPEN_DEAD_LETTERS,
    OUTCOME_SECONDS,
    OUTCOMES,
    PENDING,
    PUBLISH_SECONDS,
    PUSH_SECONDS,
    PUSHES,
    REQUEST_SECONDS,
    RESULTS_PUBLISHED,
    RETENTION_SECONDS,
    SEALING_KEYS_DESTROYED,
    SET_ASIDE,
    STANDING_READ_AT,
    STORE_BYTES,
    SUBMISSIONS,
    TAKEN_IN,
    UNPUBLISHED_RESULTS,
    UNREADABLE_RESULTS,
    WAITING,
    WEBHOOK_DELIVERIES,
    WEBHOOK_ENDPOINTS_DISABLED,
    WEBHOOK_SECONDS,
    WEBHOOKS_OLDEST_DUE_SECONDS,
    WEBHOOKS_PENDING,
    WEBHOOKS_QUEUED,
    WINDOW_CUTS,
)
from forwarder.observability.snapshots import ProcessesTogether, SnapshotsOfAll

_OF_EVERY_ROLE: Final = (
    BUILD,
    FAILING_CHECKS,
    CONTAINED_FAULTS,
    CONNECTIONS,
    CONNECTIONS_ENDED,
    REQUEST_SECONDS,
    LOG_LINES_DROPPED,
)
_WAITS: Final = (WAITING, UNREADABLE_RESULTS)
_OF_ROLE: Final = {
    "ingress": (SUBMISSIONS, PUBLISH_SECONDS, BAD_TOKENS, *_WAITS),
    "query": (BAD_TOKENS, *_WAITS),
    "worker": (
        TAKEN_IN,
        MESSAGES_LOST,
        INTAKE_STALLED_SECONDS,
        HELD,
        PUSHES,
        PUSH_SECONDS,
        BREAKERS,
        OPEN_BREAKERS,
        BREAKER_OPENINGS,
        HOLD_OFFS,
        WINDOW_CUTS,
        DOUBLES,
        OUTCOMES,
        OUTCOME_SECONDS,
        CANCELLATIONS,
        CARDS_GONE,
        CARD_KEYS_MISSING,
        SEALING_KEYS_DESTROYED,
        RESULTS_PUBLISHED,
        DEAD_LETTERS,
        UNPUBLISHED_RESULTS,
    ),
    "housekeeping": (
        PENDING,
        OLDEST_PENDING_SECONDS,
        DUE,
        OLDEST_DUE_SECONDS,
        IN_DOUBT,
        OLDEST_IN_DOUBT_SECONDS,
        OPEN_DEAD_LETTERS,
        SET_ASIDE,
        KEYS_ENDING,
        STORE_BYTES,
        ACCOUNTS,
        LAG_MESSAGES,
        LAG_SECONDS,
        RETENTION_SECONDS,
        WEBHOOKS_PENDING,
        WEBHOOKS_OLDEST_DUE_SECONDS,
        STANDING_READ_AT,
    ),
    "simulator": (),
    "notifier": (
        BAD_TOKENS,
        UNREADABLE_RESULTS,
        MESSAGES_LOST,
        WEBHOOKS_QUEUED,
        WEBHOOK_DELIVERIES,
        WEBHOOK_SECONDS,
        WEBHOOK_ENDPOINTS_DISABLED,
    ),
}
"""The metrics of each role. Other roles' metrics would read 0 there, as if all were well."""


def tell_build(role: str, revision: str) -> None:
    """Sets the build metric of `role`."""
    BUILD.labels(role, __version__, revision, platform.python_version()).set(1)


def registry(role: str | None = None) -> CollectorRegistry:
    """The registry to expose: of all processes on this port if `PROMETHEUS_MULTIPROC_DIR` is set, else of this one. Restricted
    to the metrics of `role`; unrestricted for a process with all roles."""
    DEFERRED.flush()
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        every = REGISTRY
    else:
        every = CollectorRegistry()
        MultiProcessCollector(every)  # type: ignore[no-untyped-call]
        every.register(SnapshotsOfAll())
        every.register(ProcessesTogether())
    if role not in _OF_ROLE:
        return every
    of_role = CollectorRegistry()
    of_role.register(_Shown(every, role))
    return of_role


class _Shown(Collector):
    """The metrics of a role in `registry`, and everything that is not ours."""

    def __init__(self, registry: CollectorRegistry, role: str) -> None:
        self._registry = registry
        metrics = (*_OF_EVERY_ROLE, *_OF_ROLE[role])
        self._names = {described.name for metric in metrics for described in metric.describe()}

    def collect(self) -> Iterable[Metric]:
        """The metrics, in the registry's order."""
        for metric in self._registry.collect():
            if metric.name in self._names or not metric.name.startswith("forwarder_"):
                yield metric

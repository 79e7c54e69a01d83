"""The catalogue of metrics: every number that a process shows at /metrics, with its labels, unit and meaning. Then what shows them,
for all processes of a port together. Label values come from closed sets (kinds, outcomes, routes) or are account ids, never request
ids or guest data. Hot paths keep the child that `labels()` returns rather than look it up for each message."""

import asyncio
import atexit
import functools
import json
import os
import platform
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from forwarder import __version__

_DIRECTORY: Final = "PROMETHEUS_MULTIPROC_DIR"
_FILE: Final = "snapshot_{}.json"
_PROC: Final = Path("/proc")
Values = Mapping[tuple[str, ...], float]


class SnapshotGauge(Collector):
    """A gauge that is replaced as a whole, and sums over several processes; each has its snapshots in a file beside the client's. A
    gauge of the Prometheus client never drops a label's last value, and one without labels is 0 before it is set. A snapshot must
    be able to disappear: an account that was removed, a number that this process no longer reads."""

    every: Final[dict[str, "SnapshotGauge"]] = {}

    def __init__(self, name: str, meaning: str, labels: Iterable[str] = ()) -> None:
        self.name, self._meaning, self.labels = name, meaning, tuple(labels)
        self.values: dict[tuple[str, ...], float] = {}
        self.every[name] = self
        REGISTRY.register(self)

    def replace(self, values: Values) -> None:
        """Replaces all values by these, keyed by label values."""
        self.values = dict(values)
        if (directory := os.environ.get(_DIRECTORY)) is not None:
            # The file that sibling processes read. Atomic, even if this process is killed.
            file = Path(directory, _FILE.format(os.getpid()))
            new = file.with_suffix(".new")
            rows = {name: list(gauge.values.items()) for name, gauge in self.every.items()}
            new.write_text(json.dumps(rows), encoding="utf-8")
            new.replace(file)

    def describe(self) -> Iterable[Metric]:
        return [Metric(self.name, self._meaning, "gauge")]

    def collect(self) -> Iterable[Metric]:
        return self.shown(self.values)

    def shown(self, values: Values) -> Iterator[Metric]:
        metric = Metric(self.name, self._meaning, "gauge")
        for given, number in values.items():
            metric.add_sample(self.name, dict(zip(self.labels, given, strict=True)), number)
        if values:
            yield metric


_FAST = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 300.0)
"""Up to the longest push or wait that the settings allow."""
_LONG = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 28800, 86400)
BUILD = Gauge(
    "forwarder_build_info",
    "1 for each running role, with its version and revision.",
    ["role", "version", "revision", "python"],
    multiprocess_mode="livemax",
)
"""`revision`: from `FORWARDER_REVISION`; the container image sets it to the source revision it was built from."""
FAILING_CHECKS = SnapshotGauge(
    "forwarder_failing_checks",
    "1 for each check of readiness that this process fails as it is scraped, 0 for those that it passes.",
    ["check"],
)
"""`check`: log (Kafka accepts writes), store (PostgreSQL answers), store_writes (it has taken all writes of the last half minute),
loops (no loop fails repeatedly), certificate (its own ones are valid for more than 14 days), consuming (the worker or
notifier reads its topic), topic_readable (it can decode its topic), store_in_step_with_topics (the store is not known to lack what
the topics record), topics_in_step_with_store (the topics have everything that the store took from them), keys_in_step_with_store
(the store has the keys that this process began with: it was not recreated)."""
CONTAINED_FAULTS = Counter(
    "forwarder_contained_faults_total",
    "Unexpected exceptions, contained: the log has the traceback as fault.contained.",
    ["where"],
)
"""`where`: the loop that failed, or the kind of unit that was set aside (`Where` in `forwarder/process/loops.py`)."""
SUBMISSIONS = Counter("forwarder_submissions_total", "Submissions answered by the ingress.", ["operation", "answer"])
"""`operation`: those that create, cancel, and bulk for items of a bulk that are neither. `answer`: accepted, dry_run, or the
problem's code. Each item of a bulk counts; a bulk refused as a whole counts once."""
PUBLISH_SECONDS = Histogram(
    "forwarder_publish_seconds", "From passing a submission to the log to its acknowledgement.", buckets=_FAST
)
WAITING = Gauge("forwarder_waiting_requests", "Requests that wait for their outcome.", multiprocess_mode="livesum")
REQUEST_SECONDS = Histogram(
    "forwarder_http_request_seconds",
    "HTTP requests by route, method and status.",
    ["route", "method", "status"],
    buckets=_FAST,
)
CONNECTIONS = Gauge(
    "forwarder_http_connections", "Connections of HTTP clients, at the last count.", multiprocess_mode="livesum"
)
CONNECTIONS_ENDED = Counter(
    "forwarder_http_connections_ended_total", "Connections of HTTP clients that a limit ended.", ["reason"]
)
"""`reason`: refused (too many, or too many of one address), evicted (in favour of a new one), silent (sent nothing), slow_head,
slow_body, too_large (a head, a chunk's frame or trailers), malformed (not HTTP, or no valid `Host`), tls (no handshake came of it),
unread (the response)."""
LOG_LINES_DROPPED = Counter("forwarder_log_lines_dropped_total", "Log lines dropped because their reader is too slow.")
BAD_TOKENS = Counter(
    "forwarder_bad_tokens_total", "Requests with an API key that is unknown or was revoked.", ["answer"]
)
"""`answer`: refused (401), throttled (429: too many came from the address)."""
TAKEN_IN = Counter(
    "forwarder_taken_in_total", "Messages of the requests topic, by what intake did with them.", ["result"]
)
"""`result`: taken_in, cancellation (those delivered before included, which change nothing), duplicate and conflicting_body (another
body under one key, which is not made; both also counted as taken_in), undecodable, forged."""
MESSAGES_LOST = Counter(
    "forwarder_messages_lost_total",
    "Messages that a topic lost before they were received: deleted too early, or the topic was recreated.",
    ["topic"],
)
INTAKE_STALLED_SECONDS = Gauge(
    "forwarder_intake_stalled_seconds",
    "For how long this worker has not read the requests topic, nor found it empty; 0 below ten seconds.",
    multiprocess_mode="livemax",
)
HELD = Gauge(
    "forwarder_held_reservations", "Reservations that this worker holds in memory.", multiprocess_mode="livesum"
)
PUSHES = Counter("forwarder_pushes_total", "Pushes to PMSs.", ["kind", "action", "outcome"])
"""`kind`: of the PMS; `test` for submissions of test keys."""
PUSH_SECONDS = Histogram("forwarder_push_seconds", "How long a push took.", ["kind", "action"], buckets=_FAST)
BREAKERS = SnapshotGauge(
    "forwarder_circuit_breakers",
    "Accounts whose circuit breaker is not closed: their PMS failed this worker, and gets only an occasional probe.",
    ["kind", "state"],
)
"""`state`: open, also during a probe; idle, if the pause is over and there is nothing to push as a probe."""
OPEN_BREAKERS = SnapshotGauge(
    "forwarder_circuit_breaker_open",
    "1 for each account whose circuit breaker is open at this worker, with the reason for which it opened.",
    ["account", "reason"],
)
BREAKER_OPENINGS = Counter(
    "forwarder_circuit_breaker_openings_total", "Times that a circuit breaker opened, failed probes included.", ["kind"]
)
HOLD_OFFS = Counter("forwarder_hold_offs_total", "Times that a PMS asked for a pause.", ["kind"])
WINDOW_CUTS = Counter(
    "forwarder_window_cuts_total",
    "Times that the concurrency limit was lowered because a PMS was overloaded.",
    ["kind"],
)
OUTCOMES = Counter("forwarder_outcomes_total", "Submissions that reached an outcome.", ["kind", "status"])
OUTCOME_SECONDS = Histogram(
    "forwarder_accept_to_outcome_seconds", "From the 2xx to the recorded outcome.", ["status"], buckets=_LONG
)
DOUBLES = Counter(
    "forwarder_doubles_total", "Reservations for which the PMS shows a second one under the same reference.", ["kind"]
)
CANCELLATIONS = Counter("forwarder_cancellations_total", "Cancellations that came to an end.", ["kind", "status"])
"""`status`: DONE, REFUSED (by the PMS), FAILED (not carried out before its deadline)."""
CARDS_GONE = Counter(
    "forwarder_cards_gone_total", "Cards that came from the log after the key that they were sealed to was destroyed."
)
CARD_KEYS_MISSING = Counter(
    "forwarder_card_keys_missing_total", "Pushes put off because this worker lacks the secret that the card needs."
)
SEALING_KEYS_DESTROYED = Counter(
    "forwarder_sealing_keys_destroyed_total", "Short-lived keys of cards that were destroyed."
)
RESULTS_PUBLISHED = Counter("forwarder_results_published_total", "Result events acknowledged by the log.")
DEAD_LETTERS = Counter("forwarder_dead_letters_total", "Dead letters acknowledged by the log.", ["class"])
"""`class`: why they were set aside, as in `forwarder dead-letters list`."""
UNREADABLE_RESULTS = Counter(
    "forwarder_unreadable_results_total",
    "Messages of the results topic that cannot be read and were skipped.",
    ["reader"],
)
"""`reader`: notifier; waiters, which read only events about submissions whose outcome a request waits for."""
UNPUBLISHED_RESULTS = Gauge(
    "forwarder_unpublished_results",
    "Result events recorded and not published yet, at the last count; those that cannot be published included.",
    multiprocess_mode="livemax",
)
WEBHOOKS_QUEUED = Counter("forwarder_webhooks_queued_total", "Deliveries that the notifier queued for result events.")
WEBHOOK_DELIVERIES = Counter("forwarder_webhook_deliveries_total", "Posts to customers' endpoints.", ["outcome"])
"""`outcome`: delivered, put_off (tried again later), failed (given up), gone (410)."""
WEBHOOK_SECONDS = Histogram("forwarder_webhook_seconds", "How long a post to an endpoint took.", buckets=_FAST)
WEBHOOK_ENDPOINTS_DISABLED = Counter(
    "forwarder_webhook_endpoints_disabled_total", "Endpoints that the notifier disabled.", ["reason"]
)
"""`reason`: gone (410), failing (nothing delivered for three days)."""

# The deployment's backlog: reported by one worker at a time, so that sums over all processes are right.
PENDING = SnapshotGauge(
    "forwarder_pending_reservations",
    "Reservations that are PENDING: held by a worker, waiting for their next try, or due.",
    ["account", "state"],
)
"""`account`: the accounts with the largest backlog, as many as `FORWARDER_METRICS_ACCOUNTS`; the rest together are `other`.
`state`: active, paused, unknown (there is no such account)."""
OLDEST_PENDING_SECONDS = SnapshotGauge(
    "forwarder_oldest_pending_seconds",
    "How long ago the oldest PENDING reservation was accepted.",
    ["account", "state"],
)
DUE = SnapshotGauge(
    "forwarder_due_reservations",
    "Reservations due and not held by any worker, look-ups and cancellations included.",
    ["account", "state"],
)
OLDEST_DUE_SECONDS = SnapshotGauge(
    "forwarder_oldest_due_seconds", "How long the oldest due reservation has been due.", ["account", "state"]
)
IN_DOUBT = SnapshotGauge("forwarder_in_doubt_reservations", "Reservations that are IN_DOUBT.", ["account"])
OLDEST_IN_DOUBT_SECONDS = SnapshotGauge(
    "forwarder_oldest_in_doubt_seconds", "How long ago the oldest IN_DOUBT reservation was accepted.", ["account"]
)
OPEN_DEAD_LETTERS = SnapshotGauge(
    "forwarder_open_dead_letters",
    "Submissions that are FAILED and whose guest's data is still there, by the class of their dead letter.",
    ["class"],
)
SET_ASIDE = SnapshotGauge(
    "forwarder_set_aside_messages",
    "Messages of the requests topic that were set aside as dead letters, until an operator acknowledges them.",
    ["class"],
)
"""`class`: forged (not signed by this deployment), undecodable, internal_error."""
CERTIFICATES_ENDING = SnapshotGauge(
    "forwarder_pms_certificates_ending",
    "Accounts whose client certificate for their PMS expires within 14 days, or has expired.",
)
KEYS_ENDING = SnapshotGauge("forwarder_api_keys_ending", "API keys that expire within 14 days.")
STORE_BYTES = SnapshotGauge("forwarder_store_bytes", "Size of the database on disk, including its indexes.")
ACCOUNTS = SnapshotGauge("forwarder_accounts", "Accounts, and their shadows that were used.", ["state"])
LAG_MESSAGES = SnapshotGauge("forwarder_lag_messages", "Messages that the group has not committed yet.", ["group"])
"""`group`: worker, of the requests topic; notifier, of the results topic."""
LAG_SECONDS = SnapshotGauge(
    "forwarder_lag_seconds",
    "How long ago the oldest message was appended that the group has not committed yet; 0 when there is none.",
    ["group"],
)
RETENTION_SECONDS = SnapshotGauge(
    "forwarder_retention_seconds",
    "For how long the topic that the group reads keeps a message; absent if forever.",
    ["group"],
)
WEBHOOKS_PENDING = SnapshotGauge("forwarder_webhooks_pending", "Deliveries still to be made.", ["endpoint"])
"""`endpoint`: as `account` of `forwarder_pending_reservations`."""
WEBHOOKS_OLDEST_DUE_SECONDS = SnapshotGauge(
    "forwarder_webhooks_oldest_due_seconds", "How long the oldest due delivery has been due.", ["endpoint"]
)
STANDING_READ_AT = SnapshotGauge(
    "forwarder_standing_read_timestamp_seconds", "Unix time of the last backlog snapshot.", ["what"]
)
"""`what`: work, from the store; lag, from the log. A snapshot older than two minutes is no longer shown."""
_OF_CARDS = (CARD_KEYS_MISSING, CARDS_GONE, SEALING_KEYS_DESTROYED)
FROM_0: Final = {
    "ingress": (BAD_TOKENS, PUBLISH_SECONDS, WAITING),
    "query": (BAD_TOKENS, WAITING),
    "worker": (*_OF_CARDS, HELD, INTAKE_STALLED_SECONDS, RESULTS_PUBLISHED, UNPUBLISHED_RESULTS),
    "notifier": (BAD_TOKENS, WEBHOOK_SECONDS, WEBHOOKS_QUEUED),
}
"""The metrics that are 0 from the start of a process, by the roles that count them. Other roles hide them: there 0 would read as if
all were well. All other metrics have labels, and no value before something is counted, or are those of every role."""


class DeferredMetrics:
    """Buffers observations and counts of hot paths and passes them to the metrics in batches; flushes when the process ends. For
    coroutines. Where several processes serve one port, their metrics are files, and observing one at a time took a sixth of the
    ingress's cost of a submission. A batch finds everything in the processor's caches."""

    def __init__(self) -> None:
        self._observations: list[tuple[Histogram, float]] = []
        self._counts: dict[Counter, int] = {}
        self._flushing_loop: asyncio.AbstractEventLoop | None = None
        atexit.register(self.flush)

    def observe(self, histogram: Histogram, value: float) -> None:
        self._observations.append((histogram, value))
        self._flush_later()

    def count(self, counter: Counter) -> None:
        self._counts[counter] = self._counts.get(counter, 0) + 1
        self._flush_later()

    def _flush_later(self) -> None:
        if (loop := asyncio.get_running_loop()) is not self._flushing_loop:
            self._flushing_loop = loop
            loop.call_later(0.1, self.flush)

    def flush(self) -> None:
        self._flushing_loop = None
        counts, self._counts = self._counts, {}
        for counter, times in counts.items():
            counter.inc(times)
        observations, self._observations = self._observations, []
        for histogram, value in observations:
            histogram.observe(value)


DEFERRED: Final = DeferredMetrics()  # the process's, as its metrics are


@functools.cache
def submissions(operation: str, answer: str) -> Counter:
    """The child of `SUBMISSIONS` with these labels, looked up once for each pair."""
    return SUBMISSIONS.labels(operation, answer)


def tell_build(role: str, revision: str) -> None:
    BUILD.labels(role, __version__, revision, platform.python_version()).set(1)


def registry(role: str | None = None) -> CollectorRegistry:
    """The registry to expose: of all processes on this port if `PROMETHEUS_MULTIPROC_DIR` is set, else of this one. Without what
    only other roles count; with everything for a process with all roles."""
    DEFERRED.flush()
    every = REGISTRY
    if _DIRECTORY in os.environ:
        every = CollectorRegistry()
        MultiProcessCollector(every)  # type: ignore[no-untyped-call]
        every.register(SnapshotsOfAll())
        every.register(ProcessesTogether())
    if role in {None, "up", "console"}:
        return every
    own = FROM_0.get(role, ())
    foreign = {metric for counted in FROM_0.values() for metric in counted if metric not in own}
    of_role = CollectorRegistry()
    of_role.register(_Shown(every, {described.name for metric in foreign for described in metric.describe()}))
    return of_role


class _Shown(Collector):
    """The metrics in `registry` except those with the names `hidden`."""

    def __init__(self, registry: CollectorRegistry, hidden: Collection[str]) -> None:
        self._registry, self._hidden = registry, hidden

    def collect(self) -> Iterable[Metric]:
        return (metric for metric in self._registry.collect() if metric.name not in self._hidden)


class SnapshotsOfAll(Collector):
    """The snapshots of all running processes of this port."""

    def collect(self) -> Iterable[Metric]:
        sums: dict[str, dict[tuple[str, ...], float]] = {}
        for file in Path(os.environ[_DIRECTORY]).glob(_FILE.format("*")):
            if (_PROC / file.stem.rpartition("_")[2]).exists():
                for name, rows in json.loads(file.read_text(encoding="utf-8")).items():
                    of_name = sums.setdefault(name, {})
                    for labels, number in rows:
                        of_name[tuple(labels)] = of_name.get(tuple(labels), 0.0) + number
        for name, values in sums.items():
            yield from SnapshotGauge.every[name].shown(values)


class ProcessesTogether(Collector):
    """The `process_…` metrics of all processes of this port: sums, the latest start, and the lowest limit. So a restart of any
    of them changes `process_start_time_seconds`."""

    _OTHERWISE: Final = {"process_start_time_seconds": max, "process_max_fds": min}

    def collect(self) -> Iterable[Metric]:
        parent, pids, found = os.getppid(), [os.getpid()], dict[str, list[Metric]]()
        with suppress(OSError):  # the system does not list siblings
            pids = [int(each) for each in (_PROC / f"{parent}/task/{parent}/children").read_text().split()]
        for pid in pids:
            for metric in ProcessCollector(pid=partial(str, pid), registry=None).collect():
                found.setdefault(metric.name, []).append(metric)
        for same in found.values():
            if len(same) < len(pids):
                continue  # a process may not allow others to see its number of open files
            together, *_ = same
            values = [metric.samples[0].value for metric in same]
            combine = self._OTHERWISE.get(together.samples[0].name, sum)
            together.samples = [together.samples[0]._replace(value=combine(values))]
            yield together

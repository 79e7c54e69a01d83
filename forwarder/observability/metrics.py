"""The catalogue of metrics: every number that a process shows at /metrics, with its labels, unit and meaning.

Label values come from closed sets (kinds, outcomes, routes) or are account ids, never request ids or guest data. Hot paths keep
the child that `labels()` returns rather than look it up for each message.
"""

import asyncio
import atexit
import functools
import os
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.multiprocess import MultiProcessCollector

_FAST = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LONG = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 28800, 86400)

SUBMISSIONS = Counter("forwarder_submissions_total", "Submissions answered by the ingress.", ["operation", "answer"])
"""`operation`: those that create, cancel, and bulk for what of a bulk is of neither. `answer`: accepted, dry_run, or the problem's
code. Of a bulk each item counts; one that is refused as a whole counts once."""

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
slow_body, too_large (a head, a chunk's frame or trailers), tls (no handshake came of it), unread (the response)."""

BAD_TOKENS = Counter(
    "forwarder_bad_tokens_total", "Requests with an API key that is unknown or was revoked.", ["answer"]
)
"""`answer`: refused (401), throttled (429: too many came from the address)."""

TAKEN_IN = Counter(
    "forwarder_taken_in_total", "Messages of the requests topic, by what intake did with them.", ["result"]
)
"""`result`: taken_in, cancellation (those delivered before included, which change nothing), duplicate (also counted as taken_in),
undecodable, forged."""

LAG_MESSAGES = Gauge(
    "forwarder_lag_messages",
    "Messages of the requests topic that were not ingested yet.",
    ["partition"],
    multiprocess_mode="livemax",
)
LAG_SECONDS = Gauge(
    "forwarder_lag_seconds",
    "Age of the oldest message in the last ingested batch; 0 when none waits.",
    multiprocess_mode="livemax",
)
INTAKE_STALLED_SECONDS = Gauge(
    "forwarder_intake_stalled_seconds",
    "For how long this worker has not read the requests topic, nor found it empty; 0 below ten seconds.",
    multiprocess_mode="livemax",
)
DUE = Gauge("forwarder_due_reservations", "Reservations due and not held by any worker.", multiprocess_mode="livemax")
OLDEST_DUE_SECONDS = Gauge(
    "forwarder_oldest_due_seconds", "How long the oldest due reservation has been due.", multiprocess_mode="livemax"
)
HELD = Gauge(
    "forwarder_held_reservations", "Reservations that this worker holds in memory.", multiprocess_mode="livesum"
)

PUSHES = Counter("forwarder_pushes_total", "Pushes to PMSs.", ["kind", "action", "outcome"])
PUSH_SECONDS = Histogram("forwarder_push_seconds", "How long a push took.", ["kind", "action"], buckets=_FAST)
BREAKERS = Gauge(
    "forwarder_circuit_breakers",
    "Accounts whose circuit breaker is not closed: their PMS fails and gets only an occasional probe.",
    ["kind", "state"],
    multiprocess_mode="livesum",
)
"""`state`: open, half_open (a probe is under way)."""

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
CANCELLATIONS = Counter("forwarder_cancellations_total", "Cancellations that came to an end.", ["kind", "status"])
"""`status`: DONE, REFUSED (by the PMS), FAILED (not carried out before its deadline)."""

CARDS_GONE = Counter(
    "forwarder_cards_gone_total", "Cards that came from the log after the key that they were sealed to was destroyed."
)
SEALING_KEYS_DESTROYED = Counter(
    "forwarder_sealing_keys_destroyed_total", "Short-lived keys of cards that were destroyed."
)
RESULTS_PUBLISHED = Counter("forwarder_results_published_total", "Result events acknowledged by the log.")
DEAD_LETTERS = Counter("forwarder_dead_letters_total", "Dead letters acknowledged by the log.")
UNREADABLE_RESULTS = Counter(
    "forwarder_unreadable_results_total",
    "Messages of the results topic that cannot be read and were skipped.",
    ["reader"],
)
"""`reader`: notifier; waiters, who read only what is about a submission whose outcome somebody waits for."""

UNPUBLISHED_RESULTS = Gauge(
    "forwarder_unpublished_results",
    "Result events recorded and not published yet, at the last count.",
    multiprocess_mode="livemax",
)

WEBHOOKS_QUEUED = Counter("forwarder_webhooks_queued_total", "Deliveries that the notifier queued for result events.")
WEBHOOK_DELIVERIES = Counter("forwarder_webhook_deliveries_total", "Posts to customers' endpoints.", ["outcome"])
"""`outcome`: delivered, put_off (tried again later), failed (given up), gone (410)."""

WEBHOOK_SECONDS = Histogram("forwarder_webhook_seconds", "How long a post to an endpoint took.", buckets=_FAST)
WEBHOOKS_PENDING = Gauge(
    "forwarder_webhooks_pending", "Deliveries still to be made, at the last count.", multiprocess_mode="livemax"
)
WEBHOOKS_OLDEST_DUE_SECONDS = Gauge(
    "forwarder_webhooks_oldest_due_seconds",
    "How long the oldest due delivery has been due, at the last count.",
    multiprocess_mode="livemax",
)
WEBHOOK_ENDPOINTS_DISABLED = Counter(
    "forwarder_webhook_endpoints_disabled_total", "Endpoints that the notifier disabled.", ["reason"]
)
"""`reason`: gone (410), failing (nothing delivered for three days)."""


_DELAY_SECONDS: Final = 0.1
"""For how long an observation may not show in the metrics."""


class DeferredMetrics:
    """Observations and counts of hot paths, noted at once and passed to the metrics many together. For coroutines; what is held
    when the process ends is passed on then.

    Where several processes serve one port, their metrics are files, and observing one at a time took a sixth of what a submission
    costs the ingress. Many together find everything in the processor's caches.
    """

    def __init__(self) -> None:
        self._observations: list[tuple[Histogram, float]] = []
        self._counts: dict[Counter, int] = {}
        self._flushing_loop: asyncio.AbstractEventLoop | None = None
        atexit.register(self.flush)

    def observe(self, histogram: Histogram, value: float) -> None:
        """`histogram` shows `value` a tenth of a second later."""
        self._observations.append((histogram, value))
        if asyncio.get_running_loop() is not self._flushing_loop:
            self._flush_later()

    def count(self, counter: Counter) -> None:
        """`counter` is one more a tenth of a second later."""
        self._counts[counter] = self._counts.get(counter, 0) + 1
        if asyncio.get_running_loop() is not self._flushing_loop:
            self._flush_later()

    def _flush_later(self) -> None:
        self._flushing_loop = asyncio.get_running_loop()
        self._flushing_loop.call_later(_DELAY_SECONDS, self.flush)

    def flush(self) -> None:
        """Pass on all that is held."""
        self._flushing_loop = None
        counts, self._counts = self._counts, {}
        for counter, times in counts.items():
            counter.inc(times)
        observations, self._observations = self._observations, []
        for histogram, value in observations:
            histogram.observe(value)


DEFERRED: Final = DeferredMetrics()
"""The process's, as its metrics are."""


@functools.cache
def submissions(operation: str, answer: str) -> Counter:
    """`SUBMISSIONS` of these labels, looked up once for each pair."""
    return SUBMISSIONS.labels(operation, answer)


def registry() -> CollectorRegistry:
    """The registry to expose: of all processes on this port where `PROMETHEUS_MULTIPROC_DIR` is set, else of this one."""
    DEFERRED.flush()
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return REGISTRY
    merged = CollectorRegistry()
    MultiProcessCollector(merged)  # type: ignore[no-untyped-call]
    return merged

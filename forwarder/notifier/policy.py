"""Decides what an endpoint's response means for the delivery and the endpoint, and when to retry. Pure.

2xx            DELIVERED
410            FAILED, and the endpoint is disabled
anything else  PENDING: retried by `next_try`; FAILED after the retry period

The pauses are the example of Standard Webhooks, with full jitter: each is drawn evenly between zero and twice its figure, so that
deliveries that failed together are not retried together.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final

from forwarder.process.clock import iso
from forwarder.store.deliveries import DeliveryAttempt, DeliveryStatus, DueDelivery, TriedDelivery
from forwarder.webhooks.port import EndpointResponse, NoResponse, PostResult

RETRY_FOR: Final = timedelta(days=3)
"""How long a delivery is retried, from its first attempt; the last attempt is at the end. Times without attempts, because notifiers
or their dependencies were down, do not count."""

PAUSES: Final = tuple(timedelta(seconds=seconds) for seconds in (5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400))
"""After the first try, the second, … and every later one."""

_MIN_PAUSE: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Decision:
    """`outcome`: the name in metrics and logs. `retry_after_seconds`: requested by the endpoint, for all of its deliveries."""

    tried: TriedDelivery
    outcome: str
    retry_after_seconds: float = 0.0

    @property
    def delivered(self) -> bool:
        return self.tried.status is DeliveryStatus.DELIVERED

    @property
    def gone(self) -> bool:
        return self.outcome == "gone"

    @property
    def given_up(self) -> bool:
        return self.outcome == "failed"


def decide(delivery: DueDelivery, result: PostResult, *, began: datetime, took: timedelta, jitter: float) -> Decision:
    """The decision to record for an attempt that began then and took so long."""
    ms = round(took / timedelta(milliseconds=1))
    status: int | None = None
    retry_after: float | None = None
    match result:
        case EndpointResponse():
            status, retry_after = result.status, result.retry_after_seconds
            attempt = DeliveryAttempt(iso(began), ms, status=status, detail=result.excerpt or None)
        case NoResponse(failure, detail):
            attempt = DeliveryAttempt(iso(began), ms, failure=failure, detail=detail or None)
    # Not read from the clock: if it jumped meanwhile, the delivery would seem to have been tried for that long.
    now = began + took
    if status is not None and HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return Decision(TriedDelivery(delivery, DeliveryStatus.DELIVERED, attempt, now), "delivered")
    if status == HTTPStatus.GONE:
        return Decision(TriedDelivery(delivery, DeliveryStatus.FAILED, attempt, now), "gone")
    due_at = next_try(
        delivery.tries + 1,
        retrying_since=delivery.retrying_since,
        now=now,
        retry_after_seconds=retry_after,
        jitter=jitter,
    )
    if due_at is None:
        return Decision(TriedDelivery(delivery, DeliveryStatus.FAILED, attempt, now), "failed")
    put_off = TriedDelivery(delivery, DeliveryStatus.PENDING, attempt, now, due_at)
    return Decision(put_off, "put_off", max(retry_after or 0.0, 0.0))


def with_adjusted_start(delivery: DueDelivery, *, now: datetime, failing_seconds: float) -> DueDelivery:
    """`delivery` for an attempt that starts `now`, with the start of `RETRY_FOR`.

    The time since the last attempt counts only up to the planned pause, so that an outage on our side, or a clock jump, costs at
    most one pause; or up to `failing_seconds`, during which every post to the endpoint was seen to fail.
    """
    if not delivery.tries or not delivery.attempts:
        return replace(delivery, retrying_since=now)
    last_at = datetime.fromisoformat(delivery.attempts[-1].at)
    planned = 2 * PAUSES[min(delivery.tries, len(PAUSES)) - 1]
    not_counted = max(now - last_at - max(planned, timedelta(seconds=failing_seconds)), timedelta(0))
    return replace(delivery, retrying_since=delivery.retrying_since + not_counted)


def next_try(
    tries: int, *, retrying_since: datetime, now: datetime, retry_after_seconds: float | None, jitter: float
) -> datetime | None:
    """When to retry after `tries` attempts; None after the retry period.

    Not before `retry_after_seconds`, which the endpoint requested. `jitter` is drawn evenly from [0, 1).
    """
    end = retrying_since + RETRY_FOR
    if now >= end:
        return None
    pause = max(PAUSES[min(tries, len(PAUSES)) - 1] * 2 * jitter, _MIN_PAUSE)
    asked_for = timedelta(seconds=min(max(retry_after_seconds or 0.0, 0.0), RETRY_FOR.total_seconds()))
    return min(now + max(pause, asked_for), max(end, now + _MIN_PAUSE))

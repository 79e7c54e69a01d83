"""What an endpoint's response means for the delivery and for the endpoint, and when to try again. Pure.

2xx            DELIVERED
410            FAILED, and the endpoint is gone: nothing more is posted to it
anything else  PENDING: tried again by `next_try`; FAILED if it was tried for long enough

The pauses are the example of Standard Webhooks, with full jitter: each is drawn evenly between zero and twice its figure, so that
deliveries that failed together do not come back together.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final

from forwarder.store.webhooks.port import DeliveryAttempt, DeliveryStatus, DueDelivery, TriedDelivery
from forwarder.webhooks.port import EndpointResponse, NoResponse, PostResult

RETRY_FOR: Final = timedelta(days=3)
"""For how long a delivery is tried, from its first try on; the last try is at the end. Time in which nobody tried, because
notifiers or what they depend on were down, does not count."""

PAUSES: Final = tuple(timedelta(seconds=seconds) for seconds in (5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400))
"""After the first try, the second, … and every later one."""

_MIN_PAUSE: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Decision:
    """`outcome` is its name in metrics and logs. `retry_after_seconds`: what the endpoint asked for, for all of its deliveries."""

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


def decide(
    delivery: DueDelivery, result: PostResult, attempt: DeliveryAttempt, *, now: datetime, jitter: float
) -> Decision:
    """What to record of a try that ended `now`."""
    status = result.status if isinstance(result, EndpointResponse) else None
    if status is not None and HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return Decision(TriedDelivery(delivery, DeliveryStatus.DELIVERED, attempt, now), "delivered")
    if status == HTTPStatus.GONE:
        return Decision(TriedDelivery(delivery, DeliveryStatus.FAILED, attempt, now), "gone")
    retry_after = result.retry_after_seconds if isinstance(result, EndpointResponse) else None
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


def attempt_of(result: PostResult, *, at: str, ms: int) -> DeliveryAttempt:
    """A try as the delivery log shows it."""
    match result:
        case EndpointResponse(status, _, excerpt):
            return DeliveryAttempt(at, ms, status=status, detail=excerpt or None)
        case NoResponse(failure, detail):
            return DeliveryAttempt(at, ms, failure=failure, detail=detail or None)


def adjusted_start(
    tries: int, *, retrying_since: datetime, last_at: datetime | None, now: datetime, failing_seconds: float
) -> datetime:
    """From when on `RETRY_FOR` counts, for a try that starts `now` after `tries` others, the last of them at `last_at`.

    Of the time since then, no more counts than could have been planned, so that an outage of ours, or a clock that jumps, costs one
    pause at most; or no more than `failing_seconds`, for which every post to the endpoint was seen to fail.
    """
    if not tries or last_at is None:
        return now
    planned = 2 * PAUSES[min(tries, len(PAUSES)) - 1]
    return retrying_since + max(now - last_at - max(planned, timedelta(seconds=failing_seconds)), timedelta(0))


def next_try(
    tries: int, *, retrying_since: datetime, now: datetime, retry_after_seconds: float | None, jitter: float
) -> datetime | None:
    """When to try again after `tries` tries; None if it was tried for long enough.

    Not before `retry_after_seconds`, which the endpoint asked for. `jitter` is drawn evenly from [0, 1).
    """
    end = retrying_since + RETRY_FOR
    if now >= end:
        return None
    pause = max(PAUSES[min(tries, len(PAUSES)) - 1] * 2 * jitter, _MIN_PAUSE)
    asked_for = timedelta(seconds=min(max(retry_after_seconds or 0.0, 0.0), RETRY_FOR.total_seconds()))
    return min(now + max(pause, asked_for), max(end, now + _MIN_PAUSE))

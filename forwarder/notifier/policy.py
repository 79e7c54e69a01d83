"""What an endpoint's reply means for the delivery, and for the endpoint. Pure.

2xx            DELIVERED
410            FAILED, and the endpoint is gone: it is posted to no more
anything else  PENDING: tried again, as `retry` has it; FAILED where it was tried for long enough
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final

from forwarder.store.webhooks.port import DeliveryAttempt, DeliveryStatus, DueDelivery, TriedDelivery
from forwarder.webhooks.port import EndpointResponse, NoResponse, PostResult


@dataclass(frozen=True, slots=True)
class Decision:
    """`outcome` names it in metrics and logs. `wait_seconds`: what the endpoint asked for, which holds for all that it is sent."""

    tried: TriedDelivery
    outcome: str
    wait_seconds: float = 0.0

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
    delivery: DueDelivery, reply: PostResult, attempt: DeliveryAttempt, *, now: datetime, luck: float
) -> Decision:
    """What to record of a try that ended `now`."""
    status = reply.status if isinstance(reply, EndpointResponse) else None
    if status is not None and HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return Decision(TriedDelivery(delivery, DeliveryStatus.DELIVERED, attempt, now), "delivered")
    if status == HTTPStatus.GONE:
        return Decision(TriedDelivery(delivery, DeliveryStatus.FAILED, attempt, now), "gone")
    asked = reply.wait_seconds if isinstance(reply, EndpointResponse) else None
    due_at = next_try(
        delivery.tries + 1, retrying_since=delivery.retrying_since, now=now, asked_seconds=asked, luck=luck
    )
    if due_at is None:
        return Decision(TriedDelivery(delivery, DeliveryStatus.FAILED, attempt, now), "failed")
    put_off = TriedDelivery(delivery, DeliveryStatus.PENDING, attempt, now, due_at)
    return Decision(put_off, "put_off", max(asked or 0.0, 0.0))


def attempt_of(reply: PostResult, *, at: str, ms: int) -> DeliveryAttempt:
    """A try as the delivery log shows it."""
    match reply:
        case EndpointResponse(status, _, excerpt):
            return DeliveryAttempt(at, ms, status=status, detail=excerpt or None)
        case NoResponse(failure, detail):
            return DeliveryAttempt(at, ms, failure=failure, detail=detail or None)


TRIED_FOR: Final = timedelta(days=3)
"""How long a delivery is tried, from its first try on. The last one is made when that is over. Time in which nobody tried, because
notifiers or what they need were away, does not count."""

PAUSES: Final = tuple(timedelta(seconds=seconds) for seconds in (5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400))
"""After the first try, the second, … and every later one."""

_SHORTEST: Final = timedelta(seconds=1)


def counts_from(
    tried: int, *, retrying_since: datetime, last_at: datetime | None, now: datetime, failing_seconds: float
) -> datetime:
    """From when on its time of trying counts, for a try that starts `now` after `tried` others, of which the last was at `last_at`.

    Of the time between the two no more counts than might have been planned, so that an outage of ours, or a clock that jumps, costs
    one pause at the most; or than `failing_seconds`, for which the endpoint was seen to do nothing but fail.
    """
    if not tried or last_at is None:
        return now
    planned = 2 * PAUSES[min(tried, len(PAUSES)) - 1]
    return retrying_since + max(now - last_at - max(planned, timedelta(seconds=failing_seconds)), timedelta(0))


def next_try(
    tried: int, *, retrying_since: datetime, now: datetime, asked_seconds: float | None, luck: float
) -> datetime | None:
    """When to try again after `tried` tries, None where it was tried for long enough.

    `asked_seconds` is what the endpoint asked for (`Retry-After`): not before. `luck` is the jitter, evenly drawn from [0, 1).
    """
    end = retrying_since + TRIED_FOR
    if now >= end:
        return None
    pause = max(PAUSES[min(tried, len(PAUSES)) - 1] * 2 * luck, _SHORTEST)
    asked = timedelta(seconds=min(max(asked_seconds or 0.0, 0.0), TRIED_FOR.total_seconds()))
    return min(now + max(pause, asked), max(end, now + _SHORTEST))

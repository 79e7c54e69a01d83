"""What an endpoint's reply means for the delivery, and for the endpoint. Pure.

2xx            DELIVERED
410            FAILED, and the endpoint is gone: it is posted to no more
anything else  PENDING: tried again, as `retry` has it; FAILED where it was tried for long enough
"""

from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus

from forwarder.notifier.retry import next_try
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

"""Deliveries posted: signed, sent, judged, and what came of them recorded.

An endpoint that says that it is gone (410) is disabled, and so is one that did nothing but fail for days.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import structlog

from forwarder.notifier.policy import Decision, attempt_of, decide
from forwarder.notifier.retry import counts_from
from forwarder.observability import metrics
from forwarder.process.batching import Batcher
from forwarder.process.clock import Clock, iso
from forwarder.store.webhooks.port import DeliveryQueue, DueDelivery, TriedDelivery
from forwarder.tenancy.port import Unsealer
from forwarder.tenancy.webhooks import Disabled, Endpoint, EndpointReader
from forwarder.webhooks.port import EndpointResponse, Sender
from forwarder.webhooks.signature import signed_headers

_log = structlog.get_logger(__name__)

_HEADERS = {"content-type": "application/json", "user-agent": "reservation-forwarder"}


class Posting:
    """Posts what was claimed. Raises `StoreUnavailable`, `TenancyUnavailable`, `CannotOpen`."""

    def __init__(
        self,
        queue: DeliveryQueue,
        endpoints: EndpointReader,
        unsealer: Unsealer,
        sender: Sender,
        clock: Clock,
        *,
        record_batch: int,
        luck: Callable[[], float] = random.random,
    ) -> None:
        self._queue = queue
        self._endpoints = endpoints
        self._unsealer = unsealer
        self._sender = sender
        self._clock = clock
        self._luck = luck
        self._records: Batcher[TriedDelivery, None] = Batcher(self._record, at_most=record_batch)

    def secrets_of(self, endpoint: Endpoint) -> Sequence[str]:
        """What signs for the endpoint now: its secret, and the one of before while that counts."""
        sealed = [endpoint.secret]
        until = endpoint.previous_until
        if endpoint.previous_secret is not None and until is not None and self._clock.now() < until:
            sealed.append(endpoint.previous_secret)
        return [self._unsealer.open_text(one) for one in sealed]

    async def post(
        self, endpoint: Endpoint, signing: Sequence[str], delivery: DueDelivery, *, failing_seconds: float
    ) -> Decision:
        """What came of posting `delivery`, recorded. `failing_seconds`: for how long the endpoint has only failed."""
        started, began = self._clock.now(), self._clock.monotonic()
        delivery = _counted(delivery, started, failing_seconds)
        body = delivery.body.encode()
        signed = signed_headers(signing, message_id=delivery.event_id, timestamp=int(started.timestamp()), body=body)
        reply = await self._sender.post(endpoint.url, {**_HEADERS, **signed}, body)
        took = self._clock.monotonic() - began
        attempt = attempt_of(reply, at=iso(started), ms=round(took * 1000))
        # Not the clock's own word: had it jumped meanwhile, the delivery would seem to have been tried for as long.
        ended = started + timedelta(seconds=took)
        judged = decide(delivery, reply, attempt, now=ended, luck=self._luck())
        metrics.WEBHOOK_DELIVERIES.labels(judged.outcome).inc()
        metrics.WEBHOOK_SECONDS.observe(took)
        _log.info(
            "webhook.posted",
            endpoint_id=endpoint.id,
            event_id=delivery.event_id,
            delivery_id=delivery.id,
            tries=delivery.tries + 1,
            outcome=judged.outcome,
            status=reply.status if isinstance(reply, EndpointResponse) else None,
            failure=attempt.failure,
            ms=attempt.ms,
        )
        await self._records.submit(judged.tried)
        return judged

    async def judge(self, endpoint: Endpoint, judged: Sequence[Decision]) -> None:
        """Disable the endpoint that says that it is gone, or that took nothing for as long as one of these was tried."""
        if any(each.gone for each in judged):
            await self._disable(endpoint, Disabled.GONE)
        given_up = [_first_try(each.tried.delivery) for each in judged if each.given_up]
        if given_up and not await self._queue.delivered_since(endpoint.id, max(given_up)):
            await self._disable(endpoint, Disabled.FAILING)

    async def _disable(self, endpoint: Endpoint, reason: Disabled) -> None:
        now = self._clock.now()
        if await self._endpoints.disable(endpoint.id, reason, now=now):
            metrics.WEBHOOK_ENDPOINTS_DISABLED.labels(reason.value).inc()
            stopped = await self._queue.stop(endpoint.id, now=now)
            _log.warning(
                "webhook.endpoint_disabled",
                endpoint_id=endpoint.id,
                workspace_id=endpoint.workspace_id,
                reason=reason.value,
                stopped=stopped,
            )

    async def _record(self, tried: Sequence[TriedDelivery]) -> Sequence[None]:
        await self._queue.record(tried)
        return [None] * len(tried)


def _counted(delivery: DueDelivery, now: datetime, failing_seconds: float) -> DueDelivery:
    """The delivery, for a try that starts `now`."""
    last_at = datetime.fromisoformat(delivery.attempts[-1].at) if delivery.attempts else None
    retrying_since = counts_from(
        delivery.tries,
        retrying_since=delivery.retrying_since,
        last_at=last_at,
        now=now,
        failing_seconds=failing_seconds,
    )
    return replace(delivery, retrying_since=retrying_since)


def _first_try(delivery: DueDelivery) -> datetime:
    """When the first try of this series was made, as far as tries are kept. Earlier than what counts, after an outage."""
    if not delivery.tries:
        return delivery.retrying_since
    return datetime.fromisoformat(delivery.attempts[-min(delivery.tries, len(delivery.attempts))].at)

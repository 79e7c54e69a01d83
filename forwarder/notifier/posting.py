"""Posts a delivery: signs it, sends it, interprets the response, and records the result.

Disables an endpoint that returns 410, or to which every post has failed for days.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import structlog
from pydantic_core import from_json

from forwarder.notifier.policy import Decision, adjusted_start, attempt_of, decide
from forwarder.observability import metrics
from forwarder.observability.tracing.context import trace_headers, trace_id_of
from forwarder.process.clock import Clock, iso
from forwarder.process.containment import FAULTS, Blame, Fault, Where, contained
from forwarder.process.loops import Batcher
from forwarder.reservation.failures import INTERNAL_ERROR
from forwarder.store.deliveries import DueDelivery, TriedDelivery
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.port import Disabled, Endpoint, TenancyUnavailable, Unsealer
from forwarder.tenancy.sealing import of_webhook_headers, of_webhook_secret
from forwarder.webhooks.port import EndpointResponse, NoResponse, PostResult, Sender
from forwarder.webhooks.signature import signed_headers

if TYPE_CHECKING:
    from forwarder.store.delivery_queue import Deliveries
    from forwarder.tenancy.sql.endpoints import Endpoints

_log = structlog.get_logger(__name__)

_HEADERS = {"content-type": "application/json", "user-agent": "reservation-forwarder"}


@dataclass(frozen=True, slots=True)
class Opened:
    """An endpoint with its secrets and headers, unsealed."""

    endpoint: Endpoint
    secrets: Sequence[str] = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class Poster:
    """Posts claimed deliveries. Raises `StoreUnavailable`, `TenancyUnavailable`, `CannotOpen`."""

    def __init__(
        self,
        queue: "Deliveries",
        endpoints: "Endpoints",
        unsealer: Unsealer,
        sender: Sender,
        clock: Clock,
        *,
        record_batch: int,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._queue = queue
        self._endpoints = endpoints
        self._unsealer = unsealer
        self._sender = sender
        self._clock = clock
        self._jitter = jitter
        self._records: Batcher[TriedDelivery, None] = Batcher(
            self._record,
            where=Where.WEBHOOK_RECORDS,
            max_items=record_batch,
            outages=(StoreUnavailable,),
            set_aside=self._record_plainly,
            blame=Blame(Where.WEBHOOK_RECORDS, clock.sleep),
        )

    def opened(self, endpoint: Endpoint) -> Opened:
        """The secrets that sign for the endpoint now (its own, and earlier ones during a rotation), and its headers."""
        now = self._clock.now()
        sealed = [endpoint.secret, *(each.secret for each in endpoint.previous if now < each.until)]
        secrets = [self._unsealer.open_text(one, of_webhook_secret(endpoint.id)) for one in sealed]
        if endpoint.headers is None:
            return Opened(endpoint, secrets)
        headers = self._unsealer.open_text(endpoint.headers, of_webhook_headers(endpoint.id, endpoint.url))
        return Opened(endpoint, secrets, from_json(headers))

    async def post(self, opened: Opened, delivery: DueDelivery, *, failing_seconds: float) -> Decision:
        """Posts `delivery` and records the result. `failing_seconds`: how long every post to the endpoint has failed. An unexpected
        exception counts as a failed post."""
        started, began = self._clock.now(), self._clock.monotonic()
        endpoint = opened.endpoint
        try:
            delivery = _with_adjusted_start(delivery, started, failing_seconds)
            result = await self._send(opened, delivery, started)
        except (StoreUnavailable, TenancyUnavailable):
            raise
        except FAULTS as error:  # as said
            ids = {"endpoint_id": endpoint.id, "delivery_id": delivery.id, "event_id": delivery.event_id}
            result = NoResponse(INTERNAL_ERROR, str(contained(Where.WEBHOOK_POST, error, **ids)))
        took = self._clock.monotonic() - began

        def decided(result: PostResult) -> Decision:
            attempt = attempt_of(result, at=iso(started), ms=round(took * 1000))
            # Not read from the clock: if it jumped meanwhile, the delivery would seem to have been tried for that long.
            ended = started + timedelta(seconds=took)
            return decide(delivery, result, attempt, now=ended, jitter=self._jitter())

        try:
            decision = decided(result)
        except FAULTS as error:  # as said
            result = NoResponse(INTERNAL_ERROR, str(contained(Where.WEBHOOK_POST, error, endpoint_id=endpoint.id)))
            decision = decided(result)
        attempt = decision.tried.attempt
        metrics.WEBHOOK_DELIVERIES.labels(decision.outcome).inc()
        metrics.WEBHOOK_SECONDS.observe(took)
        _log.info(
            "webhook.posted",
            endpoint_id=endpoint.id,
            event_id=delivery.event_id,
            delivery_id=delivery.id,
            tries=delivery.tries + 1,
            outcome=decision.outcome,
            status=result.status if isinstance(result, EndpointResponse) else None,
            failure=attempt.failure,
            ms=attempt.ms,
            trace_id=delivery.trace and trace_id_of(delivery.trace),
        )
        await self._records.submit(decision.tried)
        return decision

    async def _send(self, opened: Opened, delivery: DueDelivery, started: datetime) -> PostResult:
        body = delivery.body.encode()
        signed = signed_headers(
            opened.secrets,
            message_id=delivery.event_id,
            timestamp=int(started.timestamp()),
            body=body,
            asymmetric=opened.endpoint.asymmetric,
        )
        traced = () if delivery.trace is None else trace_headers(delivery.trace)
        headers = {**opened.headers, **_HEADERS, **signed, **dict(traced)}
        return await self._sender.post(opened.endpoint.url, headers, body)

    async def disable_if_dead(self, endpoint: Endpoint, decisions: Sequence[Decision]) -> None:
        """Disables the endpoint if it returned 410, or accepted nothing for as long as one of these deliveries was tried."""
        if any(each.gone for each in decisions):
            await self._disable(endpoint, Disabled.GONE)
        given_up = [_first_try(each.tried.delivery) for each in decisions if each.given_up]
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

    async def _record_plainly(self, tried: TriedDelivery, fault: Fault) -> None:
        """Records a replacement without the endpoint's response, which may be the cause of the fault."""
        attempt = replace(tried.attempt, detail=None, failure=INTERNAL_ERROR if tried.attempt.failure else None)
        plain = replace(tried, attempt=replace(attempt, detail=str(fault)))
        await self._queue.record([plain])

    async def _record(self, tried: Sequence[TriedDelivery]) -> Sequence[None]:
        await self._queue.record(tried)
        return [None] * len(tried)


def _with_adjusted_start(delivery: DueDelivery, now: datetime, failing_seconds: float) -> DueDelivery:
    """`delivery` for a try that starts `now`."""
    last_at = datetime.fromisoformat(delivery.attempts[-1].at) if delivery.attempts else None
    retrying_since = adjusted_start(
        delivery.tries,
        retrying_since=delivery.retrying_since,
        last_at=last_at,
        now=now,
        failing_seconds=failing_seconds,
    )
    return replace(delivery, retrying_since=retrying_since)


def _first_try(delivery: DueDelivery) -> datetime:
    """When the first recorded attempt of this series was made: earlier than `retrying_since` after an outage."""
    if not delivery.tries:
        return delivery.retrying_since
    return datetime.fromisoformat(delivery.attempts[-min(delivery.tries, len(delivery.attempts))].at)

"""The notifier's settings and ports, the events that customers receive, and posting: signs a delivery, sends it, decides what the
endpoint's response means for it and when to retry, and records that. Disables an endpoint that returns 410, or to which every post
has failed for days.

2xx            DELIVERED
410            FAILED, and the endpoint is disabled
anything else  PENDING: retried by `next_try`; FAILED after the retry period

The pauses are the example of Standard Webhooks, with full jitter: each is drawn evenly between zero and twice its figure, so that
deliveries that failed together are not retried together."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import structlog
from pydantic_core import from_json, to_json

from forwarder.observability import metrics
from forwarder.observability.tracing import trace_headers, trace_id_of
from forwarder.process.clock import Clock, iso
from forwarder.process.loops import FAULTS, Batcher, Blame, Fault, Where, contained
from forwarder.reservation.outcome import INTERNAL_ERROR
from forwarder.store.deliveries import DeliveryAttempt, DeliveryStatus, DueDelivery, TriedDelivery
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.port import Disabled, Endpoint, TenancyUnavailable, Unsealer
from forwarder.tenancy.sealing import of_webhook_headers, of_webhook_secret
from forwarder.topics.codec import MAX_ID, Undecodable, decode_data, header, trace_of
from forwarder.topics.port import GapFound, Log, Message, Topics
from forwarder.webhooks.port import EndpointResponse, PostResult, Sender, Unanswered, signed_headers

if TYPE_CHECKING:
    from forwarder.store.delivery_queue import Deliveries
    from forwarder.tenancy.sql.endpoints import Endpoints

GROUP: Final = "forwarder-notifier"  # the consumer group of all notifiers of a deployment


@dataclass(frozen=True, slots=True)
class NotifierSettings:
    """Sizes are numbers of deliveries, times are seconds."""

    group: str = GROUP
    intake_batch: int = 500
    intake_wait_seconds: float = 0.5
    idle_seconds: float = 1.0  # before the next batch, if no endpoint subscribes to the events of this one
    sweep_seconds: float = 1.0
    post_seconds: float = 15.0  # how long an endpoint may take to respond; a claim lasts twice as long
    in_flight: int = 10  # concurrent posts to one endpoint, in one process
    max_endpoints: int = 100  # posted to at once; half of these places are reserved for those that are not failing
    max_backoff_seconds: float = 60.0  # the longest pause between two posts to an endpoint that keeps failing
    max_retry_after_seconds: float = 900.0
    """The maximum pause for a `Retry-After`. The delivery that got this response waits for the full time."""
    record_batch: int = 250
    grace_seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class NotifierParts:
    log: Log
    topics: Topics
    queue: "Deliveries"
    endpoints: "Endpoints"
    unsealer: Unsealer
    sender: Sender
    clock: Clock
    settings: NotifierSettings
    on_gap: GapFound | None = None


TEST_EVENT: Final = "webhook.test.v1"  # which `test` sends, regardless of the endpoint's subscriptions


@dataclass(frozen=True, slots=True)
class Event:
    """`body`: the body to post; `id`: the same each time it is published. `trace`: of the request that led to it."""

    id: str
    type: str
    workspace_id: str
    body: str = field(repr=False)
    trace: str | None = None
    account_id: str = ""
    property_id: str = ""


def decode_event(message: Message) -> Event:
    """The event in a message of the results topic. Raises `Undecodable`."""
    data = decode_data(message)
    workspace_id, account_id = data.get("workspaceId"), data.get("integrationAccountId")
    reservation = data.get("reservation")
    property_id = reservation.get("propertyId", "") if isinstance(reservation, Mapping) else ""
    attributes = [header(message.headers, name) for name in ("ce_id", "ce_type", "ce_time")]
    if not isinstance(workspace_id, str) or not all(attributes):
        raise Undecodable("not a result event: it has no workspace, id, type or time")
    event_id, kind, time = (each or "" for each in attributes)
    # An event id contains the id of its submission.
    limited = (workspace_id, MAX_ID), (event_id, MAX_ID + 32), (kind, MAX_ID)
    if any(len(text) > limit or "\0" in text for text, limit in limited):
        raise Undecodable("not a result event: an identifier is too long or has U+0000")
    body = body_of(kind, time, message.value.decode())
    return Event(event_id, kind, workspace_id, body, trace_of(message.headers), str(account_id), str(property_id))


def body_of(kind: str, time: str, data: str) -> str:
    """The body that is posted. `data` is JSON and is inserted unchanged."""
    return f'{{"type":{to_json(kind).decode()},"timestamp":{to_json(time).decode()},"data":{data}}}'


RETRY_FOR: Final = timedelta(days=3)
"""From the first attempt; the last one is at the end. Times without attempts, because of outages on our side, do not count."""
PAUSES: Final = tuple(timedelta(seconds=seconds) for seconds in (5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400))
"""After the first try, the second, … and every later one."""
_MIN_PAUSE: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Decision:
    """`outcome`, as in metrics and logs: delivered, gone, failed, or put_off. `retry_after_seconds`: requested by the endpoint, for
    all of its deliveries."""

    tried: TriedDelivery
    outcome: str
    retry_after_seconds: float = 0.0


def decide(delivery: DueDelivery, result: PostResult, *, began: datetime, took: timedelta, jitter: float) -> Decision:
    """The decision to record for an attempt that began then and took so long."""
    status, retry_after, ms = None, 0.0, round(took / timedelta(milliseconds=1))
    if isinstance(result, EndpointResponse):
        status, retry_after = result.status, max(result.retry_after_seconds or 0.0, 0.0)
        attempt = DeliveryAttempt(iso(began), ms, status=status, detail=result.excerpt or None)
    else:
        attempt = DeliveryAttempt(iso(began), ms, failure=result.failure, detail=result.detail or None)
    # Not read from the clock: if it jumped meanwhile, the delivery would seem to have been tried for that long.
    now = began + took
    if status is not None and HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return Decision(TriedDelivery(delivery, DeliveryStatus.DELIVERED, attempt, now), "delivered")
    tries, since, due_at = delivery.tries + 1, delivery.retrying_since, None
    if status != HTTPStatus.GONE:
        due_at = next_try(tries, retrying_since=since, now=now, retry_after_seconds=retry_after, jitter=jitter)
    if due_at is None:
        ended = TriedDelivery(delivery, DeliveryStatus.FAILED, attempt, now)
        return Decision(ended, "gone" if status == HTTPStatus.GONE else "failed")
    return Decision(TriedDelivery(delivery, DeliveryStatus.PENDING, attempt, now, due_at), "put_off", retry_after)


def with_adjusted_start(delivery: DueDelivery, *, now: datetime, failing_seconds: float) -> DueDelivery:
    """`delivery` for an attempt that starts `now`, with the start of `RETRY_FOR`. The time since the last attempt counts only up to
    the planned pause, so that an outage on our side, or a clock jump, costs at most one pause; or up to `failing_seconds`, during
    which every post to the endpoint was seen to fail."""
    if not delivery.tries or not delivery.attempts:
        return replace(delivery, retrying_since=now)
    last_at = datetime.fromisoformat(delivery.attempts[-1].at)
    planned = 2 * PAUSES[min(delivery.tries, len(PAUSES)) - 1]
    not_counted = max(now - last_at - max(planned, timedelta(seconds=failing_seconds)), timedelta(0))
    return replace(delivery, retrying_since=delivery.retrying_since + not_counted)


def next_try(
    tries: int, *, retrying_since: datetime, now: datetime, retry_after_seconds: float | None, jitter: float
) -> datetime | None:
    """When to retry after `tries` attempts; None after the retry period. Not before `retry_after_seconds`, which the endpoint
    requested. `jitter` is drawn evenly from [0, 1)."""
    end = retrying_since + RETRY_FOR
    if now >= end:
        return None
    pause = max(PAUSES[min(tries, len(PAUSES)) - 1] * 2 * jitter, _MIN_PAUSE)
    asked_for = timedelta(seconds=min(max(retry_after_seconds or 0.0, 0.0), RETRY_FOR.total_seconds()))
    return min(now + max(pause, asked_for), max(end, now + _MIN_PAUSE))


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

    def __init__(self, parts: NotifierParts, *, jitter: Callable[[], float] = random.random) -> None:
        self._parts, self._jitter = parts, jitter
        self._records: Batcher[TriedDelivery, None] = Batcher(
            self._record,
            where=Where.WEBHOOK_RECORDS,
            max_items=parts.settings.record_batch,
            outages=(StoreUnavailable,),
            set_aside=self._record_plainly,
            blame=Blame(Where.WEBHOOK_RECORDS, parts.clock.sleep),
        )

    def opened(self, endpoint: Endpoint) -> Opened:
        """The secrets that sign for the endpoint now (its own, and earlier ones during a rotation), and its headers."""
        now = self._parts.clock.now()
        sealed = [endpoint.secret, *(each.secret for each in endpoint.previous if now < each.until)]
        secrets = [self._parts.unsealer.open_text(one, of_webhook_secret(endpoint.id)) for one in sealed]
        if endpoint.headers is None:
            return Opened(endpoint, secrets)
        headers = self._parts.unsealer.open_text(endpoint.headers, of_webhook_headers(endpoint.id, endpoint.url))
        return Opened(endpoint, secrets, from_json(headers))

    async def post(self, opened: Opened, delivery: DueDelivery, *, failing_seconds: float) -> Decision:
        """Posts and records. `failing_seconds`: how long every post to the endpoint has failed. An unexpected exception is a failed
        post."""
        clock, endpoint = self._parts.clock, opened.endpoint
        started, began = clock.now(), clock.monotonic()
        ids = {"endpoint_id": endpoint.id, "delivery_id": delivery.id, "event_id": delivery.event_id}
        try:
            delivery = with_adjusted_start(delivery, now=started, failing_seconds=failing_seconds)
            body, traced = delivery.body.encode(), () if delivery.trace is None else trace_headers(delivery.trace)
            event_id, timestamp, both = delivery.event_id, int(started.timestamp()), endpoint.asymmetric
            signed = signed_headers(
                opened.secrets, message_id=event_id, timestamp=timestamp, body=body, asymmetric=both
            )
            headers = {**opened.headers, **_HEADERS, **signed, **dict(traced)}
            result = await self._parts.sender.post(endpoint.url, headers, body)
        except (StoreUnavailable, TenancyUnavailable):
            raise
        except FAULTS as error:  # as said
            result = Unanswered(INTERNAL_ERROR, str(contained(Where.WEBHOOK_POST, error, **ids)))
        took = timedelta(seconds=clock.monotonic() - began)
        try:
            decision = decide(delivery, result, began=started, took=took, jitter=self._jitter())
        except FAULTS as error:  # as said
            result = Unanswered(INTERNAL_ERROR, str(contained(Where.WEBHOOK_POST, error, **ids)))
            decision = decide(delivery, result, began=started, took=took, jitter=self._jitter())
        attempt = decision.tried.attempt
        metrics.WEBHOOK_DELIVERIES.labels(decision.outcome).inc()
        metrics.WEBHOOK_SECONDS.observe(took.total_seconds())
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

    async def disable_if_dead(self, endpoint: Endpoint, decisions: Sequence[Decision]) -> None:
        """Disables the endpoint if it returned 410, or accepted nothing for as long as one of these deliveries was tried."""
        queue, reason = self._parts.queue, Disabled.GONE
        if not (failed := [each.tried.delivery for each in decisions if each.outcome == "gone"]):
            reason, failed = Disabled.FAILING, [each.tried.delivery for each in decisions if each.outcome == "failed"]
            # Since the first recorded attempt of the series: earlier than `retrying_since` after an outage.
            since: list[datetime] = []
            for delivery in failed:
                kept = min(delivery.tries, len(delivery.attempts))
                since.append(datetime.fromisoformat(delivery.attempts[-kept].at) if kept else delivery.retrying_since)
            if not failed or await queue.delivered_since(endpoint.id, max(since)):
                return
        now = self._parts.clock.now()
        if not await self._parts.endpoints.disable(endpoint.id, reason, now=now, url=endpoint.url):
            # It was disabled or removed meanwhile; or it has another address, which has not refused these.
            await queue.put_back(endpoint.id, [each.id for each in failed], now=now)
            return
        metrics.WEBHOOK_ENDPOINTS_DISABLED.labels(reason.value).inc()
        stopped = await queue.stop(endpoint.id, now=now)
        endpoint_id, workspace_id, why = endpoint.id, endpoint.workspace_id, reason.value
        _log.warning(
            "webhook.endpoint_disabled", endpoint_id=endpoint_id, workspace_id=workspace_id, reason=why, stopped=stopped
        )

    async def _record_plainly(self, tried: TriedDelivery, fault: Fault) -> None:
        """Records a replacement without the endpoint's response, which may be the cause of the fault."""
        attempt = replace(tried.attempt, detail=None, failure=INTERNAL_ERROR if tried.attempt.failure else None)
        await self._parts.queue.record([replace(tried, attempt=replace(attempt, detail=str(fault)))])

    async def _record(self, tried: Sequence[TriedDelivery]) -> Sequence[None]:
        await self._parts.queue.record(tried)
        return [None] * len(tried)

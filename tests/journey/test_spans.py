"""Spans, exported by OTLP to a collector: one connected trace from the caller's request to the webhook, through every process."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Final

import pytest

from tests.support.backends import Backend, slow_on
from tests.support.deployment.deployment import Deployment, Site, booking, deploy
from tests.support.network.collector import Collected, Collector, collector
from tests.support.network.receiver import Receiver, receiver

CALLER: Final = "00f067aa0ba902b7"
CARD: Final = {
    "cardNumber": "4242424242424242",
    "cardHolderName": "Maria Gonzalez",
    "expiryMonth": "07",
    "expiryYear": "2031",
    "cvv": "987",
}
EXPORTED_SOON: Final = {"OTEL_BSP_SCHEDULE_DELAY": "100"}
SHORT: Final = {"FORWARDER_PUSH_TIMEOUT_SECONDS": "2", "FORWARDER_LEASE_SECONDS": "4"}


def traceparent(trace: str, *, sampled: bool = True) -> str:
    return f"00-{trace}-{CALLER}-0{int(sampled)}"


@dataclass
class Traced:
    deployment: Deployment
    collector: Collector
    webhook: Receiver

    async def book(self, account: str, number: int, trace: str, **headers: str) -> str:
        """Its request id."""
        body = booking(number, cardDetails=CARD, notes="a-note-of-the-guest")
        answer = await self.deployment.submit(account, body, traceparent=traceparent(trace), **headers)
        assert answer.status_code in {201, 202}, answer.text
        request_id: str = answer.json()["data"]["requestId"]
        return request_id

    async def go_wrong(self, account: str, mode: str) -> None:
        """With the next request, once."""
        url = f"{self.deployment.url('simulate')}/{account}/faults"
        assert (await self.deployment.client.put(url, json={"mode": mode, "count": 1})).is_success


@pytest.fixture
async def traced(site: Site, backend: Backend) -> AsyncIterator[Traced]:
    async with AsyncExitStack() as stack:
        taking = await stack.enter_async_context(collector())
        webhook = await stack.enter_async_context(receiver())
        more = {**EXPORTED_SOON, **SHORT, "OTEL_EXPORTER_OTLP_ENDPOINT": taking.url}
        if backend == "distributed":
            more["FORWARDER_WEBHOOK_PRIVATE_ADDRESSES"] = "true"
        running = await stack.enter_async_context(deploy(replace(site, settings={**site.settings, **more})))
        if backend == "distributed":
            running.add("notifier")
            await running.start()
        for account in ("generic", "throttled"):
            await running.add_account(account)
        await running.add_account("sync", kind="booking-sync", path="booking-sync/api/v3")
        url = f"{running.url('notifier')}/api/v1/vrs/webhooks"
        hook = await running.client.post(url, json={"url": webhook.url}, headers=running.headers("generic"))
        assert hook.status_code == 201, hook.text
        yield Traced(running, taking, webhook)


@pytest.mark.slow  # `test_traces.py` follows a trace through the same processes
@slow_on("embedded")
async def test_spans_of_one_trace_are_connected_from_the_caller_to_the_webhook(
    traced: Traced, backend: Backend
) -> None:
    await traced.go_wrong("throttled", "throttle")
    await traced.go_wrong("sync", "reset_after_booking")
    again = await traced.book("throttled", 2, "2" * 32)
    doubtful = await traced.book("sync", 3, "3" * 32)
    request_id = await _every_stage_has_its_span(traced, backend)
    await _a_cancellation_too(traced, request_id)
    await traced.deployment.settled("throttled", again)
    await _a_retry_is_a_second_span(traced)
    await traced.deployment.settled("sync", doubtful)
    await _what_is_looked_up_is_in_the_trace_too(traced)
    await traced.deployment.submit(
        "generic", booking(4), traceparent=traceparent("4" * 32, sampled=False), Prefer="wait=30"
    )
    await traced.deployment.stop()
    assert traced.collector.of("4" * 32) == []  # its caller did not want it recorded
    assert traced.collector.paths == {"/v1/traces"}
    _nothing_confidential_is_exported(traced)


async def _every_stage_has_its_span(traced: Traced, backend: Backend) -> str:
    request_id = await traced.book("generic", 1, "1" * 32, Prefer="wait=30")
    await traced.webhook.has_answered(f"{request_id}.1")
    requests, results = (
        f"{traced.deployment.site.settings.get('FORWARDER_TOPIC_PREFIX', '')}reservations.{name}"
        for name in ("requests", "results")
    )
    way = [
        ("forwarder-ingress", "SERVER", "POST /api/v1/vrs/reservations/booking-engine"),
        ("forwarder-ingress", "PRODUCER", f"send {requests}"),
        ("forwarder-worker", "CONSUMER", f"process {requests}"),
        ("forwarder-worker", "INTERNAL", "push create"),
        ("forwarder-worker", "CLIENT", "POST"),
        ("forwarder-worker", "PRODUCER", f"send {results}"),
        ("forwarder-notifier", "CONSUMER", f"process {results}"),
        ("forwarder-notifier", "CLIENT", "POST"),
    ]
    spans = await traced.collector.has("1" * 32, lambda found: len(found) >= len(way))
    if backend == "embedded":
        way = [("forwarder-up", kind, name) for _, kind, name in way]
    assert sorted((each.service, each.kind, each.name) for each in spans) == sorted(way)
    server, sent, taken, push, asked, told, heard, posted = (
        _one(spans, *each, later=place > 4) for place, each in enumerate(way)
    )
    followed = [CALLER, server.id, sent.id, taken.id, push.id, taken.id, told.id, heard.id]
    assert [each.parent for each in (server, sent, taken, push, asked, told, heard, posted)] == followed
    assert [taken.links, heard.links] == [[sent.id], [told.id]]
    assert not any(each.failed for each in spans)
    assert server.attributes["http.response.status_code"] == 201
    assert asked.attributes["http.response.status_code"] == 201
    assert posted.attributes["forwarder.event_id"] == f"{request_id}.1"
    assert push.attributes["forwarder.outcome"] == "confirmed"
    assert taken.attributes["messaging.message.id"] == taken.attributes["forwarder.request_id"] == request_id
    assert taken.attributes["messaging.system"] == ("embedded" if backend == "embedded" else "kafka")
    return request_id


def _one(spans: Sequence[Collected], service: str, kind: str, name: str, *, later: bool) -> Collected:
    """The first that is so, or the last: embedded, two requests of one process look the same."""
    found = [each for each in spans if (each.service, each.kind, each.name) == (service, kind, name)]
    return found[-1 if later else 0]


async def _a_cancellation_too(traced: Traced, request_id: str) -> None:
    trace = "5" * 32
    answer = await traced.deployment.cancel("generic", request_id, traceparent=traceparent(trace), Prefer="wait=30")
    assert answer.status_code == 200, answer.text
    await traced.webhook.has_answered(f"{request_id}.2")
    spans = await traced.collector.has(trace, lambda found: len(found) >= 8)
    _is_connected(spans)
    assert "POST /api/v1/vrs/reservations/{id}/cancel" in {each.name for each in spans}
    (cancel,) = (each for each in spans if each.name == "push cancel")
    assert cancel.attributes["forwarder.outcome"] == "cancelled"


async def _a_retry_is_a_second_span(traced: Traced) -> None:
    spans = await traced.collector.has("2" * 32, lambda found: _outcomes(found) == ["deferred", "confirmed"])
    _is_connected(spans)
    first, second = (each for each in spans if each.name == "push create")
    assert (first.failed, first.attributes["error.type"], second.failed) == (True, "pms_throttled", False)
    (refused,) = (each for each in spans if each.parent == first.id)
    assert (refused.failed, refused.attributes["http.response.status_code"]) == (True, 429)


async def _what_is_looked_up_is_in_the_trace_too(traced: Traced) -> None:
    spans = await traced.collector.has("3" * 32, lambda found: _outcomes(found)[-1:] == ["confirmed"])
    _is_connected(spans)
    pushes = [each for each in spans if each.name.startswith("push ")]
    assert [each.name for each in pushes][:2] == ["push create", "push find"]
    assert (pushes[0].failed, pushes[0].attributes["forwarder.outcome"]) == (True, "in_doubt")


def _outcomes(spans: Sequence[Collected]) -> list[str | int]:
    return [each.attributes["forwarder.outcome"] for each in spans if each.name.startswith("push ")]


def _is_connected(spans: Sequence[Collected]) -> None:
    """What each is a part of is there, or the caller's own."""
    ids = {each.id for each in spans}
    assert [each.name for each in spans if each.parent not in ids | {CALLER}] == []
    assert [each.kind for each in spans if each.parent == CALLER] == ["SERVER"]


def _nothing_confidential_is_exported(traced: Traced) -> None:
    sent = b"".join(traced.collector.bodies)
    # Nothing that could be a part of a random id, a port or a time.
    guest = ("Maria", "Gonzalez", "guest1@", "Alcala", "a-note-of-the-guest")
    planted = (CARD["cardNumber"], *guest, traced.deployment.token, "secret", "/hook")
    assert [each for each in planted if each.encode() in sent] == []

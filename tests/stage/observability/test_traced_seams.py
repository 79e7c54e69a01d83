"""What is recorded at each seam, and what goes on through it: the application, the log, PMSs, webhooks."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx
import pytest
from starlette.requests import Request
from starlette.routing import Route

from forwarder.http.messages import Response
from forwarder.http.server import HttpApp
from forwarder.pms.directory import open_directory
from forwarder.pms.port import AccountConnection, Pms
from forwarder.process.clock import SystemClock
from forwarder.reservation.outcome import Absent, Confirmed, Deferred, InDoubt
from forwarder.topics.codec import trace_of
from forwarder.topics.port import ConsumedMessage, LogUnavailable, Message
from forwarder.topics.traced import TracedConsumer, TracedPublisher
from forwarder.webhooks.port import EndpointResponse, PostResult, Unanswered
from forwarder.webhooks.sender import TracedSender
from tests.stage.observability.spans import Seen, Spans, spans_in_memory
from tests.support.memory.clock import ManualClock
from tests.support.memory.log import MemoryLog
from tests.support.pms.httpx_transport import replying
from tests.support.simulator.server import booking

ID = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
TRACE = f"00-{ID}-{SPAN}-01 congo=t61"
UNSAMPLED = f"00-{ID}-{SPAN}-00"
TRACED = (("traceparent", TRACE[:55].encode()), ("tracestate", b"congo=t61"))
SECRET_URL = "https://user:password@hooks.example:8443/a-secret?of=theirs"


@pytest.fixture
def spans() -> Spans:
    return spans_in_memory()


def of(seen: Sequence[Seen], name: str) -> Seen:
    (found,) = (each for each in seen if each.name == name)
    return found


# --- the application ---


@asynccontextmanager
async def application(spans: Spans) -> AsyncIterator[httpx.AsyncClient]:
    async def show(request: Request) -> Response:
        headers = (request.headers.get("traceparent", ""), request.headers.get("tracestate", ""))
        return Response(503 if "broken" in request.url.path else 200, " ".join(headers).encode())

    routes = [Route("/rooms/{guest}", show), Route("/healthz", show)]
    app = HttpApp(routes, SystemClock(), tracer=spans.tracer)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://own") as client:
        yield client


async def test_a_request_is_answered_within_a_span_that_knows_no_more_than_its_route(spans: Spans) -> None:
    async with application(spans) as client:
        answer = await client.get("/rooms/Maria", headers={"traceparent": TRACE[:55], "tracestate": "congo=t61"})
        await client.get("/healthz")
        await client.get("/rooms/broken")
        await client.request("BREW", "/nowhere/Maria")
    first, broken, unknown = spans.seen
    assert (first.name, first.kind, first.parent, first.failed) == ("GET /rooms/{guest}", "SERVER", SPAN, False)
    assert answer.text == first.trace
    assert first.trace.endswith(" congo=t61")
    assert (broken.failed, broken.attributes["error.type"], broken.parent) == (True, "503", "")
    assert (unknown.name, unknown.attributes["http.request.method"]) == ("HTTP", "_OTHER")
    assert "Maria" not in str(spans.seen)


async def test_what_its_caller_does_not_record_is_not_recorded_and_goes_on_so(spans: Spans) -> None:
    async with application(spans) as client:
        answer = await client.get("/rooms/1", headers={"traceparent": UNSAMPLED})
    assert spans.seen == []
    assert (answer.text[:36], answer.text[53:55]) == (UNSAMPLED[:36], "00")


# --- the log ---


async def test_messages_of_one_trace_are_sent_together_and_those_of_none_as_they_are(spans: Spans) -> None:
    log = MemoryLog(ManualClock())
    bulk = [Message(b"key", b"{}", TRACED)] * 3
    alone = Message(b"key", b"{}", (("traceparent", UNSAMPLED.encode()),))
    bare = Message(b"key", b"{}")
    await TracedPublisher(log, spans.tracer, "kafka").publish("requests", [*bulk, alone, bare])
    (sent,) = spans.seen
    assert (sent.name, sent.kind, sent.parent) == ("send requests", "PRODUCER", SPAN)
    assert sent.attributes["messaging.batch.message_count"] == 3
    stored = log.topics["requests"]
    assert [trace_of(each.headers) for each in stored[:3]] == [sent.trace] * 3
    assert (trace_of(stored[3].headers) or "")[-2:] == "00"
    assert stored[4] == bare


async def test_a_message_that_the_log_did_not_take_is_a_failure(spans: Spans) -> None:
    log = MemoryLog(ManualClock())
    log.away = True
    with pytest.raises(LogUnavailable):
        await TracedPublisher(log, spans.tracer, "kafka").publish("requests", [Message(b"key", b"{}", TRACED)])
    assert (spans.seen[0].failed, spans.seen[0].attributes["error.type"]) == (True, "LogUnavailable")


class Delivering:
    """A consumer that delivers each batch once, and commits unless it is away."""

    def __init__(self, *batches: Sequence[ConsumedMessage]) -> None:
        self.batches = list(batches)
        self.away = False

    async def receive(self, *, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        return self.batches.pop(0)

    @property
    def unreadable(self) -> Mapping[int, int]:
        return {}

    async def commit(self, messages: Sequence[ConsumedMessage]) -> None:
        if self.away:
            raise LogUnavailable("away")


async def test_a_message_is_processed_from_when_it_is_received_until_it_is_committed(spans: Spans) -> None:
    ours = f"rsv_{'a' * 32}"
    named = (*TRACED, ("ce_id", ours.encode()), ("ce_subject", b"4111 1111 1111 1111"))
    messages = [ConsumedMessage("requests", 1, offset, 0, Message(b"", b"{}", named)) for offset in range(3)]
    inner = Delivering(messages, [], messages[2:], [])
    consumer = TracedConsumer(inner, spans.tracer, "kafka", "workers")
    received = await consumer.receive(max_messages=3, wait_seconds=0)
    assert spans.seen == []
    assert not await consumer.receive(max_messages=3, wait_seconds=0)
    await consumer.commit(received[1:2])  # and with it the one before
    assert [each.failed for each in spans.seen] == [False, False]
    first = spans.seen[0]
    assert (first.name, first.kind, first.parent, first.links) == ("process requests", "CONSUMER", SPAN, (SPAN,))
    assert trace_of(received[0].message.headers) == first.trace
    assert first.attributes["messaging.message.id"] == ours
    assert "4111" not in str(first.attributes)  # whoever writes to the topic may name anything as its subject
    again = await consumer.receive(max_messages=3, wait_seconds=0)
    assert spans.seen[2].attributes["error.type"] == "not_committed"
    inner.away = True
    with pytest.raises(LogUnavailable):
        await consumer.commit(again)
    assert spans.seen[3].attributes["error.type"] == "LogUnavailable"


# --- PMSs ---


@asynccontextmanager
async def pms(
    spans: Spans, *answers: int, kind: str = "generic", forward: bool = True
) -> AsyncIterator[tuple[Pms, list[httpx.Request]]]:
    """One that answers with these statuses in turn, and what it was asked."""
    asked: list[httpx.Request] = []

    def reply(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        status = answers[len(asked) - 1]
        if not status:
            raise httpx.ReadTimeout("none came")
        made = {"id": 7, "reference": booking().reference} if status < 400 else {}
        return httpx.Response(status, json={"data": []} if request.method == "GET" else made)

    opening = open_directory(SystemClock(), transport=replying(reply), tracer=spans.tracer, forward_traces=forward)
    async with opening as directory:
        options = {"credentialType": "token"} if kind == "beds24" else {}
        yield (
            directory.connect(AccountConnection("acme", kind, "https://pms.test/a-secret", "key-7", options=options)),
            asked,
        )


async def test_each_thing_that_a_pms_is_asked_is_a_span_with_its_requests_below(spans: Spans) -> None:
    asked = replace(booking(), trace=TRACE)
    async with pms(spans, 429, 0, 200, 201) as (connected, requests):
        assert isinstance(await connected.create(asked), Deferred)
        assert isinstance(await connected.create(asked), InDoubt)
        assert isinstance(await connected.find(asked), Absent)
        assert isinstance(await connected.create(asked), Confirmed)
    pairs = list(zip(spans.seen[::2], spans.seen[1::2], strict=True))
    assert [(request.name, push.name) for request, push in pairs] == [
        ("POST", "push create"),
        ("POST", "push create"),
        ("GET", "push find"),
        ("POST", "push create"),
    ]
    for sent, (request, push) in zip(requests, pairs, strict=True):
        assert (push.parent, push.kind, request.kind) == (SPAN, "INTERNAL", "CLIENT")
        assert request.parent == push.trace[36:52]
        assert sent.headers["traceparent"] == request.trace[:55]
        assert "tracestate" not in sent.headers
    assert [(push.attributes["forwarder.outcome"], push.failed) for _, push in pairs] == [
        ("deferred", True),
        ("in_doubt", True),
        ("absent", False),
        ("confirmed", False),
    ]
    assert [request.attributes.get("error.type") for request, _ in pairs] == ["429", "pms_timed_out", None, None]
    assert spans.seen[0].attributes["server.address"] == "pms.test"
    assert not any(each in str(spans.seen) for each in ("a-secret", "key-7", asked.guest_name))


async def test_a_pms_that_is_to_be_told_nothing_is_told_nothing(spans: Spans) -> None:
    async with pms(spans, 201, forward=False) as (connected, requests):
        await connected.create(replace(booking(), trace=TRACE))
    assert "traceparent" not in requests[0].headers
    assert of(spans.seen, "POST").parent == of(spans.seen, "push create").trace[36:52]


async def test_of_several_in_one_request_each_has_a_span_in_its_own_trace(spans: Spans) -> None:
    other = f"00-{'a' * 32}-{'b' * 16}-01"
    async with pms(spans, 503, kind="beds24") as (connected, requests):
        await connected.create_many([replace(booking(1), trace=TRACE), replace(booking(2), trace=other)])
    request, first, second = spans.seen
    assert (first.parent, second.parent) == (SPAN, "b" * 16)
    assert (request.parent, second.links) == (first.trace[36:52], (first.trace[36:52],))
    assert requests[0].headers["traceparent"] == request.trace[:55]
    assert first.failed
    assert second.failed


# --- webhooks ---


class Posting:
    def __init__(self, *results: PostResult) -> None:
        self.results = list(results)
        self.sent: list[Mapping[str, str]] = []

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> PostResult:
        self.sent.append(headers)
        return self.results.pop(0)


async def test_a_post_is_a_span_that_says_of_its_address_no_more_than_the_host(spans: Spans) -> None:
    inner = Posting(
        EndpointResponse(204), EndpointResponse(500), Unanswered("timed_out"), Unanswered("address_invalid")
    )
    sender = TracedSender(inner, spans.tracer)
    headers = {name: value.decode() for name, value in TRACED} | {"webhook-id": f"rsv_{'a' * 32}.1"}
    for url in (*[SECRET_URL] * 3, "nonsense://"):
        await sender.post(url, headers, b"{}")
    assert [each.attributes.get("error.type") for each in spans.seen] == [None, "500", "timed_out", "address_invalid"]
    first = spans.seen[0]
    assert (first.parent, first.attributes["server.address"], first.attributes["server.port"]) == (
        SPAN,
        "hooks.example",
        8443,
    )
    assert (inner.sent[0]["traceparent"], inner.sent[0]["tracestate"]) == (first.trace[:55], "congo=t61")
    assert not any(each in str(spans.seen) for each in ("a-secret", "password", "theirs"))

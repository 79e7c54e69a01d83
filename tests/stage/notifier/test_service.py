"""The notifier as a whole, on the embedded log and store: from the results topic to the endpoint, and what is left by its end."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog.testing import capture_logs

from forwarder.notifier import service
from forwarder.notifier.posting import Event, NotifierParts, NotifierSettings, decode_event
from forwarder.notifier.service import Notifier
from forwarder.notifier.webhooks import Webhooks
from forwarder.process.clock import SystemClock
from forwarder.store.database import Database
from forwarder.store.deliveries import DeliveryEntry, DeliveryStatus, NewDelivery, TriedDelivery
from forwarder.store.delivery_queue import Deliveries
from forwarder.store.engine import identity_of, open_engine
from forwarder.store.tables import webhook_deliveries
from forwarder.tenancy.sql.admin import TenancyAdmin
from forwarder.tenancy.sql.endpoints import Endpoints
from forwarder.topics.embedded.log import EmbeddedLog
from forwarder.topics.port import Message, Publisher, Topics
from forwarder.webhooks.port import PostResult
from tests.support.memory.webhooks import MemorySender, public_targets
from tests.support.sealing import keyring_of
from tests.support.store.audited import audit_on
from tools.contracts.examples import WORKSPACE_ID
from tools.contracts.messages import result_messages

SECRET = "the secret of these tests"
TOPICS = Topics()
EXAMPLE = result_messages()[0].example
URL = "https://hook.example/"
PATIENCE_SECONDS = 90.0


@dataclass
class Bench:
    """What outlives a notifier."""

    parts: NotifierParts
    sender: MemorySender
    webhooks: Webhooks
    publisher: Publisher
    path: Path
    engine: AsyncEngine

    @asynccontextmanager
    async def notifier(self) -> AsyncIterator[asyncio.Task[None]]:
        """One that runs; told to stop, and waited for, at the end."""
        stop = asyncio.Event()
        task = asyncio.create_task(Notifier(self.parts).run(stop))
        try:
            yield task
        finally:
            stop.set()
            await asyncio.gather(task, return_exceptions=True)

    async def log(self, endpoint_id: str, status: DeliveryStatus, count: int = 1) -> list[DeliveryEntry]:
        """The endpoint's deliveries, once so many stand so."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                entries = await self.webhooks.deliveries(endpoint_id, workspace_id=None, limit=1000)
                if [entry.status for entry in entries].count(status) >= count:
                    return list(entries)


@pytest.fixture
async def bench(data_dir: Path) -> AsyncIterator[Bench]:
    engine = open_engine(data_dir / "store.sqlite3")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(engine.dispose)
        await TenancyAdmin(engine).add_workspace(WORKSPACE_ID)
        log, clock = EmbeddedLog(data_dir / "log.sqlite3"), SystemClock()
        sender, endpoints = MemorySender(), Endpoints(engine)
        async with log.admin() as admin:
            await admin.create(dict.fromkeys(TOPICS.all(), 1))
        publisher = await stack.enter_async_context(log.publisher())
        settings = NotifierSettings(post_seconds=0.5, sweep_seconds=0.05, intake_wait_seconds=0.05, grace_seconds=5)
        unsealer = keyring_of(SECRET)
        parts = NotifierParts(log, TOPICS, Deliveries(engine), endpoints, unsealer, sender, clock, settings)
        webhooks = Webhooks(
            endpoints,
            Deliveries(engine),
            keyring_of(SECRET),
            public_targets(),
            clock,
            audit_on(engine, clock),
        )
        yield Bench(parts, sender, webhooks, publisher, data_dir / "store.sqlite3", engine)


async def test_from_the_topic_to_the_endpoint(bench: Bench) -> None:
    endpoint, _ = await bench.webhooks.add(WORKSPACE_ID, URL)
    async with bench.notifier():
        await bench.publisher.publish(TOPICS.results, [EXAMPLE, EXAMPLE])
        (entry,) = await bench.log(endpoint.id, DeliveryStatus.DELIVERED)
    assert entry.event_id == dict(EXAMPLE.headers)["ce_id"].decode()
    assert bench.sender.to(URL) == [entry.event_id]


async def test_deliveries_that_a_failover_lost_are_queued_again(bench: Bench) -> None:
    """The standby had the outcome, and not yet the delivery; the offset is committed."""
    endpoint, _ = await bench.webhooks.add(WORKSPACE_ID, URL)
    identity = identity_of(bench.engine)
    identity.note("the primary")
    async with bench.notifier():
        await bench.publisher.publish(TOPICS.results, [EXAMPLE])
        (entry,) = await bench.log(endpoint.id, DeliveryStatus.DELIVERED)
        await Database(bench.engine).run(sa.delete(webhook_deliveries).returning(webhook_deliveries.c.id))
        identity.note("the standby")
        await bench.log(endpoint.id, DeliveryStatus.DELIVERED)
    assert bench.sender.to(URL) == [entry.event_id] * 2


async def test_stopping_lets_what_is_being_posted_end(bench: Bench) -> None:
    endpoint, _ = await bench.webhooks.add(WORKSPACE_ID, URL)
    bench.sender.hanging[URL] = asyncio.Event()
    async with bench.notifier() as running:
        await bench.publisher.publish(TOPICS.results, [EXAMPLE])
        await bench.sender.posted(1)
        asyncio.get_running_loop().call_soon(bench.sender.hanging[URL].set)
    assert running.exception() is None
    assert [one.status for one in await bench.log(endpoint.id, DeliveryStatus.DELIVERED)] == [DeliveryStatus.DELIVERED]


async def test_what_a_killed_notifier_held_is_posted_by_the_next_one(bench: Bench) -> None:
    endpoint, _ = await bench.webhooks.add(WORKSPACE_ID, URL)
    bench.sender.hanging[URL] = asyncio.Event()
    await bench.webhooks.test(endpoint.id, workspace_id=None)
    killed = Notifier(bench.parts)
    await killed._sweep()  # noqa: SLF001
    await bench.sender.posted(1)
    assert await killed.dispatcher.finish(0) == 1  # broken off in the middle, and nothing given back
    del bench.sender.hanging[URL]
    async with bench.notifier():
        await bench.log(endpoint.id, DeliveryStatus.DELIVERED)
    first, *again = bench.sender.to(URL)
    assert again == [first]


async def test_two_notifiers_post_each_event_once(bench: Bench) -> None:
    endpoint, _ = await bench.webhooks.add(WORKSPACE_ID, URL)
    headers = [("ce_id", b"event-%d" % number) for number in range(100)]
    rest = [header for header in EXAMPLE.headers if header[0] != "ce_id"]
    async with bench.notifier(), bench.notifier():
        await bench.publisher.publish(TOPICS.results, [replace(EXAMPLE, headers=(each, *rest)) for each in headers])
        await bench.log(endpoint.id, DeliveryStatus.DELIVERED, len(headers))
    assert sorted(bench.sender.to(URL)) == sorted(value.decode() for _, value in headers)


# --- one unit raises what nobody expected while nine others go through ---


def _events(count: int = 10) -> list[Message]:
    rest = [header for header in EXAMPLE.headers if header[0] != "ce_id"]
    return [replace(EXAMPLE, headers=(("ce_id", b"event-%d" % number), *rest)) for number in range(count)]


class _Buggy(MemorySender):
    """Raises for one event: what a header of its endpoint's may bring about."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> PostResult:
        if headers["webhook-id"] == "event-5":
            raise OverflowError("Python int too large to convert to C int")
        return await super().post(url, headers, body)


async def test_a_delivery_that_raises_is_a_failed_try_of_its_endpoint(bench: Bench) -> None:
    endpoint, _ = await bench.webhooks.add(WORKSPACE_ID, URL)
    bench.parts = replace(bench.parts, sender=_Buggy())
    with capture_logs() as logs:
        async with bench.notifier() as running:
            await bench.publisher.publish(TOPICS.results, _events())
            entries = await bench.log(endpoint.id, DeliveryStatus.DELIVERED, 9)
            while not (waiting := [each for each in entries if each.status is DeliveryStatus.PENDING])[0].attempts:
                entries = await bench.log(endpoint.id, DeliveryStatus.DELIVERED, 9)
            assert not running.done()
    [attempt] = waiting[0].attempts
    assert (waiting[0].event_id, attempt.failure) == ("event-5", "internal_error")
    [fault] = [each for each in logs if each["event"] == "fault.contained"]
    assert (fault["where"], fault["error_id"] in (attempt.detail or "")) == ("webhook_post", True)


async def test_an_event_that_cannot_be_read_is_passed_over(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def buggy(message: Message) -> Event:
        event = decode_event(message)
        if event.id == "event-5":
            raise MemoryError
        return event

    monkeypatch.setattr(service, "decode_event", buggy)
    endpoint, _ = await bench.webhooks.add(WORKSPACE_ID, URL)
    async with bench.notifier() as running:
        await bench.publisher.publish(TOPICS.results, _events())
        await bench.log(endpoint.id, DeliveryStatus.DELIVERED, 9)
        assert not running.done()


class _RefusingQueue(Deliveries):
    """Cannot queue one event, nor record what its endpoint said of another."""

    async def queue(self, deliveries: Sequence[NewDelivery], *, now: datetime) -> Sequence[int]:
        if any(each.event_id == "event-5" for each in deliveries):
            raise ZeroDivisionError
        return await super().queue(deliveries, now=now)

    async def record(self, tried: Sequence[TriedDelivery]) -> None:
        if any(each.delivery.event_id == "event-7" and "err_" not in (each.attempt.detail or "") for each in tried):
            raise ZeroDivisionError
        await super().record(tried)


async def test_one_that_cannot_be_queued_or_recorded_holds_up_no_other(bench: Bench) -> None:
    engine = open_engine(bench.path)
    bench.parts = replace(bench.parts, queue=_RefusingQueue(engine))
    endpoint, _ = await bench.webhooks.add(WORKSPACE_ID, URL)
    async with bench.notifier():
        await bench.publisher.publish(TOPICS.results, _events())
        entries = await bench.log(endpoint.id, DeliveryStatus.DELIVERED, 9)
    await engine.dispose()
    assert {each.event_id for each in entries} == {f"event-{number}" for number in range(10) if number != 5}

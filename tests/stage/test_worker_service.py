"""The worker as a whole, on the embedded log and store, with a PMS that answers by hand: from the topic to record and event."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forwarder.pms.port import Capabilities, Connection, Limits
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Absent, Confirmed, Deferred, Lookup, Outcome
from forwarder.reservation.rules import apply_rules
from forwarder.reservation.submission import Submission
from forwarder.runtime.clock import SystemClock, iso
from forwarder.store.engine import Engine, open_engine
from forwarder.store.migrate import migrate
from forwarder.store.overview import SqlOverview
from forwarder.store.port import Summary
from forwarder.store.recorder import SqlRecorder
from forwarder.tenancy.port import Account
from forwarder.tenancy.sealing import SecretVault
from forwarder.topics.codec import encode_submission, header, subject
from forwarder.topics.embedded import EmbeddedLog
from forwarder.topics.port import Delivery, LogUnavailable, Message, Publisher, Topics
from forwarder.worker.service import Worker, WorkerParts
from forwarder.worker.settings import WorkerSettings
from tests.support.one_way_pms import OneWayPms
from tests.support.works import submission

TOPICS = Topics()
SETTINGS = WorkerSettings(
    intake_wait_seconds=0.05, sweep_seconds=0.05, grace_seconds=5.0, lease_seconds=30.0, reoffer_seconds=0.2
)
PATIENCE_SECONDS = 20.0


class _Pms(OneWayPms):
    """A PMS that confirms, unless told to put off; it counts what it made for each reference."""

    capabilities = Capabilities(idempotent_create=True, find_by_reference=True, cancel=False)

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.putting_off = False
        self.when_asked: Callable[[], None] = lambda: None

    async def create(self, booking: Booking) -> Outcome:
        self.asked.append(booking.reference)
        self.when_asked()
        if self.putting_off:
            return Deferred("pms_unavailable", "Down.")
        return Confirmed(f"pms-{booking.reference}")

    async def find(self, booking: Booking) -> Lookup:
        return Absent()

    def kinds(self) -> Sequence[str]:
        return ["generic"]

    def limits(self, kind: str) -> Limits:
        return Limits()

    def connect(self, connection: Connection) -> "_Pms":
        return self


class _Accounts:
    """A directory of one account, which may be changed."""

    def __init__(self) -> None:
        self.one = Account("acc", "demo", "generic", "http://pms.test", SEALED)

    async def key(self, token: str) -> None:
        raise AssertionError("a worker authenticates nobody")

    async def account(self, account_id: str) -> Account | None:
        return self.one if account_id == "acc" else None


VAULT = SecretVault(["a secret of this test alone"])
SEALED = ""


class _Skipping(SystemClock):
    """The machine's clock, as a process sees it that is stopped for a while in the middle."""

    def __init__(self) -> None:
        self._skipped = 0.0

    def skip(self, seconds: float) -> None:
        self._skipped += seconds

    def monotonic(self) -> float:
        return super().monotonic() + self._skipped


class _FailsFirst:
    """A publisher that loses the log, once, for one topic."""

    def __init__(self, publisher: Publisher, topic: str) -> None:
        self._publisher = publisher
        self._topic = topic

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        if topic == self._topic:
            self._topic = ""
            raise LogUnavailable("away, once")
        await self._publisher.publish(topic, messages)

    async def ready(self) -> bool:
        return True


class _Bench:
    """A log, a store and a PMS to run workers against."""

    def __init__(self, log: EmbeddedLog, engine: Engine, publisher: Publisher) -> None:
        self.log = log
        self.engine = engine
        self.publisher = publisher
        self.pms = _Pms()
        self.accounts = _Accounts()
        self.clock = _Skipping()
        self.settings = SETTINGS

    @asynccontextmanager
    async def worker(self, publisher: Publisher | None = None) -> AsyncIterator[Worker]:
        stop = asyncio.Event()
        worker = Worker(
            WorkerParts(
                log=self.log,
                topics=TOPICS,
                publisher=publisher or self.publisher,
                recorder=SqlRecorder(self.engine),
                directory=self.accounts,
                vault=VAULT,
                pms=self.pms,
                clock=self.clock,
                settings=self.settings,
            )
        )
        running = asyncio.create_task(worker.run(stop))
        try:
            yield worker
        finally:
            stop.set()
            await running

    async def submit(self, *submissions: Submission) -> None:
        await self.publisher.publish(TOPICS.requests, [_message(submission) for submission in submissions])

    async def rows(self, status: str, count: int) -> Sequence[Summary]:
        overview = SqlOverview(self.engine)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                rows = [
                    row
                    for row in await overview.latest(status=None, account_id=None, limit=100)
                    if row.status == status
                ]
                if len(rows) >= count:
                    return rows
                await asyncio.sleep(0.01)

    async def read(self, topic: str, count: int) -> list[Delivery]:
        found: list[Delivery] = []
        async with asyncio.timeout(PATIENCE_SECONDS), self.log.tail(topic, from_beginning=True) as tail:
            while len(found) < count:
                found += await tail.receive(at_most=100, wait_seconds=0.1)
        return found


def _message(submission: Submission) -> Message:
    from pydantic_core import to_json

    return encode_submission(submission, iso(submission.accepted_at), to_json(dict(submission.reservation)))


def _fresh(number: int, **fields: Any) -> Submission:
    return replace(submission(number, **fields), accepted_at=SystemClock().now())


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[_Bench]:
    await migrate(tmp_path / "store.sqlite3")
    engine = open_engine(tmp_path / "store.sqlite3")
    log = EmbeddedLog(tmp_path / "log.sqlite3", partitions=2)
    try:
        async with log.publisher() as publisher:
            bench = _Bench(log, engine, publisher)
            bench.accounts.one = replace(bench.accounts.one, credential=_sealed("token"))
            yield bench
    finally:
        await engine.dispose()


def _sealed(text: str) -> str:
    from forwarder.tenancy.sealing import KeyPair, PublicSealer

    pair = KeyPair.from_secret("a secret of this test alone")
    return PublicSealer(pair.key_id, pair.public_key).seal_text(text)


async def test_from_the_topic_to_the_record_and_the_event(bench: _Bench) -> None:
    await bench.submit(_fresh(1), _fresh(2))
    async with bench.worker():
        await bench.rows("CONFIRMED", 2)
        events = await bench.read(TOPICS.results, 2)
    request_ids = {f"rsv_{number:032d}" for number in (1, 2)}
    assert {subject(event.message.headers) for event in events} == request_ids
    assert {header(event.message.headers, "ce_id") for event in events} == {f"{each}.1" for each in request_ids}
    assert {header(event.message.headers, "ce_type") for event in events} == {"reservation.confirmed.v1"}
    assert sorted(bench.pms.asked) == sorted(request_ids)


async def test_a_message_that_is_delivered_again_is_pushed_once(bench: _Bench) -> None:
    await bench.submit(_fresh(1), _fresh(1))
    async with bench.worker():
        await bench.rows("CONFIRMED", 1)
        await bench.submit(_fresh(1), _fresh(2))
        await bench.rows("CONFIRMED", 2)
    assert len(bench.pms.asked) == 2


@pytest.mark.parametrize("value", [b"not json", b"[]", b"{}", b'{"requestId": 1}', b"\xff"])
async def test_what_cannot_be_read_is_set_aside_with_the_reason_and_stops_nothing(bench: _Bench, value: bytes) -> None:
    letter = Message(b"acc:1001", value, (("traceparent", b"kept"),))
    await bench.publisher.publish(TOPICS.requests, [letter])
    await bench.submit(_fresh(1))
    async with bench.worker():
        await bench.rows("CONFIRMED", 1)
        (dead,) = await bench.read(TOPICS.dead_letters, 1)
    assert (dead.message.key, dead.message.value) == (letter.key, letter.value)
    headers = {name: text.decode() for name, text in dead.message.headers}
    assert headers["traceparent"] == "kept"
    assert headers["dlt-original-topic"] == TOPICS.requests
    assert headers["dlt-failure-class"] == "undecodable"
    assert headers["dlt-exception-class"] == "Undecodable"


async def test_a_paused_account_takes_in_and_waits(bench: _Bench) -> None:
    bench.accounts.one = replace(bench.accounts.one, paused=True)
    await bench.submit(_fresh(1))
    async with bench.worker():
        await bench.rows("PENDING", 1)
        assert bench.pms.asked == []
        bench.accounts.one = replace(bench.accounts.one, paused=False)
        await bench.rows("CONFIRMED", 1)


async def test_what_is_put_off_is_due_again_and_tried_again(bench: _Bench) -> None:
    bench.pms.putting_off = True
    await bench.submit(_fresh(1))
    async with bench.worker():
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (row := (await bench.rows("PENDING", 1))[0]).attempts:
                await asyncio.sleep(0.01)
        assert row.due_at is not None
        bench.pms.putting_off = False
        (row,) = await bench.rows("CONFIRMED", 1)
    assert row.attempts >= 2


async def test_an_event_that_could_not_be_published_is_offered_again_under_the_same_id(bench: _Bench) -> None:
    await bench.submit(_fresh(1))
    async with bench.worker(_FailsFirst(bench.publisher, TOPICS.results)):
        await bench.rows("CONFIRMED", 1)
        (event,) = await bench.read(TOPICS.results, 1)
    assert header(event.message.headers, "ce_id") == f"rsv_{1:032d}.1"


async def test_what_an_unknown_account_submitted_stays_visibly_due(bench: _Bench) -> None:
    await bench.submit(_fresh(1, account="gone"), _fresh(2))
    async with bench.worker():
        await bench.rows("CONFIRMED", 1)
        (row,) = await bench.rows("PENDING", 1)
    assert (row.account_id, row.due_at is not None) == ("gone", True)


async def test_a_bug_of_ours_costs_one_row_a_delay_and_is_not_lost(
    bench: _Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from forwarder.worker import push

    def buggy(kind: str, submission: Submission, card: object) -> object:
        if submission.request_id.endswith("1"):
            raise KeyError("a bug")
        return apply_rules(kind, submission, None)

    monkeypatch.setattr(push, "apply_rules", buggy)
    await bench.submit(_fresh(1), _fresh(2))
    async with bench.worker():
        await bench.rows("CONFIRMED", 1)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await _due_later(bench):
                await asyncio.sleep(0.01)


async def _due_later(bench: _Bench) -> bool:
    (row,) = await bench.rows("PENDING", 1)
    return row.due_at is not None and row.due_at > iso(SystemClock().now())


async def test_a_worker_that_was_stopped_past_its_lease_pushes_nothing_until_it_holds_a_lease_again(
    bench: _Bench,
) -> None:
    """Its rows were not taken over meanwhile: they are given back, and not held for ever by a worker that forgot them."""
    bench.settings = replace(SETTINGS, lease_seconds=1.5)
    bench.accounts.one = replace(bench.accounts.one, concurrency=1)
    skipped: list[str] = []

    def stopped_once() -> None:
        if not skipped:
            skipped.append(bench.pms.asked[-1])
            bench.clock.skip(60.0)

    bench.pms.when_asked = stopped_once
    await bench.submit(*(_fresh(number) for number in range(1, 11)))
    async with bench.worker():
        await bench.rows("CONFIRMED", 10)
    assert len(bench.pms.asked) == 10


async def test_stopping_and_starting_again_goes_on_where_it_was(bench: _Bench) -> None:
    bench.pms.putting_off = True
    await bench.submit(*(_fresh(number) for number in range(1, 21)))
    async with bench.worker():
        await bench.rows("PENDING", 20)
    bench.pms.putting_off = False
    async with bench.worker():
        await bench.rows("CONFIRMED", 20)
    assert len(set(bench.pms.asked)) == 20

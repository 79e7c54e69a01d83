"""Whole workers on the embedded log and store, with a PMS that answers by hand."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from forwarder.pms.port import AccountConnection, Capabilities, Limits
from forwarder.process.clock import SystemClock, iso
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import (
    Absent,
    CancellationRequest,
    Cancelled,
    CancelOutcome,
    Confirmed,
    Deferred,
    LookupOutcome,
    Outcome,
)
from forwarder.reservation.request import CardDetails
from forwarder.reservation.submission import Submission
from forwarder.store.engine import Engine
from forwarder.store.lists.overview import Overview
from forwarder.store.lists.port import StoredSubmission, SubmissionQuery, SubmissionSummary
from forwarder.store.lists.reader import Reader
from forwarder.store.submissions.recorder import Recorder
from forwarder.tenancy.port import Account
from forwarder.tenancy.sealing import with_credential
from forwarder.topics.codec import MessageSigner, encode_cancellation, encode_submission, header
from forwarder.topics.embedded import file
from forwarder.topics.embedded.log import EmbeddedLog
from forwarder.topics.port import ConsumedMessage, LogUnavailable, Message, Publisher, Topics
from forwarder.worker.cards import CardParts
from forwarder.worker.parts import WorkerParts, WorkerSettings
from forwarder.worker.service import Worker
from tests.support.log.signers import TRUSTING
from tests.support.sealing import keyring_of
from tests.support.store.engines import sqlite_engine
from tests.support.worker.cards import OneSealingKey, card_parts
from tests.support.worker.works import submission

TOPICS = Topics()
SETTINGS = WorkerSettings(
    intake_wait_seconds=0.05,
    sweep_seconds=0.05,
    grace_seconds=5.0,
    lease_seconds=30.0,
    push_seconds=0.2,
    settles_seconds=0.2,
    republish_seconds=0.2,
)
PATIENCE_SECONDS = 20.0
SECRET = "a secret of these tests alone"


class Pms:
    """A PMS that confirms, unless told to put off, once `answering` is set; it notes what it was asked. The directory of itself."""

    capabilities = Capabilities(idempotent_create=True, find_by_reference=True, cancel=True)

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.cards: list[CardDetails] = []
        self.to_cancel: list[str] = []
        self.together: list[int] = []
        self.putting_off = False
        self.cancels: CancelOutcome = Cancelled()
        self.when_asked: Callable[[], None] = lambda: None
        self.answering = asyncio.Event()
        self.answering.set()

    def while_held(self, held: Callable[[], bool]) -> "Pms":
        return self

    async def create(self, booking: Booking) -> Outcome:
        self.asked.append(booking.reference)
        if booking.card is not None:
            self.cards.append(booking.card)
        self.when_asked()
        await self.answering.wait()
        if self.putting_off:
            return Deferred("pms_unavailable", "Down.")
        return Confirmed(f"pms-{booking.reference}")

    async def create_many(self, bookings: Sequence[Booking]) -> Sequence[Outcome]:
        self.together.append(len(bookings))
        return [await self.create(booking) for booking in bookings]

    async def find(self, booking: Booking) -> LookupOutcome:
        return Absent()

    async def cancel(self, booking: Booking, pms_reservation_id: str) -> CancelOutcome:
        self.to_cancel.append(pms_reservation_id)
        return self.cancels

    def kinds(self) -> Sequence[str]:
        return ["generic"]

    def limits(self, kind: str, options: Mapping[str, Any]) -> Limits:
        return Limits()

    def connect(self, connection: AccountConnection) -> "Pms":
        return self


class Accounts:
    """A directory of one account, which may be changed, and of those that are added."""

    def __init__(self) -> None:
        account = Account("acc", "demo", "generic", "https://pms.test", "")
        self.one = with_credential(account, "token", keyring_of(SECRET))
        self.others: dict[str, Account] = {}

    def add(self, account_id: str) -> None:
        """One at the same PMS."""
        account = Account(account_id, "demo", "generic", "https://pms.test", "")
        self.others[account_id] = with_credential(account, "token", keyring_of(SECRET))

    async def key(self, token: str) -> None:
        raise AssertionError("a worker authenticates nobody")

    async def account(self, account_id: str, workspace_id: str | None = None) -> Account | None:
        return self.one if account_id == "acc" else self.others.get(account_id)


class Skipping(SystemClock):
    """The machine's clock, as a process sees it that is stopped for a while in the middle."""

    def __init__(self) -> None:
        self._skipped = 0.0

    def skip(self, seconds: float) -> None:
        self._skipped += seconds

    def monotonic(self) -> float:
        return super().monotonic() + self._skipped


class FailsFirst:
    """A publisher that loses the log, once, for one topic."""

    def __init__(self, publisher: Publisher, topic: str) -> None:
        self._publisher = publisher
        self._topic = topic

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        if topic == self._topic:
            self._topic = ""
            raise LogUnavailable("away, once")
        await self._publisher.publish(topic, messages)

    def partition(self, topic: str, key: str) -> int | None:
        return self._publisher.partition(topic, key)

    async def ready(self) -> bool:
        return True


class Bench:
    """A log, a store and a PMS to run workers against."""

    def __init__(self, log: EmbeddedLog, engine: Engine, publisher: Publisher) -> None:
        self.log = log
        self.engine = engine
        self.publisher = publisher
        self.pms = Pms()
        self.accounts = Accounts()
        self.clock = Skipping()
        self.settings = SETTINGS
        self.sealing_key = OneSealingKey()
        self.cards: CardParts | None = None
        """Instead of those of `sealing_key`."""
        self.signer: MessageSigner = TRUSTING

    @asynccontextmanager
    async def worker(
        self, publisher: Publisher | None = None, recorder: Recorder | None = None, **more: Any
    ) -> AsyncIterator[Worker]:
        """One that runs. `more`: of its parts."""
        stop = asyncio.Event()
        parts = replace(
            WorkerParts(
                log=self.log,
                topics=TOPICS,
                publisher=publisher or self.publisher,
                recorder=recorder or Recorder(self.engine),
                directory=self.accounts,
                unsealer=keyring_of(SECRET),
                pms=self.pms,
                clock=self.clock,
                settings=self.settings,
                signer=self.signer,
                cards=self.cards or card_parts(self.engine, self.sealing_key),
            ),
            **more,
        )
        worker = Worker(parts)
        running = asyncio.create_task(worker.run(stop))
        try:
            yield worker
        finally:
            stop.set()
            await running

    async def submit(self, *submissions: Submission) -> None:
        await self.publisher.publish(TOPICS.requests, [message_of(submission) for submission in submissions])

    async def cancel(self, *requests: CancellationRequest) -> None:
        await self.publisher.publish(TOPICS.requests, [encode_cancellation(request) for request in requests])

    async def stored(self, number: int = 1) -> StoredSubmission:
        stored = await Reader(self.engine).submission("acc", submission(number).request_id)
        assert stored is not None
        return stored

    async def rows(self, status: str, count: int) -> Sequence[SubmissionSummary]:
        overview = Overview(self.engine)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                rows = [
                    row
                    for row in (await overview.search(SubmissionQuery(await overview.accounts()), limit=100))[0]
                    if row.status == status
                ]
                if len(rows) >= count:
                    return rows
                await asyncio.sleep(0.03)

    async def taken_in(self) -> None:
        """Return once the workers' group is past all that is on the requests topic."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await asyncio.to_thread(self._behind):
                await asyncio.sleep(0.03)

    def _behind(self) -> bool:
        """As the log's file has it: the group has one consumer, which is the worker's."""
        with closing(file.open_file(self.log.path)) as connection:
            ends = file.heads(connection, TOPICS.requests)
            return file.committed(connection, TOPICS.requests, self.settings.group) != ends

    async def read(self, topic: str, count: int) -> list[ConsumedMessage]:
        """At least `count` messages of the topic. An event that was published again, as on a slow machine, counts once."""
        found: dict[object, ConsumedMessage] = {}
        async with asyncio.timeout(PATIENCE_SECONDS), self.log.tail(topic, from_beginning=True) as tail:
            while len(found) < count:
                for each in await tail.receive(max_messages=100, wait_seconds=0.1):
                    event_id = header(each.message.headers, "ce_id")
                    found.setdefault(event_id or (each.partition, each.offset), each)
        return list(found.values())


def message_of(submission: Submission) -> Message:
    return encode_submission(submission, iso(submission.accepted_at), to_json(dict(submission.reservation)))


def cancellation(number: int = 1, *, revision: int = 0, key: str | None = None) -> CancellationRequest:
    """Of the `number`-th submission, asked for now."""
    about = submission(number)
    return CancellationRequest(about.request_id, "acc", key or about.key, SystemClock().now(), "Ill.", revision)


def fresh(number: int, **fields: Any) -> Submission:
    return replace(submission(number, **fields), accepted_at=SystemClock().now())


@asynccontextmanager
async def open_bench(directory: Path) -> AsyncIterator[Bench]:
    """A bench with its files in `directory`, where a migrated store is."""
    log = EmbeddedLog(directory / "log.sqlite3", partitions=2)
    async with sqlite_engine(directory / "store.sqlite3") as engine, log.publisher() as publisher:
        yield Bench(log, engine, publisher)

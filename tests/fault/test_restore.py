"""The database is restored to an earlier state, while topics and PMSs have what came after: nothing is lost or made twice."""

import asyncio
import sqlite3
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import from_json

from forwarder.operate.deployment.recovery import LeasesInForce, Recovery
from forwarder.oversight.restored import RecoveryCheck
from forwarder.pms.accounts import target_of
from forwarder.pms.port import AccountConnection, Capabilities, Limits
from forwarder.process.clock import SystemClock
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import (
    Absent,
    Cancelled,
    CancelOutcome,
    Confirmed,
    Deferred,
    LookupOutcome,
    Outcome,
    Status,
)
from forwarder.reservation.submission import RequestIds, Submission
from forwarder.store.engine import Engine, open_engine
from forwarder.store.lists.overview import Overview
from forwarder.store.lists.reader import Reader
from forwarder.store.retention import Purger
from forwarder.store.submissions.card_keys import CardKeys
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.submissions.repairs import StoreRecovery
from forwarder.tenancy.port import Account
from forwarder.tenancy.sealing import with_credential
from forwarder.topics.codec import decode_data
from forwarder.topics.port import Log, Topics, read_to_end
from forwarder.worker.parts import WorkerParts, WorkerSettings
from forwarder.worker.service import Worker
from tests.support.backends import Backend, slow_on
from tests.support.log.signers import SIGNER
from tests.support.sealing import keyring_of
from tests.support.store.audited import audit_on
from tests.support.worker.cards import card_parts
from tests.support.worker.worker_bench import SECRET, SETTINGS, fresh, message_of
from tools.servers.postgres.databases import new_database

PATIENCE_SECONDS = 60.0
HOUSE_SETTINGS = replace(SETTINGS, lease_seconds=6.0)
ACCOUNTS = {
    "keyed": Capabilities(idempotent_create=True, find_by_reference=False, cancel=False),
    "searched": Capabilities(idempotent_create=False, find_by_reference=True, cancel=False),
    "blind": Capabilities(idempotent_create=False, find_by_reference=False, cancel=False),
}


class Pmss:
    """The PMSs of all accounts, as their directory too. `made` counts by our reference; what is in `silent` is made and never
    answered; `down` ones make nothing."""

    def __init__(self) -> None:
        self.made: Counter[str] = Counter()
        self.silent = asyncio.Event()
        self.unanswered: set[str] = set()
        self.down = False

    def kinds(self) -> Sequence[str]:
        return ["generic"]

    def limits(self, kind: str, options: Mapping[str, Any]) -> Limits:
        return Limits()

    def connect(self, connection: AccountConnection) -> "PmsOfAccount":
        return PmsOfAccount(self, ACCOUNTS[connection.account_id])


class PmsOfAccount:
    def __init__(self, site: Pmss, capabilities: Capabilities) -> None:
        self._site = site
        self.capabilities = capabilities

    def while_held(self, held: object) -> "PmsOfAccount":
        return self

    async def create(self, booking: Booking) -> Outcome:
        site, reference = self._site, booking.reference
        if site.down:
            return Deferred("pms_unavailable", "Down.")
        if not (self.capabilities.idempotent_create and site.made[reference]):
            site.made[reference] += 1
        if site.silent.is_set():
            site.unanswered.add(reference)
            await asyncio.Event().wait()
        return Confirmed(f"pms-{reference}")

    async def create_many(self, bookings: Sequence[Booking]) -> Sequence[Outcome]:
        return [await self.create(booking) for booking in bookings]

    async def find(self, booking: Booking) -> LookupOutcome:
        return Confirmed(f"pms-{booking.reference}") if self._site.made[booking.reference] else Absent()

    async def cancel(self, booking: Booking, pms_reservation_id: str) -> CancelOutcome:
        return Cancelled()


class Accounts:
    def __init__(self) -> None:
        self._known = {
            each: with_credential(Account(each, "demo", "generic", "https://pms.test", ""), "token", keyring_of(SECRET))
            for each in ACCOUNTS
        }

    async def key(self, token: str) -> None:
        raise AssertionError("a worker authenticates nobody")

    async def account(self, account_id: str, workspace_id: str | None = None) -> Account | None:
        return self._known.get(account_id)


class House:
    """The log and the PMSs, which no restore changes, and workers on one database or another."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.topics = Topics(f"{uuid.uuid4().hex[:12]}.")
        self.pmss = Pmss()
        self.ids = RequestIds(b"0123456789abcdef")
        self.clock = SystemClock()
        self.submitted: list[Submission] = []

    async def submit(self, count: int) -> list[Submission]:
        """So many to each account."""
        new: list[Submission] = []
        for account_id in ACCOUNTS:
            for _ in range(count):
                one = fresh(len(self.submitted) + len(new) + 1, account=account_id)
                new.append(replace(one, request_id=self.ids.issue(account_id, one.accepted_at)))
        async with self.log.publisher() as publisher:
            await publisher.publish(self.topics.requests, [SIGNER.signed(message_of(each)) for each in new])
        self.submitted += new
        return new

    def check(self, engine: Engine) -> RecoveryCheck:
        return RecoveryCheck(
            self.log,
            self.topics,
            SETTINGS.group,
            known=CardKeys(engine).known,
            store=StoreRecovery(engine),
            vouches=self.ids.vouches,
            purged_before=Purger(engine).purged_before,
            signer=SIGNER,
        )

    @asynccontextmanager
    async def worker(self, engine: Engine, settings: WorkerSettings | None = None) -> AsyncIterator[Worker]:
        stop = asyncio.Event()
        async with self.log.publisher() as publisher:
            parts = WorkerParts(
                log=self.log,
                topics=self.topics,
                publisher=publisher,
                recorder=Recorder(engine),
                directory=Accounts(),
                unsealer=keyring_of(SECRET),
                pms=self.pmss,
                clock=self.clock,
                settings=settings or HOUSE_SETTINGS,
                signer=SIGNER,
                cards=card_parts(engine),
                lacking=self.check(engine).lacking,
            )
            worker = Worker(parts)
            running = asyncio.create_task(worker.run(stop))
            try:
                yield worker
            finally:
                stop.set()
                await running

    @asynccontextmanager
    async def recovery(self, engine: Engine) -> AsyncIterator[Recovery]:
        async with self.log.publisher() as publisher:
            yield Recovery(
                log=self.log,
                topics=self.topics,
                publisher=publisher,
                recorder=Recorder(engine),
                store=StoreRecovery(engine),
                directory=Accounts(),
                check=self.check(engine),
                target=lambda account: target_of(account.kind, account.base_url, None, ACCOUNTS[account.id]).text,
                audit=audit_on(engine, self.clock),
                clock=self.clock,
            )

    async def until(self, engine: Engine, submissions: Sequence[Submission], *statuses: Status) -> None:
        """Return once each has one of these statuses."""
        overview = Overview(engine)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                known = await overview.statuses([each.request_id for each in submissions])
                if len(known) == len(submissions) and all(status in statuses for status, _ in known.values()):
                    return
                await asyncio.sleep(0.02)

    async def until_put_off(self, engine: Engine, submissions: Sequence[Submission]) -> None:
        """Return once each was tried, and is due again later."""
        overview, ids = Overview(engine), [each.request_id for each in submissions]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not all(each.attempts for each in await overview.summaries(ids)):
                await asyncio.sleep(0.02)

    async def until_told(self, count: int) -> None:
        """Return once so many outcomes were published. They are recorded before; a worker that stops leaves some to others."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while sum([len(batch) async for batch in read_to_end(self.log, self.topics.results)]) < count:
                await asyncio.sleep(0.02)

    async def record_ids(self, engine: Engine) -> dict[str, int]:
        found = {}
        for each in self.submitted:
            stored = await Reader(engine).submission(each.account_id, each.request_id)
            if stored is not None:
                found[each.request_id] = from_json(stored.record)["id"]
        return found


@asynccontextmanager
async def copied(backend: Backend, url: str, server_url: str | None) -> AsyncIterator[str]:
    """The URL of a copy of the database as it is now; nobody is connected to it."""
    if backend == "embedded":
        path = Path(url.removeprefix("sqlite+aiosqlite:///"))
        # Under a new name: a connection that an earlier test left open would make the backup wait for ever.
        copy = path.with_name(f"{path.name}.restored-{uuid.uuid4().hex[:8]}")
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as restored:
            source.backup(restored)
        yield f"sqlite+aiosqlite:///{copy}"
    else:
        assert server_url is not None
        async with new_database(server_url, template=url) as copy_url:
            yield copy_url


@slow_on("distributed")
def test_after_a_restore_nothing_is_lost_and_nothing_made_twice(
    backend: Backend, log: Log, migrated_url: str, request: pytest.FixtureRequest
) -> None:
    server_url = request.getfixturevalue("postgres_url") if backend == "distributed" else None
    asyncio.run(restored(House(log), backend, migrated_url, server_url))


async def restored(house: House, backend: Backend, url: str, server_url: str | None) -> None:
    async with house.log.admin() as admin:
        await admin.create(dict.fromkeys(house.topics.all(), 2))
    async with AsyncExitStack() as stack:
        engine = open_engine(url)
        waiting = await before_the_snapshot(house, engine)
        await engine.dispose()
        snapshot = await stack.enter_async_context(copied(backend, url, server_url))
        engine = open_engine(url)
        ids, unanswered = await after_the_snapshot(house, engine, waiting)
        await engine.dispose()
        await house.submit(1)  # which no worker has seen
        engine = open_engine(snapshot)
        stack.push_async_callback(engine.dispose)
        await recovered(house, engine)
        await goes_on(house, engine, [each for each in unanswered if each.account_id == "blind"])
        after = await house.record_ids(engine)
        assert {each: after[each] for each in ids} == ids
        await told_once_each(house)


async def before_the_snapshot(house: House, engine: Engine) -> Sequence[Submission]:
    """Some are confirmed, and some are still waiting, which are returned."""
    confirmed = await house.submit(3)
    async with house.worker(engine):
        await house.until(engine, confirmed, Status.CONFIRMED)
        house.pmss.down = True
        waiting = await house.submit(2)
        await house.until(engine, waiting, Status.PENDING)
    house.pmss.down = False
    return waiting


async def after_the_snapshot(
    house: House, engine: Engine, waiting: Sequence[Submission]
) -> tuple[dict[str, int], Sequence[Submission]]:
    """Those are confirmed, and others too; and some are made whose answers never come. The ids of records as they are shown, and
    the unanswered."""
    async with house.worker(engine, replace(HOUSE_SETTINGS, grace_seconds=0.2)):
        await house.until(engine, waiting, Status.CONFIRMED)
        await house.until(engine, await house.submit(3), Status.CONFIRMED)
        ids = await house.record_ids(engine)
        await house.until_told(len(ids))
        house.pmss.silent.set()
        unanswered = await house.submit(2)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(house.pmss.unanswered) < len(unanswered):
                await asyncio.sleep(0.02)
    house.pmss.silent.clear()
    return ids, unanswered


async def recovered(house: House, engine: Engine) -> None:
    """A worker on the snapshot does nothing; then it is repaired."""
    made = Counter(house.pmss.made)
    assert await house.check(engine).lacking()
    async with house.worker(engine) as worker, house.recovery(engine) as recovery:
        foreseen = await recovery.run(dry_run=True)
        assert (worker.in_step, worker.consuming()) == (False, False)
    assert house.pmss.made == made, "nothing is pushed before it is repaired"
    async with house.recovery(engine) as recovery:
        done = await recovery.run()
    assert done == foreseen
    assert (done.missing, done.behind, done.possibly_sent, done.without_request) == (15, 15, 6, 0)
    assert not await house.check(engine).lacking()


async def goes_on(house: House, engine: Engine, nobody_knows: Sequence[Submission]) -> None:
    """Nothing is lost, nothing made twice; `nobody_knows` is left to an operator."""
    async with house.worker(engine):
        certain = [each for each in house.submitted if each not in nobody_knows]
        await house.until(engine, certain, Status.CONFIRMED)
        await house.until(engine, nobody_knows, Status.IN_DOUBT)
        async with house.recovery(engine) as recovery:
            with pytest.raises(LeasesInForce, match="at work"):
                await recovery.run()
    assert house.pmss.made == Counter({each.request_id: 1 for each in house.submitted})


async def told_once_each(house: House) -> None:
    """No event id ever told of two outcomes."""
    told: dict[bytes, object] = {}
    async for batch in read_to_end(house.log, house.topics.results):
        for each in batch:
            event_id = dict(each.message.headers)["ce_id"]
            data = decode_data(each.message)
            assert told.setdefault(event_id, data) == data

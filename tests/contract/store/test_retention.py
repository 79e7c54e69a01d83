"""Guests' data is removed on every backend: what stays is anonymous, still known, and never booked again."""

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import from_json, to_json
from sqlalchemy import Connection, func, select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.housekeeping.service import BATCH, RetentionSweeper
from forwarder.notifier.posting import body_of
from forwarder.operate.guests import GuestQuery, Guests
from forwarder.oversight.audit import Audit
from forwarder.process.clock import iso
from forwarder.reservation.evidence import Target, read_evidence
from forwarder.reservation.outcome import CancellationRequest, Rejected, Status
from forwarder.reservation.problems import PMS_REFUSED
from forwarder.reservation.submission import NaturalKey
from forwarder.store.deliveries import NewDelivery
from forwarder.store.delivery_queue import Deliveries
from forwarder.store.deployment import AuditTrail
from forwarder.store.lists.overview import FailedState, Overview
from forwarder.store.lists.reader import Reader
from forwarder.store.retention import ErasureState, GuestStore
from forwarder.store.submissions.port import Arrival, CancellationArrival, Duplicate, Work
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.tables import parked_cancellations, reservations, webhook_deliveries
from forwarder.tenancy.port import Account, RetentionPolicy
from forwarder.tenancy.sql.admin import TenancyAdmin
from forwarder.topics.embedded.log import EmbeddedLog
from forwarder.topics.port import Topics
from tests.support.memory.clock import ManualClock
from tests.support.store.stored import DEADLINE, LATER, arrival, final, lease, row
from tests.support.worker.works import NOW, doubtful, submission

GUEST: dict[str, Any] = {
    "guest": {
        "firstName": "Maria",
        "lastName": "Gonzalez",
        "email": "maria@example.com",
        "phone": "600 100 200",
        "address": {"street": "Calle Mayor 1"},
    },
    "notes": "allergic to nuts",
    "comments": "knows Maria",
}
TRACES = ("Maria", "Gonzalez", "maria@", "600 100", "Calle", "nuts", "4711", "é", "Visa")
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 vendor=Maria"
IN_2030 = datetime(2030, 1, 1, tzinfo=UTC)
POLICY = RetentionPolicy("demo", 30, 30, 30)


class HurriedClock(ManualClock):
    """Nobody waits for it: to sleep is to move it on."""

    async def sleep(self, seconds: float) -> None:
        self.jump(seconds)
        await asyncio.sleep(0)


class Desk:
    """A store, and what removes guests from it."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self.recorder = Recorder(engine)
        self.guests = GuestStore(engine)
        self.reader = Reader(engine)
        self.deliveries = Deliveries(engine)
        self.policies = TenancyAdmin(engine)
        self.clock = HurriedClock(IN_2030)

    async def open(self) -> None:
        await TenancyAdmin(self.engine).add_workspace("demo")
        await lease(self.recorder, "w1")

    async def finish(
        self, *numbers: int, status: Status = Status.CONFIRMED, published: bool = True, at: datetime = LATER
    ) -> Sequence[Work]:
        """Submissions that came to their end, and whose events are published."""
        works = await self.recorder.ingest("w1", [arrival(each, **GUEST) for each in numbers], now=NOW)
        ended = [final(work, status=status, at=at, notes="Maria: 4711", paymentUrl="https://p/Maria") for work in works]
        events = await self.recorder.record("w1", ended, [])
        if published:
            await self.recorder.published([event.id for event in events.values()])
        return works

    async def multiply(self, work: Work, count: int) -> None:
        """As many submissions as `work`, it included."""
        columns = ", ".join(c.name for c in reservations.c if c.name not in {"id", "request_id", "record_id"})
        for first in range(1, count, 9_999):
            last = min(first + 9_998, count - 1)
            numbers = f"WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last})"
            copied = (
                f"INSERT INTO reservations (request_id, record_id, {columns}) {numbers} "
                f"SELECT 'rsv_copy_' || i, i, {columns} FROM n, reservations WHERE id = {work.id}"
            )
            async with self.engine.begin() as connection:
                await connection.execute(text(copied))

    async def sweep(self, policy: RetentionPolicy = POLICY) -> None:
        await self.policies.set_policy(**asdict(policy))
        await RetentionSweeper(self.guests, self.policies, self.clock).sweep()

    async def anonymous(self) -> list[int]:
        """The ids of rows without their guest."""
        found = select(reservations.c.id).where(reservations.c.anonymized_at.is_not(None)).order_by(reservations.c.id)
        async with self.engine.connect() as connection:
            return list(await connection.scalars(found))


@pytest.fixture
async def desk(engine: AsyncEngine) -> Desk:
    opened = Desk(engine)
    await opened.open()
    return opened


async def test_what_stays_is_anonymous_and_still_known(desk: Desk) -> None:
    confirmed, rejected = *await desk.finish(1), *await desk.finish(2, status=Status.REJECTED)
    before = {work.id: await row(desk.engine, work.id) for work in (confirmed, rejected)}
    assert any(trace in repr(before) for trace in TRACES)
    await desk.sweep()
    for work in (confirmed, rejected):
        kept = await row(desk.engine, work.id)
        assert not [trace for trace in TRACES if trace in repr(kept)]
        for column in ("request_id", "fingerprint", "status", "revision", "pms_reservation_id", "updated_at"):
            assert kept[column] == before[work.id][column]
        stored = await desk.reader.submission("acc", work.submission.request_id)
        assert stored is not None
        old, new = from_json(before[work.id]["record"]), from_json(stored.record)
        assert list(new) == list(old)
        assert {name for name in old if new[name] != old[name]} <= {"primaryGuest", "notes", "paymentUrl", "problem"}
        assert new["primaryGuest"] == {"name": "", "emails": [], "mobileNumbers": [], "nationality": None}
    problem = from_json((await row(desk.engine, rejected.id))["problem"])
    assert problem["code"] == "said_no"


async def test_a_pmss_words_do_not_stay_in_the_evidence(desk: Desk) -> None:
    (work,) = await desk.recorder.ingest("w1", [arrival(1, **GUEST)], now=NOW)
    refused = PMS_REFUSED.problem("Maria is not welcome")
    evidence = doubtful().after(Rejected(refused), Target("https://pms.example"), iso(NOW))
    ended = replace(final(work, status=Status.REJECTED), evidence=evidence)
    await desk.recorder.published([each.id for each in (await desk.recorder.record("w1", [ended], [])).values()])
    assert "Maria" in (await row(desk.engine, work.id))["evidence"]
    await desk.sweep()
    kept = (await row(desk.engine, work.id))["evidence"]
    assert "Maria" not in kept
    left = read_evidence(kept)
    assert [(each.at, each.to, each.came) for each in left.pushes] == [
        (each.at, each.to, each.came) for each in evidence.pushes
    ]
    assert left.refusal is not None
    assert left.refusal.code == refused.code


async def test_days_count_from_the_guests_departure_or_from_an_outcome_without_one(desk: Desk) -> None:
    (confirmed,), (rejected,) = await desk.finish(1), await desk.finish(2, status=Status.REJECTED)
    (failed,) = await desk.finish(3, status=Status.FAILED)
    policy = RetentionPolicy("demo", reservation_days=10, dead_letter_days=None)
    expected = {
        datetime(2027, 1, 10, tzinfo=UTC): [],
        datetime(2027, 1, 11, tzinfo=UTC): [rejected.id],  # the outcome was on 1 January
        datetime(2027, 3, 13, tzinfo=UTC): [rejected.id],
        datetime(2027, 3, 14, tzinfo=UTC): [confirmed.id, rejected.id],  # the departure is on 4 March
    }
    for moment, anonymous in expected.items():
        desk.clock = HurriedClock(moment)
        await desk.sweep(policy)
        assert await desk.anonymous() == anonymous
    await desk.sweep(RetentionPolicy("demo", dead_letter_days=0))
    assert failed.id in await desk.anonymous()


async def test_a_workspace_without_days_keeps_its_guests(desk: Desk) -> None:
    await desk.finish(1)
    await desk.sweep(RetentionPolicy("demo"))
    assert await desk.anonymous() == []


async def test_what_is_not_over_keeps_its_guest(desk: Desk) -> None:
    await desk.finish(1, published=False)
    await desk.finish(2, status=Status.IN_DOUBT)
    (held,) = await desk.recorder.ingest("w1", [arrival(3, **GUEST)], now=NOW)
    (cancelled,) = await desk.finish(4)
    await _request_cancellation(desk, cancelled)
    await desk.sweep()
    assert await desk.anonymous() == []
    await desk.recorder.release("w1", [held.id])
    records = await desk.guests.submissions([f"rsv_{number:032d}" for number in (1, 2, 3, 4)])
    assert [record.standing for record in records] == [
        ErasureState.UNPUBLISHED,
        ErasureState.UNFINISHED,
        ErasureState.UNFINISHED,
        ErasureState.UNFINISHED,
    ]
    assert await desk.guests.erase(records, now=IN_2030) == []


async def test_what_comes_again_is_not_booked_again(desk: Desk) -> None:
    natural = NaturalKey("natural-1", "transaction-1")
    first = submission(1, **GUEST)
    again = submission(2, **GUEST)
    (work,) = await desk.recorder.ingest("w1", [_arrival_of(first, natural)], now=NOW)
    events = await desk.recorder.record("w1", [final(work)], [])
    await desk.recorder.published([event.id for event in events.values()])
    await desk.sweep()
    assert await desk.anonymous() == [work.id]
    duplicates: list[Duplicate] = []
    arrived = [_arrival_of(first, natural), _arrival_of(again, natural)]
    assert await desk.recorder.ingest("w1", arrived, now=IN_2030, on_duplicate=duplicates.append) == []
    assert [each.duplicate_of for each in duplicates] == [first.request_id]
    stored = await desk.reader.submission("acc", again.request_id)
    assert stored is not None
    assert (stored.request_id, stored.status) == (first.request_id, Status.CONFIRMED)


def _arrival_of(taken: Any, natural: NaturalKey) -> Arrival:
    return Arrival(replace(taken, natural=natural), 0, DEADLINE, held=True)


async def test_the_dead_letter_of_an_erased_guest_is_not_replayed(desk: Desk) -> None:
    (failed,) = await desk.finish(1, status=Status.FAILED)
    await desk.sweep()
    replayed = Arrival(submission(1, **GUEST), 0, DEADLINE, held=True, replay_of=1)
    assert await desk.recorder.ingest("w1", [replayed], now=IN_2030) == []
    assert (await row(desk.engine, failed.id))["status"] == "FAILED"
    request_id = failed.submission.request_id
    assert await Overview(desk.engine).failed([request_id, "rsv_x"]) == {request_id: FailedState(1, True, None)}


async def test_an_anonymous_reservation_can_be_cancelled_and_is_swept_again(desk: Desk) -> None:
    (work,) = await desk.finish(1)
    await desk.sweep()
    await _request_cancellation(desk, work)
    (claimed,) = await desk.recorder.claim("w1", "acc", [0], now=IN_2030, limit=9)
    assert claimed.pms_reservation is not None
    assert claimed.pms_reservation.pms_reservation_id == "pms-1"
    assert claimed.pms_reservation.record["propertyId"] == 1001
    events = await desk.recorder.record("w1", [final(claimed, status=Status.CANCELLED, at=IN_2030)], [])
    await desk.recorder.published([event.id for event in events.values()])
    assert await desk.anonymous() == []
    await desk.sweep(RetentionPolicy("demo", reservation_days=0))
    assert await desk.anonymous() == [work.id]


async def _request_cancellation(desk: Desk, work: Work) -> None:
    request = CancellationRequest(work.submission.request_id, "acc", "acc:1", NOW, "Maria is ill", revision=1)
    await desk.recorder.request_cancellations([CancellationArrival(request, DEADLINE)], now=NOW)


async def _parked(desk: Desk, *reasons: tuple[int, str, str]) -> None:
    """Cancellations whose submissions did not come: the number, the account, the reason of each."""
    asked = [
        CancellationRequest(
            submission(number).request_id, account, f"{account}:1", NOW, reason, revision=0, trace=TRACE
        )
        for number, account, reason in reasons
    ]
    await desk.recorder.request_cancellations([CancellationArrival(each, DEADLINE) for each in asked], now=NOW)


async def _reasons(desk: Desk) -> dict[str, str | None]:
    async with desk.engine.connect() as connection:
        rows = await connection.execute(select(parked_cancellations.c.request_id, parked_cancellations.c.reason))
        return {row.request_id: row.reason for row in rows}


async def test_the_reason_of_a_parked_cancellation_goes_with_its_workspaces_days(desk: Desk) -> None:
    tenancy = TenancyAdmin(desk.engine)
    await tenancy.add_workspace("other")
    await tenancy.put_account(Account("acc", "demo", "generic", "https://pms.example", "c"))
    await tenancy.put_account(Account("theirs", "other", "generic", "https://pms.example", "c"))
    await _parked(desk, (1, "acc", "Maria is ill"), (2, "test~acc", "Maria again"), (3, "theirs", "Maria, too"))
    ids = [submission(number).request_id for number in (1, 2, 3)]
    for moment, kept in ((NOW + timedelta(days=29), 3), (NOW + timedelta(days=31), 1)):
        desk.clock = HurriedClock(moment)
        await desk.sweep()
        reasons = await _reasons(desk)
        assert sorted(reasons) == sorted(ids), "it stays in force"
        assert sum(reason is not None for reason in reasons.values()) == kept
    assert (await _reasons(desk))[ids[2]] == "Maria, too", "another workspace keeps its own for ever"


async def test_the_reason_of_a_parked_cancellation_is_erased_and_the_cancellation_stays(desk: Desk) -> None:
    await _parked(desk, (1, "acc", "maria@example.com is ill"), (2, "acc", "somebody else"))
    ids = [submission(number).request_id for number in (1, 2)]
    assert [each.reason for each in await desk.guests.parked_reasons()] == ["maria@example.com is ill", "somebody else"]
    assert await desk.guests.erase_parked_reasons(ids[:1]) == ids[:1]
    assert await _reasons(desk) == {ids[0]: None, ids[1]: "somebody else"}
    async with desk.engine.connect() as connection:
        traces = (
            await connection.execute(select(parked_cancellations.c.request_id, parked_cancellations.c.trace))
        ).all()
    assert {row.request_id: row.trace for row in traces} == {ids[0]: None, ids[1]: TRACE}
    await desk.recorder.ingest("w1", [arrival(1, **GUEST)], now=NOW)
    stored = await desk.reader.submission("acc", ids[0])
    assert stored is not None
    assert stored.cancellation is not None


@pytest.fixture
async def guests(desk: Desk, tmp_path: Path) -> Guests:
    """What `forwarder guests erase` does."""
    await TenancyAdmin(desk.engine).put_account(Account("acc", "demo", "generic", "https://pms.example", "c"))
    log, topics = EmbeddedLog(tmp_path / "log.sqlite3", partitions=1), Topics()
    async with log.admin() as admin:
        await admin.create(dict.fromkeys(topics.all(), 1))
    audit = Audit(AuditTrail(desk.engine), desk.clock)
    return Guests(desk.guests, desk.policies.account_workspaces, log, topics, desk.clock, audit)


async def test_erase_looks_through_them_too(desk: Desk, guests: Guests) -> None:
    await _parked(desk, (1, "acc", "maria@example.com is ill"), (2, "acc", "somebody else"))
    ids = [submission(number).request_id for number in (1, 2)]
    for query, named in (
        (GuestQuery(email="maria@example.com", workspace_id="other"), []),
        (GuestQuery(request_id=ids[1], workspace_id="demo"), ids[1:]),
    ):
        assert [each.request_id for each in (await guests.find(query)).parked] == named
    maria = GuestQuery(email="maria@example.com", workspace_id="demo")
    assert (await guests.erase(maria, await guests.find(maria)))[0] == ids[:1]
    assert not (await guests.find(maria)).parked


async def test_work_that_begins_while_a_guest_is_erased_is_shown(desk: Desk, guests: Guests) -> None:
    (work,) = await desk.finish(1)
    maria = GuestQuery(email="maria@example.com")
    found = await guests.find(maria)
    await _request_cancellation(desk, work)
    erased, records = await guests.erase(maria, found)
    assert (erased, [record.standing for record in records]) == ([], [ErasureState.UNFINISHED])


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("cancel_reason", "for anna@example.com"),
        ("problem", '{"code": "x", "detail": "for\\nanna@example.com"}'),
        ("cancel_problem", '{"code": "x", "detail": "for anna@example.com"}'),
        ("attempts", '[{"number": 1, "detail": "for anna@example.com"}]'),
        (
            "evidence",
            '{"type": "push", "at": "", "to": {}, "came": "no", "problem": {"detail": "for\\nanna@example.com"}}',
        ),
    ],
)
async def test_erase_looks_through_all_that_a_submission_has(
    desk: Desk, guests: Guests, column: str, said: str
) -> None:
    (work, _) = await desk.finish(1, 2)
    async with desk.engine.begin() as connection:
        await connection.execute(text(f"UPDATE reservations SET {column} = :said WHERE id = {work.id}"), {"said": said})
    anna = GuestQuery(email="anna@example.com")
    erased, records = await guests.erase(anna, await guests.find(anna))
    assert erased == [record.request_id for record in records] == [work.submission.request_id]
    assert "anna@" not in repr(await row(desk.engine, work.id))


# --- deliveries -------------------------------------------------------------------------------------------------------


async def test_deliveries_are_deleted_once_their_days_are_over_and_those_of_removed_endpoints_at_once(
    desk: Desk,
) -> None:
    for endpoint in ("whk_kept", "whk_removed"):
        for number in range(3):
            await _deliver(desk, endpoint, f"rsv_{number}.1", ended=number < 2)
    async with desk.engine.begin() as connection:
        await connection.run_sync(_own_endpoint)
    desk.clock = HurriedClock(LATER + timedelta(days=2))
    await desk.sweep(RetentionPolicy("demo", delivery_days=7))
    assert await _delivered(desk) == [("whk_kept", 3), ("whk_removed", 1)]  # what is still to be delivered stays
    desk.clock = HurriedClock(LATER + timedelta(days=8))
    await desk.sweep(RetentionPolicy("demo", delivery_days=7))
    assert await _delivered(desk) == [("whk_kept", 1), ("whk_removed", 1)]


async def test_the_deliveries_about_an_erased_guest_are_anonymous(desk: Desk) -> None:
    (work, other) = await desk.finish(1, 11)
    for each, endpoint in ((work, "whk_1"), (work, "whk_2"), (other, "whk_1")):
        await _deliver(desk, endpoint, f"{each.submission.request_id}.1", ended=True, work=each)
    records = await desk.guests.submissions([work.submission.request_id])
    assert await desk.guests.deliveries(work.submission.request_id) == 2
    assert await desk.guests.erase(records, now=IN_2030) == [work.submission.request_id]
    assert await desk.guests.erase(records, now=IN_2030) == []
    async with desk.engine.connect() as connection:
        found = (await connection.execute(select(webhook_deliveries).order_by(webhook_deliveries.c.id))).all()
    assert ["Maria" in each.body for each in found] == [False, False, True]
    assert not [trace for trace in TRACES if trace in found[0].body + found[0].attempts]
    assert from_json(found[0].body)["data"]["requestId"] == work.submission.request_id
    assert [each.trace for each in found] == [None, None, TRACE], "a caller may write anything into it"


async def test_a_delivery_that_is_queued_after_its_guest_was_erased_is_erased_by_the_next_run(
    desk: Desk, guests: Guests
) -> None:
    (work,) = await desk.finish(1)
    request_id = work.submission.request_id
    query = GuestQuery(request_id=request_id)
    assert (await guests.erase(query, await guests.find(query)))[0] == [request_id]
    await _deliver(desk, "whk_1", f"{request_id}.1", ended=True, work=work)
    await guests.erase(query, await guests.find(query))
    async with desk.engine.connect() as connection:
        (late,) = (await connection.execute(select(webhook_deliveries))).all()
    assert not [trace for trace in TRACES if trace in late.body + late.attempts]


async def _deliver(desk: Desk, endpoint: str, event_id: str, *, ended: bool, work: Work | None = None) -> None:
    data = b"{}" if work is None else b"".join(final(work, notes="Maria: 4711").event.written)
    body = body_of("reservation.confirmed.v1", iso(NOW), data.decode())
    delivery = NewDelivery(endpoint, event_id, "reservation.confirmed.v1", body, TRACE)
    [number] = await desk.deliveries.queue([delivery], now=NOW)
    async with desk.engine.begin() as connection:
        changed = webhook_deliveries.update().where(webhook_deliveries.c.id == number)
        attempts = to_json([{"at": iso(NOW), "ms": 1, "status": 200, "failure": None, "detail": "Maria"}]).decode()
        over = {"due_at": None, "ended_at": LATER, "status": "DELIVERED"} if ended else {}
        await connection.execute(changed.values(attempts=attempts, **over))


def _own_endpoint(connection: Connection) -> None:
    connection.execute(
        text(
            "INSERT INTO webhook_endpoints (id, workspace_id, url, description, enabled, secret, created_at) "
            "VALUES ('whk_kept', 'demo', 'https://example.com', '', true, '', CURRENT_TIMESTAMP)"
        )
    )


async def _delivered(desk: Desk) -> list[tuple[str, int]]:
    endpoint = webhook_deliveries.c.endpoint_id
    async with desk.engine.connect() as connection:
        rows = await connection.execute(select(endpoint, func.count()).group_by(endpoint).order_by(endpoint))
        return [tuple(each) for each in rows]


# --- many -------------------------------------------------------------------------------------------------------------


async def test_more_than_a_batch_is_swept_by_several_at_once(desk: Desk) -> None:
    (work,) = await desk.finish(1)
    await desk.multiply(work, many := 2 * BATCH + 3)
    await asyncio.gather(desk.sweep(), desk.sweep())
    assert len(await desk.anonymous()) == many


async def test_a_sweep_that_is_killed_is_finished_by_the_next(desk: Desk, migrated_url: str) -> None:
    (work,) = await desk.finish(1)
    await desk.multiply(work, many := 40 * BATCH)
    await desk.policies.set_policy(**asdict(POLICY))
    command = (sys.executable, "-m", "tests.contract.store.sweeping_child", migrated_url)
    child = await asyncio.create_subprocess_exec(*command)
    while not await desk.anonymous():
        assert child.returncode is None
        await asyncio.sleep(0.005)
    child.kill()
    await child.wait()
    done = set(await desk.anonymous())
    assert 0 < len(done) < many
    async with desk.engine.connect() as connection:
        rows = (await connection.execute(select(reservations))).all()
    assert {each.id for each in rows if "Maria" not in each.request + each.record} == done
    assert len(rows) == many
    await desk.sweep()
    assert len(await desk.anonymous()) == many


@pytest.mark.slow
async def test_a_hundred_thousand_are_swept_in_short_transactions(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest transaction is what a reservation can be held up by."""
    (work,) = await desk.finish(1)
    await desk.multiply(work, 100_000)
    await desk.policies.set_policy(**asdict(POLICY))
    took: list[float] = []
    step = desk.guests.anonymize_finished

    async def timed(*given: Any, **named: Any) -> int:
        began = time.monotonic()
        count = await step(*given, **named)
        took.append(time.monotonic() - began)
        return count

    monkeypatch.setattr(desk.guests, "anonymize_finished", timed)
    await RetentionSweeper(desk.guests, desk.policies, desk.clock).sweep()
    assert len(await desk.anonymous()) == 100_000
    took.sort()
    print(f"{len(took)} transactions, median {took[len(took) // 2] * 1000:.1f} ms, longest {took[-1] * 1000:.1f} ms")
    assert took[len(took) // 2] < 0.25

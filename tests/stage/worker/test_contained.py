"""A whole worker: one row, message or event raises what nobody expected while nine others go through. The nine are delivered, the
tenth is shown, and the worker goes on."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import select, update
from structlog.testing import capture_logs

from forwarder.pms.port import AccountConnection, Capabilities
from forwarder.process.loops import LOOPS, Fault, Where
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Confirmed, InDoubt, Outcome, Rejected, Status
from forwarder.store.submissions.port import Ended, NotedCancellation, OutboxEvent, PmsReservation, Postponed
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.tables import outbox, reservations
from forwarder.topics.codec import subject
from forwarder.topics.port import Message
from forwarder.worker import intake, service
from forwarder.worker.outcome import policy
from forwarder.worker.outcome import recorder as publishing
from forwarder.worker.push import pipeline, run
from forwarder.worker.push.run import PushContext
from tests.support.worker.worker_bench import PATIENCE_SECONDS, TOPICS, Bench, Pms, cancellation, fresh, open_bench
from tests.support.worker.works import NOW, account, work

POISON = f"rsv_{5:032d}"
EVERY = range(1, 11)


@pytest.fixture
async def bench(data_dir: Path) -> AsyncIterator[Bench]:
    async with open_bench(data_dir) as opened:
        with capture_logs():  # tracebacks in colour take longer than the tests
            yield opened
    assert LOOPS.failing() == []


def names_poison(value: object) -> bool:
    return POISON in str(value)


def poisoned(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, which raises for the fifth of the ten."""

    def wrapped(*given: Any, **named: Any) -> Any:
        if names_poison((given, named)):
            raise OverflowError("of a guest")
        return call(*given, **named)

    return wrapped


def poison(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> None:
    monkeypatch.setattr(module, name, poisoned(getattr(module, name)))


async def until(met: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await met():
            await asyncio.sleep(0.01)


# --- messages ---


@pytest.mark.parametrize("place", ["decode_with_text", "replay_revision"])
async def test_a_message(bench: Bench, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """As it is read, and as it is stored: a dead letter that has its bytes."""
    poison(monkeypatch, intake, place)
    await bench.submit(*map(fresh, EVERY))
    async with bench.worker() as worker:
        await bench.rows("CONFIRMED", 9)
        [letter] = await bench.read(TOPICS.dead_letters, 1)
        await bench.submit(fresh(11))
        await bench.rows("CONFIRMED", 10)
        assert worker.consuming()
    headers = {name: value.decode() for name, value in letter.message.headers}
    assert (headers["dlt-failure-class"], headers["dlt-exception-class"]) == ("internal_error", "OverflowError")
    assert "err_" in headers["dlt-exception-message"]
    assert "of a guest" not in headers["dlt-exception-message"]
    assert POISON.encode() in letter.message.value


async def test_a_letter_that_the_log_does_not_take(bench: Bench) -> None:
    """It says where its message is."""

    class Refusing:
        async def publish(self, topic: str, messages: Sequence[Any]) -> None:
            if topic == TOPICS.dead_letters and any(message.value for message in messages):
                raise ValueError("too large for this topic")
            await bench.publisher.publish(topic, messages)

        def partition(self, topic: str, key: str) -> int | None:
            return bench.publisher.partition(topic, key)

        async def ready(self) -> bool:
            return True

    await bench.publisher.publish(TOPICS.requests, [Message(b"k", b"not json" * 100)])
    await bench.submit(*map(fresh, EVERY))
    async with bench.worker(Refusing()):
        await bench.rows("CONFIRMED", 10)
        [letter] = await bench.read(TOPICS.dead_letters, 1)
    headers = {name: value.decode() for name, value in letter.message.headers}
    assert letter.message.value == b""
    assert headers["dlt-original-offset"].isdecimal()
    assert int(headers["dlt-cut-from-bytes"]) > 800


async def test_a_cancellation(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    poison(monkeypatch, intake, "CancellationArrival")
    await bench.submit(*map(fresh, EVERY))
    async with bench.worker():
        await bench.rows("CONFIRMED", 10)
        await bench.cancel(*map(cancellation, EVERY))
        await bench.rows("CANCELLED", 9)
        [letter] = await bench.read(TOPICS.dead_letters, 1)
    assert POISON.encode() in letter.message.value


# --- rows ---


async def test_a_row_before_anything_is_sent(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    poison(monkeypatch, pipeline, "apply_rules")
    await bench.submit(*map(fresh, EVERY))
    async with bench.worker():
        await bench.rows("CONFIRMED", 9)
        await until(lambda: _attempts(bench, "internal_error"))
    assert POISON not in bench.pms.asked


async def test_a_row_whose_answer_cannot_be_decided(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was sent: it is left alone, and looked up, and never sent again blindly."""
    poison(monkeypatch, pipeline, "decide")
    await bench.submit(*map(fresh, EVERY))
    async with bench.worker():
        await bench.rows("CONFIRMED", 9)
        await until(lambda: _attempts(bench, "internal_error"))
        async with bench.engine.connect() as connection:
            row = (await connection.execute(select(reservations).where(reservations.c.request_id == POISON))).one()
    assert (row.possibly_sent, row.status) == (True, "PENDING")


async def test_a_row_whose_adapter_raises(bench: Bench) -> None:
    class Buggy(Pms):
        async def create(self, booking: Booking) -> Outcome:
            if names_poison(booking.reference):
                raise RecursionError
            return await super().create(booking)

    bench.pms = Buggy()
    await bench.submit(*map(fresh, EVERY))
    async with bench.worker():
        await bench.rows("CONFIRMED", 9)
        await until(lambda: _attempts(bench, "adapter_failed"))


class _RefusingRecorder(Recorder):
    """Cannot record what the PMS said of the fifth."""

    async def record(
        self, worker_id: str, ended: Sequence[Ended], postponed: Sequence[Postponed]
    ) -> Mapping[int, OutboxEvent]:
        if any(each.event.request_id == POISON and each.pms_reservation_id for each in ended):
            raise ZeroDivisionError
        return await super().record(worker_id, ended, postponed)


async def test_a_row_whose_outcome_cannot_be_recorded(bench: Bench) -> None:
    await bench.submit(*map(fresh, EVERY))
    async with bench.worker(recorder=_RefusingRecorder(bench.engine)):
        await bench.rows("CONFIRMED", 9)
        [row] = await bench.rows("IN_DOUBT", 1)
        events = await bench.read(TOPICS.results, 10)
    assert row.request_id == POISON
    assert {subject(event.message.headers) for event in events} == {f"rsv_{number:032d}" for number in EVERY}
    assert bench.pms.asked.count(POISON) == 1


async def test_a_row_that_cannot_be_read_from_the_store(bench: Bench) -> None:
    bench.accounts.one = replace(bench.accounts.one, paused=True)
    await bench.submit(*map(fresh, EVERY))
    async with bench.worker():
        await bench.rows("PENDING", 10)
    async with bench.engine.begin() as connection:
        broken = update(reservations).where(reservations.c.request_id == POISON)
        await connection.execute(broken.values(request="{"))
    bench.accounts.one = replace(bench.accounts.one, paused=False)
    async with bench.worker():
        await bench.rows("CONFIRMED", 9)
    async with bench.engine.connect() as connection:
        row = (await connection.execute(select(reservations).where(reservations.c.request_id == POISON))).one()
    assert (row.leased_by, row.due_at > row.updated_at, "internal_error" in row.attempts) == (None, True, True)


async def test_a_row_whose_deadline_passed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended all the same."""
    poison(monkeypatch, service, "decide")
    bench.accounts.one = replace(bench.accounts.one, paused=True, deadline_seconds=1)
    await bench.submit(*map(fresh, EVERY))
    async with bench.worker():
        rows = await bench.rows("FAILED", 10)
    assert POISON in {row.request_id for row in rows}


async def test_an_account_whose_adapter_cannot_be_set_up(bench: Bench) -> None:
    class Choosy(Pms):
        def connect(self, connection: AccountConnection) -> Pms:
            if connection.account_id == "buggy":
                raise AttributeError("a bug")
            return self

    bench.pms = Choosy()
    bench.accounts.add("buggy")
    await bench.submit(*(fresh(number, account="buggy" if number == 5 else "acc") for number in EVERY))
    async with bench.worker() as worker:
        await bench.rows("CONFIRMED", 9)
        await bench.rows("PENDING", 1)
        assert worker.consuming()


# --- events ---


async def test_an_event_that_cannot_be_published(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays in the outbox, marked, and rests; the others are published."""
    poison(monkeypatch, publishing, "encode_result")
    await bench.submit(*map(fresh, EVERY))
    async with bench.worker():
        events = await bench.read(TOPICS.results, 9)
        await until(partial(_kept, bench))
    assert POISON not in {subject(event.message.headers) for event in events}


async def test_events_that_are_too_large_for_the_log_keep_no_others_from_it(bench: Bench) -> None:
    """As a version before this one recorded them."""
    async with bench.worker():
        await bench.submit(*map(fresh, EVERY))
        await bench.read(TOPICS.results, 10)
        await until(partial(_emptied, bench))
    old = '{"reservation":{"notes":"%s"}}'
    async with bench.engine.begin() as connection:
        row = (await connection.execute(select(reservations).limit(1))).one()
        for number, size in enumerate((1_030_000, 10, 1_030_000, 10)):
            values = {
                "reservation_id": row.id + number,
                "request_id": f"old-{number}",
                "revision": 1,
                "status": "CONFIRMED",
                "key": "acc:1",
                "occurred_at": "2027-01-01T00:00:00.000Z",
                "data": old % ("n" * size),
                "publish_attempted_at": row.updated_at,
            }
            await connection.execute(outbox.insert().values(values))
    async with bench.worker() as worker:
        events = await bench.read(TOPICS.results, 12)
        await until(partial(_kept, bench, 2))
        assert worker.consuming()
    assert {"old-1", "old-3"} <= {subject(event.message.headers) for event in events}


async def test_a_large_answer_of_one_pms_costs_nobody_anything(bench: Bench) -> None:
    line = {"name": "x" * 256, "type": "é" * 256, "total": 1}
    finances = {
        name: {total: 200, "breakdown": [line] * 700} for name, total in (("fee", "totalFee"), ("tax", "totalTax"))
    }

    class Talkative(Pms):
        async def create(self, booking: Booking) -> Outcome:
            await super().create(booking)
            return Confirmed("1", {"finances": finances} if names_poison(booking.reference) else {})

    bench.pms = Talkative()
    await bench.submit(*map(fresh, EVERY))
    async with bench.worker():
        await bench.rows("CONFIRMED", 10)
        events = await bench.read(TOPICS.results, 10)
    assert max(len(event.message.value) for event in events) <= 128 * 1024


async def _attempts(bench: Bench, reason: str) -> bool:
    async with bench.engine.connect() as connection:
        attempts = await connection.scalar(select(reservations.c.attempts).where(reservations.c.request_id == POISON))
    return reason in (attempts or "")


async def _kept(bench: Bench, count: int = 1) -> bool:
    async with bench.engine.connect() as connection:
        rows = (await connection.execute(select(outbox))).all()
    return len(rows) == count and all(row.faults >= 1 and row.error_id.startswith("err_") for row in rows)


async def _emptied(bench: Bench) -> bool:
    async with bench.engine.connect() as connection:
        return not (await connection.execute(select(outbox))).all()


# --- where nothing goes through, the units are not to blame -------------------------------------------------------------------


async def test_where_all_messages_raise_none_becomes_a_dead_letter(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a release with a defect, or without its migration: offsets stay, the process is not ready, and once it is mended
    all are delivered."""
    broken, real = True, Recorder.ingest

    async def ingest(self: Recorder, *given: Any, **named: Any) -> Any:
        if broken:
            raise LookupError("no such table")
        return await real(self, *given, **named)

    async def not_ready() -> bool:
        return LOOPS.failing() == ["intake"]

    monkeypatch.setattr(Recorder, "ingest", ingest)
    await bench.submit(*map(fresh, EVERY))
    async with bench.worker():
        await until(not_ready)
        broken = False
        await bench.rows("CONFIRMED", 10)
        await until(_ready)
    async with bench.log.tail(TOPICS.dead_letters, from_beginning=True) as tail:
        assert await tail.receive(max_messages=10, wait_seconds=0.1) == []


async def test_a_message_alone_is_tried_a_few_times(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault may pass; then nothing was set aside."""
    tries, real = 0, Recorder.ingest

    async def ingest(self: Recorder, *given: Any, **named: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise LookupError
        return await real(self, *given, **named)

    monkeypatch.setattr(Recorder, "ingest", ingest)
    await bench.submit(fresh(1))
    async with bench.worker():
        await bench.rows("CONFIRMED", 1)
    assert tries == 3


async def test_where_no_outcome_can_be_recorded_all_are_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    broken, real = True, Recorder.record

    async def record(self: Recorder, *given: Any, **named: Any) -> Any:
        if broken:
            raise LookupError("no such column")
        return await real(self, *given, **named)

    async def not_ready() -> bool:
        return LOOPS.failing() == ["outcomes"]

    monkeypatch.setattr(Recorder, "record", record)
    await bench.submit(*map(fresh, EVERY))
    async with bench.worker():
        await until(not_ready)
        broken = False
        await bench.rows("CONFIRMED", 10)
        await until(_ready)
    assert sorted(bench.pms.asked) == [f"rsv_{number:032d}" for number in EVERY], "each was asked for once"


async def test_where_no_push_can_be_prepared_none_is_given_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise LookupError

    async def not_ready() -> bool:
        return LOOPS.failing() == ["push"]

    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "apply_rules", broken)
        patched.setattr(policy, "MAX_TRIES", 1)
        await bench.submit(*map(fresh, EVERY))
        async with bench.worker():
            await until(not_ready)
            rows = await bench.rows("PENDING", 6)
            patched.undo()
            await bench.submit(fresh(11))
            await bench.rows("CONFIRMED", 1)
            await until(_ready)
    assert len(rows) >= 6


class _Sloppy(Pms):
    """Of another distribution: it says the right things in wrong types."""

    says: Any

    async def create(self, booking: Booking) -> Outcome:
        await super().create(booking)
        said: Outcome = self.says
        return said


@pytest.mark.parametrize(
    ("says", "status", "kept"),
    [
        (Confirmed(4711, {}), "CONFIRMED", "4711"),  # type: ignore[arg-type]
        (Confirmed("x-1", "no record"), "CONFIRMED", "x-1"),  # type: ignore[arg-type]
        (Confirmed("y" * 100_000, {"notes": "n" * 3_000_000}), "CONFIRMED", "y" * 100),
        (Confirmed(None), "IN_DOUBT", None),  # type: ignore[arg-type]
        ("confirmed", "IN_DOUBT", None),
        (Rejected("no problem"), "IN_DOUBT", None),  # type: ignore[arg-type]
    ],
    ids=["number", "record", "large", "none", "text", "refusal"],
)
async def test_an_outcome_of_the_wrong_types_is_put_right_or_in_doubt(
    bench: Bench, says: Any, status: str, kept: str | None
) -> None:
    bench.pms = pms = _Sloppy()
    pms.says = says
    pms.capabilities = Capabilities(idempotent_create=False, find_by_reference=False, cancel=True)
    await bench.submit(fresh(1))
    async with bench.worker():
        await bench.rows(status, 1)
    async with bench.engine.connect() as connection:
        found = await connection.scalar(select(reservations.c.pms_reservation_id))
    assert (found or "")[:100] == (kept or "")


# --- what has no end otherwise ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sent", "status"), [(False, "FAILED"), (True, "IN_DOUBT")])
@pytest.mark.parametrize("column", ["request", "attempts"])
async def test_a_row_that_cannot_be_read_ends_at_its_deadline(
    bench: Bench, column: str, status: str, *, sent: bool
) -> None:
    bench.accounts.one = replace(bench.accounts.one, paused=True)
    await bench.submit(*map(fresh, EVERY))
    async with bench.worker():
        await bench.rows("PENDING", 10)
    async with bench.engine.begin() as connection:
        broken = update(reservations).where(reservations.c.request_id == POISON)
        past = bench.clock.now() - timedelta(seconds=1)
        await connection.execute(broken.values({column: "{", "deadline_at": past, "possibly_sent": sent}))
    async with bench.worker():
        [event] = await bench.read(TOPICS.results, 1)
        letters = await bench.read(TOPICS.dead_letters, 1) if status == "FAILED" else []
        [row] = await bench.rows(status, 1)
    assert row.request_id == subject(event.message.headers) == POISON
    assert [dict(each.message.headers)["dlt-failure-class"] for each in letters] == [b"internal_error"] * (not sent)


@pytest.mark.parametrize("reason", [7, "seven"])
def test_a_yes_in_wrong_types_stays_a_yes(reason: Any) -> None:
    wrong_id: Any = 4711
    outcome = run.sound(InDoubt(reason, "What?", made=True, pms_reservation_id=wrong_id), InDoubt)
    assert isinstance(outcome, InDoubt)
    assert (outcome.reason, outcome.made, outcome.pms_reservation_id) == (str(reason), True, "4711")


def test_a_cancellation_that_keeps_faulting_ends_after_as_many_tries() -> None:
    made = PmsReservation("pms-1", {"id": 1, "status": "CONFIRMED"})
    row = replace(
        work(),
        status=Status.CONFIRMED,
        pms_reservation=made,
        cancellation=NotedCancellation("2027-01-01T00:00:00.000Z"),
    )
    fault = Fault("err_1", Where.PUSH, ValueError())
    for _ in range(policy.MAX_TRIES - 1):
        postponed = policy.after_fault(PushContext(account(), row), fault, now=NOW, push_seconds=30.0)
        assert isinstance(postponed, Postponed)
        row = replace(row, attempts=tuple(postponed.attempts))
    decision = policy.after_fault(PushContext(account(), row), fault, now=NOW, push_seconds=30.0)
    assert isinstance(decision, Ended)
    assert decision.status is Status.CONFIRMED
    assert "err_1" in str(decision.cancel_problem)


async def _ready() -> bool:
    return LOOPS.failing() == []

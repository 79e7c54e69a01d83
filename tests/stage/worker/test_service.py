"""The worker as a whole, on the embedded log and store, with a PMS that answers by hand: from the topic to record and event."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from forwarder.process.clock import SystemClock, iso
from forwarder.reservation.booking import Traits, apply_rules
from forwarder.reservation.submission import Submission
from forwarder.store.engine import Engine
from forwarder.store.submissions.port import Arrival, Work
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.tables import reservations
from forwarder.topics.codec import header, subject
from forwarder.topics.port import Message
from tests.support.store.stored import take_over
from tests.support.worker.worker_bench import PATIENCE_SECONDS, SETTINGS, TOPICS, Bench, FailsFirst, fresh, open_bench


@pytest.fixture
async def bench(data_dir: Path) -> AsyncIterator[Bench]:
    async with open_bench(data_dir) as opened:
        yield opened


async def test_from_the_topic_to_the_record_and_the_event(bench: Bench) -> None:
    await bench.submit(fresh(1), fresh(2))
    async with bench.worker():
        await bench.rows("CONFIRMED", 2)
        events = await bench.read(TOPICS.results, 2)
    request_ids = {f"rsv_{number:032d}" for number in (1, 2)}
    assert {subject(event.message.headers) for event in events} == request_ids
    assert {header(event.message.headers, "ce_id") for event in events} == {f"{each}.1" for each in request_ids}
    assert {header(event.message.headers, "ce_type") for event in events} == {"reservation.confirmed.v1"}
    assert sorted(bench.pms.asked) == sorted(request_ids)


async def test_a_message_that_is_delivered_again_is_pushed_once(bench: Bench) -> None:
    await bench.submit(fresh(1), fresh(1))
    async with bench.worker():
        await bench.rows("CONFIRMED", 1)
        await bench.submit(fresh(1), fresh(2))
        await bench.rows("CONFIRMED", 2)
    assert len(bench.pms.asked) == 2


@pytest.mark.parametrize("value", [b"not json", b"[]", b"{}", b'{"requestId": 1}', b"\xff"])
async def test_what_cannot_be_read_is_set_aside_with_the_reason_and_stops_nothing(bench: Bench, value: bytes) -> None:
    letter = Message(b"acc:1001", value, (("traceparent", b"kept"),))
    await bench.publisher.publish(TOPICS.requests, [letter])
    await bench.submit(fresh(1))
    async with bench.worker():
        await bench.rows("CONFIRMED", 1)
        (dead,) = await bench.read(TOPICS.dead_letters, 1)
    assert (dead.message.key, dead.message.value) == (letter.key, letter.value)
    headers = {name: text.decode() for name, text in dead.message.headers}
    assert headers["traceparent"] == "kept"
    assert headers["dlt-original-topic"] == TOPICS.requests
    assert headers["dlt-failure-class"] == "undecodable"
    assert headers["dlt-exception-class"] == "Undecodable"


async def test_a_paused_account_takes_in_and_waits(bench: Bench) -> None:
    bench.accounts.one = replace(bench.accounts.one, paused=True)
    await bench.submit(fresh(1))
    async with bench.worker():
        await bench.rows("PENDING", 1)
        assert bench.pms.asked == []
        bench.accounts.one = replace(bench.accounts.one, paused=False)
        await bench.rows("CONFIRMED", 1)


async def test_a_deadline_runs_from_the_acceptance_as_the_caller_set_it_or_as_the_account_has_it(bench: Bench) -> None:
    bench.accounts.one = replace(bench.accounts.one, paused=True, deadline_seconds=3600)
    sent = [fresh(1), replace(fresh(2), deadline_seconds=60), replace(fresh(3), deadline_seconds=7200)]
    for each in sent:
        await bench.submit(each)
    async with bench.worker():
        await bench.rows("PENDING", 3)
    async with bench.engine.connect() as connection:
        stored = await connection.execute(sa.select(reservations.c.request_id, reservations.c.deadline_at))
        deadlines = {row.request_id: row.deadline_at for row in stored}
    assert [round((deadlines[each.request_id] - each.accepted_at).total_seconds()) for each in sent] == [3600, 60, 3600]


async def test_what_is_put_off_is_due_again_and_tried_again(bench: Bench) -> None:
    bench.pms.putting_off = True
    await bench.submit(fresh(1))
    async with bench.worker():
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (row := (await bench.rows("PENDING", 1))[0]).attempts:
                await asyncio.sleep(0.01)
        assert row.due_at is not None
        bench.pms.putting_off = False
        (row,) = await bench.rows("CONFIRMED", 1)
    assert row.attempts >= 2


async def test_an_event_that_could_not_be_published_is_offered_again_under_the_same_id(bench: Bench) -> None:
    await bench.submit(fresh(1))
    async with bench.worker(FailsFirst(bench.publisher, TOPICS.results)):
        await bench.rows("CONFIRMED", 1)
        (event,) = await bench.read(TOPICS.results, 1)
    assert header(event.message.headers, "ce_id") == f"rsv_{1:032d}.1"


async def test_what_an_unknown_account_submitted_stays_visibly_due(bench: Bench) -> None:
    await bench.submit(fresh(1, account="gone"), fresh(2))
    async with bench.worker():
        await bench.rows("CONFIRMED", 1)
        (row,) = await bench.rows("PENDING", 1)
        await bench.taken_in()
    assert (row.account_id, row.due_at is not None) == ("gone", True)
    async with bench.log.tail(TOPICS.dead_letters, from_beginning=True) as tail:
        assert await tail.receive(max_messages=1, wait_seconds=0.0) == []


async def test_a_bug_of_ours_costs_one_row_a_delay_and_is_not_lost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from forwarder.worker.push import pipeline as push

    def buggy(traits: Traits, submission: Submission, card: object, now: datetime) -> object:
        if submission.request_id.endswith("1"):
            raise KeyError("a bug")
        return apply_rules(traits, submission, None, now)

    monkeypatch.setattr(push, "apply_rules", buggy)
    await bench.submit(fresh(1), fresh(2))
    async with bench.worker():
        await bench.rows("CONFIRMED", 1)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await _due_later(bench):
                await asyncio.sleep(0.01)


async def _due_later(bench: Bench) -> bool:
    (row,) = await bench.rows("PENDING", 1)
    return row.due_at is not None and row.due_at > iso(SystemClock().now())


async def test_a_worker_that_was_stopped_past_its_lease_pushes_nothing_until_it_holds_a_lease_again(
    bench: Bench,
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
    await bench.submit(*(fresh(number) for number in range(1, 11)))
    async with bench.worker():
        await bench.rows("CONFIRMED", 10)
    assert len(bench.pms.asked) == 10


class _Overtaken(Recorder):
    """While the store's first response to an intake is under way, all of it is taken over, and the worker has a new lease."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._overtaken = ""
        self._renewed = asyncio.Event()

    async def renew(self, worker_id: str, *, seconds: float) -> bool:
        renewed = await super().renew(worker_id, seconds=seconds)
        if self._overtaken and worker_id != self._overtaken:
            self._renewed.set()
        return renewed

    async def ingest(
        self, worker_id: str, arrivals: Sequence[Arrival], *, now: datetime, **more: Any
    ) -> Sequence[Work]:
        works = await super().ingest(worker_id, arrivals, now=now, **more)
        if works and not self._overtaken:
            self._overtaken = worker_id
            while not await take_over(self, worker_id, now=now):
                pass  # It renewed meanwhile.
            await self._renewed.wait()
        return works


async def test_what_was_taken_in_under_a_lease_that_was_lost_is_not_pushed_under_the_next(bench: Bench) -> None:
    bench.settings = replace(SETTINGS, lease_seconds=0.6)
    await bench.submit(*(fresh(number) for number in range(1, 6)))
    async with bench.worker(recorder=_Overtaken(bench.engine)):
        await bench.rows("CONFIRMED", 5)
        await bench.submit(fresh(6))
        await bench.rows("CONFIRMED", 6)
    assert len(bench.pms.asked) == 6


async def test_stopping_and_starting_again_goes_on_where_it_was(bench: Bench) -> None:
    bench.pms.putting_off = True
    await bench.submit(*(fresh(number) for number in range(1, 21)))
    async with bench.worker():
        await bench.rows("PENDING", 20)
    bench.pms.putting_off = False
    async with bench.worker():
        await bench.rows("CONFIRMED", 20)
    assert len(set(bench.pms.asked)) == 20


async def test_where_one_request_takes_many_each_still_has_its_own_record_and_event(bench: Bench) -> None:
    bench.pms.capabilities = replace(bench.pms.capabilities, max_per_create=5)
    bench.accounts.one = replace(bench.accounts.one, concurrency=1)
    await bench.submit(*(fresh(number) for number in range(1, 31)))
    async with bench.worker():
        rows = await bench.rows("CONFIRMED", 30)
        events = await bench.read(TOPICS.results, 30)
    assert {row.attempts for row in rows} == {1}
    assert len(set(bench.pms.asked)) == len(bench.pms.asked) == 30
    assert len({subject(event.message.headers) for event in events}) == 30
    assert max(bench.pms.together) == 5


async def test_what_a_worker_died_over_before_it_was_stored_is_received_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offset was not committed: nothing but the log knows of it."""
    dying = asyncio.Event()

    async def die(*_arguments: object, **_named: object) -> None:
        dying.set()
        raise RuntimeError("died")

    await bench.submit(fresh(1))
    with monkeypatch.context() as patched, suppress(RuntimeError, ExceptionGroup):
        patched.setattr(Recorder, "ingest", die)
        async with bench.worker():
            await dying.wait()
    async with bench.worker():
        await bench.rows("CONFIRMED", 1)
    assert bench.pms.asked == [fresh(1).request_id]

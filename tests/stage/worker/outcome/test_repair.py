"""An operator's word on what is in doubt: what it makes of the submission, what the caller reads, and that it is heard once."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic_core import from_json

from forwarder.operate.submissions.settle import NotInDoubt, Repair
from forwarder.reservation.outcome import InDoubt, Status
from forwarder.store.engine import Engine, open_engine
from forwarder.store.lists.port import StoredSubmission
from forwarder.store.lists.reader import Reader
from forwarder.store.submissions.port import Attempt, OutboxEvent, Work, with_attempt
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.submissions.repairs import Repairs
from tests.support.memory.clock import ManualClock
from tests.support.store.audited import audit_on
from tests.support.store.stored import CARD, arrival, final
from tests.support.worker.works import NOW

REQUEST_ID = arrival(1).submission.request_id
LATER = NOW + timedelta(hours=30)
TRIED = with_attempt((), "create", "2027-01-01T00:00:01.000Z", 4.0, InDoubt("pms_timed_out", "No answer."))


class _Desk:
    """A store with one submission that is in doubt, and an operator a day later."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.recorder = Recorder(engine)
        self.repair = Repair(Repairs(engine), ManualClock(LATER), audit_on(engine, ManualClock(LATER)))

    async def park(self, status: Status = Status.IN_DOUBT) -> None:
        await self.recorder.renew("w1", seconds=30.0)
        (work,) = await self.recorder.ingest("w1", [arrival(1)], now=NOW)
        parked = replace(final(work, status=status), attempts=TRIED)
        for entry in (await self.recorder.record("w1", [parked], [])).values():
            await self.recorder.published([entry.id])

    async def stored(self) -> StoredSubmission:
        stored = await Reader(self.engine).submission("acc", REQUEST_ID)
        assert stored is not None
        return stored

    async def outbox(self) -> list[OutboxEvent]:
        a_minute_later = LATER + timedelta(minutes=1)
        return list(await self.recorder.republish(before=a_minute_later, now=a_minute_later, limit=10))


@pytest.fixture
async def desk(data_dir: Path) -> AsyncIterator[_Desk]:
    engine = open_engine(data_dir / "store.sqlite3")
    yield _Desk(engine)
    await engine.dispose()


def word(outcome: str, reason: str | None = None, detail: str | None = None) -> Attempt:
    return Attempt(2, "settle", "2027-01-02T06:00:00.000Z", 0, outcome, reason, detail)


async def test_confirmed_by_hand_is_as_confirmed_as_any(desk: _Desk) -> None:
    await desk.park()
    await desk.repair.confirm(REQUEST_ID, "pms-77")
    stored = await desk.stored()
    assert (stored.status, stored.problem, stored.attempts) == (Status.CONFIRMED, None, (*TRIED, word("confirmed")))
    record = from_json(stored.record)
    assert (record["status"], record["pmsReservationId"]) == ("CONFIRMED", "pms-77")
    (entry,) = await desk.outbox()
    assert (entry.event.event_id, entry.event.type) == (f"{REQUEST_ID}.2", "reservation.confirmed.v1")
    assert (entry.event.data["reservation"], entry.dead_letter) == (record, None)


async def test_turned_down_by_hand_says_why_to_the_caller(desk: _Desk) -> None:
    await desk.park()
    await desk.repair.reject(REQUEST_ID, "The guest booked elsewhere.")
    stored = await desk.stored()
    assert stored.status is Status.REJECTED
    assert stored.problem is not None
    told = {name: stored.problem[name] for name in ("code", "status", "detail", "requestId")}
    reason = "The guest booked elsewhere."
    assert told == {"code": "rejected_by_operator", "status": 409, "detail": reason, "requestId": REQUEST_ID}
    assert stored.attempts[-1] == word("rejected", "rejected_by_operator", reason)
    (entry,) = await desk.outbox()
    assert (entry.event.type, entry.event.revision) == ("reservation.rejected.v1", 2)


async def test_what_was_not_made_is_pushed_again_for_as_long_as_its_account_says(desk: _Desk) -> None:
    await desk.park()
    await desk.repair.push_again(REQUEST_ID, deadline_seconds=600)
    (work,) = await desk.recorder.claim("w1", "acc", range(16), now=LATER, limit=1)
    assert (work.status, work.possibly_sent, work.tries) == (Status.PENDING, False, 0)
    assert work.deadline_at == LATER + timedelta(minutes=10)
    assert (work.attempts, work.submission.card) == ((*TRIED, word("absent")), CARD)
    assert await desk.outbox() == []


@pytest.mark.parametrize("status", [Status.CONFIRMED, Status.REJECTED, Status.FAILED])
async def test_what_is_not_in_doubt_is_left_as_it_is(desk: _Desk, status: Status) -> None:
    await desk.park(status)
    before = await desk.stored()
    await every_word_is_refused(desk)
    assert await desk.stored() == before
    assert await desk.outbox() == []


async def test_what_was_never_taken_in_is_not_in_doubt(desk: _Desk) -> None:
    await every_word_is_refused(desk)


async def every_word_is_refused(desk: _Desk) -> None:
    for said in (
        desk.repair.confirm(REQUEST_ID, "pms-1"),
        desk.repair.reject(REQUEST_ID, "no"),
        desk.repair.push_again(REQUEST_ID, deadline_seconds=60),
    ):
        with pytest.raises(NotInDoubt):
            await said


async def test_the_second_word_is_refused(desk: _Desk) -> None:
    await desk.park()
    await desk.repair.confirm(REQUEST_ID, "pms-77")
    await every_word_is_refused(desk)
    assert from_json((await desk.stored()).record)["pmsReservationId"] == "pms-77"


class _SettledJustThen(Repairs):
    """A worker finds it in the moment between an operator's reading and the operator's word."""

    async def in_doubt(self, request_id: str) -> Work | None:
        read = await super().in_doubt(request_id)
        assert read is not None
        assert await self.settle(final(read))
        return read


async def test_a_word_on_what_a_worker_settled_meanwhile_is_refused(desk: _Desk) -> None:
    await desk.park()
    with pytest.raises(NotInDoubt):
        await Repair(
            _SettledJustThen(desk.engine), ManualClock(LATER), audit_on(desk.engine, ManualClock(LATER))
        ).reject(REQUEST_ID, "no")
    assert (await desk.stored()).status is Status.CONFIRMED

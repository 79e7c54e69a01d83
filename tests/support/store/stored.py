"""What goes into the store and what comes out of it, as its contract's tests need them."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from pydantic_core import from_json
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.process.clock import iso
from forwarder.reservation.evidence import NOTHING_SENT
from forwarder.reservation.outcome import Status
from forwarder.reservation.record import ResultEvent, SubmissionState, compose_record, result_data
from forwarder.reservation.request import SealedCard
from forwarder.store.lists.port import DEFAULT_FILTERS, FIRST, Filters
from forwarder.store.lists.reader import Reader
from forwarder.store.submissions.port import Arrival, Attempt, Ended, OutboxEvent, Postponed, Work
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.tables import reservations
from tests.support.worker.works import NOW, doubtful, submission

NOBODY_LISTENS = "postgresql://forwarder@127.0.0.1:1/forwarder"
"""The URL of a database that cannot be reached."""

CARD = SealedCard("0123456789abcdef", "c2VhbGVk")
LATER = NOW + timedelta(minutes=5)
DEADLINE = NOW + timedelta(days=1)


def arrival(number: int, *, held: bool = True, partition: int = 0, account: str = "acc", **fields: Any) -> Arrival:
    """The `number`-th submission, arriving."""
    return Arrival(submission(number, account=account, card=CARD, **fields), partition, DEADLINE, held)


def arrivals(numbers: Iterable[int], *, held: bool = True, partition: int = 0, account: str = "acc") -> list[Arrival]:
    """Several of them."""
    return [arrival(number, held=held, partition=partition, account=account) for number in numbers]


async def lease(recorder: Recorder, worker_id: str) -> bool:
    """Renew the worker's lease."""
    return await recorder.renew(worker_id, seconds=30.0)


async def take_over(recorder: Recorder, *worker_ids: str, now: datetime = LATER) -> int:
    """Take over from these workers, as if they had not renewed for long; how many rows were freed."""
    stopped = [heartbeat for heartbeat in await recorder.heartbeats() if heartbeat.worker_id in worker_ids]
    return await recorder.take_over(stopped, now=now)


async def unpublished(
    recorder: Recorder, *, before: datetime = NOW + timedelta(days=30), limit: int = 10
) -> Sequence[OutboxEvent]:
    """The events that are offered again, as if nobody had offered them for long."""
    return await recorder.republish(before=before, now=NOW, limit=limit)


def attempt(number: int = 1, outcome: str = "confirmed") -> Attempt:
    """One try at a submission."""
    return Attempt(number, "create", iso(NOW), 12, outcome, "a_reason", 'what was said: "é"')


def final(work: Work, *, status: Status = Status.CONFIRMED, at: datetime = LATER, **pms_record: Any) -> Ended:
    """How `work` ended; `pms_record` is what the PMS gave."""
    taken = work.submission
    problem = None if status is Status.CONFIRMED else {"code": "said_no", "title": "No"}
    pms_id = "pms-1" if status is Status.CONFIRMED else None
    standing = SubmissionState(
        work.record_id,
        taken.request_id,
        status,
        work.created_at,
        iso(at),
        "",
        pms_id,
        pms_record=pms_record,
        problem=problem,
    )
    record = compose_record(taken.reservation, standing)
    data = result_data(
        request_id=taken.request_id, workspace_id="demo", account_id=taken.account_id, status=status, record=record
    )
    event = ResultEvent(taken.request_id, work.revision + 1, status, taken.key, iso(at), data, "00-trace-span-01")
    return Ended(work.id, status, [attempt()], at, event, pms_id, problem)


def postponed(work: Work, *, due_at: datetime = LATER, possibly_sent: bool = False) -> Postponed:
    """`work` to be tried again."""
    tried = [*work.attempts, attempt(outcome="deferred")]
    return Postponed(work, tried, NOW, due_at, doubtful() if possibly_sent else NOTHING_SENT)


async def row(engine: AsyncEngine, work_id: int) -> dict[str, Any]:
    """The row of `work_id`, as an operator sees it."""
    async with engine.connect() as connection:
        found = await connection.execute(select(reservations).where(reservations.c.id == work_id))
        return dict(found.mappings().one())


async def polled(reader: Reader, over: Callable[[], bool], filters: Filters = DEFAULT_FILTERS) -> list[int]:
    """The ids of the records of "acc" as docs/guides/read-lists.md says to follow what is new, until it is `over`."""
    seen: list[int] = []
    cursor = FIRST
    while True:
        last = over()
        page = await reader.page("acc", cursor=cursor, limit=10, filters=filters)
        shown = [from_json(record)["id"] for record in page.records]
        new = [each for each in shown if each not in seen]
        seen += new
        if page.next is not None:
            cursor = page.next
        elif last and not new:
            return seen

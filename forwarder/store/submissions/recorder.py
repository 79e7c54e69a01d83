"""Records outcomes and retries, and keeps the events of outcomes in the outbox until they are published."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from pydantic_core import from_json

from forwarder.process.loops import FAULTS, Where, contained
from forwarder.reservation.outcome import Status
from forwarder.reservation.record import ResultEvent
from forwarder.store.batches import BATCH, Execute, as_batch, batch_of, in_batch, key_among, key_batch, same_key
from forwarder.store.sql import ONE, ZERO, Moment, columns_of, insert_into
from forwarder.store.submissions.cancellations import CANCEL_REQUESTED
from forwarder.store.submissions.intake import SubmissionIntake
from forwarder.store.submissions.leases import HELD, UNREADABLE_RESTS, postpone
from forwarder.store.submissions.losses import EVERY, PutOff
from forwarder.store.submissions.port import DeadLetter, Ended, OutboxEvent, Postponed
from forwarder.store.submissions.rows import outcome_batch, postponed_row
from forwarder.store.tables import CONFIRMED, IN_DOUBT, IS_SET_ASIDE, outbox, reservations, set_aside


class Recorder(SubmissionIntake):
    """The worker's side of the store, with the methods in `intake`, `leases` and `losses`. Each takes a batch, is one transaction
    and raises `StoreUnavailable`. One serves one process; any number of processes share a database.

    A worker is a lease holder, by `worker_id`: it holds rows for as long as it renews, and recording a row that it no longer holds
    changes nothing. Before its first `renew`, and after its lease was taken over, it gets no rows: submissions that it ingests
    wait. When `ingest` or `claim` raises, the worker holds none of those rows, even if the store committed."""

    async def record(
        self, worker_id: str, ended: Sequence[Ended], postponed: Sequence[Postponed]
    ) -> Mapping[int, OutboxEvent]:
        """Records outcomes. For those that ended, drops the sealed card (except IN_DOUBT) and puts the event in the outbox, in the
        same transaction; returns the events by work id. Rows that this worker no longer holds are unchanged and not returned."""
        if not (ended or postponed):
            return {}
        dialect, recorded = self._database.dialect, {each.work_id: each for each in ended}
        later = [each for each in ended if each.event.revision > 1]
        waiting = set[int]()  # the rows whose earlier events may be unpublished
        put_off, tried = dict[int, PutOff](), set[int]()
        if dialect == "postgresql" and ended and not (later or postponed):
            # For first outcomes only, as nearly all are: one statement, without a look-up.
            kept = await self._database.run(record(), {"worker_id": worker_id, **outcome_batch(dialect, ended)})
        else:
            kept = ()
            async with self._database.transaction() as connection:
                if postponed:
                    batch = {"worker_id": worker_id, BATCH: as_batch([postponed_row(one) for one in postponed])}
                    rows = (await connection.execute(postpone(), batch)).all()
                    at = max(each.updated_at for each in postponed)
                    # A look-up is not remembered: losing it does no harm, and its row may be reopened, with no tries.
                    pending = (row for row in rows if row.status == Status.PENDING.value)
                    put_off = {row.id: PutOff(row.revision, row.tries, at) for row in pending}
                    tried = {row.id for row in rows}
                batch = {"worker_id": worker_id, **outcome_batch(dialect, ended)}
                held = {row.id for row in await connection.execute(finish, batch)} if ended else set()
                if held:
                    waiting = await unpublished_of(connection.execute, [each.work_id for each in later])
                    batch = outcome_batch(dialect, [each for each in ended if each.work_id in held])
                    kept = (await connection.execute(insert_events(), batch)).all()
        events: dict[int, OutboxEvent] = {}
        for row in kept:
            work_id, one = row.reservation_id, recorded[row.reservation_id]
            events[work_id] = OutboxEvent(row.id, one.event, one.dead_letter, in_turn=work_id not in waiting)
        if events:
            known = ((each.event.request_id, each.event.revision, None) for each in events.values())
            self._remember(known, max(each.updated_at for each in ended))
        # What was sent, and is no longer this worker's row, does not look unsent, unless the database lost the claim.
        put_off |= {
            each.work_id: PutOff(each.event.revision - 1, EVERY, each.updated_at)
            for each in ended
            if each.work_id not in events and each.status in {Status.CONFIRMED, Status.IN_DOUBT}
        }
        put_off |= {
            work.id: PutOff(work.revision, work.tries + 1, each.updated_at, work.takeovers)
            for each in postponed
            if (work := each.work).id not in tried and each.evidence.open and work.status is Status.PENDING
        }
        self._remember_put_off(put_off)
        return events

    async def republish(self, *, before: datetime, now: datetime, limit: int) -> Sequence[OutboxEvent]:
        """Unpublished events that were recorded, or last returned here, before `before`, oldest first: a crash left them. One waits
        until the earlier ones of its submission are published. One that cannot be read is postponed as by `keep_event`."""
        rows = await self._database.run(republish(), {"before": before, "now": now, "limit": limit})
        entries: list[OutboxEvent] = []
        for row in sorted(rows, key=lambda row: row.id):
            try:
                status, data = Status(row.status), from_json(row.data)
                event = ResultEvent(row.request_id, row.revision, status, row.key, row.occurred_at, data, row.trace)
                dead_letter = None if row.dead_letter is None else DeadLetter(**from_json(row.dead_letter))
                entries.append(OutboxEvent(row.id, event, dead_letter, in_turn=True, faults=row.faults))
            except FAULTS as error:  # contained to this event
                fault = contained(Where.OUTBOX, error, request_id=row.request_id)
                await self.keep_event(row.id, until=now + UNREADABLE_RESTS, error_id=fault.id)
        return entries

    async def keep_event(self, outbox_id: int, *, until: datetime, error_id: str) -> None:
        """Notes that an event could not be published: it is not returned before `until`."""
        values = {"faults": outbox.c.faults + 1, "error_id": error_id, "publish_attempted_at": until}
        await self._database.run(sa.update(outbox).where(outbox.c.id == outbox_id).values(values))

    async def note_set_aside(self, failure_class: str, messages: int, *, now: datetime) -> None:
        """Counts messages that were set aside as dead letters of that class. One that is delivered again counts twice."""
        row = {"failure_class": failure_class, "messages": messages, "first_at": now, "last_at": now}
        new = insert_into(self._database.dialect, set_aside).values(row)
        known = {"messages": set_aside.c.messages + new.excluded.messages, "last_at": new.excluded.last_at}
        await self._database.run(new.on_conflict_do_update(index_elements=["failure_class"], set_=known))

    async def kept_events(self) -> int:
        """How many events could not be published and are still in the outbox."""
        return int(await self._database.scalar(sa.select(sa.func.count(outbox.c.id)).where(IS_SET_ASIDE)))

    async def published(self, outbox_ids: Collection[int]) -> None:
        """Forget events that the log has acknowledged."""
        if outbox_ids:
            await self._database.run(forget_events, {BATCH: key_batch("id", outbox_ids)})


_row = reservations.c

_SET: Final = "status updated_at due_at attempts problem pms_reservation_id cancelled_at cancel_problem failure_class"


@cache
def record() -> sa.Executable:
    """`finish` and `insert_events` in one, for PostgreSQL; the ids of the events and of their rows. SQLite cannot do that."""
    batch = outcomes()
    finished = finish_where(HELD, batch).returning(batch.c.position, *_event_of(batch)).cte("finished")
    position, *event = finished.c
    return _insert_events(sa.select(*event).order_by(position))


def outcomes() -> sa.TableValuedAlias:
    """The batch of `rows.outcome_batch`."""
    own = (*columns_of(reservations, f"id revision evidence doubles {_SET}"), sa.column("cancel_by", Moment()))
    event = columns_of(outbox, "request_id key occurred_at trace dead_letter")
    around = (sa.column(each, sa.Text()) for each in ("before", "after"))  # the record, in the event's data
    return batch_of(sa.column("position", sa.Integer), *own, *event, *around, separate=_row.record)


def finish_where(condition: sa.ColumnElement[bool], batch: sa.FromClause, *, following: bool = True) -> sa.Update:
    """Records outcomes on the rows for which `condition` is true. `following`: only the next revision, otherwise any later one."""
    # The cancellation came while the row was being pushed: now it can be cancelled.
    to_cancel = sa.and_(batch.c.status == CONFIRMED, batch.c.cancel_problem.is_(None), CANCEL_REQUESTED)
    values: dict[str, Any] = {name: batch.c[name] for name in (*_SET.split(), "record")} | {
        # A row in doubt may have to be pushed again, with its card.
        "card": sa.case((batch.c.status == IN_DOUBT, _row.card)),
        "leased_by": sa.null(),
        "pushing": False,
        "possibly_sent": batch.c.status == IN_DOUBT,
        "evidence": batch.c.evidence,
        "doubles": sa.func.coalesce(batch.c.doubles, _row.doubles),
        "tries": sa.case((batch.c.status == CONFIRMED, ZERO), else_=_row.tries + 1),
        "revision": batch.c.revision,
        "due_at": sa.case((to_cancel, batch.c.updated_at), else_=batch.c.due_at),
        "deadline_at": sa.func.coalesce(sa.case((to_cancel, batch.c.cancel_by)), _row.deadline_at),
    }
    unchanged = _row.revision == batch.c.revision - 1 if following else _row.revision < batch.c.revision
    return sa.update(reservations).where(same_key(_row.id, batch.c.id), unchanged, condition).values(values)


finish = finish_where(HELD, outcomes()).returning(_row.id)
forget_events = sa.delete(outbox).where(in_batch(outbox.c.id))


@cache
def insert_events() -> sa.Executable:
    batch = outcomes()
    return _insert_events(sa.select(*_event_of(batch)).order_by(batch.c.position))


def _event_of(batch: sa.FromClause) -> Sequence[sa.ColumnElement[Any]]:
    data = (batch.c.before + batch.c.record + batch.c.after).label("data")
    own = (batch.c.id.label("reservation_id"), data, batch.c.updated_at.label("publish_attempted_at"))
    return [*own, *columns_of(batch, "request_id revision status key occurred_at trace dead_letter")]


def _insert_events(rows: sa.Select[Any]) -> sa.Insert:
    insert = sa.insert(outbox).from_select([column.name for column in rows.selected_columns], rows)
    return insert.returning(outbox.c.id, outbox.c.reservation_id)


async def unpublished_of(execute: Execute, work_ids: Collection[int]) -> set[int]:
    """Those of these rows that have an event in the outbox; looked up by `execute`."""
    if not work_ids:
        return set()
    ids = outbox.c.reservation_id
    waiting = sa.select(ids).where(ids.in_(sa.select(batch_of(ids).c.reservation_id))).distinct()
    return {row[0] for row in await execute(waiting, {BATCH: key_batch("reservation_id", work_ids)})}


@cache
def republish() -> sa.Executable:
    """Events last handed out before a moment, oldest first; now they are handed out again. An event waits for the earlier ones of
    its submission, so that none is ever published after a later one."""
    stale = outbox.c.publish_attempted_at < sa.bindparam("before", type_=Moment())
    earlier = outbox.alias("earlier")
    has_earlier = sa.exists().where(earlier.c.reservation_id == outbox.c.reservation_id, earlier.c.id < outbox.c.id)
    # Nearly all are a submission's first event, which needs no look-up.
    in_turn = sa.or_(outbox.c.revision == ONE, ~has_earlier)
    oldest = sa.select(outbox.c.id).where(stale, in_turn).order_by(outbox.c.id)
    oldest = oldest.limit(sa.bindparam("limit", type_=sa.Integer)).with_for_update(skip_locked=True, of=outbox)
    them = sa.update(outbox).where(key_among(outbox.c.id, sa.select(oldest.cte("picked").c.id)))
    return them.values(publish_attempted_at=sa.bindparam("now", type_=Moment())).returning(*outbox.c)

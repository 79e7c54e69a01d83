"""Workers' leases: rows are claimed under a lease, given back, and taken over from a worker that stopped renewing. All changes of a
worker are conditional on `HELD`: a row that it no longer holds stays unchanged."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from forwarder.process.clock import iso
from forwarder.process.loops import FAULTS, Blame, Fault, Where, contained
from forwarder.reservation.evidence import WORKER_LOST
from forwarder.store.batches import BATCH, as_batch, batch_of, in_batch, key_among, key_batch, same_key
from forwarder.store.sql import ZERO, Moment, columns_of, distinct, insert_into, literal, locked
from forwarder.store.submissions.cancellations import cancelled_unsent
from forwarder.store.submissions.losses import LossDetection
from forwarder.store.submissions.port import UNKNOWN, Heartbeat, Work
from forwarder.store.submissions.rows import resting_row, unreadable_work, work_of
from forwarder.store.tables import CONFIRMED, IN_DOUBT, PENDING, reservations, suspects, workers

UNREADABLE_RESTS: Final = timedelta(hours=1)
_Narrow = Callable[[AsyncConnection, Sequence[sa.Row[Any]]], Awaitable[Sequence[sa.Row[Any]]]]
"""Reduces the rows that a statement leased, within its transaction, to those that stay leased."""


class Leases(LossDetection):
    def __init__(self, engine: AsyncEngine) -> None:
        super().__init__(engine)
        self._blame = Blame(Where.SWEEP)
        self._uncertain: dict[str, set[int]] = {}
        self._leasing = asyncio.Lock()

    async def renew(self, worker_id: str, *, seconds: float) -> bool:
        """Extends this worker's lease by `seconds`. False if it was taken over: the worker no longer holds any rows."""
        if worker_id in self._known_workers:
            renewed = sa.update(workers).where(workers.c.id == worker_id).values(sequence=workers.c.sequence + 1)
            return bool(await self._database.run(renewed.returning(workers.c.id)))
        self.checked = self.checked or self.identity.seen
        own = {"id": worker_id, "sequence": 0, "lease_seconds": seconds, "checked": self.checked}
        first, again = insert_into(self._database.dialect, workers).values(own), {"sequence": workers.c.sequence + 1}
        await self._database.run(first.on_conflict_do_update(index_elements=["id"], set_=again))
        self._known_workers.add(worker_id)
        return True

    async def end_lease(self, worker_id: str) -> None:
        """The next `take_over`, by any worker, frees what this one still holds."""
        await self._database.run(sa.delete(workers).where(workers.c.id == worker_id))

    async def heartbeats(self) -> Sequence[Heartbeat]:
        rows = await self._database.read(sa.select(workers))
        return [Heartbeat(row.id, row.sequence, row.lease_seconds) for row in rows]

    async def take_over(self, stopped: Sequence[Heartbeat], *, now: datetime) -> int:
        """Ends the leases of the `stopped` workers that have not renewed since, and frees every row whose holder has no lease, due
        at once; returns how many rows. Each counts as possibly sent, unless its target has neither key nor reference and it was not
        marked by `mark_pushing`. Rows that are being written at this moment are left for the next call."""
        async with self._database.transaction() as connection:
            if stopped:
                batch = as_batch([{"id": each.worker_id, "sequence": each.sequence} for each in stopped])
                them = batch_of(workers.c.id, workers.c.sequence)
                not_renewed = sa.exists().where(them.c.id == workers.c.id, them.c.sequence == workers.c.sequence)
                await connection.execute(sa.delete(workers).where(not_renewed), {BATCH: batch})
            freed = await connection.execute(free_abandoned(), {"now": now, "stamp": iso(now)})
            return len(freed.all())

    async def leased_ids(self, worker_id: str) -> Collection[int]:
        return {row.id for row in await self._database.read(leased_ids, {"worker_id": worker_id})}

    async def abandon(self, worker_id: str, work_ids: Collection[int], *, now: datetime) -> int:
        """Frees rows of this worker whose state it does not know, as `take_over` would; returns how many."""
        parameters = {"worker_id": worker_id, "now": now, "stamp": iso(now), BATCH: key_batch("id", work_ids)}
        abandoned = _held_of_batch.values(_abandoned()).returning(_row.id)
        return len(await self._database.run(abandoned, parameters)) if work_ids else 0

    async def accounts_due(self, partitions: Collection[int], *, now: datetime) -> Sequence[str]:
        rows = await self._database.read(accounts_due(), {"partitions": list(partitions), "now": now})
        return [row.value for row in rows]

    async def count_due(self, *, now: datetime) -> int:
        """The number of rows that are due and not leased."""
        due = sa.select(sa.func.count()).select_from(reservations).where(_waiting, _row.due_at <= _now)
        return int(await self._database.scalar(due, {"now": now}))

    async def claim(
        self,
        worker_id: str,
        account_id: str,
        partitions: Collection[int],
        *,
        now: datetime,
        limit: int,
        target: str | None = UNKNOWN,
    ) -> Sequence[Work]:
        """Lease up to `limit` due rows of the account in these partitions, oldest due first. `target`: as in `Work`. A row that
        cannot be read is not leased: it rests for a while, with the fault among its attempts."""
        asked = {"account": account_id, "partitions": list(partitions), "now": now, "limit": limit, "target": target}
        rows = await self._lease(worker_id, claim(), asked)
        return await self._works(worker_id, sorted(rows, key=lambda row: (row.due_at, row.id)), now)

    async def claim_expired(
        self, worker_id: str, partitions: Collection[int], *, now: datetime, limit: int
    ) -> Sequence[Work]:
        """Like `claim`, for rows of any account, PENDING or to be cancelled, whose deadline has passed. They must not be pushed."""
        asked = {"partitions": list(partitions), "now": now, "limit": limit}
        rows = await self._lease(worker_id, claim_expired(), asked)
        return await self._works(worker_id, rows, now, to_end=True)

    async def _works(
        self, worker_id: str, rows: Sequence[sa.Row[Any]], now: datetime, *, to_end: bool = False
    ) -> Sequence[Work]:
        """The work in these rows. Postpones rows that cannot be read, so that they do not block others; or, if `to_end`, returns
        them marked as unreadable. Raises `Unworkable` if the cause is this process; then all are released."""
        works, unreadable = list[Work](), list[tuple[sa.Row[Any], Fault]]()
        for row in rows:
            try:
                works.append(work_of(row, worker_id))
            except FAULTS as error:  # contained to this row
                fault = contained(Where.SWEEP, error, request_id=row.request_id, reservation_id=row.id)
                unreadable.append((row, fault))
        if works:
            self._blame.works()
        if not unreadable:
            return works
        if not works and not self._blame.on_units(len(unreadable)):
            await self.release(worker_id, [row.id for row, _ in unreadable])
            raise self._blame.outage(unreadable[0][1])
        resting = []
        # The fields of the reservation that are separate columns.
        own = columns_of(reservations, "property_id room_id arrival_date departure_date")
        for row, fault in unreadable:
            work = None
            if to_end:
                [fields] = await self._database.read(sa.select(*own).where(_row.id == row.id))
                work = unreadable_work(row, fields, fault, worker_id)
            if work is None:
                resting.append(resting_row(row, fault, now=now, due_at=now + UNREADABLE_RESTS))
            else:
                works.append(work)
        if resting:
            await self._database.run(postpone(), {"worker_id": worker_id, BATCH: as_batch(resting)})
        return works

    async def _lease(
        self, worker_id: str, statement: sa.Executable, parameters: dict[str, Any], narrow: _Narrow | None = None
    ) -> Sequence[sa.Row[Any]]:
        """Executes a statement that leases rows, and then `narrow`. The caller holds the rows only if this returns.

        If the response to a commit is lost, rows may be leased to a worker that does not know of them and would renew their lease
        forever. So their ids are kept here, and the rows released before anything more is leased. Only one lease statement runs at
        a time: otherwise a transaction could release rows that another one has just leased again, and that are being pushed."""
        async with self._leasing:
            leased: Sequence[sa.Row[Any]] = ()
            lost = self._uncertain.pop(worker_id, set())
            try:
                async with self._database.transaction() as connection:
                    if lost:
                        await connection.execute(release(), {"worker_id": worker_id, BATCH: key_batch("id", lost)})
                    leased = (await connection.execute(statement, {"worker_id": worker_id, **parameters})).all()
                    kept = leased if narrow is None else await narrow(connection, leased)
            except BaseException:
                self._uncertain.setdefault(worker_id, set()).update(lost, (row.id for row in leased))
                raise
            return kept

    async def release(self, worker_id: str, work_ids: Collection[int]) -> None:
        """Frees rows that were not pushed: any worker may claim them at once."""
        if work_ids:
            await self._database.run(release(), {"worker_id": worker_id, BATCH: key_batch("id", work_ids)})

    async def mark_pushing(self, worker_id: str, work_ids: Collection[int]) -> Collection[int]:
        """Makes durable, before the first byte, that these rows are about to be pushed: if the lease expires, they count as
        possibly sent. Returns those still held. Only needed if their target has neither key nor reference."""
        batch = {"worker_id": worker_id, BATCH: key_batch("id", work_ids)}
        return {row.id for row in await self._database.run(mark_pushing, batch)} if work_ids else ()

    async def suspect(self, worker_id: str, work_id: int) -> int:
        """Makes durable that this worker is about to push a row taken over repeatedly; returns how many ended over it before."""
        first = insert_into(self._database.dialect, suspects).values(id=work_id, worker_id=worker_id, deaths=0)
        # A mark that another worker left is a death.
        died = sa.case((suspects.c.worker_id == worker_id, 0), else_=1)
        again = {"worker_id": worker_id, "deaths": suspects.c.deaths + died}
        marked = first.on_conflict_do_update(index_elements=["id"], set_=again).returning(suspects.c.deaths)
        [row] = await self._database.run(marked)
        return int(row.deaths)

    async def clear_suspects(self, work_ids: Collection[int]) -> None:
        if work_ids:
            cleared = sa.delete(suspects).where(in_batch(suspects.c.id))
            await self._database.run(cleared, {BATCH: key_batch("id", work_ids)})


_row = reservations.c
_worker: sa.BindParameter[str] = sa.bindparam("worker_id")
_now = sa.bindparam("now", type_=Moment())
_waiting = sa.and_(_row.due_at.is_not(None), _row.leased_by.is_(None))
_mine = _row.partition.in_(sa.bindparam("partitions", expanding=True))
_due = sa.and_(_waiting, _row.due_at <= _now, _mine)
_limit = sa.bindparam("limit", type_=sa.Integer)
_has_lease = sa.exists().where(workers.c.id == _worker)

# Rows are found by their ids. As an expression, so that no planner goes through all rows of the holder instead.
HELD: Final = sa.func.coalesce(_row.leased_by, literal("")) == _worker

WORK = (
    *columns_of(
        reservations,
        "id request_id record_id workspace_id account_id partition log_offset log_timestamp_ms operation status "
        "request fingerprint card accepted_at created_at deadline_at due_at attempts tries revision possibly_sent "
        "pushing target evidence updated_at takeovers trace cancel_requested_at cancel_reason pms_reservation_id",
    ),
    sa.case((_row.status == CONFIRMED, _row.record)).label("record"),
    *columns_of(reservations, "natural_key transaction_key keyed same_key stay_key similar_to"),
)

_held_of_batch = sa.update(reservations).where(in_batch(_row.id), HELD)
mark_pushing = _held_of_batch.values(pushing=sa.true()).returning(_row.id)
leased_ids = sa.select(_row.id).where(_row.leased_by == _worker)


@cache
def claim() -> sa.Executable:
    oldest = sa.select(_row.id).where(_row.account_id == sa.bindparam("account"), _due, _has_lease)
    update = _update_of(oldest.order_by(_row.due_at, _row.id).limit(_limit))
    return update.values(leased_by=_worker, target=sa.bindparam("target", type_=sa.Text())).returning(*WORK)


@cache
def claim_expired() -> sa.Executable:
    # Literally the index's condition: only then can a prepared statement use it.
    pending = sa.and_(_row.status != IN_DOUBT, _waiting, _row.deadline_at <= _now)
    oldest = sa.select(_row.id).where(pending, _mine, _has_lease).order_by(_row.deadline_at, _row.id)
    return _update_of(oldest.limit(_limit)).values(leased_by=_worker, target=sa.null()).returning(*WORK)


@cache
def accounts_due() -> sa.Executable:
    """The accounts with due rows: from one waiting account to the next by the index, looking for one due row in each."""
    waiting = distinct(_waiting, _row.account_id, _row.due_at)
    due = sa.exists().where(_row.account_id == waiting.c.value, _due)
    return sa.select(waiting.c.value).where(due)


@cache
def release() -> sa.Executable:
    """Frees the rows of a batch. Those that were possibly sent stay so. A cancelled one that was not sent gets its last due time as
    its deadline. One that was never tried becomes due at its acceptance time: its worker's clock may be ahead of the others'."""
    never_tried = sa.and_(_row.tries == ZERO, _row.accepted_at < _row.due_at)
    return _held_of_batch.values(
        leased_by=sa.null(),
        pushing=sa.case((_row.possibly_sent, _row.pushing), else_=sa.false()),
        deadline_at=sa.case((cancelled_unsent(_row.possibly_sent), _row.due_at), else_=_row.deadline_at),
        due_at=sa.case((never_tried, _row.accepted_at), else_=_row.due_at),
    )


def _update_of(picked: sa.Select[Any]) -> sa.Update:
    return sa.update(reservations).where(key_among(_row.id, locked(picked)))


@cache
def free_abandoned() -> sa.Executable:
    """Frees the rows of every holder without a lease, except rows that it is writing at this moment."""
    holders = distinct(_row.leased_by.is_not(None), _row.leased_by)
    has_lease = sa.exists().where(workers.c.id == holders.c.value)
    theirs = key_among(_row.leased_by, sa.select(holders.c.value).where(~has_lease))
    return _update_of(sa.select(_row.id).where(theirs)).values(_abandoned()).returning(_row.id)


def _abandoned() -> dict[str, Any]:
    """The new values of a row whose holder will not record anything. A pending row may have been pushed, unless its target
    has neither key nor reference and it was not marked; then that push is added to its evidence. Takes `stamp`, now as a text."""
    none = literal("")
    target = sa.func.coalesce(_row.target, none)
    sent = sa.and_(_row.status == PENDING, sa.or_(_row.pushing, target.like(literal("{%"))))
    to = sa.case((target == none, literal(UNKNOWN)), else_=target)
    start, end = literal('{"type":"push","at":"'), literal(f',"came":"ambiguous","reason":"{WORKER_LOST}"}}')
    push = start + sa.bindparam("stamp", type_=sa.Text()) + literal('","to":') + to + end
    return {
        "leased_by": sa.null(),
        "due_at": _now,
        "possibly_sent": sa.or_(_row.possibly_sent, sent),
        "evidence": sa.case((sent, sa.func.coalesce(_row.evidence + literal("\n"), none) + push), else_=_row.evidence),
        "takeovers": _row.takeovers + 1,
    }


@cache
def postpone() -> sa.Executable:
    """Record a batch of tries after which there will be another; the rows that were held. A try whose response was lost changes
    nothing when it is recorded again, even if its worker holds the row once more: others may have tried since."""
    given = columns_of(reservations, "id revision tries updated_at attempts due_at possibly_sent evidence")
    batch = batch_of(*given)
    over = cancelled_unsent(batch.c.possibly_sent)
    known = (_row.revision == batch.c.revision, _row.tries == batch.c.tries)
    values = {
        "updated_at": batch.c.updated_at,
        "attempts": batch.c.attempts,
        "tries": _row.tries + 1,
        "due_at": sa.case((over, batch.c.updated_at), else_=batch.c.due_at),
        "deadline_at": sa.case((over, batch.c.updated_at), else_=_row.deadline_at),
        "possibly_sent": batch.c.possibly_sent,
        "evidence": batch.c.evidence,
        "pushing": sa.case((batch.c.possibly_sent, _row.pushing), else_=sa.false()),
        "leased_by": sa.null(),
    }
    tried = sa.update(reservations).where(same_key(_row.id, batch.c.id), *known, HELD).values(values)
    return tried.returning(_row.id, _row.status, _row.revision, _row.tries)

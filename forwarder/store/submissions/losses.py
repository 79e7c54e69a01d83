"""Remembers what the store recently acknowledged to one worker, to prove what another database behind the same address lacks.

A standby that took over, or a restored database, may lack the last transactions: a worker would push again what they recorded."""

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import Executable, Integer, and_, column, exists, false, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.reservation.outcome import Status
from forwarder.reservation.parsing import unix_moment
from forwarder.store.batches import BATCH, as_batch, batch_of
from forwarder.store.database import Database
from forwarder.store.engine import OBSERVE, identity_of
from forwarder.store.sql import insert_into
from forwarder.store.submissions.port import Work
from forwarder.store.tables import Key, duplicates, parked_cancellations, purges, recoveries, reservations, workers

_MAX_REMEMBERED: Final = 20_000
_REMEMBERED_FOR = _LOST_FOR = timedelta(hours=1)
EVERY: Final = 2**31 - 1  # more than any row's revision or tries

_row = reservations.c
_CLAIMED: Final = (_row.takeovers, _row.revision, _row.tries)  # what only grows while a row is PENDING
# The worker that has claimed such a row, or claims it next, sends it without looking.
_UNSENT: Final = (_row.status == Status.PENDING.value, ~_row.possibly_sent)

NEWEST_APPENDED: Final = select(_row.log_timestamp_ms).where(_row.id == select(func.max(_row.id)).scalar_subquery())
"""When the log appended the submission that was ingested last, in milliseconds since 1970."""


class PutOff(NamedTuple):
    """Of a row that is durably put off: its revision and tries, which only grow, whatever clocks say (tries begin anew under a
    later revision), and when it was recorded. `takeovers`: if its worker no longer held it; with more, another one has it."""

    revision: int
    tries: int
    at: datetime
    takeovers: int = EVERY


class _Known(NamedTuple):
    """A submission of which this revision is durable, and a cancellation by that account, if one was, at `at`."""

    revision: int
    cancelled_by: str | None
    at: datetime


class LossDetection:
    """The part of `Recorder` that knows what the store acknowledged to this process, and whether the database still has it: the
    last 20,000 submissions changed within the last hour, and as many rows that were put off."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)
        self.identity = identity_of(engine)
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._put_off: OrderedDict[int, PutOff] = OrderedDict()
        self._known_workers: set[str] = set()  # the ids under which this process has had a lease
        self.checked: str | None = None  # the database that this worker found whole last; None before it looked

    async def observe(self) -> None:
        """Checks which database responds now; `identity` counts a change if it is another one."""
        if self._database.dialect == "postgresql":
            self.identity.note(str(await self._database.scalar(OBSERVE)))

    def _remember(self, durable: Iterable[tuple[str, int, str | None]], now: datetime) -> None:
        """Of these submissions, events up to that revision are durable, and a cancellation by that account, even if parked."""
        for request_id, revision, cancelled_by in durable:
            before = self._known.pop(request_id, None) or _Known(0, None, now)
            newest = max(revision, before.revision)
            self._known[request_id] = _Known(newest, cancelled_by or before.cancelled_by, now)
        while len(self._known) > _MAX_REMEMBERED:
            self._known.popitem(last=False)

    def _remember_put_off(self, rows: Mapping[int, PutOff]) -> None:
        """It is durable that these rows were put off; so is that they may have been sent."""
        for work_id, put_off in rows.items():
            self._put_off.pop(work_id, None)
            self._put_off[work_id] = put_off
        while len(self._put_off) > _MAX_REMEMBERED:
            self._put_off.popitem(last=False)

    async def lacking(self, *, now: datetime) -> Mapping[str, int]:
        """Counts what the database acknowledged to this recorder in the last hour and lacks: `submissions`, `outcomes` (events
        and cancellations), postponed rows (`put_off`); and unfinished `recoveries`. Empty: nothing was lost, except claims."""
        purged_before = select(func.max(purges.c.finished_before)).scalar_subquery().label("purged")
        recovered_at = select(func.max(recoveries.c.recovered_at)).scalar_subquery().label("recovered_at")
        unfinished = exists().where(recoveries.c.recovered_at.is_(None)).label("unfinished")
        (accepted,) = await self._database.read(select(purged_before, recovered_at, unfinished))
        counts = Counter(recoveries=int(accepted.unfinished))
        # What a purge may have deleted, or precedes a recovery, proves nothing.
        since = max(now - _REMEMBERED_FOR, accepted.recovered_at or now - _REMEMBERED_FOR)
        purged = accepted.purged and datetime.combine(accepted.purged, time(), UTC)
        kept = [
            {"request_id": request_id, "revision": each.revision, "account_id": each.cancelled_by}
            for request_id, each in self._known.items()
            if each.at >= max(since, purged or since)
        ]
        for batch in _batches(kept):
            (row,) = await self._database.read(_lacking(), {BATCH: batch})
            counts.update(submissions=row.submissions, outcomes=row.outcomes)
        put_off = [
            {"id": work_id, "revision": each.revision, "tries": each.tries, "takeovers": each.takeovers}
            for work_id, each in self._put_off.items()
            if each.at >= since
        ]
        known = batch_of(_row.id, *_CLAIMED)
        grown = (_row.revision <= known.c.revision, _row.tries < known.c.tries, _row.takeovers <= known.c.takeovers)
        # Those that lack their postponement, claimed since or not.
        before = known.join(reservations, and_(_row.id == known.c.id, *grown))
        not_put_off = select(func.count()).select_from(before).where(*_UNSENT)
        for batch in _batches(put_off):
            counts.update(put_off=await self._database.scalar(not_put_off, {BATCH: batch}))
        return {what: count for what, count in counts.items() if count}

    async def unclaimed(self, held: Mapping[int, Work]) -> Collection[int]:
        """The ids of those held rows that the database has as they were before their claim. One that has gone on since is not
        among them: another worker took it over, or it was put off by a commit whose response was lost."""
        theirs = ~func.coalesce(_row.leased_by.in_(sorted(self._known_workers)), false())
        known = batch_of(_row.id, *_CLAIMED)
        no_further = and_(_row.id == known.c.id, *(column <= known.c[column.name] for column in _CLAIMED))
        statement = select(_row.id).select_from(known.join(reservations, no_further)).where(theirs, *_UNSENT)
        rows = [{name: getattr(each, name) for name in known.c.keys()} for each in held.values()]  # noqa: SIM118
        return [row.id for batch in _batches(rows) for row in await self._database.read(statement, {BATCH: batch})]

    async def agree(self, worker_id: str, database: str | None) -> Mapping[str, int]:
        """Records that this worker has found `database` whole. Counts the `workers` that have yet to look at it, each of which may
        find that it lost a push; and unfinished `recoveries`, which `report_loss` begins. Empty: all may push."""
        here = workers.c.id == worker_id
        await self._database.run(update(workers).where(here).values(checked=database))
        self.checked = database
        others = select(func.count()).select_from(workers).where(~here, workers.c.checked != database)
        unfinished = select(func.count()).select_from(recoveries).where(recoveries.c.recovered_at.is_(None))
        both = select(others.scalar_subquery().label("workers"), unfinished.scalar_subquery().label("recoveries"))
        (row,) = await self._database.read(both)
        return {what: count for what, count in row._mapping.items() if count}

    async def report_loss(self, now: datetime) -> None:
        """Begins a recovery, which every worker waits for. It reads topics from an hour before the newest row on."""
        newest = await self._database.scalar(NEWEST_APPENDED)
        appended = None if newest is None else unix_moment(newest / 1000)
        since = appended and appended - _LOST_FOR
        statement = insert_into(self._database.dialect, recoveries).values(began_at=now, since=since)
        await self._database.run(statement.on_conflict_do_nothing())

    def remember_lost(self, work_ids: Collection[int], now: datetime) -> None:
        """`unclaimed` rows, which may have been sent: `lacking` counts them among those put off until that is mended."""
        self._remember_put_off(dict.fromkeys(work_ids, PutOff(EVERY, EVERY, now)))


def _batches(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    return (as_batch(rows[first : first + 2_000]) for first in range(0, len(rows), 2_000))


def _lacking() -> Executable:
    """For a batch of `_Known`: how many submissions have no row, duplicate or parked cancellation; how many rows lack the
    acknowledged event or cancellation. Cancellations are not noted on cancelled rows, nor on another account's."""
    batch = batch_of(column("request_id", Key), column("revision", Integer), _row.account_id)
    same = _row.request_id == batch.c.request_id
    renamed = exists().where(duplicates.c.request_id == batch.c.request_id)
    parked = exists().where(parked_cancellations.c.request_id == batch.c.request_id)
    uncancelled = and_(
        _row.account_id == batch.c.account_id, _row.cancel_requested_at.is_(None), _row.status != Status.CANCELLED.value
    )
    behind = exists().where(same, or_(_row.revision < batch.c.revision, uncancelled))
    return select(
        func.count().filter(~exists().where(same), ~renamed, ~parked).label("submissions"),
        func.count().filter(behind).label("outcomes"),
    ).select_from(batch)

"""The state of the whole deployment, for operators and metrics: its running processes, and how much work is open.

Each process updates its row every few seconds, and deletes it when it ends; no other part depends on these rows. The backlog is
read account by account: each is found from the one before it by one step through an index, and only its open rows are read."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from pydantic_core import from_json, to_json
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.store.database import Database
from forwarder.store.lists.port import AccountWork, EndpointWork, FailedWork, SetAsideMessages, Waiting
from forwarder.store.sql import ONE, DialectName, Moment, distinct, insert_into, same_key
from forwarder.store.submissions.port import ThrottleState
from forwarder.store.tables import IS_OPEN_FAILURE, outbox, processes, reservations, set_aside
from forwarder.store.tables import webhook_deliveries as deliveries

TELL_SECONDS: Final = 10.0
SILENT_AFTER: Final = timedelta(seconds=45)
"""A process without a report for this long has ended, or cannot reach the store."""


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A process that serves `role`. `version`: of the package; `revision`: of its source. `throttles`: if it is a worker.
    `failing`: the readiness checks that it failed at its last report."""

    id: str
    role: str
    version: str
    revision: str
    host: str
    started_at: datetime
    seen_at: datetime
    throttles: Sequence[ThrottleState] = ()
    failing: Sequence[str] = ()

    def silent(self, now: datetime) -> bool:
        """Whether its last report is older than `SILENT_AFTER`."""
        return now - self.seen_at > SILENT_AFTER


_KEPT: Final = timedelta(minutes=10)
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EVERY: Final = sa.select(processes).order_by(processes.c.role, processes.c.started_at)


class ProcessRegister:
    """The running processes, written by each of them and read by operators. Raises `StoreUnavailable`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)

    async def report(self, process: RunningProcess) -> None:
        texts = {name: to_json(getattr(process, name)).decode() for name in ("throttles", "failing")}
        new = insert_into(self._database.dialect, processes).values(asdict(process) | texts)
        known = {name: new.excluded[name] for name in ("seen_at", *texts)}
        await self._database.run(new.on_conflict_do_update(index_elements=["id"], set_=known))

    async def end(self, process_id: str) -> None:
        await self._database.run(sa.delete(processes).where(processes.c.id == process_id))

    async def forget_old(self, process: RunningProcess) -> None:
        """Deletes the rows of killed processes."""
        old = sa.delete(processes).where(processes.c.seen_at < sa.bindparam("before", type_=Moment()))
        await self._database.run(old, {"before": process.seen_at - _KEPT})

    async def processes(self) -> Sequence[RunningProcess]:
        """The running processes, and those killed in the last ten minutes or so. Raises `StoreUnavailable`."""
        found = []
        for row in await self._database.read(_EVERY):
            values = {column.name: getattr(row, column.name) for column in processes.c}
            throttles = [ThrottleState(**each) for each in from_json(row.throttles)]
            found.append(RunningProcess(**values | {"throttles": throttles, "failing": from_json(row.failing)}))
        return found

    async def try_write(self) -> None:
        """Writes and deletes a row, in one committed transaction. Raises `StoreUnavailable` if the store takes no writes."""
        values = {column.name: "" for column in processes.c} | {"id": "a test of writing", "failing": "[]"}
        at = {"started_at": _LONG_AGO, "seen_at": _LONG_AGO}
        async with self._database.transaction() as connection:
            await connection.execute(sa.insert(processes).values(values | at))
            await connection.execute(sa.delete(processes).where(processes.c.id == values["id"]))


_row = reservations.c
_PENDING: Final[sa.ColumnElement[str]] = sa.literal_column("'PENDING'")
_IN_DOUBT: Final[sa.ColumnElement[str]] = sa.literal_column("'IN_DOUBT'")


class BacklogReader:
    """Reads the backlog. The time depends on the open work, not on the size of the store. Raises `StoreUnavailable`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)

    async def accounts(self, *, now: datetime) -> Sequence[AccountWork]:
        """Every account that ever had a submission, ordered by id."""
        return [AccountWork(*tuple(row)) for row in await self._database.read(accounts(), {"now": now})]

    async def failed(self) -> Sequence[FailedWork]:
        return [FailedWork(*tuple(row)) for row in await self._database.read(failed())]

    async def endpoints(self) -> Sequence[EndpointWork]:
        return [EndpointWork(*tuple(row)) for row in await self._database.read(endpoints())]

    async def waiting(self, account_id: str) -> Waiting:
        dialect = self._database.dialect
        pending = _of(sa.literal(account_id), _PENDING)
        first = pending.with_only_columns(_LAST_REASON[dialect].label("reason")).order_by(_row.status, _row.id)
        sample = first.limit(_SAMPLE).subquery("sample")
        counted = sa.select(sample.c.reason, sa.func.count().label("count_of")).group_by(sample.c.reason)
        # Literally the condition and order of the index of due rows.
        unheld = (_row.account_id == account_id, _row.due_at.is_not(None), _row.leased_by.is_(None))
        due = sa.select(_row.due_at).where(*unheld).order_by(_row.due_at, _row.id).limit(ONE)
        reasons, next_due = await self._database.read(counted), await self._database.read(due)
        return Waiting(next_due[0].due_at if next_due else None, {row.reason: row.count_of for row in reasons})

    async def set_aside(self) -> Sequence[SetAsideMessages]:
        """The messages of the requests topic that were set aside and not acknowledged, by class."""
        rows = await self._database.read(sa.select(set_aside).order_by(set_aside.c.failure_class))
        return [SetAsideMessages(*tuple(row)) for row in rows]

    async def unpublished(self, *, before: datetime) -> int:
        """How many result events were recorded, or last offered to the log, before then and are not published."""
        late = sa.select(sa.func.count()).where(outbox.c.publish_attempted_at < sa.bindparam("before", type_=Moment()))
        return int((await self._database.read(late, {"before": before}))[0][0])

    async def doubles(self) -> int:
        doubled = sa.select(sa.func.count()).where(_row.doubles.is_not(None))
        return int((await self._database.read(doubled))[0][0])

    async def size(self) -> int:
        """The size of the database on disk in bytes, including its indexes."""
        return int((await self._database.read(_SIZES[self._database.dialect]))[0][0])


_SIZES: Final[Mapping[DialectName, sa.Executable]] = {
    "postgresql": sa.text("SELECT pg_database_size(current_database())"),
    "sqlite": sa.text("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"),
}

_SAMPLE: Final[sa.ColumnElement[int]] = sa.literal_column("1000")
_LAST_REASON: Final[Mapping[DialectName, sa.ColumnElement[str]]] = {
    "postgresql": sa.literal_column("CAST(attempts AS jsonb) -> -1 ->> 'reason'", sa.Text),
    "sqlite": sa.literal_column("json_extract(attempts, '$[#-1].reason')", sa.Text),
}


@cache
def accounts() -> sa.Executable:
    """The columns of `AccountWork`."""
    every = distinct(sa.true(), _row.account_id, _row.status, _row.id)
    account = every.c.value
    waiting = sa.and_(_row.account_id == account, _row.due_at.is_not(None), _row.leased_by.is_(None))
    due = sa.and_(waiting, _row.due_at <= sa.bindparam("now", type_=Moment()))
    return (
        sa.select(
            account,
            _count(_of(account, _PENDING)),
            _first(_of(account, _PENDING)),
            _count(sa.select(ONE).where(due)),
            sa.select(_row.due_at).where(due).order_by(_row.due_at).limit(ONE).scalar_subquery(),
            _count(_of(account, _IN_DOUBT)),
            _first(_of(account, _IN_DOUBT)),
        )
        .where(account.is_not(None))
        .order_by(account)
    )


@cache
def failed() -> sa.Executable:
    """The columns of `FailedWork`."""
    of_each = (_row.account_id, sa.func.coalesce(_row.failure_class, sa.literal_column("'other'")))
    return sa.select(*of_each, sa.func.count()).where(IS_OPEN_FAILURE).group_by(_row.account_id, _row.failure_class)


@cache
def endpoints() -> sa.Executable:
    """The columns of `EndpointWork`."""
    pending = deliveries.c.due_at.is_not(None)
    figures = (deliveries.c.endpoint_id, sa.func.count(), sa.func.min(deliveries.c.due_at))
    return sa.select(*figures).where(pending).group_by(deliveries.c.endpoint_id)


def _of(account: sa.ColumnElement[str], status: sa.ColumnElement[str]) -> sa.Select[Any]:
    return sa.select(ONE).select_from(reservations).where(_row.account_id == account, same_key(_row.status, status))


def _count(rows: sa.Select[Any]) -> sa.ScalarSelect[int]:
    return rows.with_only_columns(sa.func.count()).scalar_subquery()


def _first(rows: sa.Select[Any]) -> sa.ScalarSelect[datetime]:
    """When the first of `rows` was accepted: ids follow the order of the log. Ordered as only the index of statuses is; otherwise
    PostgreSQL may scan all rows from the first."""
    return rows.with_only_columns(_row.accepted_at).order_by(_row.status, _row.id).limit(ONE).scalar_subquery()

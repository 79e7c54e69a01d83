"""What belongs to the deployment as a whole: its running processes, how much work is open, the audit trail, and the token buckets
that all workers share.

Each process updates its row every few seconds, and deletes it when it ends; no other part depends on these rows. The backlog is
read account by account: each is found from the one before it by one step through an index, and only its open rows are read."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from operator import eq, ge, lt
from typing import Any, Final

import sqlalchemy as sa
from pydantic_core import from_json, to_json
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from forwarder.process.shares import Loan, LoanRequest, decide
from forwarder.store.audit import AuditEntry, AuditFilter
from forwarder.store.batches import same_key
from forwarder.store.database import Database, OnDatabase
from forwarder.store.lists.port import AccountWork, EndpointWork, FailedWork, SetAsideMessages, Waiting
from forwarder.store.sql import ONE, Moment, distinct, insert_into, literal
from forwarder.store.submissions.port import ThrottleState
from forwarder.store.tables import (
    IN_DOUBT,
    IS_OPEN_FAILURE,
    PENDING,
    audit,
    audit_head,
    outbox,
    processes,
    rate_buckets,
    reservations,
    set_aside,
)
from forwarder.store.tables import webhook_deliveries as deliveries

TELL_SECONDS: Final = 10.0


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
        """Whether it has not reported for so long that it has ended, or cannot reach the store."""
        return now - self.seen_at > timedelta(seconds=45)


class ProcessRegister(OnDatabase):
    """The running processes, written by each of them and read by operators. Raises `StoreUnavailable`."""

    async def report(self, process: RunningProcess) -> None:
        texts = {name: to_json(getattr(process, name)).decode() for name in ("throttles", "failing")}
        new = insert_into(self._database.dialect, processes).values(asdict(process) | texts)
        known = {name: new.excluded[name] for name in ("seen_at", *texts)}
        await self._database.run(new.on_conflict_do_update(index_elements=["id"], set_=known))

    async def end(self, process_id: str) -> None:
        await self._database.run(sa.delete(processes).where(processes.c.id == process_id))

    async def forget_killed(self, now: datetime) -> None:
        await self._database.run(sa.delete(processes).where(processes.c.seen_at < now - timedelta(minutes=10)))

    async def processes(self) -> Sequence[RunningProcess]:
        """The running processes, and those killed in the last ten minutes or so."""
        found = []
        for row in await self._database.read(sa.select(processes).order_by(processes.c.role, processes.c.started_at)):
            throttles = [ThrottleState(**each) for each in from_json(row.throttles)]
            read = {"throttles": throttles, "failing": from_json(row.failing)}
            found.append(RunningProcess(**{**row._mapping, **read}))
        return found

    async def try_write(self) -> None:
        """Writes and deletes a row, in one committed transaction. Raises `StoreUnavailable` if the store takes no writes."""
        long_ago = datetime(1970, 1, 1, tzinfo=UTC)
        test = RunningProcess("a test of writing", "", "", "", "", long_ago, long_ago)
        async with self._database.transaction() as connection:
            await connection.execute(sa.insert(processes).values(asdict(test) | {"throttles": "[]", "failing": "[]"}))
            await connection.execute(sa.delete(processes).where(processes.c.id == test.id))


_row = reservations.c
_failures = sa.select(_row.account_id, sa.func.coalesce(_row.failure_class, literal("other")), sa.func.count())
failed = _failures.where(IS_OPEN_FAILURE).group_by(_row.account_id, _row.failure_class)
_pending = sa.select(deliveries.c.endpoint_id, sa.func.count(), sa.func.min(deliveries.c.due_at))
endpoints = _pending.where(deliveries.c.due_at.is_not(None)).group_by(deliveries.c.endpoint_id)


class BacklogReader(OnDatabase):
    """Reads the backlog. The time depends on the open work, not on the size of the store. Raises `StoreUnavailable`."""

    async def accounts(self, *, now: datetime) -> Sequence[AccountWork]:
        """Every account that ever had a submission, ordered by id."""
        return [AccountWork(*tuple(row)) for row in await self._database.read(accounts(), {"now": now})]

    async def failed(self) -> Sequence[FailedWork]:
        return [FailedWork(*tuple(row)) for row in await self._database.read(failed)]

    async def endpoints(self) -> Sequence[EndpointWork]:
        return [EndpointWork(*tuple(row)) for row in await self._database.read(endpoints)]

    async def waiting(self, account_id: str) -> Waiting:
        of_postgresql = "CAST(attempts AS jsonb) -> -1 ->> 'reason'"
        of_sqlite = "json_extract(attempts, '$[#-1].reason')"
        text = of_postgresql if self._database.dialect == "postgresql" else of_sqlite
        reason: sa.ColumnElement[str] = sa.literal_column(text, sa.Text)
        pending = _of(sa.literal(account_id), PENDING)
        first = pending.with_only_columns(reason.label("reason")).order_by(_row.status, _row.id)
        sample = first.limit(sa.literal_column("1000")).subquery("sample")
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
        late = sa.select(sa.func.count()).where(outbox.c.publish_attempted_at < before)
        return int(await self._database.scalar(late))

    async def doubles(self) -> int:
        return int(await self._database.scalar(sa.select(sa.func.count()).where(_row.doubles.is_not(None))))

    async def size(self) -> int:
        """The size of the database on disk in bytes, including its indexes."""
        of_postgresql = sa.text("SELECT pg_database_size(current_database())")
        of_sqlite = sa.text("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")
        return int(await self._database.scalar(of_postgresql if self._database.dialect == "postgresql" else of_sqlite))


@cache
def accounts() -> sa.Executable:
    every = distinct(sa.true(), _row.account_id, _row.status, _row.id)
    account = every.c.value
    waiting = sa.and_(_row.account_id == account, _row.due_at.is_not(None), _row.leased_by.is_(None))
    due = sa.and_(waiting, _row.due_at <= sa.bindparam("now", type_=Moment()))
    pending, in_doubt = _of(account, PENDING), _of(account, IN_DOUBT)
    first_due = sa.select(_row.due_at).where(due).order_by(_row.due_at).limit(ONE).scalar_subquery()
    of_due = (_count(sa.select(ONE).where(due)), first_due)
    figures = (_count(pending), _first(pending), *of_due, _count(in_doubt), _first(in_doubt))
    return sa.select(account, *figures).where(account.is_not(None)).order_by(account)


def _of(account: sa.ColumnElement[str], status: sa.ColumnElement[str]) -> sa.Select[Any]:
    return sa.select(ONE).select_from(reservations).where(_row.account_id == account, same_key(_row.status, status))


def _count(rows: sa.Select[Any]) -> sa.ScalarSelect[int]:
    return rows.with_only_columns(sa.func.count()).scalar_subquery()


def _first(rows: sa.Select[Any]) -> sa.ScalarSelect[datetime]:
    """When the first of `rows` was accepted. In the order of the statuses' index: otherwise PostgreSQL may scan all rows by id."""
    return rows.with_only_columns(_row.accepted_at).order_by(_row.status, _row.id).limit(ONE).scalar_subquery()


class AuditTrail:
    """Entries are numbered from 1 in commit order, without a gap, and never changed or deleted. Raises `StoreUnavailable`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)
        first = insert_into(self._database.dialect, audit_head).values(id=1, number=1)
        counted = first.on_conflict_do_update(index_elements=["id"], set_={"number": audit_head.c.number + 1})
        self._next = counted.returning(audit_head.c.number)

    async def append(self, entry: AuditEntry) -> None:
        async with self._database.transaction() as connection:
            await self.append_within(connection, entry)

    async def append_within(self, connection: AsyncConnection, entry: AuditEntry) -> None:
        """Appends `entry` in the transaction of `connection`, which should commit at once: it locks the last number."""
        number = (await connection.execute(self._next)).scalar_one()
        await connection.execute(sa.insert(audit).values(asdict(replace(entry, number=number))))

    async def entries(self, wanted: AuditFilter, *, before: int | None, limit: int) -> Sequence[AuditEntry]:
        """Entries that match `wanted`, newest first, with numbers below `before`."""
        shown = (audit.c[field.name] for field in fields(AuditEntry))
        found = sa.select(*shown).order_by(audit.c.number.desc()).limit(limit)
        compared = ((audit.c.number, lt, before), (audit.c.at, ge, wanted.since), (audit.c.actor, eq, wanted.actor))
        for column, compare, value in (*compared, (audit.c.workspace_id, eq, wanted.workspace_id)):
            if value is not None:
                found = found.where(compare(column, value))
        if wanted.action is not None:  # one, or all of a noun
            of_noun = audit.c.action.startswith(f"{wanted.action}.", autoescape=True)
            found = found.where(sa.or_(audit.c.action == wanted.action, of_noun))
        return [AuditEntry(**row._mapping) for row in await self._database.read(found)]

    async def last(self) -> int:
        """The number of the last entry, 0 before the first."""
        return await self._database.scalar(sa.select(audit_head.c.number)) or 0


class SqlLender:
    """Implements `Lender`: one transaction for all requests, by the database's clock."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)
        # Of the moment, not of the transaction's start: it may wait for another one that holds the row.
        of_postgresql = "SELECT CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)"
        of_sqlite = "SELECT (julianday('now') - 2440587.5) * 86400.0"
        self._time = sa.text(of_postgresql if self._database.dialect == "postgresql" else of_sqlite)
        them = sa.select(rate_buckets).where(rate_buckets.c.name.in_(sa.bindparam("names", expanding=True)))
        # In one order, lest two workers wait for each other's rows.
        self._locked = them.order_by(rate_buckets.c.name).with_for_update()
        new = insert_into(self._database.dialect, rate_buckets).values(name=sa.bindparam("key"), full_at=0.0)
        self._new = new.on_conflict_do_nothing()
        changed = sa.update(rate_buckets).where(rate_buckets.c.name == sa.bindparam("key"))
        self._changed = changed.values(full_at=sa.bindparam("until", type_=sa.Double()))

    async def lend(self, requests: Sequence[LoanRequest]) -> Sequence[Loan]:
        names = sorted({bucket.name for request in requests for bucket in request.buckets})
        loans: list[Loan] = []
        async with self._database.transaction() as connection:
            rows = (await connection.execute(self._locked, {"names": names})).all()
            if len(rows) < len(names):
                await connection.execute(self._new, [{"key": name} for name in names])
                rows = (await connection.execute(self._locked, {"names": names})).all()
            now = await connection.scalar(self._time)
            full_at: dict[str, float] = {row.name: row.full_at for row in rows}
            for request in requests:
                loan, after = decide(request, full_at, float(now or 0.0))
                full_at |= after
                loans.append(loan)
            await connection.execute(self._changed, [{"key": name, "until": full_at[name]} for name in names])
        return loans

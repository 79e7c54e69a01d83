"""The audit trail in SQL. An append locks the head's row until the end of its transaction, so that entries are chained in commit
order."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from sqlalchemy import insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from forwarder.store.audit import GENESIS, AuditEntry, AuditFilter, AuditHead, NewEntry, chained
from forwarder.store.database import Database
from forwarder.store.sql import DialectName, insert_into
from forwarder.store.tables import audit as table
from forwarder.store.tables import audit_head

_row = table.c
_ONLY: Final = 1


class SqlAuditTrail:
    """`AuditTrail` on PostgreSQL or SQLite."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)
        self._next = _next(self._database.dialect)

    async def append(self, entry: NewEntry) -> None:
        async with self._database.transaction() as connection:
            await self.append_within(connection, entry)

    async def append_within(self, connection: AsyncConnection, entry: NewEntry) -> None:
        # This entry's number, and the hash of the one before. The update locks the row: no other transaction appends now.
        head = (await connection.execute(self._next)).one()
        kept = chained(entry, AuditHead(head.number - 1, head.hash))
        await connection.execute(insert(table).values(asdict(kept)))
        await connection.execute(update(audit_head).values(hash=kept.hash))

    async def entries(self, wanted: AuditFilter, *, before: int | None, limit: int) -> Sequence[AuditEntry]:
        found = select(table).order_by(_row.number.desc()).limit(limit)
        if before is not None:
            found = found.where(_row.number < before)
        if wanted.since is not None:
            found = found.where(_row.at >= wanted.since)
        if wanted.actor is not None:
            found = found.where(_row.actor == wanted.actor)
        if wanted.action is not None:
            of_noun = _row.action.startswith(f"{wanted.action}.", autoescape=True)
            found = found.where(or_(_row.action == wanted.action, of_noun))
        if wanted.workspace_id is not None:
            found = found.where(_row.workspace_id == wanted.workspace_id)
        return [_entry_of(row) for row in await self._database.read(found)]

    async def after(self, number: int, *, limit: int) -> Sequence[AuditEntry]:
        following = select(table).where(_row.number > number).order_by(_row.number).limit(limit)
        return [_entry_of(row) for row in await self._database.read(following)]

    async def head(self) -> AuditHead:
        rows = await self._database.read(select(audit_head.c.number, audit_head.c.hash))
        return AuditHead(rows[0].number, rows[0].hash) if rows else AuditHead(0, GENESIS)


def _next(dialect: DialectName) -> Any:
    first = insert_into(dialect, audit_head).values(id=_ONLY, number=1, hash=GENESIS)
    counted = first.on_conflict_do_update(index_elements=["id"], set_={"number": audit_head.c.number + 1})
    return counted.returning(audit_head.c.number, audit_head.c.hash)


def _entry_of(row: Any) -> AuditEntry:
    return AuditEntry(**{column.name: getattr(row, column.name) for column in table.c})

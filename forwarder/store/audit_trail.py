"""The audit trail in SQL. An append locks the row with the last number until the end of its transaction, so that entries are
numbered in commit order, without a gap."""

from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from typing import Final

from sqlalchemy import insert, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from forwarder.store.audit import AuditEntry, AuditFilter
from forwarder.store.database import Database
from forwarder.store.sql import insert_into
from forwarder.store.tables import audit as table
from forwarder.store.tables import audit_head

_row = table.c
_ONLY: Final = 1
_SHOWN: Final = [_row[field.name] for field in fields(AuditEntry)]


class AuditTrail:
    """Entries are numbered from 1, without a gap; they are appended and read, never changed or deleted. Raises
    `StoreUnavailable`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)
        first = insert_into(self._database.dialect, audit_head).values(id=_ONLY, number=1)
        counted = first.on_conflict_do_update(index_elements=["id"], set_={"number": audit_head.c.number + 1})
        self._next = counted.returning(audit_head.c.number)

    async def append(self, entry: AuditEntry) -> None:
        async with self._database.transaction() as connection:
            await self.append_within(connection, entry)

    async def append_within(self, connection: AsyncConnection, entry: AuditEntry) -> None:
        """Appends `entry` in the transaction of `connection`, which should commit at once: other appends wait for it."""
        # The update locks the row: no other transaction appends now.
        number = (await connection.execute(self._next)).scalar_one()
        await connection.execute(insert(table).values(asdict(replace(entry, number=number))))

    async def entries(self, wanted: AuditFilter, *, before: int | None, limit: int) -> Sequence[AuditEntry]:
        """Entries that match `wanted`, newest first, with numbers below `before`."""
        found = select(*_SHOWN).order_by(_row.number.desc()).limit(limit)
        if before is not None:
            found = found.where(_row.number < before)
        if wanted.since is not None:
            found = found.where(_row.at >= wanted.since)
        for column, value in ((_row.actor, wanted.actor), (_row.workspace_id, wanted.workspace_id)):
            if value is not None:
                found = found.where(column == value)
        if wanted.action is not None:
            of_noun = _row.action.startswith(f"{wanted.action}.", autoescape=True)
            found = found.where(or_(_row.action == wanted.action, of_noun))
        return [AuditEntry(**row._mapping) for row in await self._database.read(found)]

    async def last(self) -> int:
        """The number of the last entry, 0 before the first."""
        rows = await self._database.read(select(audit_head.c.number))
        return int(rows[0].number) if rows else 0

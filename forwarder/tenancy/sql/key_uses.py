"""When keys were last used, in SQL: a row for each key that ever was."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import bindparam
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.tenancy.sql.database import insert_into, transaction
from forwarder.tenancy.sql.tables import key_uses

_RESOLUTION: Final = timedelta(seconds=60)


class SqlKeyUses:
    """`UseStore` on PostgreSQL or SQLite. However many processes a key is used at, it is written once a minute."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def used(self, key_ids: Collection[str], at: datetime) -> None:
        new = insert_into(self._engine, key_uses).values(key_id=bindparam("key"), used_at=bindparam("at"))
        newer = new.on_conflict_do_update(
            index_elements=["key_id"],
            set_={"used_at": new.excluded.used_at},
            where=key_uses.c.used_at <= bindparam("earlier"),
        )
        # In one order, lest two processes wait for each other's rows.
        rows = [{"key": key_id, "at": at, "earlier": at - _RESOLUTION} for key_id in sorted(key_ids)]
        async with transaction(self._engine, writes=True) as connection:
            await connection.execute(newer, rows)

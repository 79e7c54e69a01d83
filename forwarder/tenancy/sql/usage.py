"""The usage of API keys in SQL, one row per key: the share of its quota that the processes used, and when it was last used."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Double, bindparam, func, literal_column
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.tenancy.limits import Consumption
from forwarder.tenancy.sql.database import insert_into, key_usage, key_uses, transaction

Now = Callable[[], ColumnElement[float]]
"""An expression for the time in seconds, without parameters, so that one statement can take many rows."""

# Seconds since 1970. SQLite counts in Julian days.
_POSTGRESQL_TIME: ColumnElement[float] = literal_column("CAST(extract(epoch FROM now()) AS DOUBLE PRECISION)", Double())
_SQLITE_TIME: ColumnElement[float] = literal_column("((julianday('now') - 2440587.5) * 86400.0)", Double())
_RESOLUTION: Final = timedelta(seconds=60)


class SqlUsage:
    """The usage of keys by all processes: one statement per exchange. By the database's time, so that the processes' clocks need
    not agree; only differences matter, and a negative one, after that clock was set back, counts as zero."""

    def __init__(self, engine: AsyncEngine, now: Now | None = None) -> None:
        self._engine = engine
        self._postgresql = engine.dialect.name == "postgresql"
        self._now = now or (lambda: _POSTGRESQL_TIME if self._postgresql else _SQLITE_TIME)

    async def add(self, consumed: Sequence[Consumption]) -> Mapping[str, float]:
        """Counts `consumed`, one per key; returns the used share of each key's quota, more than 1.0 if too many calls were
        admitted. Raises `TenancyUnavailable`: it was not counted, or may not have been."""
        # In one order, lest two processes wait for each other's rows.
        rows = [
            {"key": one.key_id, "share": one.share, "age": one.age, "seconds": one.seconds}
            for one in sorted(consumed, key=lambda one: one.key_id)
        ]
        async with transaction(self._engine, writes=True) as connection:
            used = await connection.execute(self._statement(self._now()), rows)
            return {row.key_id: row.used for row in used}

    def _statement(self, now: ColumnElement[float]) -> Any:
        """A row has the share used at `counted_at`; a whole quota drains in `window_seconds`. A reported share counts from its
        `counted_at`: the row had drained until then, but not below empty."""
        row = key_usage.c
        new = insert_into(self._engine, key_usage).values(
            key_id=bindparam("key"),
            used=bindparam("share", type_=Double()),
            window_seconds=bindparam("seconds"),
            counted_at=now - bindparam("age", type_=Double()),
        )
        left = row.used - self._larger(now - row.counted_at, 0.0) / new.excluded.window_seconds
        empty = (new.excluded.counted_at - now) / new.excluded.window_seconds
        counted = new.on_conflict_do_update(
            index_elements=["key_id"],
            set_={
                "used": self._larger(left, empty) + new.excluded.used,
                "window_seconds": new.excluded.window_seconds,
                "counted_at": now,
            },
        )
        return counted.returning(row.key_id, (row.used - (now - row.counted_at) / row.window_seconds).label("used"))

    def _larger(self, one: ColumnElement[Any], other: ColumnElement[Any] | float) -> ColumnElement[Any]:
        return func.greatest(one, other) if self._postgresql else func.max(one, other)


class SqlKeyUses:
    """When keys were last used. However many processes a key is used at, it is written once a minute."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def used(self, key_ids: Collection[str], at: datetime) -> None:
        """These keys were used by `at`. Raises `TenancyUnavailable`."""
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

"""Detects when an engine's connections lead to another database. A failover, a restore or a restart may put one behind the same
address that lacks acknowledged transactions; users that rely on these compare `StoreIdentity.changes`.

A connection through a pooler may change its server without being reopened, so `observe` asks again on a pooled one.
"""

from typing import Any, Final
from weakref import WeakKeyDictionary

import asyncpg
from sqlalchemy import Engine, event, text
from sqlalchemy.ext.asyncio import AsyncEngine

IDENTITY: Final = """
SELECT concat_ws(' ',
    extract(epoch FROM pg_postmaster_start_time())::text,
    CASE WHEN pg_is_in_recovery() THEN 'standby' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END,
    (SELECT oid FROM pg_database WHERE datname = current_database()),
    to_regclass('reservations')::oid)
"""
"""The server's start, its timeline (it advances with each promotion and each recovery to a point in time), and which database and
which table of submissions these are. Every role may ask that."""

_identities: WeakKeyDictionary[Engine, "StoreIdentity"] = WeakKeyDictionary()


class StoreIdentity:
    """The identity of the database behind one engine. `changes` counts how often a connection led to a database other than the one
    of the connection before."""

    def __init__(self) -> None:
        self.changes = 0
        self._seen: str | None = None

    def note(self, found: str) -> None:
        """A connection leads to the database that `IDENTITY` describes so."""
        if self._seen not in {None, found}:
            self.changes += 1
        self._seen = found


def identity_of(engine: AsyncEngine) -> StoreIdentity:
    """The identity of `engine`'s database. For SQLite, one file for the life of the process, it never changes."""
    return _identities.setdefault(engine.sync_engine, StoreIdentity())


def watch_identity(engine: AsyncEngine) -> None:
    """Ask each new PostgreSQL connection of `engine` which database it leads to, before it is used."""
    identity = identity_of(engine)

    async def ask(connection: asyncpg.Connection) -> str:
        try:
            return str(await connection.fetchval(IDENTITY))
        except BaseException:
            connection.terminate()  # the pool would leave it open, and the server would go on with the query
            raise

    def on_connect(connection: Any, _record: Any) -> None:
        identity.note(connection.run_async(ask))

    event.listen(engine.sync_engine, "connect", on_connect)


OBSERVE: Final = text(IDENTITY)
"""`IDENTITY` as a statement of SQLAlchemy."""

"""SQLite without a thread: the driver as it is, but what it would hand to its thread is done at once, where it is asked for.

So a call is over before anything else runs, and takes no virtual time. It is also several times as fast.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import aiosqlite
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine


def do_at_once(engine: AsyncEngine) -> None:
    """Connect `engine` so, from now on; what it commits is not synced to disk, for no test survives its machine."""

    def connect(_dialect: Any, _record: Any, _arguments: Any, named: dict[str, Any]) -> None:
        named["async_creator_fn"] = _connected

    event.listen(engine.sync_engine, "do_connect", connect)
    event.listen(engine.sync_engine, "connect", _without_syncing)


class _AtOnce:
    """In the place of a driver's queue, and of its thread."""

    def put_nowait(self, item: tuple[asyncio.Future[Any] | None, Callable[[], Any]]) -> None:
        future, function = item
        try:
            result = function()
        except Exception as error:  # noqa: BLE001 - it is for the one who waits
            if future is not None:
                future.set_exception(error)
        else:
            if future is not None:
                future.set_result(result)

    def start(self) -> None:
        pass


def _connected(*arguments: Any, **named: Any) -> aiosqlite.Connection:
    connection = aiosqlite.connect(*arguments, **named)
    vars(connection).update(_tx=_AtOnce(), _thread=_AtOnce())
    return connection


def _without_syncing(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous=OFF")
    cursor.close()

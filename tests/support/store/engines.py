"""Engines for tests that end while something may be cancelled in the middle of a statement."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from forwarder.store.engine import Engine, open_engine

_DRIVERS = "_connection_worker_thread"
"""In the names of aiosqlite's threads, one for each connection."""


@asynccontextmanager
async def sqlite_engine(path: Path) -> AsyncIterator[Engine]:
    """An engine on a SQLite file. When the block has ended, so have the threads of all connections that were opened in it.

    A connection that is cancelled while it connects or executes is closed by its thread a moment later, and the pool does not wait
    for that. The thread then calls the event loop, which must not be closed yet.
    """
    before = set(threading.enumerate())
    engine = open_engine(path)
    try:
        yield engine
    finally:
        await engine.dispose()
        for thread in set(threading.enumerate()) - before:
            if _DRIVERS in thread.name:
                await asyncio.to_thread(thread.join, 10.0)

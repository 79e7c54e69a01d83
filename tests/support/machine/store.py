"""The real store, of which each transaction is one step of the machine: it may fail, undone or done, or be the last of its worker.

While the database is asked, everything else stands still: nothing hangs on how fast it is.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.store.engine import open_engine
from forwarder.store.port import Recorder, Repairs, StoreUnavailable
from forwarder.store.recorder import SqlRecorder
from forwarder.store.repairs import SqlRepairs
from tests.support.machine.mishap import Effect, Mishap
from tests.support.machine.process import Process
from tests.support.machine.sqlite_at_once import do_at_once

T = TypeVar("T")

_LIMIT_SECONDS = 60.0
_WAY_SECONDS = 0.01
"""How long a request is on its way, and its answer: others go on meanwhile."""


class Connector:
    """One host's engine. While a call is under way `answer_lost` tells, after each commit, whether its answer is lost."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self.answer_lost: Callable[[], bool] = lambda: False
        dialect = engine.sync_engine.dialect
        commit = dialect.do_commit

        def commit_and_answer(connection: Any) -> None:
            commit(connection)
            if self.answer_lost():
                raise ConnectionError("the answer to a commit was lost")

        vars(dialect).update(do_commit=commit_and_answer)
        if dialect.name == "sqlite":
            do_at_once(engine)
        else:
            event.listen(engine.sync_engine, "connect", _without_syncing)


class Store:
    """A migrated database, with an engine for each host. PostgreSQL is reached from a thread with a loop of its own."""

    def __init__(self, hosts: Sequence[Connector], loop: asyncio.AbstractEventLoop) -> None:
        self.hosts = hosts
        self._loop = loop
        self._engine = hosts[0].engine
        self.dialect = self._engine.dialect.name

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns, or raises; everything else stands still, whoever asks."""
        if self._loop.is_running():
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(_LIMIT_SECONDS)
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            return self._loop.run_until_complete(work)
        finally:
            asyncio._set_running_loop(outer)

    def read(self, *queries: str) -> Sequence[Sequence[Any]]:
        """The rows of each query."""
        return self.run(self._read(queries))

    async def _read(self, queries: Sequence[str]) -> Sequence[Sequence[Any]]:
        async with self._engine.connect() as connection:
            return [(await connection.execute(text(query))).all() for query in queries]

    def clear(self) -> None:
        """As it was when it was new."""
        self.run(self._clear())

    async def _clear(self) -> None:
        async with self._engine.begin() as connection:
            if self.dialect == "postgresql":
                await connection.execute(
                    text("TRUNCATE reservations, outbox, workers, parked_cancellations RESTART IDENTITY")
                )
                return
            for table in ("reservations", "outbox", "workers", "parked_cancellations", "sqlite_sequence"):
                await connection.execute(text(f"DELETE FROM {table}"))

    def recorder(self, process: Process, host: int) -> Recorder:
        """The worker's side of it, for one process."""
        return cast("Recorder", _Steps(self, process, self.hosts[host], SqlRecorder(self.hosts[host].engine)))

    def repairs(self, process: Process, host: int) -> Repairs:
        """The operator's hand on it."""
        return cast("Repairs", _Steps(self, process, self.hosts[host], SqlRepairs(self.hosts[host].engine)))


class _Steps:
    """What a process calls of a port of the store, step by step."""

    def __init__(self, store: Store, process: Process, connector: Connector, port: object) -> None:
        self._store = store
        self._process = process
        self._connector = connector
        self._port = port

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        method = getattr(self._port, name)

        async def call(*arguments: Any, **named: Any) -> Any:
            return await self._call(name, lambda: method(*arguments, **named))

        return call

    async def _call(self, name: str, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        process = self._process
        await process.clock.sleep(_WAY_SECONDS)
        ahead = process.mishaps.ahead("store", name)
        if ahead is not None:
            await process.suffer(ahead)
        if not process.reaches("store") or (ahead is not None and ahead.effect is Effect.REFUSED):
            raise StoreUnavailable("the database is away")
        struck: list[Mishap] = []

        def answer_lost() -> bool:
            mishap = process.mishaps.step("store", name)
            if mishap is not None:
                struck.append(mishap)
            return mishap is not None and mishap.effect in (Effect.UNANSWERED, Effect.CRASH_AFTER)

        self._connector.answer_lost = answer_lost
        try:
            answer = self._store.run(work())
        finally:
            self._connector.answer_lost = lambda: False
            for mishap in struck:
                await process.suffer(mishap)
        await process.clock.sleep(_WAY_SECONDS)
        return answer


def _without_syncing(connection: Any, _record: Any) -> None:
    """No test survives its machine."""
    cursor = connection.cursor()
    cursor.execute("SET synchronous_commit TO off")
    cursor.close()
    connection.commit()


@contextmanager
def opened_store(database_url: str, hosts: int) -> Iterator[Store]:
    """A store on a migrated database, closed at the end."""
    loop = asyncio.new_event_loop()
    store = Store([Connector(open_engine(database_url, pool_size=2)) for _ in range(hosts)], loop)
    thread = threading.Thread(target=loop.run_forever, name="store", daemon=True)
    if store.dialect == "postgresql":
        thread.start()
    try:
        yield store
    finally:
        for host in store.hosts:
            store.run(host.engine.dispose())
        if thread.is_alive():
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
        loop.close()

"""The real store, of which each transaction is one step of the machine: it may fail, undone or done, or be the last of its worker.

While the database is asked, everything else stands still: nothing hangs on how fast it is. What takes time is the way there and
back, and a connection that is long in coming; meanwhile others go on, those of the same worker too.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, cast
from unittest import mock

import asyncpg
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from forwarder.store.engine import open_engine
from forwarder.store.submissions.card_keys import CardKeys
from forwarder.store.submissions.port import CancellationArrival, NotedOn, StoreUnavailable
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.submissions.repairs import Repairs
from tests.net.worlds.mishap import Effect, Mishap
from tests.net.worlds.ownership import Ownership
from tests.net.worlds.postgresql_at_once import Connecting
from tests.net.worlds.process import Process, on_its_own
from tests.net.worlds.sqlite_at_once import do_at_once
from tests.net.worlds.virtual_time import run_beside

T = TypeVar("T")

_WAY_SECONDS = 0.01
"""How long a request is on its way, and its answer: others go on meanwhile."""

_POOL_SIZE = 20


class Step:
    """One call of a port of the store by one process, which may take several transactions."""

    def __init__(self, process: Process, name: str) -> None:
        self._process = process
        self._name = name
        self.struck: list[Mishap] = []

    async def connect(self) -> None:
        """A connection is there, unless it is long in coming."""
        mishap = self._process.mishaps.connecting("store", self._name)
        if mishap is not None:
            await self._process.clock.sleep(mishap.seconds)

    def before_commit(self) -> None:
        """Everything is done but the commit. Raises where the connection dies here."""
        if self._process.mishaps.undone("store", self._name) is not None:
            raise ConnectionError("the connection died before the commit")

    def after_commit(self) -> None:
        """Raises where the connection, or the process, dies here."""
        mishap = self._process.mishaps.step("store", self._name)
        if mishap is None:
            return
        self.struck.append(mishap)
        if mishap.effect in (Effect.UNANSWERED, Effect.CRASH_AFTER):
            raise ConnectionError("the answer to a commit was lost")


_step: ContextVar[Step | None] = ContextVar("step", default=None)


def _strike(engine: AsyncEngine) -> None:
    """Let what befalls a step befall it where its transactions end."""
    dialect = engine.sync_engine.dialect
    commit, roll_back = dialect.do_commit, dialect.do_rollback

    def do_commit(connection: Any) -> None:
        step = _step.get()
        if step is None:
            commit(connection)
            return
        try:
            step.before_commit()
        except ConnectionError:
            roll_back(connection)  # as the server does that sees it go
            raise
        commit(connection)
        step.after_commit()

    vars(dialect).update(do_commit=do_commit)


class _Engine(AsyncEngine):
    """An engine whose connections may be long in coming."""

    __slots__ = ()

    def execution_options(self, **options: Any) -> "_Engine":
        return _Engine(super().execution_options(**options).sync_engine)

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        step = _step.get()
        if step is not None:
            await step.connect()
        async with super().begin() as connection:
            yield connection


_TABLES = (
    "reservations",
    "duplicates",
    "outbox",
    "workers",
    "parked_cancellations",
    "card_keys",
    "suspects",
    "log_gaps",
    "recoveries",
)


class Store:
    """A migrated database, with an engine for each host."""

    def __init__(self, hosts: Sequence[AsyncEngine], loop: asyncio.AbstractEventLoop) -> None:
        self.hosts = hosts
        self._loop = loop
        self.dialect = hosts[0].dialect.name

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns, or raises; everything else stands still, whoever asks."""
        return run_beside(self._loop, work)

    def read(self, *queries: str) -> Sequence[Sequence[Any]]:
        """The rows of each query."""
        return self.run(self._read(queries))

    async def _read(self, queries: Sequence[str]) -> Sequence[Sequence[Any]]:
        async with self.hosts[0].connect() as connection:
            return [(await connection.execute(text(query))).all() for query in queries]

    def execute(self, statement: str) -> None:
        """Somebody else changes it."""
        self.run(self._execute(statement))

    async def _execute(self, statement: str) -> None:
        async with self.hosts[0].begin() as connection:
            await connection.execute(text(statement))

    def row(self, request_id: str) -> Mapping[str, Any] | None:
        """How that request stands."""
        (found,) = self.read(
            f"SELECT status, leased_by, possibly_sent, partition FROM reservations WHERE request_id = '{request_id}'"
        )
        return found[0]._mapping if found else None

    def clear(self) -> None:
        """As it was when it was new."""
        self.run(self._clear())

    async def _clear(self) -> None:
        async with self.hosts[0].begin() as connection:
            if self.dialect == "postgresql":
                await connection.execute(text(f"TRUNCATE {', '.join(_TABLES)} RESTART IDENTITY"))
                return
            for table in (*_TABLES, "sqlite_sequence"):
                await connection.execute(text(f"DELETE FROM {table}"))

    def recorder(self, process: Process, host: int, ownership: Ownership) -> Recorder:
        """The worker's side of it, for one process."""
        return cast("Recorder", _RecorderSteps(process, Recorder(self.hosts[host]), ownership))

    def card_keys(self, process: Process, host: int) -> CardKeys:
        """Where the keys of rows' cards are, for one process."""
        return cast("CardKeys", _Steps(process, CardKeys(self.hosts[host])))

    def repairs(self, process: Process, host: int) -> Repairs:
        """The operator's hand on it."""
        return cast("Repairs", _Steps(process, Repairs(self.hosts[host])))

    def port(self, process: Process, port: Any) -> Any:
        """Any other port on one of `hosts`, for one process: each call of it is a step."""
        return _Steps(process, port)


class _Steps:
    """What a process calls of a port of the store, step by step."""

    def __init__(self, process: Process, port: Any) -> None:
        self._process = process
        self._port = port

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        if not inspect.iscoroutinefunction(method):
            return method

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
        step = Step(process, name)
        token = _step.set(step)
        try:
            with on_its_own():
                answer = await work()
        finally:
            _step.reset(token)
            for mishap in step.struck:
                await process.suffer(mishap)
        await process.clock.sleep(_WAY_SECONDS)
        return answer


class _RecorderSteps(_Steps):
    """Those of a worker, which learns by them what is to be cancelled."""

    def __init__(self, process: Process, port: Any, ownership: Ownership) -> None:
        super().__init__(process, port)
        self._ownership = ownership

    async def request_cancellations(
        self, arrivals: Sequence[CancellationArrival], *, now: datetime
    ) -> Mapping[str, NotedOn]:
        ask = partial(self._port.request_cancellations, arrivals, now=now)
        noted: Mapping[str, NotedOn] = await self._call("request_cancellations", ask)
        for request_id in noted:
            self._ownership.cancelled(self._process, request_id, self._process.loop.time())
        return noted


def _without_syncing(connection: Any, _record: Any) -> None:
    """No test survives its machine."""
    cursor = connection.cursor()
    cursor.execute("SET synchronous_commit TO off")
    cursor.close()
    connection.commit()


@contextmanager
def opened_store(database_url: str, hosts: int) -> Iterator[Store]:
    """A store on a migrated database, closed at the end."""
    loop, connecting = asyncio.new_event_loop(), Connecting()
    engines = [open_engine(database_url, pool_size=_POOL_SIZE) for _ in range(hosts)]
    store = Store([_Engine(engine.sync_engine) for engine in engines], loop)
    for engine in store.hosts:
        _strike(engine)
        if store.dialect == "sqlite":
            do_at_once(engine)
        else:
            event.listen(engine.sync_engine, "connect", _without_syncing)
    with mock.patch.object(asyncpg, "connect", connecting):  # an engine looks it up for each connection
        try:
            yield store
        finally:
            for engine in store.hosts:
                store.run(engine.dispose())
            connecting.close()
            loop.close()

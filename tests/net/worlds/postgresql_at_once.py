"""PostgreSQL without waiting: the driver as it is, but what it would wait for is waited for where it is asked, in another loop.

So a call is over before anything else runs, and takes no virtual time. Locks that another waits for would be waited for in vain: no
transaction may be left open while others run.
"""

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any

import asyncpg
from asyncpg.prepared_stmt import PreparedStatement
from asyncpg.transaction import Transaction

from tests.net.worlds.virtual_time import run_beside

_connect = asyncpg.connect


class Connecting:
    """In the place of `asyncpg.connect`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    async def __call__(self, *arguments: Any, **named: Any) -> Any:
        return _AtOnce(self.run(_connect(*arguments, **named)), self)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What `work` returns, or raises; everything else stands still."""
        return run_beside(self._loop, work)

    def close(self) -> None:
        """Nothing is connected any more."""
        self._loop.close()


class _AtOnce:
    """In the place of a connection, or of what it makes."""

    def __init__(self, driver: Any, connecting: Connecting) -> None:
        self._driver = driver
        self._connecting = connecting

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._driver, name)
        if not callable(attribute):
            return attribute

        def call(*arguments: Any, **named: Any) -> Any:
            answer = attribute(*arguments, **named)
            return self._answer(answer) if inspect.iscoroutine(answer) else self._wrapped(answer)

        return call

    async def _answer(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._wrapped(self._connecting.run(work))

    def _wrapped(self, made: Any) -> Any:
        return _AtOnce(made, self._connecting) if isinstance(made, PreparedStatement | Transaction) else made

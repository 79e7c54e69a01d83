"""What has to be written together with a change, in the transaction of whoever makes the change: neither stands without the other.

Store and tenancy know nothing of each other, nor of what is written: the last thing that a transaction of theirs does is to call
what is enlisted.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

Write = Callable[[Any, Mapping[str, str]], Awaitable[None]]
"""Writes by the connection of a transaction, before it is committed; with what those who made the change told about it."""


class Enlisted:
    """`written` once a transaction that it took part in was committed: it takes part in no other."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self.written = False
        self.facts: dict[str, str] = {}

    async def write(self, connection: Any) -> None:
        """Called last in the transaction of `connection`."""
        await self._write(connection, self.facts)


_enlisted: ContextVar[Enlisted | None] = ContextVar("enlisted", default=None)


@contextmanager
def enlist(enlisted: Enlisted) -> Iterator[None]:
    """Have the first transaction that is committed within the block write `enlisted` too; none where nothing is changed."""
    token = _enlisted.set(enlisted)
    try:
        yield
    finally:
        _enlisted.reset(token)


def to_be_written() -> Enlisted | None:
    """What the next transaction has to write as well: set `written` once that is committed."""
    enlisted = _enlisted.get()
    return None if enlisted is None or enlisted.written else enlisted


def tell(**facts: str) -> None:
    """Tell whoever enlisted something what only the change itself knows, such as a new identifier."""
    enlisted = _enlisted.get()
    if enlisted is not None:
        enlisted.facts |= facts

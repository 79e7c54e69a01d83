"""Writes that must commit together with a change, in the same transaction: neither is stored without the other. Store and tenancy
know nothing of each other, nor of the writes: each of their transactions ends by calling the enlisted write."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

Write = Callable[[Any, Mapping[str, Any]], Awaitable[None]]
"""Writes on the connection of a transaction, before its commit; gets the facts that the change reported."""


@dataclass(eq=False, slots=True)
class Enlisted:
    """A `write` to enlist, called last in a transaction. `written` once that has committed: it takes part in no other."""

    write: Write
    facts: dict[str, Any] = field(default_factory=dict)
    written: bool = False


_enlisted: ContextVar[Enlisted | None] = ContextVar("enlisted", default=None)


@contextmanager
def enlist(enlisted: Enlisted) -> Iterator[None]:
    """Adds `enlisted` to the first transaction that commits within the block; nothing is written if there is none."""
    token = _enlisted.set(enlisted)
    try:
        yield
    finally:
        _enlisted.reset(token)


def to_be_written() -> Enlisted | None:
    """The enlisted write for the next transaction, if there is one; set its `written` once that is committed."""
    enlisted = _enlisted.get()
    return None if enlisted is None or enlisted.written else enlisted


def tell(**facts: Any) -> None:
    """Reports facts that only the change itself knows, such as a new identifier or the values before it, to the enlisted write."""
    if (enlisted := _enlisted.get()) is not None:
        enlisted.facts |= facts

"""How answers leave: what is written to a connection in one turn of the event loop goes out in one piece.

uvicorn writes the head of an answer and its body one after the other, and uvloop sends each at once: two system calls, two packets,
and a client that wakes twice, for every reservation. Answers of one turn leave together as well: clients that wake one by one ask
one by one, each turn of the loop then serves few, and that costs a third more a reservation.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

_AT_MOST: Final = 64 * 1024
"""In bytes, that wait for the end of a turn: the most that this holds of an answer which is written faster than it is sent."""


class EndOfTurn:
    """What is to be done once the present turn of an event loop is over: one call of the loop for all connections."""

    def __init__(self) -> None:
        self._todo: list[Callable[[], None]] = []

    def then(self, loop: asyncio.AbstractEventLoop, todo: Callable[[], None]) -> None:
        """Do it in the turn that follows, after what is already to be done. What it raises is the loop's to report."""
        if not self._todo:
            loop.call_soon(self._begin, loop)
        self._todo.append(todo)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        todo, self._todo = self._todo, []
        for each in todo:
            try:
                each()
            except Exception as error:  # noqa: BLE001 - one connection's trouble stays its own
                loop.call_exception_handler({"message": "an answer could not be written", "exception": error})


_ENDS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, EndOfTurn]] = WeakKeyDictionary()


class GatheringTransport(asyncio.Transport):
    """In front of a connection's own transport. Nothing waits longer than until the turn's end, and nothing is reordered."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._end_of_turn = _ENDS.setdefault(loop, EndOfTurn())
        self._held: list[bytes] = []
        self._size = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._held:
            self._end_of_turn.then(self._loop, self._flush)
        self._held.append(bytes(data))
        self._size += len(data)
        if self._size > _AT_MOST:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            held, self._held, self._size = self._held, [], 0
            self._transport.write(b"".join(held))

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._held = []
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._transport.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._transport.get_protocol()

"""Gathers the writes of one turn of the event loop, and sends them at its end with one system call for each connection.

The HTTP server writes a response's head and body separately. As two segments they cost two system calls here and two at the client,
which the first one wakes. Clients that get responses together also send together, so that a turn that serves many costs less for
each. Independent of HTTP.
"""

import asyncio
from typing import Any, Final

import structlog

_LARGE: Final = 16 * 1024
_MAX_PIECES: Final = 16
"""Larger writes, or more pieces, are sent at once, so that the transport notices early enough that its client reads too slowly."""

_log = structlog.get_logger(__name__)


class TurnEnd:
    """The connections that have something to send at the end of the current turn of the loop."""

    def __init__(self) -> None:
        self._due: list[GatheringTransport] = []

    def add(self, transport: "GatheringTransport") -> None:
        """Sends what `transport` holds at the end of this turn."""
        if not self._due:
            asyncio.get_running_loop().call_soon(self._send)
        self._due.append(transport)

    def _send(self) -> None:
        due, self._due = self._due, []
        for transport in due:
            try:
                transport.send_held()
            except Exception:  # noqa: BLE001 - one connection's failure must not keep the responses of the others
                _log.warning("connection.write_failed", exc_info=True)
                transport.abort()


class GatheringTransport(asyncio.Transport):
    """A connection's transport that sends at the end of the turn. Closing sends the held bytes first; aborting drops them, as
    it drops bytes that the system has not taken. Once the connection is closing, writes are dropped: its client may reset it at
    any time."""

    def __init__(self, transport: asyncio.Transport, turn_end: TurnEnd) -> None:
        super().__init__()
        self._transport = transport
        self._turn_end = turn_end
        self._held: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._held:
            self._turn_end.add(self)
        self._held.append(bytes(data))
        if len(data) > _LARGE or len(self._held) > _MAX_PIECES:
            self.send_held()

    def send_held(self) -> None:
        """Passes the held bytes to the system."""
        held, self._held = self._held, []
        if held and not self._transport.is_closing():
            self._transport.write(b"".join(held))

    def close(self) -> None:
        try:
            self.send_held()
        finally:
            self._transport.close()

    def abort(self) -> None:
        self._held = []
        self._transport.abort()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + sum(map(len, self._held))

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

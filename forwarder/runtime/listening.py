"""Connections to a port that several processes listen on, shared out among them."""

import asyncio
import errno
import mmap
import socket
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

_log = structlog.get_logger(__name__)

_OUT_OF_RESOURCES: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
_RETRY_SECONDS: Final = 1.0
_LEFT_TO_OTHERS_SECONDS: Final = 0.005
_AWAY: Final = 2**31 - 1


class Tally:
    """How many connections each process on a port has: in a file of one number each, which all of them have in memory.

    The numbers may be some milliseconds old, and are only ever a hint.
    """

    def __init__(self, file: Path) -> None:
        """Of those who keep it in `file`. Raises `OSError`."""
        with file.open("r+b") as opened:
            self._counts = memoryview(mmap.mmap(opened.fileno(), 0)).cast("i")

    @classmethod
    def create(cls, file: Path, processes: int) -> "Tally":
        """A new one, of so many processes, none of which is there yet."""
        file.write_bytes(array("i", [_AWAY] * processes).tobytes())
        return cls(file)

    def note(self, process: int, connections: int) -> None:
        """That it has so many."""
        self._counts[process] = connections

    def note_away(self, process: int) -> None:
        """That it takes none: nobody is to leave any to it."""
        self._counts[process] = _AWAY

    def least(self) -> int:
        """Of all that take some."""
        return min(self._counts)


class Listener:
    """Takes connections from `listening`, one a turn of the event loop, and leaves them to other processes that have fewer; who has
    more takes one only where nobody else did within 5 ms.

    The event loop's own server takes all that wait at once. The few connections of a client that keeps them then all end at the
    process that woke first, for good.
    """

    def __init__(
        self,
        listening: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        connections: Callable[[], int],
        tally: Tally,
        process: int,
    ) -> None:
        """`connections` tells how many this process has, which is the `process`-th of `tally`."""
        self._listening = listening
        self._protocol = protocol
        self._connections = connections
        self._tally = tally
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[object]] = set()
        self._later: asyncio.TimerHandle | None = None
        self._listen()

    def close(self) -> None:
        """Take no more. What was taken stays; the socket is its owner's to close."""
        self._tally.note_away(self._process)
        self._stop_listening()
        if self._later is not None:
            self._later.cancel()

    def _listen(self) -> None:
        self._loop.add_reader(self._listening, self._take_in_turn)
        self._note()

    def _stop_listening(self) -> None:
        self._loop.remove_reader(self._listening)

    def _take_in_turn(self) -> None:
        if self._note() <= self._tally.least():
            self._take()
        else:
            self._pause(_LEFT_TO_OTHERS_SECONDS, self._take_left_over)

    def _note(self) -> int:
        count = self._connections() + len(self._connecting)
        self._tally.note(self._process, count)
        return count

    def _take_left_over(self) -> None:
        self._listen()
        self._take()

    def _pause(self, seconds: float, then: Callable[[], None]) -> None:
        # It is ready for as long as somebody waits: the loop would call again, and again.
        self._stop_listening()
        self._later = self._loop.call_later(seconds, then)

    def _take(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # another process took it, or its client left
        except OSError as error:
            if error.errno not in _OUT_OF_RESOURCES:
                raise
            _log.warning("process.cannot_accept", reason=str(error), retry_seconds=_RETRY_SECONDS)
            self._pause(_RETRY_SECONDS, self._listen)
            return
        connection.setblocking(False)  # noqa: FBT003 - the standard library's signature
        task = self._loop.create_task(self._loop.connect_accepted_socket(self._protocol, connection))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        self._note()

"""How log lines leave: those of one turn of the event loop in one piece, and at once what warns.

A stage writes a line for each reservation. The system call for it, and what that pushes out of the processor's caches, cost more
than the line itself; under load a turn serves many reservations.
"""

import asyncio
import atexit
import threading
from typing import TextIO


class LineLogger:
    """What structlog hands finished lines to. One on `info` and below is on `file` when the turn of the event loop in which it was
    written ends, or before; one above, or where no loop runs, at once. Their order is kept. For any thread.

    A process that is killed loses the lines of its last turn. It did not send the answers of that turn either.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._held: list[str] = []
        self._waking: asyncio.AbstractEventLoop | None = None
        atexit.register(self.flush)

    def info(self, line: str) -> None:
        loop = asyncio._get_running_loop()  # noqa: SLF001 - `get_running_loop` raises where none runs
        with self._lock:
            self._held.append(line)
        if loop is None:
            self.flush()
        elif loop is not self._waking:
            self._waking = loop
            loop.call_soon(self._end_turn)

    debug = info

    def warning(self, line: str) -> None:
        with self._lock:
            self._held.append(line)
        self.flush()

    warn = error = exception = critical = fatal = warning

    def flush(self) -> None:
        """Write what is held."""
        with self._lock:
            held, self._held = self._held, []
            if held:
                held.append("")
                self._file.write("\n".join(held))
                self._file.flush()

    def _end_turn(self) -> None:
        self._waking = None
        self.flush()

"""Writes log lines to a file whose reader may stall, in a separate thread, so that nothing else waits for the reader."""

import os
import select
import threading
import time
from collections import deque
from typing import Final, Protocol, TextIO

import structlog

from forwarder.observability.metrics import LOG_LINES_DROPPED

MAX_WAITING_CHARACTERS: Final = 4 * 1024 * 1024
"""How much may wait for the reader. Further lines are dropped and counted."""
FLUSH_SECONDS: Final = 2.0
_GATHER_SECONDS: Final = 0.01
"""How long lines wait for others, to be written together. Waking a thread costs more than writing a line."""

_log = structlog.get_logger(__name__)


class LineFile(Protocol):
    """A file that takes whole lines."""

    def write(self, text: str, /) -> int: ...

    def flush(self) -> None: ...


def unblocked(file: TextIO) -> LineFile:
    """`file`, written by a thread; `file` itself if it has no descriptor, and so no reader that could stall."""
    try:
        return WriterThread(file.fileno())
    except (OSError, ValueError):
        return file


class WriterThread:
    """Queues lines without blocking, and writes them to `descriptor` within `_GATHER_SECONDS`, or when its reader reads. Keeps
    their order. Thread-safe.

    Calls `os.write` directly: a buffered file would hold its lock while a write blocks, and Python takes that lock at exit.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = os.dup(descriptor)  # stays open when the original is closed
        self._waiting: deque[str | threading.Event] = deque()
        self._characters = 0
        self._due = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._dropped = 0

    def write(self, text: str) -> int:
        """Queues lines; drops and counts them if too much is queued."""
        with self._lock:
            if self._characters + len(text) > MAX_WAITING_CHARACTERS:
                lines = text.count("\n")
                self._dropped += lines
                LOG_LINES_DROPPED.inc(lines)
                return len(text)
            self._characters += len(text)
            self._waiting.append(text)
        self._wake()
        return len(text)

    def flush(self) -> None:
        """Does nothing: queued lines are written soon."""

    def drain(self, seconds: float = FLUSH_SECONDS) -> None:
        """Returns once everything queued is written, at the latest after `seconds`."""
        if self._waiting or self._characters:
            written = threading.Event()
            self._waiting.append(written)
            self._wake()
            written.wait(seconds)

    def _wake(self) -> None:
        if self._due.is_set():
            return
        self._due.set()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            self._due.wait()
            time.sleep(_GATHER_SECONDS)
            self._due.clear()
            self._write_waiting()
            with self._lock:
                dropped, self._dropped = self._dropped, 0
            if dropped:
                _log.warning("log.lines_dropped", lines=dropped)

    def _write_waiting(self) -> None:
        while self._waiting:
            pieces: list[str] = []
            written: list[threading.Event] = []
            while self._waiting and not written:
                piece = self._waiting.popleft()
                (pieces if isinstance(piece, str) else written).append(piece)  # type: ignore[arg-type]
            text = "".join(pieces)
            if not self._write(text.encode("utf-8", "backslashreplace")):
                LOG_LINES_DROPPED.inc(text.count("\n"))
            with self._lock:
                self._characters -= len(text)
            for each in written:
                each.set()

    def _write(self, data: bytes) -> bool:
        """Writes all of `data`; False if the reader has gone or the disk is full."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # another process has made the file non-blocking
                select.select([], [self._descriptor], [])
            except OSError:
                return False
        return True

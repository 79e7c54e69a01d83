"""Logging: structlog, one event per line on standard error, JSON or human-readable. Never logs guest or card data; masks anything
that looks like a card number in the text of an error. Events are named `noun.verbed`; each message ends with one wide event. Also
`printable`, which makes untrusted text safe for what operators read: lines, tables, pages."""

import asyncio
import atexit
import contextlib
import logging
import os
import re
import select
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final, Literal, TextIO, cast

import orjson
import structlog
from pydantic_core import to_json

from forwarder.observability.metrics import LOG_LINES_DROPPED
from forwarder.reservation.checks.card_numbers import mask_all

LogFormat = Literal["auto", "json", "pretty"]
Event = structlog.typing.EventDict
MAX_WAITING_CHARACTERS: Final = 4 * 1024 * 1024  # for the reader; further lines are dropped and counted
FLUSH_SECONDS: Final = 2.0
OBEYED: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except tab and line feed, characters that change the text direction or end lines, and lone surrogates."""
_GATHER_SECONDS: Final = 0.01
"""How long lines wait for others, to be written together. Waking a thread costs more than writing a line."""
_log = structlog.get_logger(__name__)
_context: Final[ContextVar[Mapping[str, str]]] = ContextVar("log_context", default={})  # noqa: B039 - never changed


def bind_log_context(**names: str) -> None:
    """Replaces the log context of this task and the tasks it starts: a request that waited behind another on its connection would
    start with the other's. One variable: structlog's own context has one for each name, too slow for a line per reservation."""
    _context.set(names)


@contextlib.contextmanager
def log_context(**names: str) -> Iterator[None]:
    """Adds `names` to every line of this task within the block."""
    token = _context.set({**_context.get(), **names})
    try:
        yield
    finally:
        _context.reset(token)


def merge_log_context(_logger: object, _level: str, event: Event) -> Event:
    """Structlog processor that adds the log context; the event's own values win."""
    return {**_context.get(), **event}


_ALL: Final = 2**32
_usual_below = _ALL


def tells_usual(request_id: str) -> bool:
    """Whether to log the normal course of this submission. Every process of a deployment picks the same submissions."""
    return _usual_below == _ALL or zlib.crc32(request_id.encode()) < _usual_below


def configure_logging(level: str, style: LogFormat, usual_share: float = 1.0) -> None:
    """Sets up structlog and the libraries' loggers. `auto`: pretty on a terminal, JSON elsewhere. `usual_share`: the share of
    submissions, from 0 to 1, whose normal course is logged."""
    global _usual_below  # noqa: PLW0603 - of the process, as all of logging is
    _usual_below = round(usual_share * _ALL)
    pretty = style == "pretty" or (style == "auto" and sys.stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        merge_log_context,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
        _without_cards,
    ]
    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer(lambda event, **_options: json_line(event))
    if pretty:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    file: TextIO | WriterThread = sys.stderr
    with contextlib.suppress(OSError, ValueError):  # no descriptor, and so no reader that could stall
        file = WriterThread(sys.stderr.fileno())
        atexit.register(file.drain)
    lines = LineLogger(file)
    structlog.configure(
        processors=[*shared, _printable, renderer] if pretty else [completed],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_names: lines,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(file)
    handler.addFilter(RepeatFilter())
    processors = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, _printable, renderer]
    chain = [*shared, structlog.stdlib.add_logger_name]
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=chain, processors=processors))
    least = max(logging.getLevelNamesMapping()[level.upper()], logging.WARNING)
    logging.basicConfig(handlers=[handler], level=least, force=True)


class LineLogger:
    """Writes structlog's finished lines, or events that become JSON lines when written. One at `info` or below reaches `file` by
    the end of the event-loop iteration that logged it; a higher one, or one outside a loop, at once. Keeps the order. Thread-safe.
    Under load one iteration serves many reservations; writing their lines together saves a fifteenth of the ingress's work."""

    def __init__(self, file: "TextIO | WriterThread") -> None:
        self._file, self._lock = file, threading.Lock()
        self._held: list[str | Event] = []
        self._flushing_loop: asyncio.AbstractEventLoop | None = None
        atexit.register(self.flush)

    def info(self, line: str | Event) -> None:
        with self._lock:
            self._held.append(line)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # none runs
            self.flush()
            return
        if loop is not self._flushing_loop:
            self._flushing_loop = loop
            loop.call_soon(self.flush)

    debug = info

    def warning(self, line: str | Event) -> None:
        with self._lock:
            self._held.append(line)
        self.flush()

    warn = error = exception = critical = fatal = warning

    def flush(self) -> None:
        self._flushing_loop = None
        with self._lock:
            held, self._held = self._held, []
            if held:
                lines = [each if isinstance(each, str) else json_line(each) for each in held]
                self._file.write("\n".join((*lines, "")))
                self._file.flush()


def completed(logger: object, level: str, event: Event) -> tuple[tuple[Event], dict[str, object]]:
    """Structlog's only processor of JSON lines: completes the event with its context, level, time and traceback for `LineLogger`.
    Its values must not be changed afterwards. A chain of processors would double the cost of a reservation's line."""
    event = {**_context.get(), **event, "level": level, "time": datetime.now(UTC)}
    if "exc_info" in event:
        event = structlog.processors.format_exc_info(logger, level, event)
    # The others have only our identifiers, numbers and codes.
    if level not in {"info", "debug"} or "exception" in event:
        event = _without_cards(logger, level, event)
    return (event,), {}


def json_line(event: Event) -> str:
    """The line of a completed event, with terminal control characters escaped."""
    try:
        line = orjson.dumps(event, option=orjson.OPT_UTC_Z | orjson.OPT_PASSTHROUGH_DATACLASS).decode()
    except orjson.JSONEncodeError:  # an error, a Decimal, …
        line = to_json(event, fallback=str).decode()
    if line.isascii() and "\x7f" not in line:
        return line
    return OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


def _without_cards(_logger: object, _level: str, event: Event) -> Event:
    return cast("Event", mask_all(event))


def printable(text: str) -> str:
    """`text` with characters that a terminal or a browser would interpret escaped as their code points."""
    return OBEYED.sub(lambda found: ascii(found[0])[1:-1], text)


def _printable(_logger: object, _level: str, event: Event) -> Event:
    return {name: printable(said) if isinstance(said, str) else said for name, said in event.items()}


class RepeatFilter(logging.Filter):
    """Lets one line per call site of a library pass every ten seconds, with the number suppressed since the last. An unreachable
    broker logs thousands a minute. `clock`: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._passed: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log the record. Thread-safe: at worst a count is one too low."""
        place, now = (record.name, record.lineno), self._clock()
        passed, kept_back = self._passed.get(place, (float("-inf"), 0))
        if now - passed < 10:  # noqa: PLR2004 - seconds
            self._passed[place] = (passed, kept_back + 1)
            return False
        self._passed[place] = (now, 0)
        if kept_back:
            record.msg, record.args = f"{record.getMessage()} (and {kept_back} more like it since the last line)", ()
        return True


class WriterThread:
    """Queues lines without blocking, and writes them in order to `descriptor` within `_GATHER_SECONDS`, or when its reader reads.
    Thread-safe. Not by a buffered file, which would hold its lock while a write blocks; Python takes that lock at exit."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = os.dup(descriptor)  # stays open when the original is closed
        self._waiting: list[str] = []
        self._characters = self._dropped = 0
        self._due, self._lock = threading.Event(), threading.Lock()
        self._thread: threading.Thread | None = None

    def write(self, text: str) -> int:
        """Queues lines; drops and counts them if too much is queued."""
        with self._lock:
            if self._characters + len(text) > MAX_WAITING_CHARACTERS:
                self._dropped += (lines := text.count("\n"))
                LOG_LINES_DROPPED.inc(lines)
                return len(text)
            self._characters += len(text)
            self._waiting.append(text)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
                self._thread.start()
        if not self._due.is_set():
            self._due.set()
        return len(text)

    def flush(self) -> None:
        """Does nothing: queued lines are written soon."""

    def drain(self) -> None:
        """Returns once everything queued is written, at the latest after `FLUSH_SECONDS`."""
        deadline = time.monotonic() + FLUSH_SECONDS
        while self._characters and time.monotonic() < deadline:
            time.sleep(_GATHER_SECONDS)

    def _run(self) -> None:
        while True:
            self._due.wait()
            time.sleep(_GATHER_SECONDS)
            self._due.clear()
            with self._lock:
                text, self._waiting = "".join(self._waiting), []
            if not self._write(text.encode("utf-8", "backslashreplace")):
                LOG_LINES_DROPPED.inc(text.count("\n"))
            with self._lock:
                self._characters -= len(text)
                dropped, self._dropped = self._dropped, 0
            if dropped:
                _log.warning("log.lines_dropped", lines=dropped)

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

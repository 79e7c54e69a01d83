"""What comes over a connection before there is a request: a head that is no HTTP, or too long, is answered as a problem too.

Built on uvicorn's protocol, which has a plain text for the first and reads the second for as long as it comes.
"""

import asyncio
import functools
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from forwarder.http.cycle import Cycle
from forwarder.http.keep_alive import KeepAliveProtocol
from forwarder.http.responses import DirectEndpoints, Response, problem_response
from forwarder.http.writing import GatheringTransport
from forwarder.reservation.problem import Problem
from forwarder.reservation.problems import requests

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application, HTTPScope

MOST_HEAD_BYTES: Final = 32 * 1024
"""Of the target and all header lines of a request."""

_MALFORMED: Final = requests.MALFORMED_HTTP.problem("What came over this connection is no HTTP/1.1 request.")
_TOO_LARGE: Final = requests.HEADERS_TOO_LARGE.problem(
    f"The request's target and headers must have at most {MOST_HEAD_BYTES} bytes."
)
_REASONS: Final = {_MALFORMED.status: b"Bad Request", _TOO_LARGE.status: b"Request Header Fields Too Large"}


class ProblemProtocol(KeepAliveProtocol):
    """Closes the connection after either. Of a head that does not end, one chunk is read beyond what a head may have."""

    _wrong: Problem = _MALFORMED
    _began = False
    _in_head = False
    _before = 0
    _chunk = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._straight: DirectEndpoints = getattr(self.config.app, "straight", {})

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(GatheringTransport(transport, self.loop))

    def data_received(self, data: bytes) -> None:
        self._began, self._chunk = False, len(data)
        super().data_received(data)
        # Where in its first chunk a head begins is not known: that chunk is not counted.
        if self._in_head and not self._began:
            self._before += self._chunk
            if self._before > MOST_HEAD_BYTES and not self.transport.is_closing():
                self._wrong = _TOO_LARGE
                self.send_400_response(_TOO_LARGE.title)

    def on_message_begin(self) -> None:
        self._began = self._in_head = True
        self._before = 0
        self.url = b""
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._in_head = False
        # Most come in one small chunk: they need no counting.
        if self._before + self._chunk > MOST_HEAD_BYTES and self._size_of_head() > MOST_HEAD_BYTES:
            self._wrong = _TOO_LARGE
            raise httptools.HttpParserError(_TOO_LARGE.title)
        self._begin()

    def _begin(self) -> None:
        """As uvicorn does, but with a `Cycle`, and without what is not configured here."""
        scope, fields = self._scope(), dict(self.headers)
        before: RequestResponseCycle | None = self.cycle
        self.cycle = Cycle(
            scope,
            self.transport,
            self.flow,
            self.logger,
            self.access_logger,
            self.access_log,
            self.server_state.default_headers,
            asyncio.Event(),
            fields.get(b"expect", b"").lower() == b"100-continue",
            scope["http_version"] != "1.0" and self.parser.should_keep_alive(),
            self.on_response_complete,
        )
        # Who comes by way of a proxy is told of as uvicorn does it.
        proxied = b"x-forwarded-proto" in fields or b"x-forwarded-for" in fields
        straight = None if proxied else self._straight.get((scope["method"], scope["path"]))
        app = self.app if straight is None else cast("ASGI3Application", straight)
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, app))

    def _scope(self) -> "HTTPScope":
        target = _target(self.url)
        return {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": self.parser.get_http_version(),
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme or "http",
            "root_path": self.root_path,
            "headers": self.headers,
            "state": self.app_state.copy(),
            "method": self.parser.get_method().decode("ascii"),
            "path": target.path,
            "raw_path": target.raw_path,
            "query_string": target.query,
        }

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: "ASGI3Application") -> None:
        """As uvicorn does, but for the callback at the task's end: a `Cycle` takes itself off the list."""
        cast(Cycle, cycle).start(app, self.loop, self.tasks)

    def _size_of_head(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's own words
        self.transport.write(_on_the_wire(problem_response(self._wrong, (b"connection", b"close"))))
        self.transport.close()


class _Target(NamedTuple):
    path: str
    raw_path: bytes
    query: bytes


@functools.lru_cache(maxsize=256)
def _target(url: bytes) -> _Target:
    """Raises `HttpParserError`."""
    parsed = httptools.parse_url(url)
    path = parsed.path.decode("ascii")
    return _Target(unquote(path) if "%" in path else path, parsed.path, parsed.query or b"")


def _on_the_wire(answer: Response) -> bytes:
    lines = [
        b"HTTP/1.1 %d %s" % (answer.status, _REASONS[answer.status]),
        b"content-type: %s" % answer.media_type,
        b"content-length: %d" % len(answer.body),
        *(b"%s: %s" % header for header in answer.headers),
    ]
    return b"\r\n".join([*lines, b"", answer.body])

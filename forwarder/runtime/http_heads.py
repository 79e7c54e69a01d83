"""What comes over a connection before there is a request: a head that is no HTTP, or too long, is answered as a problem too.

Built on uvicorn's protocol, which has a plain text for the first and reads the second for as long as it comes.
"""

import asyncio
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from forwarder.reservation.catalogue import requests
from forwarder.reservation.problem import Problem
from forwarder.runtime.http import Answer, problem_answer
from forwarder.runtime.http_cycle import Cycle
from forwarder.runtime.http_keep_alive import KeepAliveProtocol
from forwarder.runtime.http_writing import GatheringTransport

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

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
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        # Most come in one small chunk: they need no counting.
        if self._before + self._chunk > MOST_HEAD_BYTES and self._size_of_head() > MOST_HEAD_BYTES:
            self._wrong = _TOO_LARGE
            raise httptools.HttpParserError(_TOO_LARGE.title)
        self._begin()

    def _begin(self) -> None:
        """As uvicorn does, but with a `Cycle`, and without what is not configured here."""
        http_version, scope = self.parser.get_http_version(), self.scope
        scope["method"] = self.parser.get_method().decode("ascii")
        scope["http_version"] = http_version
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = url.path
        scope["query_string"] = url.query or b""
        before: RequestResponseCycle | None = self.cycle
        self.cycle = Cycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=http_version != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: "ASGI3Application") -> None:
        """As uvicorn does, but for the callback at the task's end: a `Cycle` takes itself off the list."""
        self.tasks.add(self.loop.create_task(cast(Cycle, cycle).run(app, self.tasks)))

    def _size_of_head(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's own words
        self.transport.write(_on_the_wire(problem_answer(self._wrong, (b"connection", b"close"))))
        self.transport.close()


def _on_the_wire(answer: Answer) -> bytes:
    lines = [
        b"HTTP/1.1 %d %s" % (answer.status, _REASONS[answer.status]),
        b"content-type: %s" % answer.media_type,
        b"content-length: %d" % len(answer.body),
        *(b"%s: %s" % header for header in answer.headers),
    ]
    return b"\r\n".join([*lines, b"", answer.body])

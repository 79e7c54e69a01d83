"""Serving an ASGI application on a socket, by uvicorn as it is, but for a bound on heads (docs/decisions/0016 says why)."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from forwarder.http.app import HEAD_TOO_LARGE, MAX_HEAD_BYTES
from forwarder.process.supervision import BACKLOG, Stop

_HEAD_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
    b"content-type: %b\r\ncontent-length: %d\r\n\r\n%b"
) % (HEAD_TOO_LARGE.media_type, len(HEAD_TOO_LARGE.body), HEAD_TOO_LARGE.body)


async def serve(app: ASGIApp, listening: socket.socket, stop: Stop, *, grace_seconds: float) -> None:
    """Serve `app` until `stop` is set; then accept nothing more and let requests finish within the grace period.

    `listening` is bound, and listens from now on where it did not.
    """
    config = uvicorn.Config(
        app,
        loop="none",
        http=_Protocol,
        ws="none",
        interface="asgi3",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(int(grace_seconds), 1),
    )
    server = _Server(config)

    async def stop_server() -> None:
        await stop.wait()
        server.should_exit = True

    stopping = asyncio.create_task(stop_server())
    try:
        await server.serve(sockets=[listening])
    finally:
        stopping.cancel()


class _Server(uvicorn.Server):
    """Leaves signals to `run_until_signalled`."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Protocol(HttpToolsProtocol):
    """uvicorn's own, which reads a head of any length. One that does not end is refused here, once a chunk more was read than it
    may have; one that ended is measured by the application. Only callbacks of asyncio and httptools are overridden."""

    _in_head = False
    _began = False
    _head_bytes = 0

    def data_received(self, data: bytes) -> None:
        self._began = False
        super().data_received(data)
        # Where in its first chunk a head begins is not known: that chunk is not counted.
        if self._in_head and not self._began:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.transport.write(_HEAD_TOO_LARGE)
                self.transport.close()

    def on_message_begin(self) -> None:
        self._began = self._in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

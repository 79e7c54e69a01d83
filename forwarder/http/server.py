"""Serving an ASGI application on a socket, by uvicorn as it is. docs/decisions/0016 says why it is that."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from forwarder.process.supervision import BACKLOG, Stop


async def serve(app: ASGIApp, listening: socket.socket, stop: Stop, *, grace_seconds: float) -> None:
    """Serve `app` until `stop` is set; then accept nothing more and let requests finish within the grace period.

    `listening` is bound, and listens from now on where it did not.
    """
    config = uvicorn.Config(
        app,
        loop="none",
        http="httptools",
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

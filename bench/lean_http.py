"""The cheapest HTTP/1.1 server that Python has: httptools on a bare protocol, keep-alive, one request at a time a connection.

Serves the lean PMS, and as a command answers 202 to every POST, which shows the load generator's own ceiling.
"""

import argparse
import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from typing import cast

import httptools
import uvloop


@dataclass(slots=True)
class Request:
    """One request, complete. Header names are in lower case."""

    method: str = ""
    path: str = ""
    query: str = ""
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""


Answer = Callable[[Request], tuple[int, bytes]]
"""The status and the JSON body for a request; must not wait."""


class Connection(asyncio.Protocol):
    """One client. Answers each request `delay` seconds after it was complete."""

    def __init__(self, answer: Answer, delay: float) -> None:
        self._answer = answer
        self._delay = delay
        self._request = Request()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._request = Request()

    def on_url(self, url: bytes) -> None:
        path, _, self._request.query = url.decode().partition("?")
        self._request.path = path

    def on_header(self, name: bytes, value: bytes) -> None:
        self._request.headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._request.body += body

    def on_message_complete(self) -> None:
        self._request.method = self._parser.get_method().decode()
        status, body = self._answer(self._request)
        if self._delay:
            asyncio.get_running_loop().call_later(self._delay, self._write, status, body)
        else:
            self._write(status, body)

    def _write(self, status: int, body: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(_head(status, len(body)) + body)


@cache
def _head(status: int, length: int) -> bytes:
    return (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    ).encode()


def serve(answer: Answer, *, host: str, port: int, delay: float = 0.0) -> None:
    """Serve until SIGINT or SIGTERM."""
    uvloop.run(_serve(answer, host, port, delay))


async def _serve(answer: Answer, host: str, port: int, delay: float) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    server = await loop.create_server(lambda: Connection(answer, delay), host, port, backlog=1024)
    await stop.wait()
    server.close()


def _accept(request: Request) -> tuple[int, bytes]:
    status = HTTPStatus.ACCEPTED if request.method == "POST" else HTTPStatus.OK
    return status, b'{"data":{}}'


def main() -> None:
    """Answer 202 to every POST."""
    parser = argparse.ArgumentParser(prog="python -m bench.lean_http")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    serve(_accept, host=arguments.host, port=arguments.port)


if __name__ == "__main__":
    main()

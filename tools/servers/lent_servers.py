"""One Kafka and one PostgreSQL for all processes of a test run: the first process has them, the others ask it for them.

A server is started when the first of them asks. It ends with the process that has it, however that ends.
"""

import json
import socket
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingMixIn, UnixStreamServer
from threading import Thread
from typing import Protocol, Self

from tools.servers.ladder import Unavailable


class Lendable(Protocol):
    """What may be asked for, by several threads at once."""

    def address(self) -> str:
        """How to reach it. Raises `Unavailable`."""


class Lender(AbstractContextManager["Lender"]):
    """Answers on a Unix socket in `directory`, while it is open, how to reach what is asked for by name."""

    def __init__(self, directory: Path, servers: Mapping[str, Lendable]) -> None:
        self.address = str(directory / "servers.sock")
        self._desk = _Desk(self.address, servers)
        self._thread = Thread(target=self._desk.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._desk.shutdown()
        self._desk.server_close()
        self._thread.join()


class _Desk(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, path: str, servers: Mapping[str, Lendable]) -> None:
        self.servers = servers
        super().__init__(path, _Asked)


class _Asked(StreamRequestHandler):
    """One name, and the answer to it."""

    def __init__(self, request: socket.socket, client: object, desk: _Desk) -> None:
        self._servers = desk.servers
        super().__init__(request, client, desk)

    def handle(self) -> None:
        server = self._servers[self.rfile.readline().decode().strip()]
        try:
            answer = {"address": server.address()}
        except Unavailable as reason:
            answer = {"unavailable": str(reason)}
        self.wfile.write(json.dumps(answer).encode())


class Borrowed:
    """A server that another process has."""

    def __init__(self, lent_by: str, name: str) -> None:
        self._ask = cache(lambda: _ask(lent_by, name))

    def address(self) -> str:
        answer = self._ask()
        if "unavailable" in answer:
            raise Unavailable(answer["unavailable"])
        return answer["address"]

    def planned(self) -> None:
        """Said by the process that has it, as is `found`."""

    def found(self) -> None: ...


def _ask(lent_by: str, name: str) -> Mapping[str, str]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(lent_by)
        connection.sendall(name.encode() + b"\n")
        with connection.makefile("rb") as answer:
            told: Mapping[str, str] = json.load(answer)
    return told

"""Several processes on one port: connections are shared out, and none waits for a process that does not come."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from forwarder.runtime.listening import Listener, Tally
from forwarder.runtime.supervision import bind


def _run(test: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(test, 20))


class _Process:
    """What a process has taken, as if the test's loop were its own."""

    def __init__(self, taken: asyncio.Queue[None]) -> None:
        self._taken = taken
        self.connections: list[asyncio.Transport] = []

    def protocol(self) -> asyncio.Protocol:
        process = self

        class Taken(asyncio.Protocol):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # a TCP one
                process.connections.append(transport)
                process._taken.put_nowait(None)

        return Taken()

    def count(self) -> int:
        return len(self.connections)


class _Port:
    """A port and its processes, of which some listen."""

    def __init__(self, listening: socket.socket, tally: Tally, processes: int) -> None:
        self._listening = listening
        self.tally = tally
        self._taken: asyncio.Queue[None] = asyncio.Queue()
        self.processes = [_Process(self._taken) for _ in range(processes)]
        self._listeners: list[Listener] = []
        self._clients: list[socket.socket] = []
        self._listening_too: list[socket.socket] = []

    def listen(self, number: int) -> Listener:
        process = self.processes[number]
        mine = self._listening.dup()  # a loop minds each descriptor for one
        self._listening_too.append(mine)
        listener = Listener(mine, process.protocol, process.count, self.tally, number)
        self._listeners.append(listener)
        return listener

    async def connect(self, count: int) -> None:
        """All at once; returns when all were taken."""
        for _ in range(count):
            client = socket.socket()
            self._clients.append(client)
            client.setblocking(False)
            client.connect_ex(self._listening.getsockname())
        for _ in range(count):
            await self._taken.get()

    def counts(self) -> list[int]:
        return [process.count() for process in self.processes]

    async def end(self) -> None:
        for listener in self._listeners:
            listener.close()
        for process in self.processes:
            for transport in process.connections:
                transport.abort()
        for client in self._clients:
            client.close()
        await asyncio.sleep(0)  # the transports close their sockets
        for listening in (self._listening, *self._listening_too):
            listening.close()


_Open = Callable[[int], Any]


@pytest.fixture
def port(tmp_path: Path) -> _Open:
    @asynccontextmanager
    async def opened(processes: int) -> AsyncIterator[_Port]:
        one = _Port(bind("127.0.0.1", 0), Tally.create(tmp_path / "connections", processes), processes)
        try:
            yield one
        finally:
            await one.end()

    return opened


def test_connections_that_come_at_once_are_shared_out(port: _Open) -> None:
    async def test() -> None:
        async with port(2) as shared:
            shared.listen(0)
            shared.listen(1)
            await shared.connect(8)
            assert min(shared.counts()) >= 3  # one more or less, where one was kept from its turn for 5 ms

    _run(test())


def test_who_has_fewer_takes_those_that_come(port: _Open) -> None:
    """A process that was started again catches up; until then nobody leaves any to it."""

    async def test() -> None:
        async with port(2) as shared:
            shared.listen(0)
            await shared.connect(8)
            assert shared.counts() == [8, 0]
            shared.listen(1)
            await shared.connect(8)
            assert shared.counts()[1] > 4, "by turns alone it would have four of them"

    _run(test())


def test_what_another_does_not_take_is_taken(port: _Open) -> None:
    """That has fewer, as far as anybody knows, and hangs."""

    async def test() -> None:
        async with port(2) as shared:
            shared.tally.note(1, 0)
            shared.listen(0)
            await shared.connect(3)
            assert shared.counts() == [3, 0]

    _run(test())


def test_what_one_has_is_forgotten_with_its_end(port: _Open) -> None:
    async def test() -> None:
        async with port(2) as shared:
            first, _ = shared.listen(0), shared.listen(1)
            await shared.connect(2)
            least_with_both = shared.tally.least()
            first.close()
            shared.processes[0].connections.pop().abort()
            await shared.connect(2)
            assert (least_with_both, shared.counts(), shared.tally.least()) == (1, [0, 3], 3)

    _run(test())


def test_one_without_files_left_goes_on_when_there_are_some(port: _Open, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[OSError] = []

    async def test() -> None:
        async with port(1) as shared:
            accept = socket.socket.accept

            def none_left(listening: socket.socket) -> tuple[socket.socket, Any]:
                if not refused:
                    refused.append(OSError(errno.EMFILE, "Too many open files"))
                    raise refused[0]
                return accept(listening)

            monkeypatch.setattr(socket.socket, "accept", none_left)
            shared.listen(0)
            await shared.connect(2)
            assert (len(refused), shared.counts()) == (1, [2])

    _run(test())

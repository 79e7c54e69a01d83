"""The transport of production asks whether what it sends is still held, in the step of the event loop in which it sends it."""

import asyncio
import select
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import Any

import pytest
import uvloop

from forwarder.pms.http.connections import ConnectionPool, PoolLimits
from forwarder.pms.http.response import NotSent
from forwarder.pms.port import LEASE_LOST
from tests.support.network.raw_server import Caller, raw_server
from tests.support.network.transports import CREATED, Way, ask


class OneCaller:
    """A server on a thread of its own: it answers the first request, and leaves the second where the system has put it."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._answer_once)
        self._thread.start()

    def _answer_once(self) -> None:
        self.peer, _ = self._listening.accept()
        self.peer.settimeout(10)
        if self._tls is not None:
            self.peer = self._tls.wrap_socket(self.peer, server_side=True)
        self.peer.recv(65536)
        self.peer.sendall(CREATED)

    def wait(self) -> None:
        self._thread.join()

    def has_more(self) -> bool:
        return bool(select.select([self.peer], [], [], 0)[0])

    def close(self) -> None:
        self._thread.join()
        self.peer.close()
        self._listening.close()


async def _sent_in_one_step(way: Way, server: OneCaller) -> None:
    """The connection stands already, so that an exchange comes to its sending in its task's first step; what is `seen` next is from
    the very next step of the loop."""
    seen: list[tuple[str, bool]] = []

    def held() -> bool:
        seen.append(("asked", server.has_more()))
        return True

    async with way.transport() as transport:
        await ask(transport, server.url)
        server.wait()
        exchange = asyncio.create_task(ask(transport, server.url, held=held))
        asyncio.get_running_loop().call_soon(lambda: seen.append(("next", server.has_more())))
        while len(seen) < 2:
            await asyncio.sleep(0)
        whole = server.peer.recv(65536)
        server.peer.sendall(CREATED)
        assert (await exchange).status_code == 201
    assert seen == [("asked", False), ("next", True)]
    assert whole.startswith(b"POST / HTTP/1.1\r\n")
    assert whole.endswith(b'\r\n\r\n{"a":1}')


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_between_the_look_and_the_sending_the_loop_does_nothing_else(
    way: Way, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    with closing(OneCaller(way.serving)) as server:
        run(_sent_in_one_step(way, server))


async def test_it_is_asked_for_each_request(way: Way, transport: ConnectionPool) -> None:
    asked: list[int] = []

    async def script(caller: Caller) -> None:
        while True:
            await caller.request()
            await caller.say(CREATED)

    def held() -> bool:
        asked.append(server.connections)
        return True

    async with way.server(script) as server:
        for _ in range(3):
            await ask(transport, server.url, held=held)
    assert len(asked) == 3
    assert asked[1:] == [1, 1]


async def test_what_is_not_held_is_not_sent_and_its_connection_is_kept(way: Way, transport: ConnectionPool) -> None:
    seen: list[bytes] = []

    async def script(caller: Caller) -> None:
        while True:
            seen.append(await caller.request())
            await caller.say(CREATED)

    async with way.server(script) as server:
        for _ in range(2):
            with pytest.raises(NotSent, match=LEASE_LOST):
                await ask(transport, f"{server.url}/not-held", held=lambda: False)
            await ask(transport, f"{server.url}/held", held=lambda: True)
        assert server.connections == 1
    assert [request.split(b" ")[1] for request in seen] == [b"/held", b"/held"]


async def test_it_is_not_asked_before_the_connection_stands() -> None:
    asked: list[None] = []

    def held() -> bool:
        asked.append(None)
        return True

    async def silent(caller: Caller) -> None:
        await caller.gone()

    with closing(socket.socket()) as nobody:
        nobody.bind(("127.0.0.1", 0))
        async with ConnectionPool(PoolLimits(connect_seconds=60.0)) as transport:
            with pytest.raises(NotSent, match="pms_unreachable"):
                await ask(transport, f"http://127.0.0.1:{nobody.getsockname()[1]}", held=held)
        async with raw_server(silent) as server, ConnectionPool(PoolLimits(connect_seconds=0.2)) as transport:
            with pytest.raises(NotSent, match="pms_connect_timed_out"):  # of a handshake that does not end
                await ask(transport, server.url.replace("http:", "https:"), held=held)
    assert not asked

"""A connection on which nothing is asked is closed in time, and none before."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from forwarder.http.keep_alive import KeepAliveProtocol

SECONDS = 75
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class _Timer:
    def __init__(self, due: float, callback: Callable[[], None]) -> None:
        self.due = due
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class _Loop:
    """An event loop's clock, moved by hand; all else is the running loop's."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[_Timer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> _Timer:
        self.timers.append(_Timer(self.now + delay, callback))
        return self.timers[-1]

    def pass_until(self, moment: float) -> None:
        while due := sorted((timer for timer in self.timers if timer.due <= moment), key=lambda timer: timer.due):
            self.timers.remove(due[0])
            self.now = due[0].due
            if not due[0].cancelled:
                due[0].callback()
        self.now = moment

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio.get_running_loop(), name)


class _Wire(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.closed = False
        self.sent = b""

    def write(self, data: Any) -> None:
        self.sent += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def resume_reading(self) -> None:
        pass


class _Connection:
    def __init__(self) -> None:
        self.loop, self.wire, self.answer_now = _Loop(), _Wire(), asyncio.Event()
        config = Config(self._app, interface="asgi3", lifespan="off", timeout_keep_alive=SECONDS, log_config=None)
        self.protocol = KeepAliveProtocol(config, ServerState(), {}, self.loop)  # type: ignore[arg-type]
        self.protocol.connection_made(self.wire)

    async def _app(self, _scope: object, _receive: object, send: Any) -> None:
        await self.answer_now.wait()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async def answered(self) -> None:
        self.answer_now.set()
        await asyncio.gather(*self.protocol.tasks)


@pytest.fixture
async def connection() -> _Connection:
    return _Connection()


async def test_an_idle_connection_is_closed_so_long_after_its_last_answer(connection: _Connection) -> None:
    for moment in (0, 40):
        connection.loop.pass_until(moment)
        connection.protocol.data_received(REQUEST)
        await connection.answered()
    connection.loop.pass_until(40 + SECONDS - 1)
    assert not connection.wire.closed
    connection.loop.pass_until(40 + SECONDS)
    assert connection.wire.closed


async def test_one_at_work_is_not_however_long_that_takes(connection: _Connection) -> None:
    connection.protocol.data_received(REQUEST)
    await connection.answered()
    connection.answer_now.clear()
    connection.loop.pass_until(10)
    connection.protocol.data_received(REQUEST)
    connection.loop.pass_until(10 * SECONDS)
    assert not connection.wire.closed
    await connection.answered()
    connection.loop.pass_until(11 * SECONDS)
    assert connection.wire.closed


async def test_many_answers_need_one_timer_and_a_lost_connection_none(connection: _Connection) -> None:
    connection.answer_now.set()
    for _ in range(5):
        connection.protocol.data_received(REQUEST)
        await connection.answered()
    assert len(connection.loop.timers) == 1
    connection.protocol.connection_lost(None)
    assert [timer.cancelled for timer in connection.loop.timers] == [True]

"""Runs asynchronous commands against the configured backend, which is opened before and closed after."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from forwarder.assembly.backend import Backend, open_backend, open_log
from forwarder.assembly.start import settings_and_logging
from forwarder.oversight.audit import Actor, acting_as
from forwarder.process.loops import first_of
from forwarder.topics.port import Log, Topics

R = TypeVar("R")


def with_backend(command: Callable[[Backend], Awaitable[R]], *, any_secret: bool = False) -> R:
    """Runs `command` against the open backend and returns its result. `any_secret`: as in `open_backend`. Raises `BadSettings`,
    `NotMigrated`, and whatever the store and the log raise."""
    settings = settings_and_logging("warning")

    async def run() -> R:
        with acting_as(Actor.operator()):
            async with open_backend(settings, any_secret=any_secret) as backend:
                return await command(backend)

    return asyncio.run(run())


def with_log(command: Callable[[Log, Topics], Awaitable[R]]) -> R:
    """Runs `command` with only the log open, and returns its result. Raises `BadSettings`, `LogUnavailable`."""
    settings = settings_and_logging("warning")

    async def run() -> R:
        async with open_log(settings.backend, partitions=settings.environment.partitions) as log:
            return await command(log, settings.topics)

    return asyncio.run(run())


async def unless_stopped(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> None:
    """Runs `work` to its end, or until `stop`. Raises its errors."""
    running = asyncio.ensure_future(work)
    await first_of(running, stop.wait())
    if not running.cancelled():
        running.result()


@contextmanager
def stop_on_signal() -> Iterator[asyncio.Event]:
    """An event that the first SIGINT or SIGTERM sets; a second one ends the process as it would have."""
    loop, stop, numbers = asyncio.get_running_loop(), asyncio.Event(), (signal.SIGINT, signal.SIGTERM)

    def leave() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)

    def first() -> None:
        stop.set()
        leave()

    for number in numbers:
        loop.add_signal_handler(number, first)
    try:
        yield stop
    finally:
        leave()

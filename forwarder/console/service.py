"""The console's process, its pages' parts, and a cache for pages that refresh themselves: all viewers share one reading."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final, Generic, TypeVar, cast

import structlog

from forwarder.assembly.backend import Backend
from forwarder.assembly.parts import webhooks_of
from forwarder.assembly.role import Listening, open_role_backend, reading_health, serve_role
from forwarder.http.messages import Routes
from forwarder.notifier.webhooks import Webhooks
from forwarder.operate.deployment.status import StatusReader
from forwarder.process.addresses import is_local
from forwarder.process.clock import Clock
from forwarder.process.loading import load
from forwarder.process.loops import FAULTS, Where, contained
from forwarder.process.supervision import Stop
from forwarder.settings import BadSettings, Settings
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.port import TenancyUnavailable
from forwarder.topics.codec import MessageSigner
from forwarder.topics.port import LogUnavailable

AWAY_SECONDS: Final = 5.0
"""How long a page waits for Kafka or the database before it shows the rest."""


@dataclass(frozen=True, slots=True)
class ConsoleParts:
    backend: Backend
    signer: MessageSigner
    status: StatusReader
    webhooks: Webhooks


async def run_console(settings: Settings, listening: Listening, stop: Stop) -> None:
    """Serves the console until `stop`. Raises `BadSettings` where it may not be served."""
    if (refusal := console_refusal(settings, listening)) is not None:
        raise BadSettings(refusal)
    async with AsyncExitStack() as stack:
        backend = await open_role_backend(stack, settings, "console")
        routes = await open_console(backend)
        await serve_role("console", routes, backend, listening, stop, health=reading_health(backend))


def console_refusal(settings: Settings, listening: Listening) -> str | None:
    """Why the console may not be served on `listening`, with the remedy; None if it may."""
    if find_spec("jinja2") is None:
        return "The console needs packages that are not installed: pip install 'reservation-forwarder[console]'."
    host = listening.getsockname()[0]
    if is_local(host) or settings.tls is not None or settings.environment.console_plaintext:
        return None
    return (
        f"The console would be served in plaintext on {host}, the operators' keys with it: set FORWARDER_TLS_CERTIFICATE_FILE and "
        "FORWARDER_TLS_KEY_FILE, or --host 127.0.0.1, or FORWARDER_CONSOLE_PLAINTEXT=true where a proxy ends TLS."
    )


async def open_console(backend: Backend) -> Routes:
    status = StatusReader(backend.settings, backend.log, backend.engine, backend.clock, seconds=AWAY_SECONDS)
    parts = ConsoleParts(backend, await backend.signer(), status, await webhooks_of(backend))
    # Imported here: it needs the packages of the extra `console`.
    return cast("Routes", load("forwarder.console.app:console_routes")(parts))


_FRESH_SECONDS: Final = 4.0
_log = structlog.get_logger(__name__)

T = TypeVar("T")


class Recent(Generic[T]):
    """The latest result of `read`, refreshed in the background; only the first caller, or one after a long pause, waits."""

    def __init__(self, read: Callable[[], Awaitable[T]], clock: Clock) -> None:
        self._read, self._clock = read, clock
        self._reading = asyncio.Lock()
        self._latest: tuple[float, T] | None = None
        self._changed_at = float("-inf")
        self._refreshing: asyncio.Task[None] | None = None
        self._awaited: asyncio.Task[T] | None = None

    async def get(self) -> T:
        if self._latest is not None and self._is_recent(30.0):
            if not self._is_recent(_FRESH_SECONDS) and (self._refreshing is None or self._refreshing.done()):
                self._refreshing = asyncio.create_task(self._refresh())
            return self._latest[1]
        async with self._reading:
            if not self._is_recent(_FRESH_SECONDS):
                await self._renew()
            assert self._latest is not None  # noqa: S101 - just read
            return self._latest[1]

    async def within(self, seconds: float) -> T | None:
        """As `get`; None if that takes longer. The reading then continues for the next caller."""
        if (awaited := self._awaited) is None:
            awaited = self._awaited = asyncio.create_task(self.get())
            awaited.add_done_callback(self._over)
        await asyncio.wait([awaited], timeout=seconds)
        return awaited.result() if awaited.done() else None

    @property
    def age_seconds(self) -> float:
        """The age of the latest result, counted from the start of its reading."""
        return float("inf") if self._latest is None else self._clock.monotonic() - self._latest[0]

    def forget(self) -> None:
        """After a change: the next caller waits for a reading that begins after it."""
        self._changed_at = self._clock.monotonic()

    def _is_recent(self, seconds: float) -> bool:
        return self._latest is not None and self._latest[0] >= self._changed_at and self.age_seconds < seconds

    async def _renew(self) -> None:
        self._latest = (self._clock.monotonic(), await self._read())

    def _over(self, awaited: asyncio.Task[T]) -> None:
        self._awaited = None
        if not awaited.cancelled() and (error := awaited.exception()) is not None:
            _not_refreshed(error)

    async def _refresh(self) -> None:
        try:
            await self._renew()
        except FAULTS as error:  # the next caller reads again, and gets the error of that
            self._latest = None
            _not_refreshed(error)


def _not_refreshed(error: BaseException) -> None:
    if isinstance(error, StoreUnavailable | TenancyUnavailable | LogUnavailable):
        _log.info("console.not_refreshed", error=str(error))
    else:
        contained(Where.CONSOLE, error)

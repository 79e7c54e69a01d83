"""What the processes of all stages share: listening for outcomes, the health check of a consumer, serving routes."""

import socket
from contextlib import AsyncExitStack, suppress
from typing import Protocol

import structlog

from forwarder.assembly.backend import Backend
from forwarder.http.contract import announcing
from forwarder.http.health import Check
from forwarder.http.messages import Routes
from forwarder.http.server import http_app, serve
from forwarder.http.tls import ServerTls
from forwarder.observability.metrics import tell_build
from forwarder.process.supervision import BACKLOG, Stop, side_by_side
from forwarder.tenancy.key_uses import write_uses
from forwarder.tenancy.port import TenancyUnavailable
from forwarder.tenancy.sql.key_uses import SqlKeyUses
from forwarder.topics.outcomes import OutcomeListener

Listening = socket.socket

_log = structlog.get_logger(__name__)


class Consuming(Protocol):
    """A stage that reads a topic."""

    def consuming(self) -> bool: ...


def consuming_check(stage: Consuming) -> Check:
    """Whether `stage` consumes, for the health routes."""

    async def check() -> bool:
        return stage.consuming()

    return check


async def open_outcomes(stack: AsyncExitStack, backend: Backend, stop: Stop) -> OutcomeListener:
    """The listener for outcomes that all waiting requests of this process share."""
    tail = await stack.enter_async_context(backend.log.tail(backend.settings.topics.results))
    outcomes = OutcomeListener(tail, backend.clock)
    await stack.enter_async_context(side_by_side(outcomes.run(), stop, until_stopped=True))
    return outcomes


async def serve_role(role: str, routes: Routes, backend: Backend, listening: Listening, stop: Stop) -> None:
    """Serve `routes` until `stop`, then let requests finish within the grace period."""
    listening.listen(BACKLOG)  # one of several on a port does so only now that it serves
    tell_build(role, backend.settings.environment.revision)
    _log.info("process.listening", role=role, port=listening.getsockname()[1])
    app = http_app(announcing(routes), backend.clock)
    settings = backend.settings
    uses = SqlKeyUses(backend.engine)
    async with side_by_side(write_uses(backend.access.uses, uses, backend.clock), stop, until_stopped=True):
        await serve(
            app,
            listening,
            stop,
            grace_seconds=settings.environment.grace_seconds,
            limits=settings.connections,
            tls=None if settings.tls is None else ServerTls(settings.tls),
            trusted_proxies=settings.environment.trusted_proxies,
        )
    with suppress(TenancyUnavailable):
        await backend.access.uses.write(uses, backend.clock)

"""Shared by the processes of all stages: listening for outcomes, the health checks of a consumer, serving routes."""

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog

from forwarder import __version__
from forwarder.assembly.backend import Backend, open_backend
from forwarder.http.connections import ServerTls
from forwarder.http.health import Check, Health, health_routes
from forwarder.http.messages import Routes
from forwarder.http.server import HttpApp, serve
from forwarder.observability.metrics import tell_build
from forwarder.observability.tracing import Tracer
from forwarder.process.certificates import ends_soon, pem_of
from forwarder.process.loading import load
from forwarder.process.loops import Where, cancel_all, forever
from forwarder.process.supervision import BACKLOG, Stop, side_by_side
from forwarder.settings import Settings
from forwarder.settings.backend import certificates_of
from forwarder.store.deployment import TELL_SECONDS, ProcessRegister, RunningProcess
from forwarder.store.engine import identity_of
from forwarder.store.lists.reader import Reader
from forwarder.store.submissions.port import StoreUnavailable, ThrottleState
from forwarder.tenancy.access import RateLimits, exchange_usage, write_uses
from forwarder.tenancy.port import TenancyUnavailable
from forwarder.tenancy.sql.directory import SqlKeyUses, SqlUsage
from forwarder.topics.outcomes import OutcomeListener

if TYPE_CHECKING:
    from forwarder.notifier.service import Notifier
    from forwarder.worker.service import Worker


Listening = socket.socket
Throttles = Callable[[], Sequence[ThrottleState]]
_REFUSED_SECONDS: Final = 30.0  # so long after a refused write the store counts as full: each process writes more often
_FLUSH_SECONDS: Final = 3.0  # how long a stopping process waits for the collector to accept the remaining spans
_log = structlog.get_logger(__name__)


async def open_role_backend(stack: AsyncExitStack, settings: Settings, role: str) -> Backend:
    """The backend for a process of `role`, traced if tracing is configured. Raises as `open_backend`."""
    tracer = await stack.enter_async_context(open_tracer(settings, role))
    return await stack.enter_async_context(open_backend(settings, tracer=tracer))


@asynccontextmanager
async def open_tracer(settings: Settings, role: str) -> AsyncIterator[Tracer | None]:
    """Records the spans of `role`; None if export is not configured, or not possible, which it logs."""
    asked, tracer = settings.trace_export, None
    reason = asked.refusal
    if asked.asked_by and not reason:
        try:
            tracer = load("forwarder.observability.otel:open_otel")(f"forwarder-{role}", __version__)
        except ImportError:
            reason = "packages are not installed: pip install 'reservation-forwarder[otel]'"
        else:
            _log.info("tracing.started", asked_by=asked.asked_by)
    if reason:
        _log.warning("tracing.not_started", asked_by=asked.asked_by, reason=reason)
    try:
        yield tracer
    finally:
        if tracer is not None and not await tracer.close(_FLUSH_SECONDS):
            _log.warning("tracing.not_flushed", seconds=_FLUSH_SECONDS)


def consuming_checks(stage: "Worker | Notifier") -> Mapping[str, Check]:
    """Health checks: whether `stage` consumes, and whether this process can decode its topic."""
    return {"consuming": stage.consuming, "topic_readable": lambda: not stage.unreadable}


def store_checks(backend: Backend) -> Mapping[str, Check]:
    """Health checks: whether the store answers, has accepted this process's recent writes, and has the keys that it works with."""
    database, clock = identity_of(backend.engine), backend.clock
    counted, refused_at = database.refusals, float("-inf")

    def writes() -> bool:
        nonlocal counted, refused_at
        if database.refusals != counted:
            counted, refused_at = database.refusals, clock.monotonic()
        return clock.monotonic() - refused_at >= _REFUSED_SECONDS

    ready = Reader(backend.engine).ready
    return {"store": ready, "store_writes": writes, "keys_in_step_with_store": backend.has_our_keys}


def reading_health(backend: Backend) -> Health:
    """The health of a process that mostly reads: a store that takes no writes leaves it ready."""
    checks = dict(store_checks(backend))
    return Health(checks, {"store_writes": checks.pop("store_writes")})


async def open_outcomes(stack: AsyncExitStack, backend: Backend, stop: Stop) -> OutcomeListener:
    """The listener for outcomes that all waiting requests of this process share."""
    tail = await stack.enter_async_context(backend.log.tail(backend.settings.topics.results))
    outcomes = OutcomeListener(tail, backend.clock)
    await stack.enter_async_context(side_by_side(outcomes.run(), stop, until_stopped=True))
    return outcomes


async def open_limits(stack: AsyncExitStack, backend: Backend, stop: Stop) -> RateLimits:
    """The rate limits of API keys, which exchange their usage with other processes until `stop`."""
    limits = RateLimits(backend.clock, backend.settings.rate_limit)
    usage = exchange_usage(limits, SqlUsage(backend.engine), backend.clock)
    await stack.enter_async_context(side_by_side(usage, stop, until_stopped=True))
    return limits


@asynccontextmanager
async def lame_duck(backend: Backend, stop: Stop) -> AsyncIterator[Stop]:
    """Yields an event that is set some seconds after `stop`: meanwhile the process still accepts requests, while its readiness
    and its closed connections send balancers and clients elsewhere. Otherwise requests in flight at a stop would be refused."""
    closing, seconds = Stop(), backend.settings.environment.lame_duck_seconds

    async def follow() -> None:
        await stop.wait()
        await backend.clock.sleep(seconds)
        closing.set()

    following = asyncio.create_task(follow())
    try:
        yield closing
    finally:
        await cancel_all([following])


async def then_set(done: Stop, work: Awaitable[None]) -> None:
    """Sets `done` when `work` has ended or failed. Raises the error of `work`."""
    try:
        await work
    finally:
        done.set()


@asynccontextmanager
async def telling_of_itself(
    role: str, backend: Backend, stop: Stop, throttles: Throttles, health: Health
) -> AsyncIterator[None]:
    """Registers this process for operators every few seconds until `stop`, through outages of the store."""
    register, clock, now = ProcessRegister(backend.engine), backend.clock, backend.clock.now()
    about = role, __version__, backend.settings.environment.revision, socket.gethostname()
    this = RunningProcess(secrets.token_hex(8), *about, now, now)

    async def step() -> None:
        seen = replace(this, seen_at=clock.now(), throttles=throttles(), failing=await health.failing())
        await register.report(seen)
        await register.forget_killed(seen.seen_at)
        await clock.sleep(TELL_SECONDS)

    telling = forever(step, name=Where.REGISTER, clock=clock, outages=(StoreUnavailable,))
    async with side_by_side(telling, stop, until_stopped=True):
        yield
    with suppress(StoreUnavailable, TimeoutError):
        async with asyncio.timeout(2.0):  # a stopping process waits no longer for an unavailable store
            await register.end(this.id)


async def serve_role(
    role: str,
    routes: Routes,
    backend: Backend,
    listening: Listening,
    stop: Stop,
    *,
    health: Health,
    leaving: Stop | None = None,
    throttles: Throttles = tuple,
) -> None:
    """Serves `routes` and those of `health` until `stop`, then lets requests finish within the grace period. `leaving`: set before
    `stop`, see `lame_duck`. `throttles`: a worker's throttles, for operators."""
    settings, tls = backend.settings, backend.settings.tls
    if files := certificates_of(settings.environment, settings.backend).values():
        last = lambda: not any(ends_soon(pem_of(file), backend.clock.now()) for file in files)  # noqa: E731
        health = replace(health, lesser={**health.lesser, "certificate": last})
    routes = [*routes, *health_routes(health, role, settings.metrics_token, leaving=leaving)]
    listening.listen(BACKLOG)  # one of several on a port must not listen before it serves
    tell_build(role, settings.environment.revision)
    _log.info("process.listening", role=role, port=listening.getsockname()[1])
    app = HttpApp(
        routes,
        backend.clock,
        leaving=leaving,
        admission=backend.admission,
        public_url=settings.environment.public_url,
        tracer=backend.tracer,
    )
    uses = SqlKeyUses(backend.engine)
    async with (
        telling_of_itself(role, backend, stop, throttles, health),
        side_by_side(write_uses(backend.access.uses, uses, backend.clock), stop, until_stopped=True),
    ):
        await serve(
            app,
            listening,
            stop,
            grace_seconds=settings.environment.grace_seconds,
            limits=settings.connections,
            tls=None if tls is None else ServerTls(tls),
            trusted_proxies=settings.environment.trusted_proxies,
        )
    with suppress(TenancyUnavailable):
        await backend.access.uses.write(uses, backend.clock)

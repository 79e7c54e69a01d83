"""The processes: each opens the parts of its stage on a backend and serves until it is told to stop."""

import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import replace

import structlog

from forwarder.assembly.backend import Backend, open_backend, secret_of
from forwarder.assembly.cancelling import takes_cancellations
from forwarder.assembly.webhooks import open_notifier, webhooks_of
from forwarder.ingress.parts import IngressParts, IngressSettings
from forwarder.ingress.routes import ingress_routes
from forwarder.notifier.api import WebhookApiParts, webhook_routes
from forwarder.notifier.service import Notifier
from forwarder.pms.directory import open_directory
from forwarder.pms.shared_grants import SharedGrantKeeper, Turns
from forwarder.pms.wire import Patience
from forwarder.published.deprecations import announcing
from forwarder.published.routes import published_routes
from forwarder.query.parts import QueryParts
from forwarder.query.routes import query_routes
from forwarder.reservation.identity import RequestIds
from forwarder.runtime.data_dir import alone_in
from forwarder.runtime.health import Check, health_routes
from forwarder.runtime.http import Routes, http_app
from forwarder.runtime.supervision import Stop, own_url, serve, side_by_side
from forwarder.settings import Embedded, Settings
from forwarder.simulator.app import simulator_below
from forwarder.simulator.world import World
from forwarder.store.reader import SqlReader
from forwarder.store.recorder import SqlRecorder
from forwarder.tenancy.deployment import publish_key, request_id_key
from forwarder.tenancy.grants import SqlGrants
from forwarder.tenancy.limits import RateLimits, exchange_usage
from forwarder.tenancy.port import CannotOpen, TenancyUnavailable
from forwarder.tenancy.sealing import SecretVault, sealer_of
from forwarder.tenancy.usage import SqlUsage
from forwarder.topics.outcomes import Outcomes
from forwarder.topics.port import Publisher
from forwarder.worker.service import Worker, WorkerParts

Listening = socket.socket
Ready = Callable[[Backend], Awaitable[None]]

_SIMULATOR = "/simulator"

_log = structlog.get_logger(__name__)


async def run_ingress(settings: Settings, listening: Listening, stop: Stop) -> None:
    """Serve the ingress until `stop`."""
    async with AsyncExitStack() as stack:
        backend = await stack.enter_async_context(open_backend(settings))
        publisher = await stack.enter_async_context(backend.log.publisher())
        outcomes = await _outcomes(stack, backend, stop)
        routes = await _open_ingress(stack, backend, publisher, outcomes, stop)
        await _serve(
            "ingress",
            [*routes, *published_routes(), *health_routes({"log": publisher.ready})],
            backend,
            listening,
            stop,
        )


async def run_query(settings: Settings, listening: Listening, stop: Stop) -> None:
    """Serve the query stage until `stop`."""
    async with AsyncExitStack() as stack:
        backend = await stack.enter_async_context(open_backend(settings))
        routes = await _query(backend, await _outcomes(stack, backend, stop))
        checks = {"store": SqlReader(backend.engine).ready}
        await _serve("query", [*routes, *published_routes(), *health_routes(checks)], backend, listening, stop)


async def run_worker(settings: Settings, listening: Listening, stop: Stop) -> None:
    """Work until `stop`; the port answers health and metrics."""
    async with AsyncExitStack() as stack:
        backend = await stack.enter_async_context(open_backend(settings))
        publisher = await stack.enter_async_context(backend.log.publisher())
        worker = await _open_worker(stack, backend, publisher)
        routes = health_routes({**_worker_checks(backend, worker), "log": publisher.ready})
        async with side_by_side(worker.run(stop), stop):
            await _serve("worker", routes, backend, listening, stop)


async def run_notifier(settings: Settings, listening: Listening, stop: Stop) -> None:
    """Post results to customers' endpoints until `stop`; the port answers the management of webhooks, health and metrics."""
    async with AsyncExitStack() as stack:
        backend = await stack.enter_async_context(open_backend(settings))
        notifier = await open_notifier(stack, backend)
        routes = [*await _webhooks(backend), *published_routes()]
        checks = {"consuming": _consuming(notifier), "store": SqlReader(backend.engine).ready}
        async with side_by_side(notifier.run(stop), stop):
            await _serve("notifier", [*routes, *health_routes(checks)], backend, listening, stop)


async def run_everything(settings: Settings, listening: Listening, stop: Stop, ready: Ready) -> None:
    """All stages and simulated PMSs in this process, on one port, until `stop`. `ready` is told when they work."""
    settings = _with_own_simulator(settings, listening)
    with _alone(settings):
        async with AsyncExitStack() as stack:
            backend = await stack.enter_async_context(open_backend(settings))
            await backend.create_topics()
            publisher = await stack.enter_async_context(backend.log.publisher())
            outcomes = await _outcomes(stack, backend, stop)
            ingress = await _open_ingress(stack, backend, publisher, outcomes, stop)
            worker = await _open_worker(stack, backend, publisher)
            notifier = await open_notifier(stack, backend)
            journal = settings.environment.data_dir / "simulator.jsonl"
            world = stack.enter_context(World(backend.clock, calendars=False, journal=journal))
            checks = {**_worker_checks(backend, worker), "log": publisher.ready}
            callers = [*ingress, *await _query(backend, outcomes), *await _webhooks(backend), *published_routes()]
            routes = [*callers, *health_routes(checks), simulator_below(_SIMULATOR, world)]
            async with side_by_side(worker.run(stop), stop), side_by_side(notifier.run(stop), stop):
                await ready(backend)
                await _serve("up", routes, backend, listening, stop)


async def _outcomes(stack: AsyncExitStack, backend: Backend, stop: Stop) -> Outcomes:
    """For all who wait in this process, whatever they wait for."""
    tail = await stack.enter_async_context(backend.log.tail(backend.settings.topics.results))
    outcomes = Outcomes(tail, backend.clock)
    await stack.enter_async_context(side_by_side(outcomes.run(), stop, until_stopped=True))
    return outcomes


async def _open_ingress(
    stack: AsyncExitStack, backend: Backend, publisher: Publisher, outcomes: Outcomes, stop: Stop
) -> Routes:
    environment, topics = backend.settings.environment, backend.settings.topics
    limits = RateLimits(backend.clock, backend.settings.rate_limit)
    usage = exchange_usage(limits, SqlUsage(backend.engine), backend.clock)
    await stack.enter_async_context(side_by_side(usage, stop, until_stopped=True))
    parts = IngressParts(
        publisher=publisher,
        requests_topic=topics.requests,
        directory=backend.directory,
        sealer=await backend.sealer(),
        ids=RequestIds(await request_id_key(backend.engine)),
        reader=SqlReader(backend.engine),
        outcomes=outcomes,
        clock=backend.clock,
        can_cancel=lambda account: takes_cancellations(account, backend.clock),
        limits=limits,
        settings=IngressSettings(
            environment.wait_seconds,
            environment.max_wait_seconds,
            most_calls=environment.calls_at_most,
            most_bytes=environment.body_bytes_at_most,
            test_mode=environment.simulator_url is not None,
        ),
    )
    return ingress_routes(parts)


async def _query(backend: Backend, outcomes: Outcomes) -> Routes:
    ids, longest = RequestIds(await request_id_key(backend.engine)), backend.settings.environment.max_wait_seconds
    parts = QueryParts(backend.directory, SqlReader(backend.engine), ids, outcomes, backend.clock, longest)
    return query_routes(parts)


async def _webhooks(backend: Backend) -> Routes:
    return webhook_routes(WebhookApiParts(backend.directory, await webhooks_of(backend)))


async def _open_worker(stack: AsyncExitStack, backend: Backend, publisher: Publisher) -> Worker:
    settings, clock = backend.settings, backend.clock
    secret = secret_of(settings)
    await publish_key(backend.engine, secret)
    vault = SecretVault([secret])
    push_seconds = settings.environment.push_timeout_seconds
    grants = _grants(backend, secret, vault, push_seconds)
    pms = await stack.enter_async_context(
        open_directory(clock, patience=Patience(push_seconds=push_seconds), grants=grants)
    )
    stack.push_async_callback(grants.finish)
    parts = WorkerParts(
        log=backend.log,
        topics=settings.topics,
        publisher=publisher,
        recorder=SqlRecorder(backend.engine),
        directory=backend.directory,
        vault=vault,
        pms=pms,
        clock=clock,
        settings=settings.worker,
    )
    return Worker(parts)


def _grants(backend: Backend, secret: str, vault: SecretVault, push_seconds: float) -> SharedGrantKeeper:
    """Sealed to this worker's own secret, which every worker has."""
    rows = SqlGrants(backend.engine, sealer_of(secret), vault)
    outages = (TenancyUnavailable, CannotOpen)
    return SharedGrantKeeper(rows, backend.clock, Turns.within(push_seconds), outages)


def _worker_checks(backend: Backend, worker: Worker) -> Mapping[str, Check]:
    return {"consuming": _consuming(worker), "store": SqlReader(backend.engine).ready}


def _consuming(stage: Worker | Notifier) -> Check:
    async def check() -> bool:
        return stage.consuming()

    return check


async def _serve(role: str, routes: Routes, backend: Backend, listening: Listening, stop: Stop) -> None:
    _log.info("process.listening", role=role, port=listening.getsockname()[1])
    app = http_app(announcing(routes), backend.clock)
    await serve(app, listening, stop, grace_seconds=backend.settings.environment.grace_seconds)


def _with_own_simulator(settings: Settings, listening: Listening) -> Settings:
    """Test keys reach the simulator of this very process, unless another one is set."""
    if settings.environment.simulator_url is not None:
        return settings
    own = {"simulator_url": own_url(listening) + _SIMULATOR}
    return replace(settings, environment=settings.environment.model_copy(update=own))


def _alone(settings: Settings) -> AbstractContextManager[None]:
    """Embedded, the data directory is this process's own; Kafka and PostgreSQL are there for many."""
    return alone_in(settings.backend.data_dir) if isinstance(settings.backend, Embedded) else nullcontext()

"""All stages in one process, which serves simulated PMSs as well."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import replace
from urllib.parse import urlsplit

from forwarder.assembly.backend import Backend
from forwarder.assembly.roles.console import console_refusal, open_console
from forwarder.assembly.roles.ingress import open_ingress
from forwarder.assembly.roles.notifier import open_webhook_api
from forwarder.assembly.roles.query import open_query
from forwarder.assembly.roles.role import Listening, open_outcomes, open_role_backend, serve_role
from forwarder.assembly.roles.simulator import simulated_pms
from forwarder.assembly.roles.worker import lesser_worker_checks, open_worker, worker_checks
from forwarder.assembly.webhooks import open_notifier
from forwarder.http.contract import contract_routes
from forwarder.http.health import health_routes
from forwarder.http.server import http_app, serve
from forwarder.process.addresses import is_local
from forwarder.process.data_dir import alone_in
from forwarder.process.supervision import Stop, bind, own_url, side_by_side
from forwarder.settings import Embedded, Settings
from forwarder.simulator.app import simulator_below
from forwarder.simulator.world import World

Ready = Callable[[Backend, str], Awaitable[None]]
"""Called with the backend, and with the address of this process's simulated PMSs."""

_SIMULATOR = "/simulator"


async def run_everything(settings: Settings, listening: Listening, stop: Stop, ready: Ready) -> None:
    """All stages and simulated PMSs in this process, on one port, until `stop`. `ready` is called once they run."""
    # Plain HTTP to the process's own simulator, on this machine only: TLS would need its certificate to be trusted.
    # Plain HTTP to any other than a loopback address is refused.
    here = settings.tls is None and is_local(urlsplit(own_url(listening)).hostname or "")
    aside = None if here else bind("127.0.0.1", 0)
    simulator = own_url(aside or listening) + _SIMULATOR
    settings = _with_simulator(settings, simulator)
    with _alone(settings), aside or nullcontext():
        async with AsyncExitStack() as stack:
            backend = await open_role_backend(stack, settings, "up")
            await backend.create_topics()
            publisher = await stack.enter_async_context(backend.log.publisher())
            outcomes = await open_outcomes(stack, backend, stop)
            ingress = await open_ingress(stack, backend, publisher, outcomes, stop)
            worker = await open_worker(stack, backend, publisher)
            notifier = await open_notifier(stack, backend)
            journal = settings.environment.data_dir / "simulator.jsonl"
            world = stack.enter_context(World(backend.clock, calendars=False, journal=journal))
            checks = {**worker_checks(backend, worker), "log": publisher.ready}
            reading = [*await open_query(backend, outcomes), *await open_webhook_api(stack, backend, stop)]
            callers = [*ingress, *reading, *contract_routes()]
            operators = [] if console_refusal(settings, listening) else await open_console(backend)
            routes = [
                *callers,
                *operators,
                *health_routes(checks, metrics_token=settings.metrics_token, lesser=lesser_worker_checks(worker)),
            ]
            simulated = simulator_below(_SIMULATOR, simulated_pms(world))
            if aside is None:
                routes.append(simulated)
            else:
                serving = serve(http_app([simulated], backend.clock), aside, stop, grace_seconds=1.0)
                await stack.enter_async_context(side_by_side(serving, stop))
            async with side_by_side(worker.run(stop), stop), side_by_side(notifier.run(stop), stop):
                await ready(backend, simulator)
                await serve_role("up", routes, backend, listening, stop, throttles=worker.throttles)


def _with_simulator(settings: Settings, url: str) -> Settings:
    """Test keys use this process's own simulator, unless another one is set."""
    if settings.environment.simulator_url is not None:
        return settings
    return replace(settings, environment=settings.environment.model_copy(update={"simulator_url": url}))


def _alone(settings: Settings) -> AbstractContextManager[None]:
    """Locks the data directory of an embedded deployment; Kafka and PostgreSQL serve many processes."""
    return alone_in(settings.backend.data_dir) if isinstance(settings.backend, Embedded) else nullcontext()

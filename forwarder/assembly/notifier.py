"""The notifier process."""

from contextlib import AsyncExitStack, aclosing
from functools import partial

from forwarder.assembly import role
from forwarder.assembly.backend import Backend
from forwarder.assembly.parts import topic_check, webhooks_of
from forwarder.http.contract import contract_routes
from forwarder.http.health import Health
from forwarder.http.messages import Routes
from forwarder.notifier.api import WebhookApi
from forwarder.notifier.posting import NotifierParts
from forwarder.notifier.service import Notifier
from forwarder.process.supervision import Stop, side_by_side
from forwarder.settings import BadSettings, Settings
from forwarder.settings.environment import secret
from forwarder.store.delivery_queue import Deliveries
from forwarder.tenancy.sealing import KeyPairUnsealer
from forwarder.tenancy.sql.endpoints import Endpoints
from forwarder.webhooks.sender import HttpSender, TracedSender


async def run_notifier(settings: Settings, listening: role.Listening, stop: Stop) -> None:
    """Post results to customers' endpoints until `stop`; the port serves the management of webhooks, health and metrics."""
    async with AsyncExitStack() as stack:
        backend = await role.open_role_backend(stack, settings, "notifier")
        async with backend.log.admin():
            pass  # a refused login is no outage to wait out
        notifier = await open_notifier(stack, backend)
        routes = [*await open_webhook_api(stack, backend, stop), *contract_routes()]
        checks = {**role.consuming_checks(notifier), **role.store_checks(backend)}
        lesser = {"topics_in_step_with_store": partial(topic_check(backend).in_step, settings.topics.results)}
        closing, done = await stack.enter_async_context(role.lame_duck(backend, stop)), Stop()

        async def work() -> None:
            await notifier.run(stop)
            await closing.wait()  # the webhook API is served until then

        health = Health(checks, lesser)
        async with side_by_side(role.then_set(done, work()), stop):
            await role.serve_role("notifier", routes, backend, listening, done, health=health, leaving=stop)


async def open_webhook_api(stack: AsyncExitStack, backend: Backend, stop: Stop) -> Routes:
    limits = await role.open_limits(stack, backend, stop)
    return WebhookApi(backend.access, await webhooks_of(backend), limits).routes()


async def open_notifier(stack: AsyncExitStack, backend: Backend) -> Notifier:
    """A notifier, whose parts are closed with `stack`. Raises `BadSettings` without its key or the deployment's secret,
    `UnknownSecret` if that belongs to another deployment."""
    settings, clock = backend.settings, backend.clock
    pairs = backend.notifier_pairs()
    if not pairs:
        raise BadSettings(
            "FORWARDER_NOTIFIER_KEY is missing: it opens the secrets of webhooks. `forwarder secret status --notifier-key`, run "
            "with FORWARDER_SECRET_KEY set, prints it."
        )
    await backend.notifier_key(pairs)
    proxy, seconds = secret(settings.environment.webhook_proxy), settings.notifier.post_seconds
    opened = aclosing(HttpSender(settings.webhook_addresses, clock, seconds=seconds, proxy=proxy))
    sender = await stack.enter_async_context(opened)
    parts = NotifierParts(
        log=backend.log,
        topics=settings.topics,
        queue=Deliveries(backend.engine),
        endpoints=Endpoints(backend.engine),
        unsealer=KeyPairUnsealer(pairs),
        sender=sender if backend.tracer is None else TracedSender(sender, backend.tracer),
        clock=clock,
        settings=settings.notifier,
        on_gap=topic_check(backend).note,
    )
    return Notifier(parts)

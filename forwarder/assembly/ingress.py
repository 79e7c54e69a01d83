"""The ingress process."""

from contextlib import AsyncExitStack
from functools import cache

import structlog

from forwarder.assembly import role
from forwarder.assembly.backend import Backend
from forwarder.http.contract import contract_routes
from forwarder.http.health import Health
from forwarder.http.messages import Routes
from forwarder.ingress.message import IngressParts, IngressSettings
from forwarder.ingress.routes import ingress_routes
from forwarder.process.loading import load
from forwarder.process.loops import Where, forever
from forwarder.process.supervision import Stop, side_by_side
from forwarder.settings import Settings
from forwarder.store.lists.reader import Reader
from forwarder.tenancy.port import TenancyUnavailable
from forwarder.tenancy.sealing import CardSealer, NotTrusted
from forwarder.tenancy.sql.secrets import load_sealing_keys
from forwarder.topics.outcomes import OutcomeListener
from forwarder.topics.port import Publisher

_log = structlog.get_logger(__name__)


async def run_ingress(settings: Settings, listening: role.Listening, stop: Stop) -> None:
    async with AsyncExitStack() as stack:
        backend = await role.open_role_backend(stack, settings, "ingress")
        closing = await stack.enter_async_context(role.lame_duck(backend, stop))
        publisher = await stack.enter_async_context(backend.log.publisher())
        outcomes = await role.open_outcomes(stack, backend, closing)
        routes = [*await open_ingress(stack, backend, publisher, outcomes, closing), *contract_routes()]
        # Without the store it refuses keyed submissions and cancellations, and accepts the rest: it stays ready.
        checks = {"log": publisher.ready, "keys_in_step_with_store": backend.has_our_keys}
        lesser = {name: check for name, check in role.store_checks(backend).items() if name not in checks}
        health = Health(checks, lesser)
        await role.serve_role("ingress", routes, backend, listening, closing, health=health, leaving=stop)


async def open_ingress(
    stack: AsyncExitStack, backend: Backend, publisher: Publisher, outcomes: OutcomeListener, stop: Stop
) -> Routes:
    """The ingress's routes. `stack` closes their parts, except `backend`."""
    environment = backend.settings.environment
    parts = IngressParts(
        publisher=publisher,
        signer=await backend.signer(),
        requests_topic=backend.settings.topics.requests,
        access=backend.access,
        sealer=await open_card_sealer(stack, backend, stop),
        ids=await backend.request_ids(),
        reader=Reader(backend.engine),
        outcomes=outcomes,
        clock=backend.clock,
        # Imported on the first cancellation or submission, with the adapters of their accounts: the start does not wait for them.
        can_cancel=lambda account: load("forwarder.pms.registry:takes_cancellations")(account, backend.clock),
        preview=cache(lambda: load("forwarder.pms.rehearsal:Previews")(backend.clock)),
        limits=await role.open_limits(stack, backend, stop),
        audit=backend.audit,
        admission=backend.admission,
        settings=IngressSettings(
            environment.wait_seconds,
            environment.max_wait_seconds,
            body_seconds=environment.body_seconds,
            test_mode=environment.simulator_url is not None,
            card_numbers_in_text=environment.card_numbers_in_text,
            public_url=environment.public_url,
        ),
    )
    return ingress_routes(parts)


async def open_card_sealer(stack: AsyncExitStack, backend: Backend, stop: Stop) -> CardSealer:
    """Seals with the keys that the workers publish, refreshed regularly; during a database outage, with the last ones known. Raises
    `BadSettings` where this process could not verify whose they are."""
    sealer, trusted = CardSealer(), backend.trusted_keys()

    async def refresh() -> None:
        good = []
        for key in await load_sealing_keys(backend.engine, now=backend.clock.now()):
            try:
                key.require_trusted(trusted)
            except NotTrusted as error:
                _log.error("sealing_key.not_trusted", key_id=key.key_id, error=str(error))
            else:
                good.append(key)
        sealer.use(good)

    async def step() -> None:
        await backend.clock.sleep(60.0)
        await refresh()

    await refresh()
    looking = forever(step, name=Where.SEALING_KEYS, clock=backend.clock, outages=(TenancyUnavailable,))
    await stack.enter_async_context(side_by_side(looking, stop, until_stopped=True))
    return sealer

"""The ingress process."""

from contextlib import AsyncExitStack
from functools import cache
from typing import Final

from forwarder.assembly.backend import Backend
from forwarder.assembly.cards import open_card_sealer
from forwarder.assembly.roles.role import (
    Listening,
    lame_duck,
    open_limits,
    open_outcomes,
    open_role_backend,
    serve_role,
    store_checks,
)
from forwarder.http.contract import contract_routes
from forwarder.http.health import Health
from forwarder.http.messages import Routes
from forwarder.ingress.parts import IngressParts, IngressSettings
from forwarder.ingress.routes import ingress_routes
from forwarder.process.loading import load
from forwarder.process.supervision import Stop
from forwarder.reservation.submission import RequestIds
from forwarder.settings import Settings
from forwarder.store.lists.reader import SqlReader
from forwarder.tenancy.sql.database import request_id_key
from forwarder.topics.outcomes import OutcomeListener
from forwarder.topics.port import Publisher

_CAN_CANCEL: Final = "forwarder.pms.registry:takes_cancellations"
_PREVIEW: Final = "forwarder.pms.rehearsal:Previews"
"""Imported on the first cancellation or submission, with the adapters of their accounts, so that the start of an ingress does not
wait for them."""


async def run_ingress(settings: Settings, listening: Listening, stop: Stop) -> None:
    """Serve the ingress until `stop`."""
    async with AsyncExitStack() as stack:
        backend = await open_role_backend(stack, settings, "ingress")
        closing = await stack.enter_async_context(lame_duck(backend, stop))
        publisher = await stack.enter_async_context(backend.log.publisher())
        outcomes = await open_outcomes(stack, backend, closing)
        routes = await open_ingress(stack, backend, publisher, outcomes, closing)
        # Without the store it refuses keyed submissions and cancellations, and accepts the rest: it stays ready.
        checks = {"log": publisher.ready, "keys_in_step_with_store": backend.has_our_keys}
        health = Health(checks, {name: check for name, check in store_checks(backend).items() if name not in checks})
        await serve_role(
            "ingress", [*routes, *contract_routes()], backend, listening, closing, health=health, leaving=stop
        )


async def open_ingress(
    stack: AsyncExitStack, backend: Backend, publisher: Publisher, outcomes: OutcomeListener, stop: Stop
) -> Routes:
    """The ingress's routes. `stack` closes their parts, except `backend`."""
    environment, topics = backend.settings.environment, backend.settings.topics
    parts = IngressParts(
        publisher=publisher,
        signer=await backend.signer(),
        requests_topic=topics.requests,
        access=backend.access,
        sealer=await open_card_sealer(stack, backend, stop),
        ids=RequestIds(await request_id_key(backend.engine)),
        reader=SqlReader(backend.engine),
        outcomes=outcomes,
        clock=backend.clock,
        can_cancel=lambda account: load(_CAN_CANCEL)(account, backend.clock),
        preview=cache(lambda: load(_PREVIEW)(backend.clock)),
        limits=await open_limits(stack, backend, stop),
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

"""The query process."""

from contextlib import AsyncExitStack

from forwarder.assembly.backend import Backend
from forwarder.assembly.roles.role import (
    Listening,
    lame_duck,
    open_outcomes,
    open_role_backend,
    reading_health,
    serve_role,
)
from forwarder.http.contract import contract_routes
from forwarder.http.messages import Routes
from forwarder.process.supervision import Stop
from forwarder.query.routes import Queries, query_routes
from forwarder.settings import Settings
from forwarder.store.lists.reader import Reader
from forwarder.topics.outcomes import OutcomeListener


async def run_query(settings: Settings, listening: Listening, stop: Stop) -> None:
    """Serve the query stage until `stop`."""
    async with AsyncExitStack() as stack:
        backend = await open_role_backend(stack, settings, "query")
        closing = await stack.enter_async_context(lame_duck(backend, stop))
        routes = await open_query(backend, await open_outcomes(stack, backend, closing))
        health = reading_health(backend)
        await serve_role(
            "query", [*routes, *contract_routes()], backend, listening, closing, health=health, leaving=stop
        )


async def open_query(backend: Backend, outcomes: OutcomeListener) -> Routes:
    """The routes of the query stage."""
    ids, longest = await backend.request_ids(), backend.settings.environment.max_wait_seconds
    parts = Queries(backend.access, Reader(backend.engine), ids, outcomes, backend.clock, longest)
    return query_routes(parts)

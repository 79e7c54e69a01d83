"""The query process."""

from contextlib import AsyncExitStack

from forwarder.assembly import role
from forwarder.assembly.backend import Backend
from forwarder.http.contract import contract_routes
from forwarder.http.messages import Routes
from forwarder.process.supervision import Stop
from forwarder.query.routes import Queries, query_routes
from forwarder.settings import Settings
from forwarder.store.lists.reader import Reader
from forwarder.topics.outcomes import OutcomeListener


async def run_query(settings: Settings, listening: role.Listening, stop: Stop) -> None:
    async with AsyncExitStack() as stack:
        backend = await role.open_role_backend(stack, settings, "query")
        closing = await stack.enter_async_context(role.lame_duck(backend, stop))
        outcomes = await role.open_outcomes(stack, backend, closing)
        routes, health = [*await open_query(backend, outcomes), *contract_routes()], role.reading_health(backend)
        await role.serve_role("query", routes, backend, listening, closing, health=health, leaving=stop)


async def open_query(backend: Backend, outcomes: OutcomeListener) -> Routes:
    ids, longest = await backend.request_ids(), backend.settings.environment.max_wait_seconds
    return query_routes(Queries(backend.access, Reader(backend.engine), ids, outcomes, backend.clock, longest))

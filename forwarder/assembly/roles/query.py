"""The query process."""

from contextlib import AsyncExitStack

from forwarder.assembly.backend import Backend, open_backend
from forwarder.assembly.roles.role import Listening, open_outcomes, serve_role
from forwarder.http.contract import contract_routes
from forwarder.http.health import health_routes
from forwarder.http.messages import Routes
from forwarder.process.supervision import Stop
from forwarder.query.parts import QueryParts
from forwarder.query.routes import query_routes
from forwarder.reservation.submission import RequestIds
from forwarder.settings import Settings
from forwarder.store.lists.reader import SqlReader
from forwarder.tenancy.sql.deployment import request_id_key
from forwarder.topics.outcomes import OutcomeListener


async def run_query(settings: Settings, listening: Listening, stop: Stop) -> None:
    """Serve the query stage until `stop`."""
    async with AsyncExitStack() as stack:
        backend = await stack.enter_async_context(open_backend(settings))
        routes = await open_query(backend, await open_outcomes(stack, backend, stop))
        checks, token = {"store": SqlReader(backend.engine).ready}, settings.metrics_token
        await serve_role(
            "query", [*routes, *contract_routes(), *health_routes(checks, "query", token)], backend, listening, stop
        )


async def open_query(backend: Backend, outcomes: OutcomeListener) -> Routes:
    """The routes of the query stage."""
    ids, longest = RequestIds(await request_id_key(backend.engine)), backend.settings.environment.max_wait_seconds
    parts = QueryParts(backend.access, SqlReader(backend.engine), ids, outcomes, backend.clock, longest)
    return query_routes(parts)

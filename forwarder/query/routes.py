"""The query stage over HTTP: status of a submission, one reservation, pages of reservations."""

import re
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from starlette.requests import Request
from starlette.routing import Route

from forwarder.http.admission import place_of
from forwarder.http.conditional import NotModified, conditional_response
from forwarder.http.messages import (
    NO_STORE,
    Response,
    Routes,
    client_address,
    envelope,
    header_fields,
    header_map,
    problem_response,
)
from forwarder.http.paging import LARGEST_ID, positive
from forwarder.http.query_string import parameters_of, refuse_unknown
from forwarder.query.long_poll import LongPoll
from forwarder.query.pages import PARAMETERS, read_page_request, write_page
from forwarder.query.parts import QueryParts
from forwarder.reservation.problems import requests, service
from forwarder.reservation.problems.problem import Problem
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.access import Caller, forbidden
from forwarder.tenancy.api_keys import Scope
from forwarder.tenancy.port import TenancyUnavailable

# Anything else was never issued: do not read the store for it.
_REQUEST_ID = re.compile(r"rsv_[a-z2-7]{32}")
_SCOPE: Final[Scope] = "read"
_LIST_PATHS = ("/api/vrs/reservations", "/api/v1/vrs/reservations")

_OVERLOADED = service.OVERLOADED.problem("Ask again in a moment.")
_STORE_UNAVAILABLE = service.STORE_UNAVAILABLE.problem("Ask again in a moment; nothing is lost.")
_TENANCY_UNAVAILABLE = service.TENANCY_UNAVAILABLE.problem("Ask again in a moment.")
_NO_SUBMISSION = requests.SUBMISSION_NOT_FOUND.problem(
    "This integration account has no submission with that requestId."
)
_NO_RESERVATION = requests.RESERVATION_NOT_FOUND.problem("This integration account has no reservation with that id.")

_POST_ALONE = problem_response(requests.METHOD_NOT_ALLOWED.problem("This path supports POST."), (b"allow", b"POST"))
"""Paths of the ingress that have the form of a reservation's path."""

_Read = Callable[[Caller, Request], Awaitable[Response | NotModified | Problem]]
"""Reads the response for a caller, who sees one integration account."""


def query_routes(parts: QueryParts) -> Routes:
    """The routes of the query stage; HEAD wherever GET is."""
    queries = _Queries(parts)
    pages = queries.endpoint(queries.page, PARAMETERS)
    return [
        Route("/api/v1/vrs/submissions/{request_id}", queries.endpoint(queries.status)),
        *(Route(path, pages) for path in _LIST_PATHS),
        *(Route(f"{path}/", pages, include_in_schema=False) for path in _LIST_PATHS),
        *(Route(f"/api/v1/vrs/reservations/{name}", _POST_ALONE) for name in ("booking-engine", "bulk")),
        Route("/api/v1/vrs/reservations/{id}", queries.endpoint(queries.reservation)),
    ]


class _Queries:
    def __init__(self, parts: QueryParts) -> None:
        self._access = parts.access
        self._callers = parts.access.new_cache()
        self._clock = parts.clock
        self._reader = parts.reader
        self._long_poll = LongPoll(parts)
        self._retry_after_seconds = parts.retry_after_seconds

    def endpoint(
        self, read: _Read, parameters: Collection[str] = ()
    ) -> Callable[[Request], Awaitable[Response | NotModified]]:
        """The endpoint that responds with the result of `read` for the caller's account. It accepts these query `parameters`."""

        async def respond(request: Request) -> Response | NotModified:
            result = await self._read_as_caller(read, request, parameters)
            if isinstance(result, Problem):
                return problem_response(result, retry_after_seconds=self._retry_after_seconds)
            return result

        return respond

    async def _read_as_caller(
        self, read: _Read, request: Request, parameters: Collection[str]
    ) -> Response | NotModified | Problem:
        try:
            caller = await self._caller(request)
            if isinstance(caller, Problem):
                return caller
            place = place_of(request.scope)
            if place is not None and not place.claim(caller.workspace_id):
                return _OVERLOADED
            return refuse_unknown(request.scope, parameters) or await read(caller, request)
        except TenancyUnavailable:
            return _TENANCY_UNAVAILABLE
        except StoreUnavailable:
            return _STORE_UNAVAILABLE

    async def _caller(self, request: Request) -> Caller | Problem:
        fields = header_fields(request.scope)
        caller = self._callers.find(fields, self._clock.monotonic())
        if caller is None:
            found = await self._access.caller(header_map(request.scope), client_address(request.scope))
            if isinstance(found, Problem):
                return found
            caller = found
            self._callers.remember(fields, caller)
        if caller.networks or _SCOPE not in caller.scopes:
            return forbidden(caller, _SCOPE, client_address(request.scope)) or caller
        return caller

    async def status(self, caller: Caller, request: Request) -> Response | NotModified | Problem:
        """The status of a submission, from the moment of its acceptance."""
        request_id = request.path_params["request_id"]
        if not _REQUEST_ID.fullmatch(request_id):
            return _NO_SUBMISSION
        return await self._long_poll.respond(caller, request_id, request) or _NO_SUBMISSION

    async def page(self, caller: Caller, request: Request) -> Response | Problem:
        """A page of the account's reservations that match the filters."""
        asked = read_page_request(parameters_of(request.scope))
        if isinstance(asked, Problem):
            return asked
        page = await self._reader.page(
            caller.account.id, cursor=asked.cursor, limit=asked.limit, filters=asked.filters, order=asked.order
        )
        return Response(200, write_page(page, asked.limit), (NO_STORE,))

    async def reservation(self, caller: Caller, request: Request) -> Response | NotModified | Problem:
        """One reservation, in the envelope of section 2.5."""
        reservation_id = positive(request.path_params["id"], LARGEST_ID)
        stored = reservation_id and await self._reader.reservation(caller.account.id, reservation_id)
        if not stored:
            return _NO_RESERVATION
        body = envelope(stored.status.success, stored.record.encode())
        return conditional_response(body, header_map(request.scope).get("if-none-match"))

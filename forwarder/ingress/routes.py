"""The ingress over HTTP: its addresses, and the guard of each: authentication, admission, the rate limit of the key."""

from collections.abc import Collection
from typing import Final, Protocol

from starlette import types
from starlette.routing import Route

from forwarder.http.admission import PLACE, Place
from forwarder.http.messages import HttpRequest, Response, Routes, client_address, problem_response
from forwarder.http.query_string import refuse_unknown
from forwarder.ingress.bulk import BulkEndpoint
from forwarder.ingress.cancel import CancelEndpoint
from forwarder.ingress.card_text import CardTextCheck
from forwarder.ingress.losses import Losses
from forwarder.ingress.message import SubmissionBuilder
from forwarder.ingress.parts import IngressParts
from forwarder.ingress.problems import OVERLOADED, TENANCY_UNAVAILABLE, TEST_MODE_UNAVAILABLE
from forwarder.ingress.publish.publisher import SubmissionPublisher
from forwarder.ingress.submit import SubmitEndpoint
from forwarder.reservation.checks.fields import MAX_BULK_BYTES
from forwarder.reservation.problems import catalogue
from forwarder.reservation.problems.problem import Problem
from forwarder.tenancy.access import Caller, forbidden
from forwarder.tenancy.api_keys import Scope
from forwarder.tenancy.limits import rate_limited, with_allowance
from forwarder.tenancy.port import TenancyUnavailable

_FLOOD: Final = catalogue.TOO_MANY_BAD_TOKENS.code


class Endpoint(Protocol):
    """Responds to the requests for one path. `parameters`: the query parameters that it accepts."""

    parameters: Collection[str]

    async def respond(self, caller: Caller, request: HttpRequest) -> Response:
        """The response to an admitted request. Raises only `ClientDisconnect`."""
        ...

    def refuse(self, problem: Problem, caller: Caller | None) -> Response:
        """The response for a refusal; with `caller` if known."""
        ...


class Guarded:
    """The DirectEndpoint of `endpoint`, for keys that have `scope`. Unless `limited`, the endpoint applies the limits of keys
    itself."""

    def __init__(self, parts: IngressParts, endpoint: Endpoint, scope: Scope, *, limited: bool = True) -> None:
        self._parts = parts
        self._endpoint = endpoint
        self._scope = scope
        self._limited = limited

    async def __call__(self, scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
        response = await self.respond(scope, receive)
        await response(scope, receive, send)

    async def respond(self, scope: types.Scope, receive: types.Receive) -> Response:
        """The response of the endpoint, or the refusal that keeps the request from it."""
        endpoint = self._endpoint
        request = HttpRequest(scope, receive, self._parts.clock.monotonic())
        caller = await self._authenticate(request)
        if isinstance(caller, Problem):
            # `BadTokens` logs a flood of unknown tokens once; do not log each request.
            return problem_response(caller) if caller.code == _FLOOD else endpoint.refuse(caller, None)
        # A place counted for the caller's workspace; converts the one that the application took for the address, if any.
        place: Place | None = scope.get(PLACE)
        if place is None:
            place = scope[PLACE] = self._parts.admission.enter(caller.workspace_id)
        elif not place.claim(caller.workspace_id):
            place = None
        if place is None:
            return endpoint.refuse(OVERLOADED, caller)
        try:
            refused = None
            if caller.networks or self._scope not in caller.scopes:
                refused = forbidden(caller, self._scope, client_address(scope))
            if refused is None and scope["query_string"]:
                refused = refuse_unknown(scope, endpoint.parameters)
            if refused is not None:
                return endpoint.refuse(refused, caller)
            allowance = None
            if self._limited:
                shared = caller.workspace_id, caller.shared_limit
                allowance = self._parts.limits.take(caller.key_id, caller.limit, 1, shared)
            if allowance is None:
                return await endpoint.respond(caller, request)
            if not allowance.admitted:
                return with_allowance(endpoint.refuse(rate_limited(allowance), caller), allowance)
            return with_allowance(await endpoint.respond(caller, request), allowance)
        finally:
            place.leave()

    async def _authenticate(self, request: HttpRequest) -> Caller | Problem:
        """The caller, with the integration account. Until it is found, the request counts against its address."""
        known = self._parts.access.recent(request.fields)
        if known is not None and (self._parts.settings.test_mode or not known.account.test):
            return known
        address, place = client_address(request.scope), None
        if PLACE not in request.scope:
            place = self._parts.admission.enter_unknown(address)
            if place is None:
                return OVERLOADED
        try:
            caller = await self._parts.access.caller(request.fields, address)
        except TenancyUnavailable:
            return TENANCY_UNAVAILABLE
        finally:
            if place is not None:
                place.leave()
        if isinstance(caller, Caller) and caller.account.test and not self._parts.settings.test_mode:
            return TEST_MODE_UNAVAILABLE
        return caller


def ingress_routes(parts: IngressParts) -> Routes:
    """The routes of both operations, of bulks of them, and of cancellation. They share the bounds on what is under way, and one
    memory of recent keys."""
    publisher = SubmissionPublisher(parts)
    card_text = CardTextCheck(parts.settings.card_numbers_in_text)
    builder = SubmissionBuilder(parts.ids, parts.sealer, Losses(parts.preview), card_text, parts.partition)
    # Longer than a workspace's share, a bulk would never be admitted.
    bulk = BulkEndpoint(parts, builder, publisher, max_bytes=min(MAX_BULK_BYTES, parts.admission.bodies.largest))
    endpoints = {
        "/booking-engine": Guarded(parts, SubmitEndpoint("booking-engine", parts, builder, publisher), "submit"),
        "": Guarded(parts, SubmitEndpoint("general", parts, builder, publisher), "submit"),
        "/bulk": Guarded(parts, bulk, "submit", limited=False),
        "/{id}/cancel": Guarded(parts, CancelEndpoint(parts, card_text, publisher.recent), "cancel"),
    }
    return [
        Route(f"/api/v1/vrs/reservations{path}", endpoint, methods=["POST"]) for path, endpoint in endpoints.items()
    ]

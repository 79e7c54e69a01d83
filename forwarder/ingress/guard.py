"""Runs before every endpoint of the ingress: authentication, admission, the rate limit of the key."""

from collections.abc import Collection
from dataclasses import replace
from typing import Final, Protocol

from starlette import types

from forwarder.http.admission import PLACE, Place
from forwarder.http.messages import DirectEndpoint, HttpRequest, Response, client_address, problem_response
from forwarder.http.query_string import refuse_unknown
from forwarder.ingress.parts import IngressParts
from forwarder.ingress.problems import OVERLOADED, TENANCY_UNAVAILABLE, TEST_MODE_UNAVAILABLE
from forwarder.reservation.problems import requests
from forwarder.reservation.problems.problem import Problem
from forwarder.tenancy.access import Caller, forbidden
from forwarder.tenancy.api_keys import Scope
from forwarder.tenancy.limits import Allowance, RateLimits, rate_limited, with_allowance
from forwarder.tenancy.port import TenancyUnavailable

_FLOOD: Final = requests.TOO_MANY_BAD_TOKENS.code


class Endpoint(Protocol):
    """Responds to the requests for one path. `parameters`: the query parameters that it accepts."""

    parameters: Collection[str]

    async def respond(self, caller: Caller, request: HttpRequest) -> Response:
        """The response to an admitted request. Raises only `ClientDisconnect`."""
        ...

    def refuse(self, problem: Problem, caller: Caller | None) -> Response:
        """The response for a refusal; with `caller` if known."""
        ...


class Guard:
    """Shared by all endpoints of an ingress, together with the limits on work in flight."""

    def __init__(self, parts: IngressParts) -> None:
        self.admission = parts.admission
        self._access = parts.access
        self.callers = parts.access.new_cache()
        self.limits = parts.limits
        self.clock = parts.clock
        self._test_mode = parts.settings.test_mode

    def of(self, endpoint: Endpoint, scope: Scope, *, limited: bool = True) -> DirectEndpoint:
        """`endpoint`, for keys that have `scope`. Unless `limited`, it applies the limits of keys itself."""
        return _Guarded(self, endpoint, scope, limited)

    async def caller(self, request: HttpRequest) -> Caller | Problem:
        """Authenticates the caller and finds the integration account. Until then, the request counts against its address."""
        place = None
        if PLACE not in request.scope:
            place = self.admission.enter_unknown(client_address(request.scope))
            if place is None:
                return OVERLOADED
        try:
            return await self._caller(request)
        finally:
            if place is not None:
                place.leave()

    async def _caller(self, request: HttpRequest) -> Caller | Problem:
        try:
            caller = await self._access.caller(request.headers, client_address(request.scope))
        except TenancyUnavailable:
            return TENANCY_UNAVAILABLE
        if isinstance(caller, Caller) and caller.account.test and not self._test_mode:
            return TEST_MODE_UNAVAILABLE
        if isinstance(caller, Caller):
            self.callers.remember(request.fields, caller)
        return caller


class _Guarded:
    """One endpoint behind the guard."""

    def __init__(self, guard: Guard, endpoint: Endpoint, scope: Scope, limited: bool) -> None:  # noqa: FBT001 - as above
        self._guard = guard
        self._endpoint = endpoint
        self._scope = scope
        self._limited = limited

    async def respond(self, scope: types.Scope, receive: types.Receive) -> Response:
        """The response of the endpoint, or the refusal that keeps the request from it."""
        guard, endpoint = self._guard, self._endpoint
        request = HttpRequest(scope, receive, guard.clock.monotonic())
        caller = guard.callers.find(request.fields, request.started) or await guard.caller(request)
        if isinstance(caller, Problem):
            # `BadTokens` logs a flood of unknown tokens once; do not log each request.
            return problem_response(caller) if caller.code == _FLOOD else endpoint.refuse(caller, None)
        place = self._place(scope, caller)
        if place is None:
            return endpoint.refuse(OVERLOADED, caller)
        try:
            refused = self._refusal(caller, scope)
            if refused is not None:
                return endpoint.refuse(refused, caller)
            allowance = _taken(guard.limits, caller, 1) if self._limited else None
            if allowance is None:
                return await endpoint.respond(caller, request)
            if not allowance.admitted:
                return with_allowance(endpoint.refuse(rate_limited(allowance), caller), allowance)
            return with_allowance(await endpoint.respond(caller, request), allowance)
        finally:
            place.leave()

    def _place(self, scope: types.Scope, caller: Caller) -> Place | None:
        """A place counted for the caller's workspace; converts the one that the application took for the address, if any."""
        given: Place | None = scope.get(PLACE)
        if given is not None:
            return given if given.claim(caller.workspace_id) else None
        place = scope[PLACE] = self._guard.admission.enter(caller.workspace_id)
        return place

    def _refusal(self, caller: Caller, scope: types.Scope) -> Problem | None:
        """Why this caller may not do that, or what of the query is misspelt."""
        if caller.networks or self._scope not in caller.scopes:
            refused = forbidden(caller, self._scope, client_address(scope))
            if refused is not None:
                return refused
        return refuse_unknown(scope, self._endpoint.parameters) if scope["query_string"] else None

    async def __call__(self, scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
        response = await self.respond(scope, receive)
        await response(scope, receive, send)


def _taken(limits: RateLimits, caller: Caller, count: int) -> Allowance | None:
    return limits.take(caller.key_id, caller.limit, count, (caller.workspace_id, caller.shared_limit))


class ItemLimit:
    """The limit of a caller's key, as one bulk meets it: each item counts as a request would. Keys without a limit meet none."""

    def __init__(self, limits: RateLimits, caller: Caller) -> None:
        self._limits = limits
        self._caller = caller
        self._allowance = _taken(limits, caller, 0)
        self._counted = False

    def used_up(self) -> Problem | None:
        """The refusal if the quota has no item left, before the body is read."""
        allowance = self._allowance
        if allowance is None or allowance.remaining:
            return None
        self._allowance = replace(allowance, admitted=False, retry_in=allowance.more_in)
        return rate_limited(self._allowance)

    def admit(self, items: int) -> Problem | None:
        """Let all of the items through, or none."""
        self._counted = True
        self._allowance = allowance = _taken(self._limits, self._caller, items)
        return None if allowance is None or allowance.admitted else rate_limited(allowance)

    def refused_whole(self) -> None:
        """It was read, and refused before its items could be counted: it costs as much as one."""
        if not self._counted:
            self.admit(1)

    def add_headers(self, response: Response) -> Response:
        """`response`, with what is left of the limit."""
        return response if self._allowance is None else with_allowance(response, self._allowance)

"""What every request to the ingress passes before an endpoint responds: a place for it, who calls, and the limit of its key.

`RateLimit-Policy` and `RateLimit` are as draft-ietf-httpapi-ratelimit-headers has them: structured fields, lists of one item.
"""

import functools
from collections.abc import Collection
from dataclasses import replace
from typing import Final, Protocol

from starlette import types

from forwarder.http.messages import DirectEndpoint, HttpRequest, Response, client_address, problem_response, retry_after
from forwarder.http.query_string import refuse_unknown
from forwarder.ingress.parts import IngressParts
from forwarder.ingress.problems import OVERLOADED, TENANCY_UNAVAILABLE, TEST_MODE_UNAVAILABLE
from forwarder.reservation.problems import requests
from forwarder.reservation.problems.problem import Problem
from forwarder.reservation.request import MAX_BODY_BYTES
from forwarder.tenancy.access import forbidden
from forwarder.tenancy.callers import Caller
from forwarder.tenancy.key_terms import Scope
from forwarder.tenancy.limits import Allowance, RateLimits
from forwarder.tenancy.port import RateLimit, TenancyUnavailable

POLICY: Final = "default"
"""The name of the one policy that a key has."""

_FLOOD: Final = requests.TOO_MANY_BAD_TOKENS.code


class Endpoint(Protocol):
    """What responds to the requests to one address. `parameters`: the query parameters that it takes."""

    parameters: Collection[str]

    async def respond(self, caller: Caller, request: HttpRequest) -> Response:
        """The response to one that was admitted. Raises nothing but `ClientDisconnect`."""
        ...

    def refuse(self, problem: Problem, caller: Caller | None) -> Response:
        """The response that refuses; `caller` where that is known."""
        ...


class Guard:
    """One for all addresses of an ingress, which share the bounds on what is under way."""

    def __init__(self, parts: IngressParts) -> None:
        settings = parts.settings
        self.admission = Admission(max_requests=settings.max_requests, max_bytes=settings.max_bytes)
        self._access = parts.access
        self.callers = parts.access.new_cache()
        self.limits = parts.limits
        self.clock = parts.clock
        self._test_mode = settings.test_mode

    @property
    def max_bytes(self) -> int:
        """How long a body may be and still find a place."""
        return self.admission.max_bytes

    def of(
        self, endpoint: Endpoint, scope: Scope, *, max_bytes: int = MAX_BODY_BYTES, limited: bool = True
    ) -> DirectEndpoint:
        """`endpoint`, for keys that have `scope`. `max_bytes`: the longest body that it reads. Unless `limited`, it applies the
        limits of keys itself."""
        return _Guarded(self, endpoint, scope, max_bytes, limited)

    async def caller(self, request: HttpRequest) -> Caller | Problem:
        """Who calls, and for which integration account."""
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

    def __init__(self, guard: Guard, endpoint: Endpoint, scope: Scope, max_bytes: int, limited: bool) -> None:  # noqa: FBT001 - as above
        self._guard = guard
        self._endpoint = endpoint
        self._scope = scope
        self._max_bytes = max_bytes
        self._limited = limited

    async def respond(self, scope: types.Scope, receive: types.Receive) -> Response:
        """The response of the endpoint, or the refusal that keeps the request from it."""
        guard, endpoint = self._guard, self._endpoint
        request = HttpRequest(scope, receive, guard.clock.monotonic())
        body_bytes = request.max_body_bytes(self._max_bytes)
        if not guard.admission.enter(body_bytes):
            return endpoint.refuse(OVERLOADED, None)
        try:
            caller = guard.callers.find(request.fields, request.started) or await guard.caller(request)
            if isinstance(caller, Problem):
                # A flood of tokens is told once: `BadTokens` does.
                return problem_response(caller) if caller.code == _FLOOD else endpoint.refuse(caller, None)
            refused = self._refusal(caller, scope)
            if refused is not None:
                return endpoint.refuse(refused, caller)
            allowance = guard.limits.take(caller.key_id, caller.limit) if self._limited else None
            if allowance is None:
                return await endpoint.respond(caller, request)
            if not allowance.admitted:
                return with_allowance(endpoint.refuse(rate_limited(allowance), caller), allowance)
            return with_allowance(await endpoint.respond(caller, request), allowance)
        finally:
            guard.admission.leave(body_bytes)

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


class Admission:
    """How much one process takes on at a time: `max_requests` whose bodies have `max_bytes` together. What is beyond is
    refused before its body is read, so that memory stays bounded. A request keeps its place until its response is decided,
    while it waits for its outcome too."""

    def __init__(self, *, max_requests: int, max_bytes: int) -> None:
        self._max_requests = max_requests
        self.max_bytes = max(max_bytes, MAX_BODY_BYTES)
        self._requests = 0
        self._bytes = 0

    def enter(self, body_bytes: int) -> bool:
        """Take a place for a request with a body of so many bytes; False where there is none. It is kept until `leave`."""
        if self._requests >= self._max_requests or self._bytes + body_bytes > self.max_bytes:
            return False
        self._requests += 1
        self._bytes += body_bytes
        return True

    def leave(self, body_bytes: int) -> None:
        """Give a place back."""
        self._requests -= 1
        self._bytes -= body_bytes


class ItemLimit:
    """The limit of a caller's key, as one bulk meets it: each item counts as a request would. Keys without a limit meet none."""

    def __init__(self, limits: RateLimits, caller: Caller) -> None:
        self._limits = limits
        self._caller = caller
        self._allowance = limits.take(caller.key_id, caller.limit, 0)
        self._counted = False

    def used_up(self) -> Problem | None:
        """The refusal where not even one item would be let through: known before the body is read."""
        allowance = self._allowance
        if allowance is None or allowance.remaining:
            return None
        self._allowance = replace(allowance, admitted=False, retry_in=allowance.more_in)
        return rate_limited(self._allowance)

    def admit(self, items: int) -> Problem | None:
        """Let all of the items through, or none."""
        self._counted = True
        self._allowance = allowance = self._limits.take(self._caller.key_id, self._caller.limit, items)
        return None if allowance is None or allowance.admitted else rate_limited(allowance)

    def refused_whole(self) -> None:
        """It was read, and refused before its items could be counted: it costs as much as one."""
        if not self._counted:
            self.admit(1)

    def add_headers(self, response: Response) -> Response:
        """`response`, with what is left of the limit."""
        return response if self._allowance is None else with_allowance(response, self._allowance)


def rate_limited(allowance: Allowance) -> Problem:
    """The refusal where the limit of the caller's key is used up."""
    limit = allowance.limit
    return requests.RATE_LIMITED.problem(
        f"This API key may submit and cancel {limit.requests} times in {limit.seconds} seconds. Nothing was accepted. "
        f"Send the same request again in {allowance.retry_in} seconds."
    )


def with_allowance(response: Response, allowance: Allowance) -> Response:
    """`response`, and what is left of the limit; where that refuses, when to come again."""
    left = f'"{POLICY}";r={allowance.remaining};t={allowance.more_in}'
    again = () if allowance.admitted else (retry_after(allowance.retry_in),)
    return replace(
        response, headers=(*response.headers, *again, _policy(allowance.limit), (b"ratelimit", left.encode()))
    )


@functools.lru_cache(maxsize=1024)
def _policy(limit: RateLimit) -> tuple[bytes, bytes]:
    return b"ratelimit-policy", f'"{POLICY}";q={limit.requests};w={limit.seconds}'.encode()

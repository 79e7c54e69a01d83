"""What every call to the ingress passes before it is answered: a place for it, who calls, and the limit of its key."""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

from starlette.types import Receive, Scope, Send

from forwarder.http.responses import DirectEndpoint, Response
from forwarder.ingress.admission import Admission
from forwarder.ingress.parts import IngressParts
from forwarder.ingress.problems import OVERLOADED, TENANCY_UNAVAILABLE, TEST_MODE_UNAVAILABLE
from forwarder.ingress.rate_limit import rate_limited, with_allowance
from forwarder.ingress.request import Call
from forwarder.process.clock import Clock
from forwarder.reservation.problem import Problem
from forwarder.reservation.request import MAX_BODY_BYTES
from forwarder.tenancy.access import Caller, CallerCache, authenticate
from forwarder.tenancy.port import TenancyUnavailable


class Endpoint(Protocol):
    """What answers the calls to one address."""

    async def answer(self, caller: Caller, call: Call) -> Response:
        """The answer to one that was let in. Raises nothing but `ClientDisconnect`."""
        ...

    def refuse(self, problem: Problem, caller: Caller | None) -> Response:
        """The answer that refuses; `caller` where that is known."""
        ...


class Entrance:
    """One for all addresses of an ingress, which share the bounds on what is under way."""

    def __init__(self, parts: IngressParts) -> None:
        settings = parts.settings
        self._admission = Admission(most_calls=settings.most_calls, most_bytes=settings.most_bytes)
        self._directory = parts.directory
        self._callers = CallerCache(parts.directory)
        self._limits = parts.limits
        self._clock = parts.clock
        self._test_mode = settings.test_mode

    @property
    def most_bytes(self) -> int:
        """How long a body may be and still find a place."""
        return self._admission.most_bytes

    def to(self, endpoint: Endpoint, *, at_most: int = MAX_BODY_BYTES, limited: bool = True) -> DirectEndpoint:
        """The way to `endpoint`, past the framework: here every microsecond of that is one per reservation.
        `at_most`: the longest body that it reads. Unless `limited`, it minds the limits of keys itself."""
        return _Passage(self, endpoint, at_most, limited=limited, clock=self._clock)

    async def pass_through(self, endpoint: Endpoint, call: Call, at_most: int, *, limited: bool) -> Response:
        """What the call is answered."""
        with self._admission.place(call, at_most) as admitted:
            if not admitted:
                return endpoint.refuse(OVERLOADED, None)
            caller = self._callers.find(call.fields, call.started) or await self._caller(call)
            if isinstance(caller, Problem):
                return endpoint.refuse(caller, None)
            allowance = self._limits.take(caller.key_id, caller.limit) if limited else None
            if allowance is None:
                return await endpoint.answer(caller, call)
            refused = not allowance.admitted
            answer = (
                endpoint.refuse(rate_limited(allowance), caller) if refused else await endpoint.answer(caller, call)
            )
            return with_allowance(answer, allowance)

    async def _caller(self, call: Call) -> Caller | Problem:
        """Who calls, and for which integration account."""
        try:
            caller = await authenticate(self._directory, call.headers)
        except TenancyUnavailable:
            return TENANCY_UNAVAILABLE
        if isinstance(caller, Caller) and caller.account.test and not self._test_mode:
            return TEST_MODE_UNAVAILABLE
        if isinstance(caller, Caller):
            self._callers.remember(call.fields, caller)
        return caller


@dataclass(frozen=True, slots=True)
class _Passage:
    entrance: Entrance
    endpoint: Endpoint
    at_most: int
    limited: bool
    clock: Clock

    def answer(self, scope: Scope, receive: Receive) -> Awaitable[Response]:
        call = Call(scope, receive, self.clock.monotonic())
        return self.entrance.pass_through(self.endpoint, call, self.at_most, limited=self.limited)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self.answer(scope, receive)
        await answer(scope, receive, send)

"""The cancellation of a submission over HTTP, and what is counted and logged of each."""

import functools

import structlog
from prometheus_client import Counter
from starlette.types import Receive, Scope, Send

from forwarder.ingress.acceptance import Acceptance
from forwarder.ingress.admission import Admission
from forwarder.ingress.call import Call
from forwarder.ingress.cancellation import Cancellations, Requested
from forwarder.ingress.cancellation_answer import cancellation_answer
from forwarder.ingress.parts import IngressParts
from forwarder.ingress.problems import OVERLOADED, refusal
from forwarder.ingress.rate_limit import rate_limited, with_allowance
from forwarder.reservation.problem import Problem
from forwarder.runtime.http import Answer
from forwarder.runtime.metrics import SUBMISSIONS
from forwarder.tenancy.access import Caller

_log = structlog.get_logger()


class CancellationRoute:
    """As a plain ASGI application. The path names a submission by its request id, or a reservation by its id."""

    def __init__(self, admission: Admission, acceptance: Acceptance, parts: IngressParts) -> None:
        self._admission = admission
        self._acceptance = acceptance
        self._cancellations = Cancellations(parts)
        self._clock = parts.clock
        self._limits = parts.limits
        self._retry_after_seconds = parts.settings.retry_after_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = Call.of(scope, receive, self._clock.monotonic())
        with self._admission.place(call) as admitted:
            response = await self._answer(call) if admitted else self._refuse(OVERLOADED, None)
        await response(scope, receive, send)

    async def _answer(self, call: Call) -> Answer:
        caller = await self._acceptance.authenticate(call)
        if isinstance(caller, Problem):
            return self._refuse(caller, None)
        allowance = self._limits.take(caller.key_id, caller.limit)
        if allowance is None:
            return await self._request(caller, call)
        refused = not allowance.admitted
        response = self._refuse(rate_limited(allowance), caller) if refused else await self._request(caller, call)
        return with_allowance(response, allowance)

    async def _request(self, caller: Caller, call: Call) -> Answer:
        requested = await self._cancellations.request(caller, call)
        if isinstance(requested, Problem):
            return self._refuse(requested, caller)
        return self._confirm(requested, caller, call)

    def _confirm(self, requested: Requested, caller: Caller, call: Call) -> Answer:
        _answered("accepted").inc()
        settled = requested.settled
        _log.info(
            "cancellation.accepted",
            request_id=requested.request_id,
            account_id=caller.account.id,
            workspace_id=caller.workspace_id,
            key_id=caller.key_id,
            status=(requested.status if settled is None else settled.status).value,
            wait_seconds=requested.wait.seconds,
            seconds=round(self._clock.monotonic() - call.started, 6),
        )
        return cancellation_answer(requested, call.origin, self._retry_after_seconds)

    def _refuse(self, problem: Problem, caller: Caller | None) -> Answer:
        _answered(problem.code).inc()
        _log.info(
            "cancellation.refused",
            request_id=problem.request_id,
            account_id=caller and caller.account.id,
            key_id=caller and caller.key_id,
            code=problem.code,
        )
        return refusal(problem, self._retry_after_seconds)


@functools.cache
def _answered(outcome: str) -> Counter:
    return SUBMISSIONS.labels("cancel", outcome)

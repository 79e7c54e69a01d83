"""The cancellation of a submission over HTTP, and what is counted and logged of each."""

import structlog

from forwarder.http.responses import Response
from forwarder.ingress.cancel import Cancellations, Requested
from forwarder.ingress.cancel_response import cancellation_answer
from forwarder.ingress.count import answered
from forwarder.ingress.parts import IngressParts
from forwarder.ingress.problems import refusal
from forwarder.ingress.request import Call
from forwarder.reservation.problem import Problem
from forwarder.tenancy.access import Caller

_log = structlog.get_logger()


class CancellationEndpoint:
    """The path names a submission by its request id, or a reservation by its id."""

    def __init__(self, parts: IngressParts) -> None:
        self._cancellations = Cancellations(parts)
        self._clock = parts.clock
        self._retry_after_seconds = parts.settings.retry_after_seconds

    async def answer(self, caller: Caller, call: Call) -> Response:
        requested = await self._cancellations.request(caller, call)
        if isinstance(requested, Problem):
            return self.refuse(requested, caller)
        return self._confirm(requested, caller, call)

    def _confirm(self, requested: Requested, caller: Caller, call: Call) -> Response:
        answered("cancel", "accepted").inc()
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

    def refuse(self, problem: Problem, caller: Caller | None) -> Response:
        answered("cancel", problem.code).inc()
        _log.info(
            "cancellation.refused",
            request_id=problem.request_id,
            account_id=caller and caller.account.id,
            key_id=caller and caller.key_id,
            code=problem.code,
        )
        return refusal(problem, self._retry_after_seconds)

"""The ingress over HTTP: its addresses, and what is counted and logged of each submission."""

from http import HTTPStatus

import structlog
from pydantic_core import to_json
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from forwarder.ingress.acceptance import Acceptance, Accepted
from forwarder.ingress.admission import Admission
from forwarder.ingress.bulk_route import BulkRoute
from forwarder.ingress.call import Call
from forwarder.ingress.cancellation_route import CancellationRoute
from forwarder.ingress.dry_run import asks_for_dry_run
from forwarder.ingress.handover import Handover
from forwarder.ingress.parts import IngressParts
from forwarder.ingress.problems import OVERLOADED, refusal
from forwarder.ingress.rate_limit import rate_limited, with_allowance
from forwarder.ingress.receipt import answer
from forwarder.ingress.tally import answered
from forwarder.reservation.problem import Problem
from forwarder.reservation.request import Operation
from forwarder.runtime.http import NO_STORE, Answer, Routes
from forwarder.tenancy.access import Caller

_log = structlog.get_logger()


def ingress_routes(parts: IngressParts) -> Routes:
    """The routes of both operations, of bulks of them, and of cancellation. They share the bounds on what is under way, and one
    memory of recent keys."""
    settings = parts.settings
    admission = Admission(most_calls=settings.most_calls, most_bytes=settings.most_bytes)
    handover = Handover(parts)
    acceptance = Acceptance(parts, handover)
    booking_engine = _Submissions("booking-engine", admission, acceptance, parts)
    general = _Submissions("general", admission, acceptance, parts)
    return [
        Route("/api/v1/vrs/reservations/booking-engine", booking_engine, methods=["POST"]),
        Route("/api/v1/vrs/reservations", general, methods=["POST"]),
        Route("/api/v1/vrs/reservations/bulk", BulkRoute(admission, acceptance, handover, parts), methods=["POST"]),
        Route(
            "/api/v1/vrs/reservations/{id}/cancel", CancellationRoute(admission, acceptance, parts), methods=["POST"]
        ),
    ]


class _Submissions:
    """One operation, as a plain ASGI application: on this path every microsecond of framework is one per reservation."""

    def __init__(self, operation: Operation, admission: Admission, acceptance: Acceptance, parts: IngressParts) -> None:
        self._operation = operation
        self._admission = admission
        self._acceptance = acceptance
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
            return await self._accept(caller, call)
        refused = not allowance.admitted
        response = self._refuse(rate_limited(allowance), caller) if refused else await self._accept(caller, call)
        return with_allowance(response, allowance)

    async def _accept(self, caller: Caller, call: Call) -> Answer:
        trying = asks_for_dry_run(call)
        if trying:
            return self._refuse(trying, caller) if isinstance(trying, Problem) else await self._try(caller, call)
        result = await self._acceptance.accept(caller, self._operation, call)
        return self._refuse(result, caller) if isinstance(result, Problem) else self._confirm(result, caller, call)

    async def _try(self, caller: Caller, call: Call) -> Answer:
        tried = await self._acceptance.try_out(caller, self._operation, call)
        if isinstance(tried, Problem):
            return self._refuse(tried, caller)
        answered(self._operation, "dry_run").inc()
        _log.info(
            "submission.tried",
            account_id=caller.account.id,
            workspace_id=caller.workspace_id,
            key_id=caller.key_id,
            operation=self._operation,
            codes=[problem.code for problem in tried.refused],
        )
        return Answer(HTTPStatus.OK, to_json({"data": tried.as_json()}), (NO_STORE,))

    def _confirm(self, accepted: Accepted, caller: Caller, call: Call) -> Answer:
        answered(self._operation, "accepted").inc()
        receipt, submission = accepted.receipt, accepted.draft.submission
        _log.info(
            "submission.accepted",
            request_id=receipt.request_id,
            account_id=submission.account_id,
            workspace_id=submission.workspace_id,
            key_id=caller.key_id,
            operation=self._operation,
            status=receipt.status.value,
            keyed=accepted.draft.keyed,
            card=submission.card is not None,
            deadline_seconds=submission.deadline_seconds,
            wait_seconds=accepted.wait.seconds,
            seconds=round(self._clock.monotonic() - call.started, 6),
        )
        return answer(receipt, accepted.wait, call.origin, self._retry_after_seconds)

    def _refuse(self, problem: Problem, caller: Caller | None) -> Answer:
        answered(self._operation, problem.code).inc()
        _log.info(
            "submission.refused",
            request_id=problem.request_id,
            account_id=caller and caller.account.id,
            key_id=caller and caller.key_id,
            operation=self._operation,
            code=problem.code,
            faults=[(fault.pointer, fault.code) for fault in problem.faults],
        )
        return refusal(problem, self._retry_after_seconds)

"""The ingress over HTTP: its addresses, and what is counted and logged of each submission."""

from http import HTTPStatus

import structlog
from pydantic_core import to_json
from starlette.routing import Route

from forwarder.http.responses import NO_STORE, Response, Routes
from forwarder.ingress.bulk_endpoint import BulkEndpoint
from forwarder.ingress.cancel_endpoint import CancellationEndpoint
from forwarder.ingress.count import tally
from forwarder.ingress.dry_run import asks_for_dry_run
from forwarder.ingress.guard import Entrance
from forwarder.ingress.parts import IngressParts
from forwarder.ingress.problems import refusal
from forwarder.ingress.publisher import Handover
from forwarder.ingress.receipt import answer
from forwarder.ingress.request import Call
from forwarder.ingress.submit import Acceptance, Accepted
from forwarder.reservation.bulk import MOST_BULK_BYTES
from forwarder.reservation.problem import Problem
from forwarder.reservation.request import Operation
from forwarder.tenancy.access import Caller

_log = structlog.get_logger()


def ingress_routes(parts: IngressParts) -> Routes:
    """The routes of both operations, of bulks of them, and of cancellation. They share the bounds on what is under way, and one
    memory of recent keys."""
    entrance, handover = Entrance(parts), Handover(parts)
    acceptance = Acceptance(parts, handover)
    # Longer than all bodies together may be, a bulk would never find a place.
    bulks = BulkEndpoint(handover, parts, most_bytes=min(MOST_BULK_BYTES, entrance.most_bytes))
    ways = {
        "/booking-engine": entrance.to(_Submissions("booking-engine", acceptance, parts)),
        "": entrance.to(_Submissions("general", acceptance, parts)),
        "/bulk": entrance.to(bulks, at_most=bulks.most_bytes, limited=False),
        "/{id}/cancel": entrance.to(CancellationEndpoint(parts)),
    }
    return [Route(f"/api/v1/vrs/reservations{path}", way, methods=["POST"]) for path, way in ways.items()]


class _Submissions:
    """The endpoint of one operation."""

    def __init__(self, operation: Operation, acceptance: Acceptance, parts: IngressParts) -> None:
        self._operation = operation
        self._acceptance = acceptance
        self._clock = parts.clock
        self._retry_after_seconds = parts.settings.retry_after_seconds
        self._log = _log.bind()

    async def answer(self, caller: Caller, call: Call) -> Response:
        trying = asks_for_dry_run(call)
        if trying:
            return self.refuse(trying, caller) if isinstance(trying, Problem) else await self._try(caller, call)
        result = await self._acceptance.accept(caller, self._operation, call)
        return self.refuse(result, caller) if isinstance(result, Problem) else self._confirm(result, caller, call)

    async def _try(self, caller: Caller, call: Call) -> Response:
        tried = await self._acceptance.try_out(caller, self._operation, call)
        if isinstance(tried, Problem):
            return self.refuse(tried, caller)
        tally(self._operation, "dry_run")
        _log.info(
            "submission.tried",
            account_id=caller.account.id,
            workspace_id=caller.workspace_id,
            key_id=caller.key_id,
            operation=self._operation,
            codes=[problem.code for problem in tried.refused],
        )
        return Response(HTTPStatus.OK, to_json({"data": tried.as_json()}), (NO_STORE,))

    def _confirm(self, accepted: Accepted, caller: Caller, call: Call) -> Response:
        tally(self._operation, "accepted")
        receipt, draft = accepted.receipt, accepted.draft
        self._log.info(
            "submission.accepted",
            request_id=receipt.request_id,
            account_id=draft.account_id,
            workspace_id=draft.workspace_id,
            key_id=caller.key_id,
            operation=self._operation,
            status=receipt.status,
            keyed=draft.keyed,
            card=draft.card is not None,
            deadline_seconds=draft.deadline_seconds,
            wait_seconds=accepted.wait.seconds,
            seconds=round(self._clock.monotonic() - call.started, 6),
        )
        return answer(receipt, accepted.wait, call.origin, self._retry_after_seconds)

    def refuse(self, problem: Problem, caller: Caller | None) -> Response:
        tally(self._operation, problem.code)
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

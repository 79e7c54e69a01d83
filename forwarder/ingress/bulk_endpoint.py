"""Bulks over HTTP: their address's answers, and what is counted and logged of each."""

from collections import Counter
from collections.abc import Sequence
from http import HTTPStatus
from typing import assert_never

import structlog

from forwarder.http.responses import NO_STORE, Response
from forwarder.ingress.bulk import Bulks, Kept
from forwarder.ingress.bulk_response import Result, bulk_body
from forwarder.ingress.count import answered
from forwarder.ingress.dry_run import DryRun, asks_for_dry_run
from forwarder.ingress.item_limit import ItemLimit
from forwarder.ingress.parts import IngressParts
from forwarder.ingress.problems import refusal
from forwarder.ingress.publisher import Handover
from forwarder.ingress.request import Call
from forwarder.reservation.problem import Problem
from forwarder.tenancy.access import Caller

_log = structlog.get_logger()


class BulkEndpoint:
    """Reads bodies of at most `most_bytes`. Nobody waits for outcomes here: it answers as soon as all items are safe, 200 with what
    became of each; 202 would say of all that they were accepted."""

    def __init__(self, handover: Handover, parts: IngressParts, *, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._bulks = Bulks(parts, handover, most_bytes)
        self._limits = parts.limits
        self._clock = parts.clock
        self._retry_after_seconds = parts.settings.retry_after_seconds

    async def answer(self, caller: Caller, call: Call) -> Response:
        limit = ItemLimit(self._limits, caller)
        refused = limit.used_up()
        return limit.told_in(self.refuse(refused, caller) if refused else await self._take(caller, call, limit))

    async def _take(self, caller: Caller, call: Call, limit: ItemLimit) -> Response:
        trying = asks_for_dry_run(call)
        if isinstance(trying, Problem):
            return self.refuse(trying, caller)
        flow = self._bulks.try_out if trying else self._bulks.submit
        results = await flow(caller, call, limit.admit)
        if isinstance(results, Problem):
            limit.refused_whole()
            return self.refuse(results, caller)
        return self._tell(results, caller, call)

    def _tell(self, results: Sequence[Result], caller: Caller, call: Call) -> Response:
        codes = Counter(each.code for each in results if isinstance(each, Problem))
        kept = [each for each in results if isinstance(each, Kept)]
        for label, count in Counter(map(_label, results)).items():
            answered(*label).inc(count)
        _log.info(
            "bulk.answered",
            account_id=caller.account.id,
            workspace_id=caller.workspace_id,
            key_id=caller.key_id,
            items=len(results),
            accepted=len(kept),
            refused=dict(codes),
            keyed=sum(each.draft.keyed for each in kept),
            cards=sum(each.draft.card is not None for each in kept),
            seconds=round(self._clock.monotonic() - call.started, 6),
        )
        return Response(HTTPStatus.OK, bulk_body(results, call.origin), (NO_STORE,))

    def refuse(self, problem: Problem, caller: Caller | None) -> Response:
        answered("bulk", problem.code).inc()
        _log.info("bulk.refused", account_id=caller and caller.account.id, code=problem.code)
        return refusal(problem, self._retry_after_seconds)


def _label(result: Result) -> tuple[str, str]:
    match result:
        case Kept():
            return result.draft.operation, "accepted"
        case DryRun():
            return "bulk", "dry_run"
        case Problem():
            return "bulk", result.code
        case _:
            assert_never(result)

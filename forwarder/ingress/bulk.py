"""A bulk: read the terms → validate item by item → identify and seal → publish as one batch → respond item by item.

An item is read, checked and identified by the same code as a single submission, and is as safe once the response says so. A faulty
item does not affect the others. A problem of all of them refuses the bulk as a whole, and then nothing was accepted: a body that
cannot be split into items, too many items, or an unavailable log."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, assert_never
from weakref import WeakValueDictionary

import structlog

from forwarder.http.messages import JSON_BODY, NDJSON_BODY, NO_STORE, BodyFault, HttpRequest, Response, place_of
from forwarder.ingress import message, responses
from forwarder.ingress.bulk_items import Item, begins_array, elements, lines, looks_like_lines, read_element, read_line
from forwarder.ingress.message import DryRun, NewSubmission, SubmissionBuilder, Terms
from forwarder.ingress.parts import IngressParts
from forwarder.ingress.publisher import SubmissionPublisher
from forwarder.ingress.responses import CallerWarning
from forwarder.observability.metrics import submissions
from forwarder.process.loops import TimeSlice
from forwarder.reservation.checks.faults import MalformedJson
from forwarder.reservation.checks.fields import MAX_ITEMS, ItemReading
from forwarder.reservation.checks.plausibility import Plausibility, plausibility
from forwarder.reservation.problems import catalogue
from forwarder.reservation.problems.problem import Problem
from forwarder.reservation.value import json_text
from forwarder.tenancy.access import Caller
from forwarder.tenancy.limits import RateLimits, rate_limited, with_allowance

_REHEARSED_BYTES: Final = 4_096
_AN_ITEM: Final = 512
"""The costs of a rehearsed item and of any item in a time slice, in bytes."""
_ENVELOPE_BYTES: Final = 128
"""An upper bound of the response's size without its results."""
_RESULT_BYTES: Final = 1_024
"""An upper bound of a receipt with the warning `sent_again`, and of a refusal by the idempotency key or the log."""
_SIMILAR_BYTES: Final = 1_024
"""Added to that, an upper bound of naming `MAX_SIMILAR` submissions, or every field of a refusal, twice."""

_log = structlog.get_logger()


class SafeItem(NamedTuple):
    """An item that is safe on the log, and its receipt."""

    submission: NewSubmission
    receipt: responses.Receipt


class Place(NamedTuple):
    """Locates the item of a result: how many items came before it, its `line` (from 1) in NDJSON, its idempotency key."""

    before: int
    line: int | None = None
    key: str | None = None

    def as_json(self) -> dict[str, Any]:
        line = {} if self.line is None else {"line": self.line}
        return {"index": self.before, **line, **({} if self.key is None else {"idempotencyKey": self.key})}


class ItemLimit:
    """The limit of a caller's key, as one bulk meets it: each item counts as a request would. Keys without a limit meet none."""

    def __init__(self, limits: RateLimits, caller: Caller) -> None:
        self._take = partial(
            limits.take, caller.key_id, caller.limit, shared=(caller.workspace_id, caller.shared_limit)
        )
        self._allowance = self._take(0)
        self._counted = False

    def used_up(self) -> Problem | None:
        allowance = self._allowance
        if allowance is None or allowance.remaining:
            return None
        self._allowance = replace(allowance, admitted=False, retry_in=allowance.more_in)
        return rate_limited(self._allowance)

    def admit(self, items: int) -> Problem | None:
        self._counted = True
        self._allowance = allowance = self._take(items)
        return None if allowance is None or allowance.admitted else rate_limited(allowance)

    def refused_whole(self) -> None:
        """It was read, and refused before its items could be counted: it costs as much as one."""
        if not self._counted:
            self.admit(1)

    def add_headers(self, response: Response) -> Response:
        return response if self._allowance is None else with_allowance(response, self._allowance)


_Made = NewSubmission | DryRun | Problem
"""What an item became before anything was published."""
Result = SafeItem | DryRun | Problem
"""The result of an item."""


class BulkEndpoint:
    """Reads bodies of at most `max_bytes`. Does not wait for outcomes: it responds with 200 and the result of each item as soon as
    all are safe. Returns expected failures as problems; raises only `ClientDisconnect`, before anything was published."""

    parameters: Collection[str] = frozenset({message.DRY_RUN})

    def __init__(
        self, parts: IngressParts, builder: SubmissionBuilder, publisher: SubmissionPublisher, *, max_bytes: int
    ) -> None:
        self.max_bytes, self._parts, self._builder = max_bytes, parts, builder
        self._publisher = publisher
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def respond(self, caller: Caller, request: HttpRequest) -> Response:
        limit = ItemLimit(self._parts.limits, caller)
        trying = limit.used_up() or message.asks_for_dry_run(request)
        if isinstance(trying, Problem):
            return limit.add_headers(self.refuse(trying, caller))
        each = await self._each(caller, request, limit, trying=trying)
        if isinstance(each, Problem):
            limit.refused_whole()
            return limit.add_headers(self.refuse(each, caller))
        return limit.add_headers(self._confirm(*each, caller, request))

    async def _each(
        self, caller: Caller, request: HttpRequest, limit: ItemLimit, *, trying: bool
    ) -> tuple[Sequence[Result], Sequence[Place]] | Problem:
        """The result of each item, in order, and its place; or the problem that refuses the whole bulk."""
        # The terms in the headers apply to every item.
        terms = responses.KEYS_OF_ITEMS if "idempotency-key" in request.headers else message.read_terms(request)
        if isinstance(terms, Problem):
            return terms
        now = self._parts.clock.now()
        check = plausibility(now, caller.account.skipped_checks)
        alike = Counter[str]()

        async def make(read: ItemReading) -> _Made:
            item, reading = read.item, read.reading
            if trying:
                return await message.dry_run(self._builder, self._parts.preview(), caller.account, reading, check, now)
            its = terms
            if item.idempotency_key is not None or item.deadline_seconds is not None:
                its = Terms(item.idempotency_key, item.deadline_seconds or terms.deadline_seconds, terms.trace)
            built = self._builder.build(caller, item.operation, reading, its, check, now)
            return built if isinstance(built, Problem) else self._builder.nth(built, alike)

        items = await self._items(request, check)
        if isinstance(items, Problem):
            return items
        # One bulk of a workspace at a time, so that a workspace with many bulks gets no larger share of the event loop.
        async with self._turns.setdefault(caller.workspace_id, asyncio.Lock()):
            made = await self._made(items, make, self._parts.settings.public_url or request.origin)
        if isinstance(made, Problem):
            return made
        results, places, response_bytes = made
        place = place_of(request.scope)
        if place is not None and not place.hold_response(response_bytes, refusable=True):
            return responses.OVERLOADED
        if (refused := limit.admit(len(results))) is not None:
            return refused
        new = [each for each in results if isinstance(each, NewSubmission)]
        receipts = await self._publisher.publish_all(caller.account.id, new) if new else ()
        if isinstance(receipts, Problem):
            return receipts
        published = iter(receipts)
        answered: list[Result] = []
        for each in results:
            if isinstance(each, NewSubmission):
                receipt = next(published)
                answered.append(receipt if isinstance(receipt, Problem) else SafeItem(each, receipt))
            else:
                answered.append(each)
        return answered, places

    async def _items(self, request: HttpRequest, check: Plausibility) -> Iterator[Item | None] | Problem:
        """The items, each read when it is asked for; None to let others work. Going through them raises `MalformedJson`."""
        array = request.is_sent_as(JSON_BODY)
        if not array and not request.is_sent_as(NDJSON_BODY):
            return request.with_media_type(responses.BULK_MEDIA_TYPE)
        body = await request.body(self.max_bytes, self._parts.settings.body_seconds)
        if isinstance(body, BodyFault):
            too_large = f"The body of a bulk must have at most {self.max_bytes} bytes. Send fewer items at once."
            refused = {**responses.UNREAD_BODY, BodyFault.TOO_LARGE: catalogue.BODY_TOO_LARGE.problem(too_large)}
            return refused[body]
        if array and not begins_array(body):
            return responses.NDJSON_AS_JSON if looks_like_lines(body) else responses.NOT_AN_ARRAY
        if array:
            return elements(body, partial(read_element, check=check))
        return map(partial(read_line, check=check), lines(body))

    async def _made(
        self, items: Iterator[Item | None], make: Callable[[ItemReading], Awaitable[_Made]], origin: str
    ) -> tuple[list[_Made], list[Place], int] | Problem:
        """What each item becomes, its place, and an upper bound of the response's size."""
        made: list[_Made] = []
        places: list[Place] = []
        response_bytes = _ENVELOPE_BYTES
        time_slice = TimeSlice()
        try:
            for item in items:
                if item is None:
                    await time_slice.spend()
                    continue
                if len(made) == MAX_ITEMS:
                    return responses.INVALID_BULK_SIZE
                places.append(Place(len(made), item.line, item.key))
                made.append(item.read if isinstance(item.read, Problem) else await make(item.read))
                response_bytes += _result_bytes(made[-1], places[-1], origin)
                cost = _REHEARSED_BYTES if isinstance(made[-1], DryRun) else 0
                await time_slice.spend(_AN_ITEM + item.size + cost)
        except MalformedJson as error:
            return responses.malformed_json(f"at item {len(made) + 1}: {error}")
        return (made, places, response_bytes) if made else responses.INVALID_BULK_SIZE

    def _confirm(
        self, results: Sequence[Result], places: Sequence[Place], caller: Caller, request: HttpRequest
    ) -> Response:
        body = bulk_body(results, places, self._parts.settings.public_url or request.origin)
        safe = [result for result in results if isinstance(result, SafeItem)]
        place = place_of(request.scope)
        if not safe and place is not None and not place.hold_response(len(body), refusable=True):
            return self.refuse(responses.OVERLOADED, caller)
        for result in results:
            match result:
                case SafeItem():
                    submissions(result.submission.operation, "accepted").inc()
                case DryRun():
                    submissions("bulk", "dry_run").inc()
                case Problem():
                    submissions("bulk", result.code).inc()
                case _:
                    assert_never(result)
        _log.info(
            "bulk.answered",
            account_id=caller.account.id,
            workspace_id=caller.workspace_id,
            key_id=caller.key_id,
            items=len(results),
            accepted=len(safe),
            refused=dict(Counter(result.code for result in results if isinstance(result, Problem))),
            keyed=sum(item.submission.keyed for item in safe),
            cards=sum(item.submission.card is not None for item in safe),
            seconds=round(self._parts.clock.monotonic() - request.started, 6),
        )
        return Response(200, body, (NO_STORE,))

    def refuse(self, problem: Problem, caller: Caller | None) -> Response:
        submissions("bulk", problem.code).inc()
        _log.info("bulk.refused", account_id=caller and caller.account.id, code=problem.code)
        return responses.refusal(problem, self._parts.settings.retry_after_seconds)


def _result_bytes(made: _Made, place: Place, origin: str) -> int:
    """An upper bound of the bytes of an item's result. They are held before anything is accepted, because a client may leave the
    response unread. Without the requests of a dry run: its response can still be refused."""
    size = len(json_text(place.as_json()))
    match made:
        case Problem():
            links = 2 * len(origin)  # which the server adds, see `PUBLIC_URL`
            return size + links + len(json_text({"success": False, "problem": made.as_json()}))
        case DryRun():
            size += _RESULT_BYTES
        case NewSubmission():
            size += _RESULT_BYTES + len(json_text(origin)) + (0 if made.natural is None else _SIMILAR_BYTES)
            size += 0 if made.refused is None else len(json_text(made.refused.as_json()))
        case _:
            assert_never(made)
    return size + (len(json_text(_as_json(made.warnings))) if made.warnings else 0)


def bulk_body(results: Sequence[Result], places: Sequence[Place], origin: str) -> bytes:
    """The receipt, dry run or problem of each item; and of each, and of all together, whether it is a success."""
    data: list[dict[str, Any]] = []
    accepted = refused = 0
    keyed: set[str] = set()  # the request ids of the items with a key so far
    for place, result in zip(places, results, strict=True):
        shown = place.as_json()
        match result:
            case SafeItem(submission, receipt):
                accepted += 1
                shown |= {"success": receipt.status.success, **responses.receipt_json(receipt, origin)}
                if warnings := (*submission.warnings, *responses.receipt_warnings(receipt)):
                    shown["warnings"] = _as_json(warnings)
                if place.key is not None:
                    # Its key was used before, be it by an earlier item of this bulk.
                    if receipt.replayed or submission.request_id in keyed:
                        shown["idempotentReplayed"] = True
                    keyed.add(submission.request_id)
            case DryRun():
                shown |= {"success": result.success, **result.as_json()}
            case Problem():
                refused += 1
                shown |= {"success": False, "problem": result.as_json()}
            case _:
                assert_never(result)
        data.append(shown)
    success = all(shown["success"] for shown in data)
    return json_text({"success": success, "data": {"accepted": accepted, "refused": refused, "results": data}})


def _as_json(warnings: Sequence[CallerWarning]) -> list[dict[str, str]]:
    return [warning.as_json() for warning in warnings]

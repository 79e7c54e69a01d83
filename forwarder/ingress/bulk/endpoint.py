"""A bulk: read the terms → validate item by item → identify and seal → publish as one batch → respond item by item.

An item is read, checked and identified by the same code as a single submission, and is as safe once the response says so. A faulty
item does not affect the others. A problem of all of them refuses the bulk as a whole, and then nothing was accepted: a body that
cannot be split into items, too many items, or an unavailable log.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import structlog

from forwarder.http.admission import place_of
from forwarder.http.messages import JSON_BODY, NDJSON_BODY, NO_STORE, BodyFault, HttpRequest, Response
from forwarder.ingress.bulk.items import Item, begins_array, elements, lines, looks_like_lines, read_element, read_line
from forwarder.ingress.bulk.results import (
    ENVELOPE_BYTES,
    Place,
    Result,
    SafeItem,
    bulk_body,
    label_of,
    result_bytes,
)
from forwarder.ingress.card_text import CardTextCheck
from forwarder.ingress.dry_run import DRY_RUN, DryRun, asks_for_dry_run, dry_run, rehearsed
from forwarder.ingress.guard import ItemLimit
from forwarder.ingress.losses import Losses
from forwarder.ingress.message import NewSubmission, SubmissionBuilder, Terms, read_terms
from forwarder.ingress.parts import IngressParts
from forwarder.ingress.problems import (
    BULK_MEDIA_TYPE,
    INVALID_BULK_SIZE,
    KEYS_OF_ITEMS,
    NDJSON_AS_JSON,
    NOT_AN_ARRAY,
    OVERLOADED,
    bulk_too_large,
    implausible,
    malformed_json,
    refusal,
    unread_body,
)
from forwarder.ingress.publish.idempotency import Receipt
from forwarder.ingress.publish.publisher import SubmissionPublisher
from forwarder.observability.metrics import submissions
from forwarder.process.loops import TimeSlice, yield_to_loop
from forwarder.reservation.bulk import MAX_ITEMS, BulkItem, ItemReading
from forwarder.reservation.checks.faults import MalformedJson
from forwarder.reservation.checks.plausibility import Plausibility, plausibility
from forwarder.reservation.problems.problem import Problem
from forwarder.tenancy.access import Caller

_REHEARSED_BYTES: Final = 4_096
"""The cost of a rehearsed item in a time slice, in bytes."""

_log = structlog.get_logger()

T = TypeVar("T", NewSubmission, DryRun)
R_co = TypeVar("R_co", covariant=True)

Admit = Callable[[int], Problem | None]
"""Admits that many items (None), or returns the refusal."""

_AN_ITEM: Final = 512
"""The minimum cost of an item in a time slice, in bytes."""


class _Each(NamedTuple, Generic[R_co]):
    """The result of each item, and its place in the request. `response_bytes`: an upper bound of the response's size."""

    results: Sequence[R_co]
    places: Sequence[Place]
    response_bytes: int = 0


class BulkEndpoint:
    """Reads bodies of at most `max_bytes`. Does not wait for outcomes: it responds as soon as all items are safe, with 200 and the
    result of each; 202 would say that all were accepted. Returns expected failures as problems; raises only `ClientDisconnect`,
    before anything was published."""

    parameters: Collection[str] = frozenset({DRY_RUN})

    def __init__(self, parts: IngressParts, publisher: SubmissionPublisher, *, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._card_text = CardTextCheck(parts.settings.card_numbers_in_text)
        self._builder = SubmissionBuilder(parts.ids, parts.sealer, self._card_text, parts.partition)
        self._publisher = publisher
        self._limits = parts.limits
        self._clock = parts.clock
        self._settings = parts.settings
        self._preview = parts.preview
        self._losses = Losses(parts.preview)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def respond(self, caller: Caller, request: HttpRequest) -> Response:
        limit = ItemLimit(self._limits, caller)
        refused = limit.used_up()
        response = self.refuse(refused, caller) if refused else await self._respond(caller, request, limit)
        return limit.add_headers(response)

    async def _respond(self, caller: Caller, request: HttpRequest, limit: ItemLimit) -> Response:
        trying = asks_for_dry_run(request)
        if isinstance(trying, Problem):
            return self.refuse(trying, caller)
        flow = self._try_out if trying else self._submit
        each = await flow(caller, request, limit.admit)
        if isinstance(each, Problem):
            limit.refused_whole()
            return self.refuse(each, caller)
        return self._confirm(each, caller, request)

    async def _submit(self, caller: Caller, request: HttpRequest, admit: Admit) -> _Each[SafeItem | Problem] | Problem:
        """The result of each item, in order; or the problem that refuses the whole bulk."""
        terms = _terms(request)
        if isinstance(terms, Problem):
            return terms

        now = self._clock.now()
        check = plausibility(now, caller.account.skipped_checks)
        alike = Counter[str]()

        def build(read: ItemReading) -> NewSubmission | Problem:
            item, reservation = read.item, read.reading.request
            refused = implausible(check, reservation)
            its = _terms_of(item, terms)
            built = self._builder.build(caller, item.operation, reservation, its, now=now, refused=refused)
            if isinstance(built, Problem):
                return built
            built = self._builder.nth(built, alike)
            warnings = self._losses.warnings(caller.account, read.reading)
            return built._replace(warnings=(*built.warnings, *warnings)) if warnings else built

        built = await self._each(caller, request, admit, check, build)
        if isinstance(built, Problem):
            return built
        new = [each for each in built.results if isinstance(each, NewSubmission)]
        receipts = await self._publisher.publish_all(caller.account.id, new)
        if isinstance(receipts, Problem):
            return receipts
        published = iter(receipts)
        safe = [each if isinstance(each, Problem) else _safe(each, next(published)) for each in built.results]
        return _Each(safe, built.places)

    async def _try_out(self, caller: Caller, request: HttpRequest, admit: Admit) -> _Each[DryRun | Problem] | Problem:
        """The dry run of each item, in order; or the problem that refuses the whole bulk."""
        terms = _terms(request)
        if isinstance(terms, Problem):
            return terms
        now = self._clock.now()
        check = plausibility(now, caller.account.skipped_checks)

        def try_out(read: ItemReading) -> DryRun | Problem:
            refused = implausible(check, read.reading.request)
            return refused or dry_run(caller.account, read.reading, now, self._losses, self._card_text)

        tried = await self._each(caller, request, admit, check, try_out)
        if isinstance(tried, Problem):
            return tried
        preview, time_slice = self._preview(), TimeSlice()
        results: list[DryRun | Problem] = []
        for each in tried.results:
            results.append(each if isinstance(each, Problem) else await rehearsed(each, preview))
            if time_slice.used_up(_REHEARSED_BYTES):
                await yield_to_loop()
        return _Each(results, tried.places)

    async def _each(
        self,
        caller: Caller,
        request: HttpRequest,
        admit: Admit,
        check: Plausibility,
        make: Callable[[ItemReading], T | Problem],
    ) -> _Each[T | Problem] | Problem:
        """Applies `make` to each item, one bulk of a workspace at a time, so that a workspace with many bulks gets no larger share
        of the event loop."""
        items = await self._items(request, check)
        if isinstance(items, Problem):
            return items
        turn = self._turns.setdefault(caller.workspace_id, asyncio.Lock())
        async with turn:
            each = await self._made(items, make, self._origin(request))
        if isinstance(each, Problem):
            return each
        place = place_of(request.scope)
        if place is not None and not place.hold_response(each.response_bytes, refusable=True):
            return OVERLOADED
        return admit(len(each.results)) or each

    async def _made(
        self, items: Iterator[Item | None], make: Callable[[ItemReading], T | Problem], origin: str
    ) -> _Each[T | Problem] | Problem:
        made: list[T | Problem] = []
        places: list[Place] = []
        response_bytes = ENVELOPE_BYTES
        time_slice = TimeSlice()
        try:
            for item in items:
                if item is None:
                    await yield_to_loop()
                    continue
                if len(made) == MAX_ITEMS:
                    return INVALID_BULK_SIZE
                places.append(Place(len(made), item.line, item.key))
                made.append(item.read if isinstance(item.read, Problem) else make(item.read))
                response_bytes += result_bytes(made[-1], places[-1], origin)
                if time_slice.used_up(_AN_ITEM + item.size):
                    await yield_to_loop()
        except MalformedJson as error:
            return malformed_json(f"at item {len(made) + 1}: {error}")
        return _Each(made, places, response_bytes) if made else INVALID_BULK_SIZE

    async def _items(self, request: HttpRequest, check: Plausibility) -> Iterator[Item | None] | Problem:
        """The items, each read when it is asked for; None to let others work. Going through them raises `MalformedJson`."""
        array = request.is_sent_as(JSON_BODY)
        if not array and not request.is_sent_as(NDJSON_BODY):
            return request.with_media_type(BULK_MEDIA_TYPE)
        body = await request.body(self.max_bytes, self._settings.body_seconds)
        if isinstance(body, BodyFault):
            return unread_body(body, bulk_too_large(self.max_bytes))
        if array and not begins_array(body):
            return NDJSON_AS_JSON if looks_like_lines(body) else NOT_AN_ARRAY
        if array:
            return elements(body, partial(read_element, check=check))
        return map(partial(read_line, check=check), lines(body))

    def _confirm(self, each: _Each[Result], caller: Caller, request: HttpRequest) -> Response:
        results = each.results
        body = bulk_body(results, each.places, self._origin(request))
        safe = [result for result in results if isinstance(result, SafeItem)]
        place = place_of(request.scope)
        if not safe and place is not None and not place.hold_response(len(body), refusable=True):
            return self.refuse(OVERLOADED, caller)
        codes = Counter(result.code for result in results if isinstance(result, Problem))
        for label, count in Counter(map(label_of, results)).items():
            submissions(*label).inc(count)
        _log.info(
            "bulk.answered",
            account_id=caller.account.id,
            workspace_id=caller.workspace_id,
            key_id=caller.key_id,
            items=len(results),
            accepted=len(safe),
            refused=dict(codes),
            keyed=sum(item.submission.keyed for item in safe),
            cards=sum(item.submission.card is not None for item in safe),
            seconds=round(self._clock.monotonic() - request.started, 6),
        )
        return Response(200, body, (NO_STORE,))

    def _origin(self, request: HttpRequest) -> str:
        return self._settings.public_url or request.origin

    def refuse(self, problem: Problem, caller: Caller | None) -> Response:
        submissions("bulk", problem.code).inc()
        _log.info("bulk.refused", account_id=caller and caller.account.id, code=problem.code)
        return refusal(problem, self._settings.retry_after_seconds)


def _terms(request: HttpRequest) -> Terms | Problem:
    """The terms in the headers, which apply to every item."""
    return KEYS_OF_ITEMS if "idempotency-key" in request.headers else read_terms(request)


def _terms_of(item: BulkItem, terms: Terms) -> Terms:
    if item.idempotency_key is None and item.deadline_seconds is None:
        return terms  # which have no key, see `_terms`
    return Terms(item.idempotency_key, item.deadline_seconds or terms.deadline_seconds, terms.trace)


def _safe(submission: NewSubmission, receipt: Receipt | Problem) -> SafeItem | Problem:
    return receipt if isinstance(receipt, Problem) else SafeItem(submission, receipt)

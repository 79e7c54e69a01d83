"""A bulk: read the terms → validate item by item → identify and seal → publish as one batch → respond item by item.

An item is what a single submission is: read, checked and identified by the same code, and as safe once the response says so. No
item's fault concerns another. What concerns all is refused as a whole, and then nothing was accepted: a body that cannot be told
apart into items, too many of them, or no log to take them.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar, assert_never

import structlog
from pydantic_core import from_json, to_json

from forwarder.http.messages import JSON_BODY, NDJSON_BODY, NO_STORE, BodyFault, HttpRequest, Response
from forwarder.ingress.bulk_items import begins_array, elements, lines, looks_like_lines
from forwarder.ingress.card_text import CardTextCheck
from forwarder.ingress.dry_run import DRY_RUN, DryRun, asks_for_dry_run, dry_run, rehearsed
from forwarder.ingress.guard import ItemLimit
from forwarder.ingress.losses import Losses
from forwarder.ingress.message import NewSubmission, SubmissionBuilder, Terms, read_terms
from forwarder.ingress.parts import IngressParts
from forwarder.ingress.problems import (
    BULK_MEDIA_TYPE,
    INVALID_BULK_SIZE,
    ITEM_TOO_LARGE,
    KEYS_OF_ITEMS,
    NDJSON_AS_JSON,
    NOT_AN_ARRAY,
    bulk_too_large,
    implausible,
    invalid_item,
    malformed_json,
    refusal,
    unread_body,
    validation_failed,
)
from forwarder.ingress.publish.idempotency import Receipt
from forwarder.ingress.publish.publisher import SubmissionPublisher
from forwarder.ingress.receipts import receipt_json
from forwarder.observability.metrics import submissions
from forwarder.process.loops import TimeSlice, yield_to_loop
from forwarder.reservation.bulk import MAX_ITEM_BYTES, MAX_ITEMS, RESERVATION, BulkItem, ItemReading, read_item
from forwarder.reservation.checks.card_numbers import find
from forwarder.reservation.checks.fields import MalformedJson, Reading
from forwarder.reservation.checks.plausibility import Plausibility, plausibility
from forwarder.reservation.problems.problem import Fault, Problem
from forwarder.tenancy.callers import Caller

_REHEARSED_BYTES: Final = 4_096
"""What a rehearsed item counts for in a time slice."""

_log = structlog.get_logger()

T = TypeVar("T", NewSubmission, DryRun)
R_co = TypeVar("R_co", covariant=True)

Admit = Callable[[int], Problem | None]
"""Whether so many items may come now; the refusal where they may not."""

_MAX_KEY: Final = 255
_AN_ITEM: Final = 512
"""What an item costs, however short it is, in the bytes of a time slice."""


class SafeItem(NamedTuple):
    """An item that is safe on the log, and its receipt."""

    submission: NewSubmission
    receipt: Receipt


Result = SafeItem | DryRun | Problem


class Place(NamedTuple):
    """By which a caller finds the item of a result: how many came before it, its `line` from 1 on where it came on one, and the key
    that it was sent with."""

    before: int
    line: int | None = None
    key: str | None = None

    def as_json(self) -> dict[str, Any]:
        line = {} if self.line is None else {"line": self.line}
        return {"index": self.before, **line, **({} if self.key is None else {"idempotencyKey": self.key})}


class _Item(NamedTuple):
    """What a text was read as, how many bytes it has, the key in it, and its line."""

    read: ItemReading | Problem
    size: int
    key: str | None = None
    line: int | None = None


class _Each(NamedTuple, Generic[R_co]):
    """What became of each item, and where it stood."""

    results: Sequence[R_co]
    places: Sequence[Place]


class BulkEndpoint:
    """Reads bodies of at most `max_bytes`. Nobody waits for outcomes here: it responds as soon as all items are safe, 200 with what
    became of each; 202 would say of all that they were accepted. Expected failures come back as problems; none is raised but
    `ClientDisconnect`, before anything was published."""

    parameters: Collection[str] = frozenset({DRY_RUN})

    def __init__(self, parts: IngressParts, publisher: SubmissionPublisher, *, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._card_text = CardTextCheck(parts.settings.card_numbers_in_text)
        self._builder = SubmissionBuilder(parts.ids, parts.sealer, self._card_text)
        self._publisher = publisher
        self._limits = parts.limits
        self._clock = parts.clock
        self._settings = parts.settings
        self._preview = parts.preview
        self._losses = Losses(parts.preview)

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
        """What became of each item, in their order; or the problem that concerns all of them."""
        terms = _terms(request)
        if isinstance(terms, Problem):
            return terms

        now = self._clock.now()
        check = plausibility(now, caller.account.skipped_checks)

        def build(read: ItemReading) -> NewSubmission | Problem:
            item = read.item
            refused = implausible(check, item.reservation)
            its = _terms_of(item, terms)
            built = self._builder.build(caller, item.operation, item.reservation, its, now=now, refused=refused)
            if isinstance(built, Problem):
                return built
            warnings = self._losses.warnings(caller.account, item.reservation, read.unknown)
            return built._replace(warnings=warnings) if warnings else built

        built = await self._each(request, admit, check, build)
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
        """What would come of each item, were the bulk submitted."""
        terms = _terms(request)
        if isinstance(terms, Problem):
            return terms
        now = self._clock.now()
        check = plausibility(now, caller.account.skipped_checks)

        def try_out(read: ItemReading) -> DryRun | Problem:
            refused = implausible(check, read.item.reservation)
            reading = Reading(read.item.reservation, read.unknown)
            return refused or dry_run(caller.account, reading, now, self._losses, self._card_text)

        tried = await self._each(request, admit, check, try_out)
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
        self, request: HttpRequest, admit: Admit, check: Plausibility, make: Callable[[ItemReading], T | Problem]
    ) -> _Each[T | Problem] | Problem:
        items = await self._items(request, check)
        if isinstance(items, Problem):
            return items
        made: list[T | Problem] = []
        places: list[Place] = []
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
                if time_slice.used_up(_AN_ITEM + item.size):
                    await yield_to_loop()
        except MalformedJson as error:
            return malformed_json(f"at item {len(made) + 1}: {error}")
        return (admit(len(made)) or _Each(made, places)) if made else INVALID_BULK_SIZE

    async def _items(self, request: HttpRequest, check: Plausibility) -> Iterator[_Item | None] | Problem:
        """The items, each read when it is asked for; None to let others work. Going through them raises `MalformedJson`."""
        array = request.is_sent_as(JSON_BODY)
        if not array and not request.is_sent_as(NDJSON_BODY):
            return BULK_MEDIA_TYPE
        body = await request.body(self.max_bytes, self._settings.body_seconds)
        if isinstance(body, BodyFault):
            return unread_body(body, bulk_too_large(self.max_bytes))
        if array and not begins_array(body):
            return NDJSON_AS_JSON if looks_like_lines(body) else NOT_AN_ARRAY
        if array:
            return elements(body, partial(_read, check=check))
        return map(partial(_read_line, check=check), lines(body))

    def _confirm(self, each: _Each[Result], caller: Caller, request: HttpRequest) -> Response:
        results = each.results
        codes = Counter(result.code for result in results if isinstance(result, Problem))
        safe = [result for result in results if isinstance(result, SafeItem)]
        for label, count in Counter(map(_label, results)).items():
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
        origin = self._settings.public_url or request.origin
        return Response(200, bulk_body(results, each.places, origin), (NO_STORE,))

    def refuse(self, problem: Problem, caller: Caller | None) -> Response:
        submissions("bulk", problem.code).inc()
        _log.info("bulk.refused", account_id=caller and caller.account.id, code=problem.code)
        return refusal(problem, self._settings.retry_after_seconds)


def _terms(request: HttpRequest) -> Terms | Problem:
    """What the headers ask for on behalf of every item."""
    return KEYS_OF_ITEMS if "idempotency-key" in request.headers else read_terms(request)


def _terms_of(item: BulkItem, terms: Terms) -> Terms:
    if item.idempotency_key is None and item.deadline_seconds is None:
        return terms  # which have no key, see `_terms`
    return Terms(item.idempotency_key, item.deadline_seconds or terms.deadline_seconds, terms.trace)


def _read(text: bytes, check: Plausibility) -> _Item:
    """An element of an array. Raises `MalformedJson`: that spoils the whole document."""
    size = len(text)
    if size > MAX_ITEM_BYTES:
        return _Item(ITEM_TOO_LARGE, size)
    read = read_item(text, check)
    if isinstance(read, list):
        return _Item(_refused(read), size, _key_in(text))
    return _Item(read, size, read.item.idempotency_key)


def _key_in(text: bytes) -> str | None:
    """The key of an item that is refused, which may be anything: a card number is not sent back."""
    item = from_json(text)
    key = item.get("idempotencyKey") if isinstance(item, dict) else None
    return key if isinstance(key, str) and len(key) <= _MAX_KEY and not find(key) else None


def _read_line(line: tuple[int, bytes], check: Plausibility) -> _Item:
    """A line of NDJSON: a document of its own."""
    number, text = line
    try:
        return _read(text, check)._replace(line=number)
    except MalformedJson as error:
        return _Item(malformed_json(str(error), f"line {number}"), len(text), line=number)


def _refused(faults: Sequence[Fault]) -> Problem:
    """The single operation's own words, where the reservation alone is at fault."""
    inside = f"{RESERVATION}/"
    if not all(fault.pointer.startswith(inside) for fault in faults):
        return invalid_item(faults)
    return validation_failed([replace(fault, pointer=fault.pointer.removeprefix(RESERVATION)) for fault in faults])


def _safe(submission: NewSubmission, receipt: Receipt | Problem) -> SafeItem | Problem:
    return receipt if isinstance(receipt, Problem) else SafeItem(submission, receipt)


def _label(result: Result) -> tuple[str, str]:
    match result:
        case SafeItem():
            return result.submission.operation, "accepted"
        case DryRun():
            return "bulk", "dry_run"
        case Problem():
            return "bulk", result.code
        case _:
            assert_never(result)


def bulk_body(results: Sequence[Result], places: Sequence[Place], origin: str) -> bytes:
    """The receipt of each item that is safe, the dry run of each that was tried, the problem of each that was refused; and of each,
    and of all together, whether it is a success."""
    shown = [{**place.as_json(), **_shown(result, origin)} for place, result in zip(places, results, strict=True)]
    data = {
        "accepted": sum(isinstance(result, SafeItem) for result in results),
        "refused": sum(isinstance(result, Problem) for result in results),
        "results": shown,
    }
    return to_json({"success": all(result["success"] for result in shown), "data": data})


def _shown(result: Result, origin: str) -> dict[str, Any]:
    match result:
        case SafeItem():
            shown = {"success": result.receipt.status.success, **receipt_json(result.receipt, origin)}
            warnings = [warning.as_json() for warning in result.submission.warnings]
            return {**shown, "warnings": warnings} if warnings else shown
        case DryRun():
            return {"success": result.success, **result.as_json()}
        case Problem():
            return {"success": False, "problem": result.as_json()}
        case _:
            assert_never(result)

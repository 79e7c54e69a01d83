"""A bulk: read the terms → validate item by item → identify and seal → publish as one batch → respond item by item.

An item is read, checked and identified by the same code as a single submission, and is as safe once the response says so. A faulty
item does not affect the others. A problem of all of them refuses the bulk as a whole, and then nothing was accepted: a body that
cannot be split into items, too many items, or an unavailable log. The end of an array's element is guessed, and the guess is right
if the reader accepts the text as JSON; else brackets and quotes are counted. A body of any size needs no memory beyond its own."""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, assert_never
from weakref import WeakValueDictionary

import structlog
from pydantic_core import from_json

from forwarder.http.messages import JSON_BODY, NDJSON_BODY, NO_STORE, BodyFault, HttpRequest, Response, place_of
from forwarder.ingress import message, responses
from forwarder.ingress.message import DryRun, IngressParts, NewSubmission, SubmissionBuilder, Terms
from forwarder.ingress.publisher import SubmissionPublisher
from forwarder.ingress.responses import Receipt, malformed_json, receipt_json, receipt_warnings, validation_failed
from forwarder.observability.metrics import submissions
from forwarder.process.loops import TimeSlice
from forwarder.reservation import problems as catalogue
from forwarder.reservation.checks.card_numbers import find, may_hold
from forwarder.reservation.checks.faults import MalformedJson
from forwarder.reservation.checks.fields import (
    MAX_ITEM_BYTES,
    MAX_ITEMS,
    RESERVATION,
    ItemReading,
    Plausibility,
    plausibility,
    read_item,
)
from forwarder.reservation.fast import json_text
from forwarder.reservation.problems import FieldFault, Problem, summary_of
from forwarder.tenancy.access import Caller, RateLimits, rate_limited, with_allowance

_RESULT_BYTES: Final = 1_024
"""An upper bound of a receipt with the warning `sent_again`, and of a refusal by the idempotency key or the log; and of what naming
`MAX_SIMILAR` submissions, or every field of a refusal, twice adds to that."""

_log = structlog.get_logger()


class SafeItem(NamedTuple):
    """An item that is safe on the log, and its receipt."""

    submission: NewSubmission
    receipt: Receipt


class Place(NamedTuple):
    """Locates the item of a result: how many items came before it, its `line` (from 1) in NDJSON, its idempotency key."""

    before: int
    line: int | None = None
    key: str | None = None

    def as_json(self) -> dict[str, Any]:
        line = {} if self.line is None else {"line": self.line}
        return {"index": self.before, **line, **({} if self.key is None else {"idempotencyKey": self.key})}


class Item(NamedTuple):
    """A read item: the reading or the problem, its size in bytes, its idempotency key, and its line."""

    read: ItemReading | Problem
    size: int
    key: str | None = None
    line: int | None = None


class ItemLimit:
    """The limit of a caller's key, as one bulk meets it: each item counts as a request would. Keys without a limit meet none."""

    def __init__(self, limits: RateLimits, caller: Caller) -> None:
        shared = caller.workspace_id, caller.shared_limit
        self._take = partial(limits.take, caller.key_id, caller.limit, shared=shared)
        self._allowance = self._take(0)
        self.counted = False

    def used_up(self) -> Problem | None:
        allowance = self._allowance
        if allowance is None or allowance.remaining:
            return None
        self._allowance = replace(allowance, admitted=False, retry_in=allowance.more_in)
        return rate_limited(self._allowance)

    def admit(self, items: int) -> Problem | None:
        self.counted = True
        self._allowance = allowance = self._take(items)
        return None if allowance is None or allowance.admitted else rate_limited(allowance)

    def add_headers(self, response: Response) -> Response:
        return response if self._allowance is None else with_allowance(response, self._allowance)


_Made = NewSubmission | DryRun | Problem  # what an item became before anything was published
Result = SafeItem | DryRun | Problem


class BulkEndpoint:
    """Reads bodies of at most `max_bytes`. Does not wait for outcomes: it responds with 200 and the result of each item as soon as
    all are safe. Returns expected failures as problems; raises only `ClientDisconnect`, before anything was published."""

    parameters: Collection[str] = frozenset({message.DRY_RUN})

    def __init__(
        self, parts: IngressParts, builder: SubmissionBuilder, publisher: SubmissionPublisher, *, max_bytes: int
    ) -> None:
        self.max_bytes, self._parts, self._builder, self._publisher = max_bytes, parts, builder, publisher
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def respond(self, caller: Caller, request: HttpRequest) -> Response:
        limit = ItemLimit(self._parts.limits, caller)
        trying = limit.used_up() or message.asks_for_dry_run(request)
        if isinstance(trying, Problem):
            return limit.add_headers(self.refuse(trying, caller))
        each = await self._each(caller, request, limit, trying=trying)
        if isinstance(each, Problem):
            if not limit.counted:
                limit.admit(1)  # it was read, and refused before its items could be counted: it costs as much as one
            return limit.add_headers(self.refuse(each, caller))
        return limit.add_headers(self._confirm(*each, caller, request))

    async def _each(
        self, caller: Caller, request: HttpRequest, limit: ItemLimit, *, trying: bool
    ) -> tuple[Sequence[Result], Sequence[Place]] | Problem:
        """The result of each item, in order, and its place; or the problem that refuses the whole bulk."""
        # The terms in the headers apply to every item.
        if "idempotency-key" in request.headers:
            return catalogue.INVALID_KEY.problem(
                "A bulk takes no Idempotency-Key header: each of its items has its own, as idempotencyKey. Nothing was accepted."
            )
        terms = message.read_terms(request)
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
        published = iter(
            [one if isinstance(one, Problem) else SafeItem(each, one) for each, one in zip(new, receipts, strict=True)]
        )
        return [next(published) if isinstance(each, NewSubmission) else each for each in results], places

    async def _items(self, request: HttpRequest, check: Plausibility) -> Iterator[Item | None] | Problem:
        """The items, each read when it is asked for; None to let others work. Going through them raises `MalformedJson`."""
        array = request.is_sent_as(JSON_BODY)
        if not array and not request.is_sent_as(NDJSON_BODY):
            return request.with_media_type(
                catalogue.UNSUPPORTED_MEDIA_TYPE.problem(
                    "The body must be a JSON array sent with Content-Type: application/json, or lines of JSON sent with "
                    "Content-Type: application/x-ndjson; in UTF-8 and not compressed."
                )
            )
        body = await request.body(self.max_bytes, self._parts.settings.body_seconds)
        if isinstance(body, BodyFault):
            too_large = f"The body of a bulk must have at most {self.max_bytes} bytes. Send fewer items at once."
            fits = body is not BodyFault.TOO_LARGE
            return responses.UNREAD_BODY[body] if fits else catalogue.BODY_TOO_LARGE.problem(too_large)
        if not array:
            return map(partial(read_line, check=check), lines(body))
        if begins_array(body):
            return elements(body, partial(read_element, check=check))
        # NDJSON: several objects, one per line?
        if re.match(rb"[ \t\r\n]*\{[^\n]*\}[ \t\r]*\n[ \t\r\n]*\{", body[:_MAX_SCANNED]):
            return catalogue.UNSUPPORTED_MEDIA_TYPE.problem(
                "The body is lines of JSON: send them with Content-Type: application/x-ndjson, or one array of them as "
                "application/json."
            )
        return catalogue.VALIDATION_FAILED.problem(
            "The body must be a JSON array of items. A single reservation goes to its own operation.",
            faults=(FieldFault("", "wrong_type", "must be an array"),),
        )

    async def _made(
        self, items: Iterator[Item | None], make: Callable[[ItemReading], Awaitable[_Made]], origin: str
    ) -> tuple[list[_Made], list[Place], int] | Problem:
        """What each item becomes, its place, and an upper bound of the response's size."""
        made: list[_Made] = []
        places: list[Place] = []
        response_bytes, time_slice = 128, TimeSlice()  # of an envelope without its results
        try:
            for item in items:
                if item is None:
                    await time_slice.spend()
                    continue
                if len(made) == MAX_ITEMS:
                    return _INVALID_SIZE
                places.append(Place(len(made), item.line, item.key))
                made.append(item.read if isinstance(item.read, Problem) else await make(item.read))
                response_bytes += _result_bytes(made[-1], places[-1], origin)
                # An item, and rehearsing it, cost as much time as that many bytes.
                await time_slice.spend(512 + item.size + (4_096 if isinstance(made[-1], DryRun) else 0))
        except MalformedJson as error:
            return malformed_json(f"at item {len(made) + 1}: {error}")
        return (made, places, response_bytes) if made else _INVALID_SIZE

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
            # The server adds two links, see `PUBLIC_URL`.
            return size + 2 * len(origin) + len(json_text({"success": False, "problem": made.as_json()}))
        case DryRun():
            size += _RESULT_BYTES
        case NewSubmission():
            size += _RESULT_BYTES * (1 if made.natural is None else 2) + len(json_text(origin))
            size += 0 if made.refused is None else len(json_text(made.refused.as_json()))
        case _:
            assert_never(made)
    return size + (len(json_text([each._asdict() for each in made.warnings])) if made.warnings else 0)


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
                shown |= {"success": receipt.status.success, **receipt_json(receipt, origin)}
                if warnings := (*submission.warnings, *receipt_warnings(receipt)):
                    shown["warnings"] = [each._asdict() for each in warnings]
                if place.key is not None:
                    # Its key was used before, be it by an earlier item of this bulk.
                    if receipt.replayed or submission.request_id in keyed:
                        shown["idempotentReplayed"] = True
                    keyed.add(submission.request_id)
            case DryRun():
                shown |= {"success": not result.refused, **result.as_json()}
            case Problem():
                refused += 1
                shown |= {"success": False, "problem": result.as_json()}
            case _:
                assert_never(result)
        data.append(shown)
    success = all(shown["success"] for shown in data)
    return json_text({"success": success, "data": {"accepted": accepted, "refused": refused, "results": data}})


# --- the items in a body ---

_INVALID_SIZE: Final = catalogue.INVALID_BULK_SIZE.problem(f"A bulk has 1 to {MAX_ITEMS} items. Nothing was accepted.")
_BLANK: Final = re.compile(rb"[ \t\r\n]*")
# The text up to the next mark, strings included, and the mark. Possessive, without backtracking: the time is linear.
_BRACKET: Final = re.compile(rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+"){0,128}+([\[\]{}])?', re.DOTALL)
_BRACKET_OR_COMMA: Final = re.compile(rb'(?:[^"\[\]{},]++|"(?:[^"\\]++|\\.)*+"){0,128}+([\[\]{},])?', re.DOTALL)
_MAX_DEPTH: Final = 200  # the reader of an item does not accept deeper nesting either
_MAX_SCANNED: Final = 8 * MAX_ITEM_BYTES
"""How far the end of an element is searched. A longer one refuses the whole bulk: counting its brackets would take seconds."""
_LIKELY_END: Final = re.compile(rb"\}[ \t\r\n]*(,)[ \t\r\n]*\{")
_MAX_KEY: Final = 255

R = TypeVar("R")


def lines(body: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, each with its number, from 1."""
    number, counted = 1, 0
    for line in re.finditer(rb"[^ \t\r\n][^\n]*", body):
        number += body.count(b"\n", counted, line.start())
        counted = line.start()
        yield number, line[0]


def begins_array(body: bytes) -> bool:
    return body.startswith(b"[", _end_of_blank(body, 0))


def elements(body: bytes, read: Callable[[bytes], R]) -> Iterator[R | None]:
    """The result of `read` for each element of the JSON array in `body`; `read` raises `MalformedJson` unless its text is one JSON
    document. Yields None from time to time within a long element, so that the caller can yield to the event loop. Raises
    `MalformedJson` if `body` does not end with the array, possibly only after the last element."""
    begin = _end_of_blank(body, 0) + 1
    # As long as the guessed end is right: `read` accepts the text.
    while (likely := _LIKELY_END.search(body, begin, begin + MAX_ITEM_BYTES)) is not None:
        try:
            one = read(body[begin : likely.start(1)])
        except MalformedJson:
            break
        yield one
        begin = likely.end(1)
    several = body[begin - 1 : begin] == b","
    end = yield from _end_of_element(body, begin)
    while body[end : end + 1] == b",":
        yield read(body[begin:end])
        begin, several = end + 1, True
        end = yield from _end_of_element(body, begin)
    if several or _end_of_blank(body, begin) < end:
        yield read(body[begin:end])
    if body[end : end + 1] != b"]" or _end_of_blank(body, end + 1) < len(body):
        raise MalformedJson("there is more after the array")


def read_element(text: bytes, check: Plausibility) -> Item:
    """Reads an element of an array. Raises `MalformedJson`: then the whole document is malformed."""
    size = len(text)
    if size > MAX_ITEM_BYTES:
        too_large = f"An item of a bulk must have at most {MAX_ITEM_BYTES} bytes."
        return Item(catalogue.BODY_TOO_LARGE.problem(too_large), size)
    read = read_item(text, check)
    if not isinstance(read, list):
        return Item(read, size, _shown_key(read.item.idempotency_key))
    if all(fault.pointer.startswith(f"{RESERVATION}/") for fault in read):  # in the words of the single operation
        refused = validation_failed([replace(each, pointer=each.pointer.removeprefix(RESERVATION)) for each in read])
    else:
        refused = catalogue.INVALID_ITEM.problem(summary_of(read), faults=read)
    item = from_json(text)
    key = item.get("idempotencyKey") if isinstance(item, dict) else None  # which may be anything
    return Item(refused, size, _shown_key(key) if isinstance(key, str) and len(key) <= _MAX_KEY else None)


def read_line(line: tuple[int, bytes], check: Plausibility) -> Item:
    """Reads a line of NDJSON, which is a document of its own."""
    number, text = line
    try:
        return read_element(text, check)._replace(line=number)
    except MalformedJson as error:
        return Item(malformed_json(str(error), f"line {number}"), len(text), line=number)


def _end_of_element(body: bytes, begin: int) -> Generator[None, None, int]:
    """The position of the comma or bracket that ends the element. Yields None from time to time. Raises `MalformedJson`."""
    at, depth, steps = begin, 1, 0
    while depth:
        step = (_BRACKET_OR_COMMA if depth == 1 else _BRACKET).match(body, at, begin + _MAX_SCANNED)
        if step is None or step.end() == at:
            raise MalformedJson(f"it has no end, or none within {_MAX_SCANNED} bytes")
        at, mark = step.end(), step[1]
        if depth > _MAX_DEPTH:
            raise MalformedJson("it is nested too deeply")
        if mark in {b"[", b"{"}:
            depth += 1
        elif mark in {b"]", b"}"}:
            depth -= 1
        elif mark == b",":
            break
        steps += 1
        if steps % 1024 == 0:
            yield None
    return at - 1


def _end_of_blank(body: bytes, start: int) -> int:
    blank = _BLANK.match(body, start)
    return start if blank is None else blank.end()


def _shown_key(key: str | None) -> str | None:
    """The key by which a result names its item. A card number is not sent back."""
    return None if key is not None and may_hold(key) and find(key) else key

"""The flow of a bulk: read the terms → validate item by item → identify and seal → publish as one batch → answer item by item.

An item is what a single submission is: read, checked and identified by the same code, and as safe once it is answered. No
item's fault concerns another. What concerns all is refused as a whole, and then nothing was accepted: a body that cannot be told
apart into items, too many of them, or no log to take them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from forwarder.http.bodies import JSON, NDJSON, sent_as
from forwarder.ingress.bulk_items import begins_array, elements, lines
from forwarder.ingress.dry_run import DryRun, dry_run
from forwarder.ingress.message import Draft, Drafts
from forwarder.ingress.parts import IngressParts
from forwarder.ingress.problems import (
    BULK_MEDIA_TYPE,
    INVALID_BULK_SIZE,
    ITEM_TOO_LARGE,
    KEYS_OF_ITEMS,
    NOT_AN_ARRAY,
    bulk_too_large,
    invalid_item,
    malformed_json,
    validation_failed,
)
from forwarder.ingress.publisher import Handover
from forwarder.ingress.reading import read_body
from forwarder.ingress.receipt import Receipt
from forwarder.ingress.request import Call
from forwarder.ingress.terms import Terms, read_terms
from forwarder.ingress.yielding import Turns, others_first
from forwarder.reservation.bulk import MOST_ITEM_BYTES, MOST_ITEMS, RESERVATION, BulkItem, read_item
from forwarder.reservation.problem import Fault, Problem
from forwarder.reservation.validation import MalformedJson
from forwarder.tenancy.access import Caller

T = TypeVar("T", Draft, DryRun)

Admit = Callable[[int], Problem | None]
"""Whether so many items may come now; the refusal where they may not."""

_AN_ITEM: Final = 512
"""What an item costs, however short it is, in the bytes of a turn."""


class Kept(NamedTuple):
    """An item that is safe on the log, and what its caller is told of it."""

    draft: Draft
    receipt: Receipt


class _Item(NamedTuple):
    """What a text was read as, and how many bytes it has."""

    read: BulkItem | Problem
    size: int


class Bulks:
    """Takes bulks in, of bodies of at most `most_bytes`. Expected failures come back as problems; none is raised but
    `ClientDisconnect`, before anything was published."""

    def __init__(self, parts: IngressParts, handover: Handover, most_bytes: int) -> None:
        self._clock = parts.clock
        self._body_seconds = parts.settings.body_seconds
        self._drafts = Drafts(parts.ids, parts.sealer)
        self._handover = handover
        self._most_bytes = most_bytes

    async def submit(self, caller: Caller, call: Call, admit: Admit) -> Sequence[Kept | Problem] | Problem:
        """What became of each item, in their order; or the problem that concerns all of them."""
        terms = _terms(call)
        if isinstance(terms, Problem):
            return terms

        def draft(item: BulkItem) -> Draft:
            return self._drafts.make(
                caller, item.operation, item.reservation, _terms_of(item, terms), now=self._clock.now()
            )

        drafts = await self._each(call, admit, draft)
        if isinstance(drafts, Problem):
            return drafts
        told = await self._handover.many(caller.account.id, [each for each in drafts if isinstance(each, Draft)])
        if isinstance(told, Problem):
            return told
        answers = iter(told)
        return [each if isinstance(each, Problem) else _kept(each, next(answers)) for each in drafts]

    async def try_out(self, caller: Caller, call: Call, admit: Admit) -> Sequence[DryRun | Problem] | Problem:
        """What would come of each item, were the bulk submitted."""
        terms = _terms(call)
        if isinstance(terms, Problem):
            return terms
        return await self._each(call, admit, lambda item: dry_run(caller.account, item.reservation))

    async def _each(self, call: Call, admit: Admit, make: Callable[[BulkItem], T]) -> list[T | Problem] | Problem:
        items = await self._items(call)
        if isinstance(items, Problem):
            return items
        made: list[T | Problem] = []
        turns = Turns()
        try:
            for item in items:
                if item is None:
                    await others_first()
                    continue
                if len(made) == MOST_ITEMS:
                    return INVALID_BULK_SIZE
                made.append(item.read if isinstance(item.read, Problem) else make(item.read))
                if turns.over(_AN_ITEM + item.size):
                    await others_first()
        except MalformedJson as error:
            return malformed_json(f"at item {len(made) + 1}: {error}")
        return (admit(len(made)) or made) if made else INVALID_BULK_SIZE

    async def _items(self, call: Call) -> Iterator[_Item | None] | Problem:
        """The items, each read when its turn comes; None to let others work. Going through them raises `MalformedJson`."""
        array = sent_as(JSON, call.headers)
        if not array and not sent_as(NDJSON, call.headers):
            return BULK_MEDIA_TYPE
        too_large = bulk_too_large(self._most_bytes)
        body = await read_body(call, self._body_seconds, at_most=self._most_bytes, too_large=too_large)
        if isinstance(body, Problem):
            return body
        if array and not begins_array(body):
            return NOT_AN_ARRAY
        return elements(body, _read) if array else map(_read_line, lines(body))


def _terms(call: Call) -> Terms | Problem:
    """What the headers ask for on behalf of every item."""
    return KEYS_OF_ITEMS if "idempotency-key" in call.headers else read_terms(call)


def _terms_of(item: BulkItem, terms: Terms) -> Terms:
    if item.idempotency_key is None and item.deadline_seconds is None:
        return terms  # which have no key, see `_terms`
    return Terms(item.idempotency_key, item.deadline_seconds or terms.deadline_seconds, terms.traceparent)


def _read(text: bytes) -> _Item:
    """An element of an array. Raises `MalformedJson`: that spoils the whole document."""
    size = len(text)
    if size > MOST_ITEM_BYTES:
        return _Item(ITEM_TOO_LARGE, size)
    item = read_item(text)
    return _Item(_refused(item) if isinstance(item, list) else item, size)


def _read_line(text: bytes) -> _Item:
    """A line of NDJSON: a document of its own."""
    try:
        return _read(text)
    except MalformedJson as error:
        return _Item(malformed_json(str(error), "line"), len(text))


def _refused(faults: Sequence[Fault]) -> Problem:
    """The single operation's own words, where the reservation alone is at fault."""
    inside = f"{RESERVATION}/"
    if not all(fault.pointer.startswith(inside) for fault in faults):
        return invalid_item(faults)
    return validation_failed([replace(fault, pointer=fault.pointer.removeprefix(RESERVATION)) for fault in faults])


def _kept(draft: Draft, told: Receipt | Problem) -> Kept | Problem:
    return told if isinstance(told, Problem) else Kept(draft, told)

"""The flow of a bulk: read the terms → validate item by item → identify and seal → publish as one batch → answer item by item.

An item is what a single submission is: read, checked and identified by the same code, and as safe once it is answered. No
item's fault concerns another. What concerns all is refused as a whole, and then nothing was accepted: a body that cannot be told
apart into items, too many of them, or no log to take them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from forwarder.ingress.bulk_items import begins_array, elements, lines
from forwarder.ingress.call import Call
from forwarder.ingress.draft import Draft, Drafts
from forwarder.ingress.dry_run import DryRun, dry_run
from forwarder.ingress.handover import Handover
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
from forwarder.ingress.reading import read_body
from forwarder.ingress.receipt import Receipt
from forwarder.ingress.terms import Terms, read_terms
from forwarder.ingress.turns import A_TURN, Turns
from forwarder.reservation.bulk import MOST_ITEM_BYTES, MOST_ITEMS, RESERVATION, BulkItem, read_item
from forwarder.reservation.problem import Fault, Problem
from forwarder.reservation.validation import MalformedJson
from forwarder.runtime.bodies import JSON, NDJSON, sent_as
from forwarder.tenancy.access import Caller

T = TypeVar("T", Draft, DryRun)

Admit = Callable[[int], Problem | None]
"""Whether so many items may come now; the refusal where they may not."""

_AN_ITEM: Final = 512
"""What an item costs, however short it is, in the bytes of a turn."""


@dataclass(frozen=True, slots=True)
class Kept:
    """An item that is safe on the log, and what its caller is told of it."""

    draft: Draft
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class _Items:
    """The texts of the items; None to let others work. `one_document`: what is not JSON in one of them spoils all."""

    texts: Iterator[bytes | None]
    one_document: bool


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
            for text in items.texts:
                if text is None:
                    await turns.after(A_TURN)
                    continue
                if len(made) == MOST_ITEMS:
                    return INVALID_BULK_SIZE
                item = _read(text, one_document=items.one_document)
                made.append(item if isinstance(item, Problem) else make(item))
                await turns.after(_AN_ITEM + len(text))
        except MalformedJson as error:
            return malformed_json(f"at item {len(made) + 1}: {error}")
        return (admit(len(made)) or made) if made else INVALID_BULK_SIZE

    async def _items(self, call: Call) -> _Items | Problem:
        array = sent_as(JSON, call.headers)
        if not array and not sent_as(NDJSON, call.headers):
            return BULK_MEDIA_TYPE
        too_large = bulk_too_large(self._most_bytes)
        body = await read_body(call, self._body_seconds, at_most=self._most_bytes, too_large=too_large)
        if isinstance(body, Problem):
            return body
        if array and not begins_array(body):
            return NOT_AN_ARRAY
        return _Items(elements(body), one_document=True) if array else _Items(lines(body), one_document=False)


def _terms(call: Call) -> Terms | Problem:
    """What the headers ask for on behalf of every item."""
    return KEYS_OF_ITEMS if "idempotency-key" in call.headers else read_terms(call)


def _terms_of(item: BulkItem, terms: Terms) -> Terms:
    return replace(
        terms, idempotency_key=item.idempotency_key, deadline_seconds=item.deadline_seconds or terms.deadline_seconds
    )


def _read(text: bytes, *, one_document: bool) -> BulkItem | Problem:
    """The item, or why it is none. Raises `MalformedJson` where that spoils the whole document."""
    if len(text) > MOST_ITEM_BYTES:
        return ITEM_TOO_LARGE
    try:
        item = read_item(text)
    except MalformedJson as error:
        if one_document:
            raise
        return malformed_json(str(error), "line")
    return _refused(item) if isinstance(item, list) else item


def _refused(faults: Sequence[Fault]) -> Problem:
    """The single operation's own words, where the reservation alone is at fault."""
    inside = f"{RESERVATION}/"
    if not all(fault.pointer.startswith(inside) for fault in faults):
        return invalid_item(faults)
    return validation_failed([replace(fault, pointer=fault.pointer.removeprefix(RESERVATION)) for fault in faults])


def _kept(draft: Draft, told: Receipt | Problem) -> Kept | Problem:
    return told if isinstance(told, Problem) else Kept(draft, told)

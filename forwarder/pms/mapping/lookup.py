"""A look-up by a mapping: the one question for our reference, or the pages of a list until ours is seen or the last was read."""

from collections.abc import Awaitable, Callable
from typing import Any

from forwarder.pms.http.client import Request, Send
from forwarder.pms.http.outcomes import harmless, not_understood, unexpected
from forwarder.pms.http.response import Response
from forwarder.pms.mapping.model import PmsMapping
from forwarder.pms.mapping.operations import ABSENT, Find, Pages
from forwarder.pms.mapping.parts import Rule
from forwarder.pms.mapping.request import Asked
from forwarder.pms.mapping.response import (
    Tentative,
    body_of,
    decide,
    found,
    hides_what_is_ours,
    id_of,
    is_ours,
    looks_alike,
    may_have_lost_its_reference,
)
from forwarder.pms.mapping.values import MISSING, value_at
from forwarder.process.clock import Clock
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Absent, Confirmed, Deferred, LookupOutcome

Ask = Callable[[Request, Send], Awaitable[Response]]
Build = Callable[[Find, Asked], Request]
PutOff = Callable[[Rule, Response, Booking], Deferred]
Recorded = Callable[[Confirmed, Any, Booking], Confirmed]


class Lookup:
    """The look-ups of one account. `ask` sends a request that `build` makes, `put_off` says what a rule means by waiting,
    `recorded` adds the record of what is shown."""

    def __init__(
        self, mapping: PmsMapping, build: Build, ask: Ask, put_off: PutOff, recorded: Recorded, clock: Clock
    ) -> None:
        self._mapping = mapping
        self._build = build
        self._ask = ask
        self._put_off = put_off
        self._recorded = recorded
        self._clock = clock

    async def run(self, find: Find, booking: Booking, send: Send) -> LookupOutcome | Tentative:
        """Of a list that was asked for by our reference, only an empty one says `Absent`; of one that was not, all its pages."""
        if find.pages is None:
            looked = await self._look(find, self._build(find, Asked(booking)), booking, send)
            if not isinstance(looked, tuple):
                return looked
            return _not_searched() if looked[0] else Absent()
        return await self._through(find, find.pages, booking, send)

    async def _through(self, find: Find, pages: Pages, booking: Booking, send: Send) -> LookupOutcome | Tentative:
        numbered = str(pages.first) if pages.by == "page" else "0" if pages.by == "offset" else None
        first = None if pages.first_unsaid else numbered
        request = self._build(find, _at(pages, booking, first))
        seen, count = 0, None
        unclear: Deferred | None = None
        for number in range(1, pages.most + 1):
            looked = await self._look(find, request, booking, send)
            if not isinstance(looked, tuple):
                return (unclear or looked) if isinstance(looked, Absent) else looked
            items, body = looked
            unclear = unclear or self._unclear(items, booking)  # ours may be on a later page
            seen += len(items)
            if number == 1 or pages.by != "lastId":  # what follows the first page may be counted by itself
                count = _count(pages, body)
            if pages.more is not None and not isinstance(value_at(body, pages.more), bool):
                return Deferred("pms_answer_not_understood", "The PMS does not say whether its list goes on.")
            step = self._next(pages, items, body, number, seen, count)
            if step is None:
                return unclear or Absent()
            request = self._build(find, _at(pages, booking, step))
        return unclear or Deferred("pms_lists_too_much", f"The PMS lists more than {pages.most} pages.")

    def _unclear(self, items: list[Any], booking: Booking) -> Deferred | None:
        """Why ours may be among these without being known."""
        if any(hides_what_is_ours(self._mapping, item) for item in items):
            return Deferred("pms_scope_too_small", "The PMS shows reservations without what ours is known by.")
        alike = [item for item in items if may_have_lost_its_reference(self._mapping, item, booking)]
        return looks_alike([id_of(self._mapping.reservation, item) for item in alike]) if alike else None

    async def _look(
        self, find: Find, request: Request, booking: Booking, send: Send
    ) -> LookupOutcome | Tentative | tuple[list[Any], Any]:
        """One look: what became of ours, or else the reservations that were shown, none of which is ours, and the whole answer."""
        response = await self._ask(request, send)
        body = body_of(response)
        match decide(self._mapping, find, response, body):
            case Rule(becomes=becomes) as rule:
                return Absent() if becomes == ABSENT else self._put_off(rule, response, booking)
            case None:
                return harmless(unexpected(response, self._clock.now()))
            case succeeded:
                items = value_at(body, find.items)
                if not succeeded or not isinstance(items, list) or not all(map(self._has_an_id, items)):
                    return harmless(not_understood(response))
        ours = [item for item in items if is_ours(self._mapping, item, booking)]
        if not ours and not items and any(value_at(body, path) not in (MISSING, None, 0) for path in find.counts):
            return harmless(not_understood(response))
        if not ours:
            return items, body
        outcome = found(self._mapping, ours, response, booking)
        if not isinstance(outcome, Confirmed):
            return outcome
        item = next(one for one in ours if id_of(self._mapping.reservation, one) == outcome.pms_reservation_id)
        return self._recorded(outcome, item, booking)

    def _next(self, pages: Pages, items: list[Any], body: Any, number: int, seen: int, count: int | None) -> str | None:
        """What the next request is told; None where this was the last page."""
        if pages.by == "cursor":
            step = value_at(body, pages.next or "")
            return str(step) if isinstance(step, str | int) and not isinstance(step, bool) and str(step) else None
        if pages.more is not None and value_at(body, pages.more) is False:
            return None
        if pages.more is None and (
            not items or (count is not None and (number if pages.by == "page" else seen) >= count)
        ):
            return None
        if pages.by == "lastId":
            return id_of(self._mapping.reservation, items[-1])
        return str(seen) if pages.by == "offset" else str(pages.first + number)

    def _has_an_id(self, item: Any) -> bool:
        """Whether it is a reservation at all: of a list of anything else, nothing can be concluded."""
        return id_of(self._mapping.reservation, item) is not None


def _at(pages: Pages, booking: Booking, step: str | None) -> Asked:
    return Asked(booking, page=None if step is None or pages.query is None else (pages.query, step))


def _count(pages: Pages, body: Any) -> int | None:
    count = None if pages.count is None else value_at(body, pages.count)
    return count if isinstance(count, int) and not isinstance(count, bool) else None


def _not_searched() -> Deferred:
    detail = "The PMS was asked for our reference, and answered with reservations that do not carry it."
    return Deferred("pms_answer_not_understood", detail)

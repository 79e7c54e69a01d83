"""Looks a reservation up by a mapping: one request for our reference, or the pages of a list until ours is found."""

from collections.abc import Awaitable, Callable
from typing import Any

from forwarder.pms.http.client import Send
from forwarder.pms.http.outcomes import harmless, not_understood
from forwarder.pms.mapping.model import PmsMapping
from forwarder.pms.mapping.operations import ABSENT, Find, Pages
from forwarder.pms.mapping.parts import Rule
from forwarder.pms.mapping.request import Asked
from forwarder.pms.mapping.response import (
    Answer,
    Tentative,
    found,
    hides_what_is_ours,
    id_of,
    is_ours,
    looks_alike,
    may_have_lost_its_reference,
)
from forwarder.pms.mapping.values import MISSING, value_at
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Absent, Confirmed, Deferred, LookupOutcome

Ask = Callable[[Find, Asked, Send], Awaitable[Answer]]
NotFound = Callable[[Answer, Booking], Deferred]
Recorded = Callable[[Confirmed, Any, Booking], Confirmed]


class Lookup:
    """The look-ups of one account. `ask` sends a request, `failed` says what an unsuccessful answer means, `recorded` adds the
    record of what is shown."""

    def __init__(self, mapping: PmsMapping, ask: Ask, failed: NotFound, recorded: Recorded) -> None:
        self._mapping = mapping
        self._ask = ask
        self._failed = failed
        self._recorded = recorded

    async def run(self, find: Find, booking: Booking, send: Send) -> LookupOutcome | Tentative:
        """`Absent` only after an empty list that was filtered by our reference, or after all pages of one that was not."""
        pages = find.pages
        if pages is None:
            looked = await self._look(find, Asked(booking), send)
            if isinstance(looked, tuple) and looked[0]:
                detail = "The PMS was asked for our reference, and answered with reservations that do not carry it."
                return Deferred("pms_answer_not_understood", detail)
            return Absent() if isinstance(looked, tuple) else looked
        first = {"page": str(pages.first), "offset": "0"}.get(pages.by)
        step = None if pages.first_unsaid else first
        seen, count = 0, None
        unclear: Deferred | None = None
        for number in range(1, pages.most + 1):
            looked = await self._look(find, Asked(booking, page=None if step is None else (pages.query, step)), send)
            if not isinstance(looked, tuple):
                return (unclear or looked) if isinstance(looked, Absent) else looked
            items, body = looked
            unclear = unclear or self._unclear(items, booking)  # ours may be on a later page
            seen += len(items)
            if number == 1 or pages.by != "lastId":  # by last id, later pages may count only what follows
                shown = None if pages.count is None else value_at(body, pages.count)
                count = shown if isinstance(shown, int) and not isinstance(shown, bool) else None
            if pages.more is not None and not isinstance(value_at(body, pages.more), bool):
                return Deferred("pms_answer_not_understood", "The PMS does not say whether its list has another page.")
            step = self._next(pages, items, body, number, seen, count)
            if step is None:
                return unclear or Absent()
        return unclear or Deferred("pms_lists_too_much", f"The PMS lists more than {pages.most} pages.")

    def _unclear(self, items: list[Any], booking: Booking) -> Deferred | None:
        """Why ours may be among these without being recognised."""
        if any(hides_what_is_ours(self._mapping, item) for item in items):
            return Deferred("pms_scope_too_small", "The PMS shows reservations without what ours is known by.")
        alike = [item for item in items if may_have_lost_its_reference(self._mapping, item, booking)]
        return looks_alike([self._id(item) for item in alike]) if alike else None

    async def _look(self, find: Find, asked: Asked, send: Send) -> LookupOutcome | Tentative | tuple[list[Any], Any]:
        """The outcome for ours; or, if it is not among the reservations that are shown, these and the body."""
        answer = await self._ask(find, asked, send)
        booking, body, response = asked.booking, answer.body, answer.response
        if isinstance(answer.meaning, Rule) and answer.meaning.becomes == ABSENT:
            return Absent()
        if answer.meaning is not True:
            return self._failed(answer, booking)
        items = value_at(body, find.items)
        if not isinstance(items, list) or None in map(
            self._id, items
        ):  # anything else than reservations proves nothing
            return harmless(not_understood(response))
        ours = [item for item in items if is_ours(self._mapping, item, booking)]
        if not items and any(value_at(body, path) not in (MISSING, None, 0) for path in find.counts):
            return harmless(not_understood(response))
        if not ours:
            return items, body
        outcome = found(self._mapping, ours, response, booking)
        if not isinstance(outcome, Confirmed):
            return outcome
        item = next(one for one in ours if self._id(one) == outcome.pms_reservation_id)
        return self._recorded(outcome, item, booking)

    def _next(self, pages: Pages, items: list[Any], body: Any, number: int, seen: int, count: int | None) -> str | None:
        """What the next request names; None if this was the last page."""
        if pages.by == "cursor":
            step = value_at(body, pages.next or "")
            return str(step) if isinstance(step, str | int) and not isinstance(step, bool) and str(step) else None
        if pages.more is not None and value_at(body, pages.more) is False:
            return None
        read = number if pages.by == "page" else seen
        if pages.more is None and (not items or (count is not None and read >= count)):
            return None
        if pages.by == "lastId":
            return self._id(items[-1])
        return str(seen) if pages.by == "offset" else str(pages.first + number)

    def _id(self, item: Any) -> str | None:
        return id_of(self._mapping.reservation, item)

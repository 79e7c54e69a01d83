"""A look-up by a mapping: the one question for our reference, or the pages of a list until ours is seen or the last was read."""

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from forwarder.pms.http.client import Request, Send
from forwarder.pms.http.outcomes import harmless, not_understood, unexpected
from forwarder.pms.http.response import Response
from forwarder.pms.mapping.format.json_path import value_at
from forwarder.pms.mapping.format.model import PmsMapping
from forwarder.pms.mapping.format.operations import ABSENT, Find, Pages
from forwarder.pms.mapping.format.parts import Rule
from forwarder.pms.mapping.request import Asked
from forwarder.pms.mapping.response import (
    Tentative,
    body_of,
    decide,
    found,
    hides_what_is_ours,
    is_ours,
    looks_alike,
    may_have_lost_its_reference,
)
from forwarder.pms.responses.record import identifier
from forwarder.process.clock import Clock
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Absent, Deferred, InDoubt, LookupOutcome

Ask = Callable[[Request, Send], Awaitable[Response]]
Build = Callable[[Find, Asked], Request]
PutOff = Callable[[Rule, Response], Deferred | InDoubt]


class Lookup:
    """The look-ups of one account. `ask` sends a request that `build` makes, `put_off` says what a rule means by waiting."""

    def __init__(self, mapping: PmsMapping, build: Build, ask: Ask, put_off: PutOff, clock: Clock) -> None:
        self._mapping = mapping
        self._build = build
        self._ask = ask
        self._put_off = put_off
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
        first = str(pages.first) if pages.by == "page" else "0" if pages.by == "offset" else None
        request = self._build(find, _at(pages, booking, first))
        seen = 0
        for number in range(1, pages.most + 1):
            looked = await self._look(find, request, booking, send)
            if not isinstance(looked, tuple):
                return looked
            items, body = looked
            if any(hides_what_is_ours(self._mapping, item) for item in items):
                return Deferred("pms_scope_too_small", "The PMS shows reservations without what ours is known by.")
            alike = [item for item in items if may_have_lost_its_reference(self._mapping, item, booking)]
            if alike:
                return looks_alike([identifier(value_at(item, self._mapping.reservation.id)) for item in alike])
            seen += len(items)
            step = _next(pages, items, body, number, seen)
            match step:
                case None:
                    return Absent()
                case str() if pages.by == "link":
                    linked = _linked(request, step)
                    if linked is None:
                        return _not_followed()
                    request = linked
                case _:
                    request = self._build(find, _at(pages, booking, step))
        return Deferred("pms_lists_too_much", f"The PMS lists more than {pages.most} pages.")

    async def _look(
        self, find: Find, request: Request, booking: Booking, send: Send
    ) -> LookupOutcome | Tentative | tuple[list[Any], Any]:
        """One look: what became of ours, or else the reservations that were shown, none of which is ours, and the whole answer."""
        response = await self._ask(request, send)
        body = body_of(response)
        match decide(find, response, body):
            case Rule(becomes=becomes) as rule:
                return Absent() if becomes == ABSENT else harmless(self._put_off(rule, response))
            case None:
                return harmless(unexpected(response, self._clock.now()))
            case succeeded:
                items = value_at(body, find.items)
                if not succeeded or not isinstance(items, list) or not all(map(self._has_an_id, items)):
                    return harmless(not_understood(response))
        ours = [item for item in items if is_ours(self._mapping, item, booking)]
        return found(self._mapping, ours, response, booking) if ours else (items, body)

    def _has_an_id(self, item: Any) -> bool:
        """Whether it is a reservation at all: of a list of anything else, nothing can be concluded."""
        return identifier(value_at(item, self._mapping.reservation.id)) is not None


def _at(pages: Pages, booking: Booking, step: str | None) -> Asked:
    return Asked(booking, page=None if step is None or pages.query is None else (pages.query, step))


def _next(pages: Pages, items: list[Any], body: Any, number: int, seen: int) -> str | None:
    """What the next request is told; None where this was the last page."""
    if pages.by in ("cursor", "link"):
        step = value_at(body, pages.next or "")
        return str(step) if isinstance(step, str | int) and not isinstance(step, bool) and str(step) else None
    count = None if pages.count is None else value_at(body, pages.count)
    known = count if isinstance(count, int) and not isinstance(count, bool) else None
    if not items or (known is not None and (seen if pages.by == "offset" else number) >= known):
        return None
    return str(seen) if pages.by == "offset" else str(pages.first + number)


def _linked(request: Request, link: str) -> Request | None:
    """The same question at the address that the PMS gave; None for one that is elsewhere, where the credential must not go."""
    try:
        before, after = urlsplit(request.url), urlsplit(link)
    except ValueError:
        return None
    if link.startswith("?"):
        return Request(request.method, request.url, request.headers, query=after.query)
    if not after.scheme and not after.netloc and link.startswith("/"):
        after = after._replace(scheme=before.scheme, netloc=before.netloc)
    if (after.scheme, after.netloc) != (before.scheme, before.netloc):
        return None
    return Request(request.method, after._replace(query="", fragment="").geturl(), request.headers, query=after.query)


def _not_searched() -> Deferred:
    detail = "The PMS was asked for our reference, and answered with reservations that do not carry it."
    return Deferred("pms_answer_not_understood", detail)


def _not_followed() -> Deferred:
    return Deferred("pms_answer_not_understood", "The PMS's list goes on at another address, which is not asked.")

"""The habits of real PMSs that are no faults, by name, and the transport that gives them to any PMS, in virtual time.

A PMS may show a booking late, commit after the caller gave up, keep our reference in another form, or answer through proxies that
have their own opinion. The transport sits between the adapter and the PMS, so it works for a mapping and for an adapter in code,
and for a simulator as for a vendor's sandbox: it withholds, delays and rewrites what really goes to and fro.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic_core import from_json, to_json

from forwarder.pms.http.client import Held, Request, Reuse, Transport
from forwarder.pms.http.response import Response, connection_lost, unreachable
from forwarder.process.clock import Clock
from forwarder_pms_kit.conformance.faults import TRAP, Break, Instead, of_body, say

DAY: Final = 24 * 3600.0
_COUNTS: Final = re.compile("total|count|size", re.IGNORECASE)
_KEY_HEADER: Final = re.compile(rb"idempotency|request-?id", re.IGNORECASE)
_REFERENCE: Final = re.compile(rb"rsv_?[a-z2-7]{20,32}", re.IGNORECASE)
_ANOTHERS: Final = b"rsv_" + b"z" * 32
_EXISTS: Final = b'{"message":"a reservation with this external reference already exists"}'
_TAKEN: Final = b'{"errors":{"external_id":["has already been taken"]}}'

LOST: Final = Break("reset")


def _cut(ours: bytes) -> bytes:
    return ours[:30]


def _replaced(ours: bytes) -> bytes:
    return b"HA-" + blake2b(ours, digest_size=4).hexdigest().upper().encode()


def _in_a_text(ours: bytes) -> bytes:
    return b"Booked online, " + ours + b", thank you"


@dataclass(frozen=True, slots=True)
class Habit:
    """What a PMS does besides what its adapter expects.

    first           the response to the first create, in place of the PMS's own
    made            whether that create is carried out
    commits_after   seconds until it is
    again           the response to a later create of what is there already
    shows_after     seconds until look-ups show it
    missed_at       the first look-up that many seconds later misses it too
    kept            the form in which our reference is kept
    twice           look-ups list it twice
    keys_last       seconds for which idempotency keys count
    down            seconds after the first create for which the PMS cannot be reached
    body            changes every response about bookings
    person          an operator may be needed
    """

    first: Instead | Break | None = None
    made: bool = True
    commits_after: float = 0.0
    again: Instead | None = None
    shows_after: float = 0.0
    missed_at: float | None = None
    kept: Callable[[bytes], bytes] | None = None
    twice: bool = False
    keys_last: float | None = None
    down: float = 0.0
    body: Instead | None = None
    person: bool = False


def _with_text(text: str, *, escaped: bool = False) -> Callable[[bytes], bytes]:
    """Every JSON object of a body, with one more member."""
    member = b'"remark":"' + (text.encode("ascii") if escaped else text.encode("latin-1")) + b'"'

    def changed(body: bytes) -> bytes:
        return re.sub(rb"\{(?=\s*\")", lambda _: b"{" + member + b",", body)

    return changed


def _in_latin_1(response: Response) -> Response:
    headers = [header for header in response.headers if header[0].lower() != b"content-type"]
    headers.append((b"content-type", b"application/json; charset=iso-8859-1"))
    return replace(response, headers=headers, content=_with_text("Zoé")(response.content))


def _of_another(response: Response) -> Response:
    return replace(response, content=_REFERENCE.sub(_ANOTHERS, response.content))


HABITS: Final[Mapping[str, Habit]] = {
    "none": Habit(),
    "answer-lost": Habit(LOST),
    "never-made-500": Habit(say(500), made=False),
    "shows-late-45-s": Habit(LOST, shows_after=45.0),
    "shows-late-60-s": Habit(LOST, shows_after=60.0),
    "commits-late-75-s": Habit(say(504), commits_after=75.0),
    "commits-late-shows-late": Habit(say(504), commits_after=45.0, shows_after=60.0),
    "202-and-made-90-s-later": Habit(say(202, b""), commits_after=90.0),
    "201-and-shows-late": Habit(say(201, b"{}"), shows_after=600.0),
    "reference-cut": Habit(kept=_cut),
    "reference-upper-case": Habit(kept=bytes.upper),
    "reference-replaced": Habit(kept=_replaced, person=True),
    "reference-in-a-text": Habit(kept=_in_a_text),
    "reference-cut-answer-lost": Habit(LOST, kept=_cut),
    "reference-upper-case-answer-lost": Habit(LOST, kept=bytes.upper),
    "reference-prefixed-answer-lost": Habit(LOST, kept=lambda ours: b"HA-" + ours),
    "exists-409": Habit(LOST, again=say(409, _EXISTS), shows_after=3600.0),
    "exists-409-at-once": Habit(say(409, _EXISTS)),
    "exists-422-at-once": Habit(say(422, _TAKEN)),
    "500": Habit(say(500)),
    "503": Habit(say(503)),
    "503-with-retry-after": Habit(say(503, Retry_After="5")),
    "408": Habit(say(408)),
    "302": Habit(say(302, b"", Location=TRAP)),
    "303": Habit(say(303, b"", Location=TRAP)),
    "list-shifts": Habit(LOST, missed_at=120.0),
    "own-booking-in-the-way": Habit(LOST, keys_last=0.0, shows_after=60.0),
    "shown-twice": Habit(LOST, twice=True),
    "keys-end": Habit(LOST, keys_last=DAY, down=DAY + 3600.0),
    "answer-of-somebody-else": Habit(Instead(_of_another)),
    "garbage": Habit(say(201)),
    "byte-order-mark": Habit(body=of_body(lambda body: b"\xef\xbb\xbf" + body)),
    "latin-1": Habit(body=Instead(_in_latin_1)),
    "lone-surrogate": Habit(body=of_body(_with_text(r"\ud83d", escaped=True))),
}
"""By name. What is shown later than a PMS states, or never under our reference, is nobody's to know, and is not here."""


class HabitualTransport:
    """`pms` with `habit`. `creates`: the method and path of the request that books. `mark`: what identifies a booking in responses.

    `carried`: how many creates reached the PMS; `searched_by_mark`: whether a look-up filtered by the mark; `said_again`: whether a
    later create got the response `again`.
    """

    def __init__(self, pms: Transport, habit: Habit, time: Clock, creates: tuple[str, str], mark: bytes) -> None:
        self._pms = pms
        self._habit = habit
        self._time = time
        self._creates = creates
        self._mark = mark
        self._asked_at: float | None = None
        self._made_at: float | None = None
        self._missed = False
        self._pending: list[tuple[float, Request]] = []
        self.carried = 0
        self.searched_by_mark = False
        self.said_again = False

    async def aclose(self) -> None:
        await self._pms.aclose()

    async def settle(self, deadline: float) -> None:
        """Carry out the creates that are due by now."""
        due = [one for one in self._pending if one[0] <= self._time.monotonic()]
        self._pending = [one for one in self._pending if one not in due]
        for _, request in due:
            await self._create(request, deadline, None, None)

    async def exchange(
        self, request: Request, deadline: float, held: Held | None = None, reuse: Reuse | None = None
    ) -> Response:
        await self.settle(deadline)
        habit, now = self._habit, self._time.monotonic()
        if self._asked_at is not None and now < self._asked_at + habit.down:
            raise unreachable("the habit of this PMS")
        if (request.method, _shape(request.url)) == self._creates:
            return await self._answered(request, deadline, held, reuse)
        self.searched_by_mark |= self._mark.decode() in request.query
        if habit.kept is not None and request.method == "GET":
            # It knows the booking by the form that it kept, so a filter by ours finds nothing.
            request = replace(request, query=self._in_kept_form(request.query.encode()).decode())
        response = await self._pms.exchange(request, deadline, held, reuse)
        return self._rewritten(self._shown(response) if request.method == "GET" else response)

    async def _answered(self, request: Request, deadline: float, held: Held | None, reuse: Reuse | None) -> Response:
        habit, now = self._habit, self._time.monotonic()
        if self._made_at is not None and habit.again is not None:
            self.said_again = True
            return habit.again.made(Response(200))
        if self._asked_at is not None:
            return self._rewritten(await self._create(request, deadline, held, reuse))
        self._asked_at = now
        if habit.commits_after:
            self._pending.append((now + habit.commits_after, request))
        response = Response(200)
        if habit.made and not habit.commits_after:
            response = await self._create(request, deadline, held, reuse)
        match habit.first:
            case None:
                return self._rewritten(response)
            case Break():
                raise connection_lost("the habit of this PMS")
            case Instead():
                return self._rewritten(habit.first.made(response))

    async def _create(self, request: Request, deadline: float, held: Held | None, reuse: Reuse | None) -> Response:
        now, last = self._time.monotonic(), self._habit.keys_last
        if last is not None and self._made_at is not None and now >= self._made_at + last:
            headers = [
                (name, value[:-1] + b"0" + value[-1:] if _KEY_HEADER.search(name) else value)
                for name, value in request.headers
            ]
            request = replace(request, headers=headers)  # with another key
        response = await self._pms.exchange(request, deadline, held, reuse)
        self.carried += 1
        self._made_at = now if self._made_at is None else self._made_at
        return response

    def _shown(self, response: Response) -> Response:
        habit, now = self._habit, self._time.monotonic()
        if self._made_at is None or self._mark not in response.content:
            return response
        hidden = now < self._made_at + habit.shows_after
        if habit.missed_at is not None and not self._missed:
            hidden, self._missed = True, now >= self._made_at + habit.missed_at
        if not hidden and not habit.twice:
            return response
        shown = _listed(from_json(response.content), self._mark, 0 if hidden else 2)
        content = to_json(shown)
        return Response(404) if hidden and self._mark in content else replace(response, content=content)

    def _rewritten(self, response: Response) -> Response:
        if self._habit.body is not None and response.content:
            response = self._habit.body.made(response)
        if self._habit.kept is None:
            return response
        return replace(response, content=self._in_kept_form(response.content))

    def _in_kept_form(self, content: bytes) -> bytes:
        return content if self._habit.kept is None else content.replace(self._mark, self._habit.kept(self._mark))


def shape_of(method: str, url: str) -> tuple[str, str]:
    """A request's method and path, whose numbers may differ from one booking to the next."""
    return method, _shape(url)


def _shape(url: str) -> str:
    return re.sub(r"[^/]*\d[^/]*", "#", urlsplit(url).path)


def _listed(value: Any, mark: bytes, times: int) -> Any:
    """`value` with each list item that contains `mark` as many `times`, and the totals beside such lists put right."""
    if isinstance(value, list):
        counts = [times if isinstance(item, dict | list) and mark in to_json(item) else 1 for item in value]
        return [
            each for item, count in zip(value, counts, strict=True) for each in [_listed(item, mark, times)] * count
        ]
    if not isinstance(value, dict):
        return value
    parts = {name: _listed(part, mark, times) for name, part in value.items()}
    more = sum(len(parts[name]) - len(part) for name, part in value.items() if isinstance(part, list))
    return {name: _recounted(name, part, more) for name, part in parts.items()} if more else parts


def _recounted(name: str, part: Any, more: int) -> Any:
    if isinstance(part, dict):
        return {inner: _recounted(inner, one, more) for inner, one in part.items()}
    if isinstance(part, int) and not isinstance(part, bool) and _COUNTS.search(name) and part + more >= 0:
        return part + more
    return part

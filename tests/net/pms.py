"""PMSs at their HTTP interface, with the habits of real ones: they show late, commit late, cut references, answer through proxies.

A PMS is one account's. Its shape (what it can do) is fixed; its habits change as moves say. The next creates are answered by
`replies`, one each, then well. It knows nothing of the forwarder but requests.
"""

import asyncio
import json
import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from forwarder.pms.http.client import Request
from forwarder.pms.http.response import Response
from tests.net.record import Booking, Create, Record, short
from tests.net.worlds.virtual_time import VirtualTimeLoop

PUSH_SECONDS: Final = 30.0
_BODY: Final = (
    "{reference: reference, arrival: arrivalDate, email: guest.email, notes: notes, unit: propertyId, room: roomId}"
)


def _page(*, find: str, key: bool = False, settles: str = "") -> str:
    return f"""
title: A PMS of the net
baseUrl: https://pms.test
cards: none
echo: always
message: message
{settles}
reservation:
  id: id
  reference: reference
  email: email
  status: {{path: status, confirmed: [CONFIRMED], cancelled: [CANCELLED]}}
create:
  path: /reservations
  success: {{status: [201]}}
  {"keyHeader: Idempotency-Key" if key else ""}
  errors: [{{status: [409], when: {{code: room_unavailable}}, becomes: room_unavailable}}]
  body: {_BODY}
{find}
cancel: {{method: DELETE, path: "/reservations/{{pmsReservationId}}", success: {{status: [204]}},
  errors: [{{status: [409], becomes: cancellation_refused}}]}}
"""


_BY_REFERENCE: Final = "find: {path: /reservations, query: {reference: reference}, items: data}"
_BY_PAGES: Final = "find: {path: /reservations, items: data, pages: {by: page, query: page, first: 1, most: 90}}"

SHAPES: Final[Mapping[str, Mapping[str, Any]]] = {
    "keyed": {},
    "searched": {"mapping": _page(find=_BY_PAGES)},
    "immediate": {"mapping": _page(find=_BY_REFERENCE, settles="settles: 0")},
    "key-only": {"mapping": _page(find="", key=True)},
    "neither": {"mapping": _page(find="")},
}
"""The options of an account of kind `generic` for each shape of PMS; `keyed` speaks the open contract."""

IN_TIME: Final = frozenset({"immediate"})
"""The shapes that promise to show at once what they made: they neither show nor commit late."""


@dataclass(frozen=True, slots=True)
class Reply:
    """How one create is answered. `made`: after how many seconds it is made, None for never. `after`: when the answer comes, None
    for never. `status` 0: the connection ends instead. `code`: of a problem; a 2xx without one shows the booking."""

    made: float | None = 0.0
    after: float | None = 0.1
    status: int = 201
    code: str = ""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    twice: bool = False
    body: str = ""

    @property
    def clean(self) -> bool:
        """Whether the answer comes in time and leaves no doubt."""
        told = self.status == 201 and self.made is not None and not self.body and not self.twice
        refused = self.made is None and self.code in {"room_unavailable", "nothing_done"}
        return self.after is not None and self.after < PUSH_SECONDS - 1 and (told or refused)


_LATER: Final = ((b"retry-after", b"20"),)
_PROBLEM: Final = ((b"content-type", b"application/problem+json"),)

REPLIES: Final[Mapping[str, Reply]] = {
    "answers well": Reply(),
    "answers slowly": Reply(after=20.0),
    "makes it and loses the answer": Reply(after=1.0, status=0),
    "loses the answer and makes nothing": Reply(made=None, after=1.0, status=0),
    "makes it in the end and never answers": Reply(made=28.0, after=None),
    "hangs and makes nothing": Reply(made=None, after=None),
    "commits late and never answers": Reply(made=45.0, after=None),
    "says 202 and makes it later": Reply(made=50.0, status=202, body="{}"),
    "says 503 with Retry-After and has made it": Reply(status=503, headers=_LATER, code="busy"),
    "says 503 with Retry-After and makes it later": Reply(made=25.0, status=503, headers=_LATER, code="busy"),
    "says 503 and has made nothing": Reply(made=None, status=503, code="busy"),
    "says that it did nothing": Reply(made=None, status=503, headers=(*_PROBLEM, *_LATER), code="nothing_done"),
    "says 408 and makes it later": Reply(made=20.0, status=408, code="timeout"),
    "says 302 and has made it": Reply(status=302, headers=((b"location", b"/login"),), code="moved"),
    "says 500 and has made it": Reply(status=500, code="error"),
    "says 500 and has made nothing": Reply(made=None, status=500, code="error"),
    "says 200 for a proxy and has made nothing": Reply(made=None, status=200, body="<html>Log in</html>"),
    "says 403 for a proxy and has made nothing": Reply(made=None, status=403, body="<html>Forbidden</html>"),
    "says 404 for a proxy and has made nothing": Reply(made=None, status=404, body="<html>Not found</html>"),
    "says 429": Reply(made=None, status=429, headers=_LATER, code="throttled"),
    "refuses the room": Reply(made=None, status=409, code="room_unavailable"),
    "answers with rubbish": Reply(body="<html>"),
    "shows a foreign booking": Reply(body='{"id": "foreign-1", "reference": "rsv_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}'),
    "is asked twice by a proxy": Reply(status=409, code="duplicate_reference"),
    "makes it twice": Reply(twice=True),
    "makes it twice and loses the answer": Reply(after=1.0, status=0, twice=True),
}
"""The habits of single answers, by name."""

KEEPS: Final[Mapping[str, Callable[[str], str]]] = {
    "as it is": lambda reference: reference,
    "in capitals": str.upper,
    "cut to 24": lambda reference: reference[:24],
    "within a text": lambda reference: f"Ref. {reference} (web)",
    "as a code of its own": lambda reference: f"C{sum(map(ord, reference))}",
}
"""What a PMS keeps of our reference."""


_LOGIN: Final = b"<html>Log in</html>"
PROXIES: Final[Mapping[str, Response | None]] = {
    "passes them on": None,
    "says 404": Response(404, ((b"content-type", b"text/html"),), _LOGIN),
    "says 502": Response(502, (), b""),
    "shows a page to log in": Response(200, ((b"content-type", b"text/html"),), _LOGIN),
    "shows an empty object": Response(200, (), b"{}"),
    "shows an error": Response(200, (), b'{"error": "unavailable", "data": null}'),
    "answers from its cache": None,
}
"""How look-ups are answered by a proxy in front of the PMS."""


class Lost(Exception):
    """The connection ended after the request was sent."""


class NetPms:
    """One PMS. `down_until`: connections are refused. `repeats`: what it does when asked for a reference that it has: make another,
    say that the reference exists, or that the room is taken."""

    def __init__(self, account: str, shape: str, loop: VirtualTimeLoop, record: Record) -> None:
        self.account, self.shape = account, shape
        self._loop, self._record = loop, record
        self.replies: deque[str] = deque()
        self.keeps = "as it is"
        self.shows_after = 0.0
        self.repeats = "again"
        self.shifting = False
        self.proxy = "passes them on"
        self.refuses_cancellations = False
        self.cancels_badly = False
        self.hangs = False
        self.down_until = 0.0
        self.bookings: list[Booking] = []
        self._keys: dict[str, Booking] = {}
        self._fillers = [f"own-{n}" for n in range(3)]
        self._cached: dict[str, tuple[float, Response]] = {}

    def be_well(self) -> None:
        """No habit but what its shape has."""
        self.replies.clear()
        self.repeats, self.shows_after, self.proxy = "again", 0.0, "passes them on"
        self.shifting = self.refuses_cancellations = self.cancels_badly = self.hangs = False
        self.down_until = 0.0

    async def answer(self, request: Request) -> Response:
        """The response, when it comes; raises `Lost`. What was asked for is done whether anybody waits for it or not."""
        if request.method == "POST":
            return await self._create(request)
        await asyncio.sleep(0.05)
        if self.hangs:
            await asyncio.sleep(3600.0)
        if request.method == "GET" and self.proxy == "answers from its cache":
            at, cached = self._cached.get(request.url, (-100.0, _problem(404, "none")))
            if self._loop.time() > at + 60.0:
                self._cached[request.url] = self._loop.time(), (cached := self._list(request))
            return cached
        if request.method == "GET":
            return PROXIES[self.proxy] or self._list(request)
        return self._cancel(request.url.rpartition("/")[2])

    async def _create(self, request: Request) -> Response:
        body = json.loads(request.content)
        reference = body["reference"]
        guest = body.get("guest", {}).get("email") or body["email"]
        key = _header(request, b"idempotency-key") if self.shape in {"keyed", "key-only"} else ""
        name = self.replies.popleft() if self.replies else "answers well"
        reply = REPLIES[name]
        if self.hangs:
            name, reply = "hangs and makes nothing", REPLIES["hangs and makes nothing"]
        if self.shape in IN_TIME and reply.made is not None and reply.made > 28.0:
            reply = replace(reply, made=28.0)
        mine = [each for each in self.bookings if each.reference == reference and each.cancelled_at is None]
        in_the_way = bool(mine) and not key and self.repeats != "again"
        if in_the_way:
            code = "duplicate_reference" if self.repeats == "exists" else "room_unavailable"
            reply = Reply(made=None, status=409, code=code)
        if reply.code == "room_unavailable" and key and key in self._keys:
            reply = REPLIES["answers well"]  # under this key it had said yes
        clean = reply.clean and not in_the_way and self.keeps == "as it is"
        self._record.creates.append(Create(self._loop.time(), self.account, reference, guest, clean))
        how = "says that it has it already" if in_the_way else name
        self._record.say(self._loop.time(), f"{self.account}: asked to create {short(reference)}, {how}")
        made: list[Booking] = []
        if reply.made is not None:
            self._later(reply.made, lambda: made.extend(self._make(reference, guest, key, twice=reply.twice)))
        if reply.after is None:
            await asyncio.sleep(3600.0)
        await asyncio.sleep(reply.after or 0.0)
        if reply.status == 0:
            raise Lost
        if reply.body:
            return Response(reply.status, reply.headers, reply.body.encode())
        if reply.status == 201 and made:
            made[0].told = True
            return Response(201, (), json.dumps(self._shown(made[0])).encode())
        problem = {"code": reply.code, "title": reply.code, "message": _WORDS.get(reply.code, reply.code)}
        return Response(reply.status, (*_PROBLEM, *reply.headers), json.dumps(problem).encode())

    def _make(self, reference: str, guest: str, key: str, *, twice: bool) -> list[Booking]:
        if key and key in self._keys:
            return [self._keys[key]]
        now = self._loop.time()
        for doubled in (False, True)[: 2 if twice and not key else 1]:
            pms_id = f"{self.account}-{len(self.bookings) + 1}"
            kept = KEEPS[self.keeps](reference)
            made = Booking(self.account, pms_id, reference, guest, now, now + self.shows_after, kept, doubled=doubled)
            made.hidden = self.keeps == "as a code of its own"
            made.findable = self.keeps == "as it is" and self.shape in {"keyed", "searched", "immediate"} and not twice
            self.bookings.append(made)
            self._record.bookings.append(made)
        self._record.say(now, f"{self.account}: has made {self.bookings[-1].pms_id} of {short(reference)}")
        if key:
            self._keys[key] = self.bookings[-1]
        return [each for each in self.bookings if each.reference == reference][-1:]

    def _shown(self, booking: Booking) -> dict[str, Any]:
        return {
            "id": booking.pms_id,
            "reference": booking.kept,
            "status": "CONFIRMED" if booking.cancelled_at is None else "CANCELLED",
            "email": booking.guest,
        }

    def _list(self, request: Request) -> Response:
        now = self._loop.time()
        bookings = [each for each in self.bookings if each.shown_at <= now]
        if self.shape != "searched":
            # Without its page, a PMS that cannot be searched is asked for nothing.
            wanted = re.sub(r".*reference=([^&]*).*", r"\1", request.query)
            matching = [each for each in bookings if _bare(wanted)[:20] in _bare(each.kept)]
            both = len([each for each in matching if each.cancelled_at is None]) > 1
            for each in matching:
                each.shown_with_double |= both and each.doubled
            return Response(200, (), json.dumps({"data": [*map(self._shown, matching)]}).encode())
        shown = [*map(self._shown, reversed(bookings))]
        page = int(re.sub(r".*page=(\d+).*", r"\1", request.query))
        foreign = {"reference": "", "status": "CONFIRMED", "email": "other@example.com"}
        if self.shifting and page == 1:
            self._fillers = [f"own-{now}-{n}" for n in range(2)]
        everything = [{"id": each, **foreign} for each in self._fillers] + shown
        found = everything[2 * page - 2 : 2 * page]
        if self.shifting and page == 1:  # one is cancelled by its guest while the list is read
            self._fillers.pop()
        return Response(200, (), json.dumps({"data": found}).encode())

    def _cancel(self, pms_id: str) -> Response:
        found = next((each for each in self.bookings if each.pms_id == pms_id), None)
        now = self._loop.time()
        self._record.say(now, f"{self.account}: asked to cancel {pms_id}")
        if found is None:
            return _problem(404, "reservation_not_found")
        if self.cancels_badly:
            return _problem(500, "error")
        if self.refuses_cancellations and found.cancelled_at is None:
            return _problem(409, "too_late")
        if found.cancelled_at is None:
            found.cancelled_at, found.cancelled_by = now, "forwarder"
        return Response(204, (), b"")

    def _later(self, seconds: float, happens: Callable[[], Any]) -> None:
        if seconds > 0:
            self._loop.call_later(seconds, happens)
        else:
            happens()


_WORDS: Final = {"duplicate_reference": "A reservation with this reference already exists."}


def _problem(status: int, code: str) -> Response:
    return Response(status, _PROBLEM, json.dumps({"code": code, "title": code, "message": code}).encode())


def _header(request: Request, name: bytes) -> str:
    return next((value.decode() for known, value in request.headers if known.lower() == name), "").strip('"')


def _bare(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()

"""The query stage over HTTP: the status of a submission, one reservation, pages of reservations (section 8 of the contract).

A status request may wait (RFC 7240) until the status is news to the caller: without If-None-Match once the submission is settled,
with it once the tag differs. An event wakes it; changes without one (ingestion, a deferred try) show when the wait is over."""

import re
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from pydantic_core import to_json
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route

from forwarder.http import messages, parameters
from forwarder.http.messages import NO_STORE, NotModified, Response, Routes, conditional_response, entity_tag, matches
from forwarder.http.parameters import Parameters, Wait
from forwarder.process.clock import Clock
from forwarder.reservation import problems as catalogue
from forwarder.reservation.outcome import LISTED_STATUSES, Status
from forwarder.reservation.problems import FieldFault, Problem
from forwarder.reservation.request import NOT_BLANK
from forwarder.reservation.submission import CONFLICTING_BODY, REQUEST_ID, RequestIds
from forwarder.store.lists.port import DEFAULT_FILTERS, Days, Filters, Order, Page, StoredSubmission
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.access import Access, Caller, forbidden
from forwarder.tenancy.port import TenancyUnavailable
from forwarder.topics.outcomes import OutcomeEvent, OutcomeListener

if TYPE_CHECKING:
    from forwarder.store.lists.reader import Reader

LONGEST_PROPERTY_ID: Final = 128
PARAMETERS: Final = parameters.PAGE_PARAMETERS | {
    *("order", "status", "propertyId", "updatedSince"),
    *("arrivalFrom", "arrivalTo", "departureFrom", "departureTo"),
}
"""The query parameters of a list of reservations."""
# RFC 3339. Programs disagree on other forms of ISO 8601 (weeks, no separators).
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The page of `limit` records that starts at `cursor`, among those that `filters` select."""

    cursor: int = parameters.FIRST
    limit: int = parameters.DEFAULT_LIMIT
    filters: Filters = DEFAULT_FILTERS
    order: Order = "asc"


def read_page_request(query: Parameters) -> PageRequest | Problem:
    """The page that the query parameters select; all faults in one problem."""
    faults: list[FieldFault] = []
    limit = _sound(parameters.read_limit(query), parameters.DEFAULT_LIMIT, faults)
    cursor = _sound(parameters.read_cursor(query), parameters.FIRST, faults)
    order: Order | None = _sound(_single(query, "order", _order), None, faults)
    filters = Filters(
        _sound(_statuses(query), LISTED_STATUSES, faults),
        _sound(_single(query, "propertyId", _property_id), None, faults),
        _days(query, "arrival", faults),
        _days(query, "departure", faults),
        _sound(_single(query, "updatedSince", _moment), None, faults),
    )
    return parameters.invalid_query(faults) if faults else PageRequest(cursor, limit, filters, order or "asc")


def _sound(read: T | FieldFault, default: T, faults: list[FieldFault]) -> T:
    """What was `read`; a fault is added to `faults`."""
    if isinstance(read, FieldFault):
        faults.append(read)
        return default
    return read


def write_page(page: Page, limit: int) -> bytes:
    """`{data, meta}`, joined from the stored JSON of the records: none is parsed or serialized again."""
    cursors = {"previous": page.previous, "current": page.current, "next": page.next}
    return parameters.write_list(page.records, limit, **cursors)


def _statuses(query: Parameters) -> frozenset[Status] | FieldFault:
    """The statuses to list, repeated or joined by commas; without any, the default list."""
    names = [name for given in query.get("status", ()) for name in given.split(",")]
    if not set(names) <= set(Status):
        return FieldFault("/status", "invalid_value", f"must be one or several of {', '.join(Status)}")
    return frozenset(map(Status, names)) or LISTED_STATUSES


def _days(query: Parameters, name: str, faults: list[FieldFault]) -> Days:
    first, last = (_sound(_single(query, f"{name}{end}", _day), None, faults) for end in ("From", "To"))
    if first is not None and last is not None and first > last:
        faults.append(FieldFault(f"/{name}To", "contradictory", f"must not be before {name}From"))
    return Days(first, last)


def _single(query: Parameters, name: str, read: Callable[[str, str], T | FieldFault]) -> T | FieldFault | None:
    given = query.get(name, ())
    if len(set(given)) > 1:
        return parameters.contradictory(name)
    return read(name, given[0]) if given else None


def _property_id(name: str, text: str) -> str | FieldFault:
    if len(text) > LONGEST_PROPERTY_ID:
        return FieldFault(f"/{name}", "too_long", f"must have at most {LONGEST_PROPERTY_ID} characters")
    if not re.fullmatch(NOT_BLANK, text) or "\N{REPLACEMENT CHARACTER}" in text:  # the bytes of another encoding
        return FieldFault(f"/{name}", "invalid_value", "must be in UTF-8, not empty, and without the character U+0000")
    return text


def _day(name: str, text: str) -> date | FieldFault:
    try:
        return date.fromisoformat(text if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) else "")
    except ValueError:
        return FieldFault(f"/{name}", "invalid_date", "must be a date that exists, written YYYY-MM-DD")


def _moment(name: str, text: str) -> datetime | FieldFault:
    try:
        moment = datetime.fromisoformat(text.upper() if _MOMENT.fullmatch(text) else "")
    except ValueError:
        right = "must be a moment with its offset from UTC, such as 2027-01-15T09:30:00Z; a + is written %2B here"
        return FieldFault(f"/{name}", "invalid_value", right)
    try:
        return moment.astimezone(UTC)
    except OverflowError:  # some times on the first and last days have no UTC equivalent
        return datetime.min.replace(tzinfo=UTC) if moment.year == 1 else datetime.max.replace(tzinfo=UTC)


def _order(name: str, text: str) -> Order | FieldFault:
    if text not in {"asc", "desc"}:
        return FieldFault(f"/{name}", "invalid_value", "must be asc or desc")
    return cast("Order", text)


_NO_WAIT = Wait(0)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The submission as last read, with the revision of its last event. `duplicate_of`: the original, whose state this is."""

    body: bytes
    status: Status
    revision: int
    duplicate_of: str | None = None

    def is_news(self, if_none_match: str | None) -> bool:
        if if_none_match is None:
            return self.status is not Status.PENDING
        return not matches(if_none_match, entity_tag(self.body))


@dataclass(frozen=True, slots=True)
class Queries:
    """The requests of the stage, on its ports. All but `endpoint` are for authenticated callers, and raise `StoreUnavailable`.
    `max_wait_seconds`: the longest `Prefer: wait=N`. `retry_after_seconds`: the `Retry-After` while the store is unavailable."""

    access: Access
    reader: "Reader"
    ids: RequestIds
    outcomes: OutcomeListener
    clock: Clock
    max_wait_seconds: int = 60
    retry_after_seconds: int = 1

    def endpoint(
        self,
        read: Callable[[Caller, Request], Awaitable[Response | NotModified | Problem]],
        accepted: Collection[str] = (),
    ) -> Callable[[Request], Awaitable[Response | NotModified]]:
        """The endpoint that responds with the result of `read` for the caller's account, with these query parameters `accepted`."""

        async def answer(request: Request) -> Response | NotModified | Problem:
            caller = await self._caller(request)
            if isinstance(caller, Problem):
                return caller
            place = messages.place_of(request.scope)
            if place is not None and not place.claim(caller.workspace_id):
                return catalogue.OVERLOADED.problem("Ask again in a moment.")
            return parameters.refuse_unknown(request.scope, accepted) or await read(caller, request)

        async def respond(request: Request) -> Response | NotModified:
            try:
                result = await answer(request)
            except TenancyUnavailable:
                result = catalogue.TENANCY_UNAVAILABLE.problem("Ask again in a moment.")
            except StoreUnavailable:
                result = catalogue.STORE_UNAVAILABLE.problem("Ask again in a moment; nothing is lost.")
            if isinstance(result, Problem):
                return messages.problem_response(result, retry_after_seconds=self.retry_after_seconds)
            return result

        return respond

    async def _caller(self, request: Request) -> Caller | Problem:
        address, fields = messages.client_address(request.scope), messages.header_fields(request.scope)
        caller = self.access.recent(fields) or await self.access.caller(fields, address)
        if isinstance(caller, Problem) or (not caller.networks and "read" in caller.scopes):
            return caller
        return forbidden(caller, "read", address) or caller

    async def page(self, caller: Caller, request: Request) -> Response | Problem:
        asked = read_page_request(parameters.parameters_of(request.scope))
        if isinstance(asked, Problem):
            return asked
        page = await self.reader.page(
            caller.account.id, cursor=asked.cursor, limit=asked.limit, filters=asked.filters, order=asked.order
        )
        return Response(200, write_page(page, asked.limit), (NO_STORE,))

    async def reservation(self, caller: Caller, request: Request) -> Response | NotModified | Problem:
        reservation_id = parameters.positive(request.path_params["id"], parameters.LARGEST_ID)
        stored = reservation_id and await self.reader.reservation(caller.account.id, reservation_id)
        if not stored:
            return catalogue.RESERVATION_NOT_FOUND.problem("This integration account has no reservation with that id.")
        body = messages.envelope(stored.status.success, stored.record.encode())
        return conditional_response(body, messages.header_map(request.scope).get("if-none-match"))

    async def status(self, caller: Caller, request: Request) -> Response | NotModified | Problem:
        """The status, from the moment of acceptance. Raises `ClientDisconnect` if the client left while it waited."""
        request_id, headers = request.path_params["request_id"], messages.header_map(request.scope)
        prefer, if_none_match = headers.get("prefer"), headers.get("if-none-match")
        wait = _NO_WAIT if prefer is None else parameters.read_wait(prefer, _NO_WAIT, self.max_wait_seconds)
        # Anything of another form was never issued: do not read the store for it.
        seen = await self._look(caller, request_id) if REQUEST_ID.fullmatch(request_id) else None
        if seen is None:
            missing = "This integration account has no submission with that requestId."
            return catalogue.SUBMISSION_NOT_FOUND.problem(missing)
        waited = wait.seconds > 0
        if waited and not seen.is_news(if_none_match):
            seen, waited = await self._news(caller, request, seen, wait.seconds, if_none_match)
            if isinstance(refused := await self._caller(request), Problem):  # its key may have been revoked meanwhile
                return refused
        applied = [(b"preference-applied", wait.applied.encode())] if waited else []
        if seen.duplicate_of is not None:
            applied.append((b"duplicate-of", seen.duplicate_of.encode()))
        return conditional_response(seen.body, if_none_match, *applied)

    async def _news(
        self, caller: Caller, request: Request, seen: _Seen, seconds: float, if_none_match: str | None
    ) -> tuple[_Seen, bool]:
        """The latest reading within `seconds`; and False if it could not wait: too many requests do, or the log is unavailable."""
        request_id, outcomes, clock = request.path_params["request_id"], self.outcomes, self.clock
        end = clock.monotonic() + seconds
        body_left, client_is_gone = True, False

        def is_later(event: OutcomeEvent) -> bool:
            return event.revision > seen.revision  # a repeated event is no news

        async def gone() -> None:
            nonlocal body_left, client_is_gone
            while body_left:
                body_left = (await request.receive()).get("more_body", False)
            client_is_gone = await messages.client_left(request.scope, request.receive)

        while True:
            # Register before the first read, so that an event after the read is not missed.
            awaited = seen.duplicate_of or request_id
            async with outcomes.expecting(awaited, is_later, party=caller.workspace_id) as expected:
                seen = await self._look(caller, request_id) or seen
                left = end - clock.monotonic()
                if seen.is_news(if_none_match) or left <= 0:
                    return seen, True
                if expected is None or not outcomes.following.is_set():
                    return seen, False
                if awaited != (seen.duplicate_of or request_id):
                    continue  # the read has shown that it is a duplicate: wait for the original
                place = messages.place_of(request.scope)
                if place is not None:
                    place.leave()  # from now on it counts as a waiting request
                heard = await expected.within(left, gone)
            if client_is_gone:
                raise ClientDisconnect
            if heard is None:
                return await self._look(caller, request_id) or seen, True

    async def _look(self, caller: Caller, request_id: str) -> _Seen | None:
        """The state in the store, or that of one that is not there yet: its signed identifier proves that it was accepted."""
        stored = await self.reader.submission(caller.account.id, request_id)
        if stored is not None:
            original = None if stored.request_id == request_id else stored.request_id
            return _Seen(write_status(stored), stored.status, stored.revision, original)
        if self.ids.vouches(caller.account.id, request_id):
            return _Seen(untaken_status(request_id), Status.PENDING, 0)
        return None


def query_routes(queries: Queries) -> Routes:
    """The routes of the query stage; HEAD wherever GET is."""
    pages, lists = queries.endpoint(queries.page, PARAMETERS), ("/api/vrs/reservations", "/api/v1/vrs/reservations")
    # Paths of the ingress that have the form of a reservation's path.
    refused = catalogue.METHOD_NOT_ALLOWED.problem("This path supports POST.")
    post_alone = messages.problem_response(refused, (b"allow", b"POST"))
    return [
        Route("/api/v1/vrs/submissions/{request_id}", queries.endpoint(queries.status)),
        *(Route(path, pages) for path in lists),
        *(Route(f"{path}/", pages, include_in_schema=False) for path in lists),
        *(Route(f"/api/v1/vrs/reservations/{name}", post_alone) for name in ("booking-engine", "bulk")),
        Route("/api/v1/vrs/reservations/{id}", queries.endpoint(queries.reservation)),
    ]


# The status, as `GET /api/v1/vrs/submissions/{requestId}` shows it. `success` describes the submission, not the request: a client
# that polls and tests only that must not take a failure for a reservation.


def write_status(stored: StoredSubmission) -> bytes:
    """The status of an ingested submission: every attempt, the record, the problem if there is one, and its cancellation."""
    shown: dict[str, Any] = {
        "requestId": stored.request_id,
        "status": stored.status.value,
        "acceptedAt": stored.accepted_at,
        "updatedAt": stored.updated_at,
        "reservationId": stored.id,
        "attempts": [],
        "problem": stored.problem,
        "cancellation": stored.cancellation and stored.cancellation.as_json(),
    }
    for attempt in stored.attempts:
        words = {"reason": attempt.reason, "detail": attempt.detail}
        one = {"number": attempt.number, "action": attempt.action, "startedAt": attempt.started_at}
        one |= {"durationMs": attempt.duration_ms, "outcome": attempt.outcome}
        shown["attempts"].append(one | {name: text for name, text in words.items() if text is not None})
    # Members that most submissions lack: evidence of pushes in doubt, similar submissions, and a conflicting body.
    if known := stored.evidence.words:
        shown["evidence"] = known
    if stored.similar_to:
        shown["similarTo"] = list(stored.similar_to)
    if stored.conflicting_at is not None:
        detail = "Another body came under its Idempotency-Key, and was not made. Send it with a key of its own."
        shown["conflictingBody"] = {"code": CONFLICTING_BODY, "acceptedAt": stored.conflicting_at, "detail": detail}
    return messages.envelope(stored.status.success, to_json(shown)[:-1] + b',"record":' + stored.record.encode() + b"}")


def untaken_status(request_id: str) -> bytes:
    """The status of a submission that is on the log and not in the store yet."""
    data: dict[str, Any] = {"requestId": request_id, "status": Status.PENDING.value}
    data |= dict.fromkeys(("acceptedAt", "updatedAt", "reservationId")) | {"attempts": []}
    data |= dict.fromkeys(("problem", "cancellation", "record"))
    return messages.envelope(Status.PENDING.success, to_json(data))

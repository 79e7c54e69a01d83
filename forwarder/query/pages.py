"""Which page of reservations is asked for (section 8 of the contract): cursor, limit, filters and order; and how it is
written. Pure.

Each reader below returns the value that it read, or a `Fault`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final, TypeVar, cast

from forwarder.http.paging import (
    DEFAULT_LIMIT,
    FIRST,
    PAGE_PARAMETERS,
    Cursors,
    read_cursor,
    read_limit,
    write_list,
)
from forwarder.http.query_string import Parameters, invalid_query
from forwarder.reservation.outcome import LISTED_STATUSES, Status
from forwarder.reservation.problems.problem import Fault, Problem
from forwarder.reservation.request import NOT_BLANK
from forwarder.store.lists.port import DEFAULT_FILTERS, Days, Filters, Order, Page

LONGEST_PROPERTY_ID: Final = 128
PARAMETERS: Final = PAGE_PARAMETERS | {
    *("order", "status", "propertyId", "updatedSince"),
    *("arrivalFrom", "arrivalTo", "departureFrom", "departureTo"),
}
"""The query parameters of a list of reservations."""

_STATUSES: Final = frozenset(status.value for status in Status)
_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)
_LATEST: Final = datetime.max.replace(tzinfo=UTC)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
# RFC 3339. Programs disagree on other forms of ISO 8601 (weeks, no separators).
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_PROPERTY_ID = re.compile(NOT_BLANK)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The page of `limit` records that starts at `cursor`, among those that `filters` select."""

    cursor: int = FIRST
    limit: int = DEFAULT_LIMIT
    filters: Filters = DEFAULT_FILTERS
    order: Order = "asc"


def read_page_request(parameters: Parameters) -> PageRequest | Problem:
    """The page that the query parameters select; all faults in one problem."""
    faults: list[Fault] = []
    limit = _sound(read_limit(parameters), DEFAULT_LIMIT, faults)
    cursor = _sound(read_cursor(parameters), FIRST, faults)
    order: Order | None = _sound(_single(parameters, "order", _order), None, faults)
    filters = Filters(
        _sound(_statuses(parameters), LISTED_STATUSES, faults),
        _sound(_single(parameters, "propertyId", _property_id), None, faults),
        _days(parameters, "arrival", faults),
        _days(parameters, "departure", faults),
        _sound(_single(parameters, "updatedSince", _moment), None, faults),
    )
    return invalid_query(faults) if faults else PageRequest(cursor, limit, filters, order or "asc")


def _sound(read: T | Fault, default: T, faults: list[Fault]) -> T:
    """What was `read`; a fault is added to `faults`."""
    if isinstance(read, Fault):
        faults.append(read)
        return default
    return read


def write_page(page: Page, limit: int) -> bytes:
    """`{data, meta}`, joined from the stored JSON of the records: none is parsed or serialized again."""
    return write_list(page.records, Cursors(page.previous, page.current, page.next), limit)


def _statuses(parameters: Parameters) -> frozenset[Status] | Fault:
    """The statuses to list, repeated or joined by commas; without any, the default list."""
    names = [name for given in parameters.get("status", ()) for name in given.split(",")]
    if not set(names) <= _STATUSES:
        return Fault("/status", "invalid_value", f"must be one or several of {', '.join(Status)}")
    return frozenset(map(Status, names)) or LISTED_STATUSES


def _days(parameters: Parameters, name: str, faults: list[Fault]) -> Days:
    first, last = (_sound(_single(parameters, f"{name}{end}", _day), None, faults) for end in ("From", "To"))
    if first is not None and last is not None and first > last:
        faults.append(Fault(f"/{name}To", "contradictory", f"must not be before {name}From"))
    return Days(first, last)


def _single(parameters: Parameters, name: str, read: Callable[[str, str], T | Fault]) -> T | Fault | None:
    given = parameters.get(name, ())
    if len(set(given)) > 1:
        return Fault(f"/{name}", "contradictory", "is given more than once, with different values")
    return read(name, given[0]) if given else None


def _property_id(name: str, text: str) -> str | Fault:
    if len(text) > LONGEST_PROPERTY_ID:
        return Fault(f"/{name}", "too_long", f"must have at most {LONGEST_PROPERTY_ID} characters")
    if not _PROPERTY_ID.fullmatch(text) or "\N{REPLACEMENT CHARACTER}" in text:  # the bytes of another encoding
        return Fault(f"/{name}", "invalid_value", "must be in UTF-8, not empty, and without the character U+0000")
    return text


def _day(name: str, text: str) -> date | Fault:
    try:
        return date.fromisoformat(text if _DAY.fullmatch(text) else "")
    except ValueError:
        return Fault(f"/{name}", "invalid_date", "must be a date that exists, written YYYY-MM-DD")


def _moment(name: str, text: str) -> datetime | Fault:
    try:
        moment = datetime.fromisoformat(text.upper() if _MOMENT.fullmatch(text) else "")
    except ValueError:
        right = "must be a moment with its offset from UTC, such as 2027-01-15T09:30:00Z; a + is written %2B here"
        return Fault(f"/{name}", "invalid_value", right)
    try:
        return moment.astimezone(UTC)
    except OverflowError:  # some times on the first and last days have no UTC equivalent
        return _EARLIEST if moment.year == 1 else _LATEST


def _order(name: str, text: str) -> Order | Fault:
    if text not in {"asc", "desc"}:
        return Fault(f"/{name}", "invalid_value", "must be asc or desc")
    return cast("Order", text)

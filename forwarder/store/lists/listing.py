"""What a list asks of the store: which of its filters leads, and the parameters of its statements (`store.runs`). Pure.

A page is merged from the runs of its lead. The other filters are looked up in the rows of these runs: what they do not let through
is passed over, and costs. So the lead is to be the filter that lets the fewest through.
"""

from dataclasses import dataclass
from datetime import UTC, date
from typing import Any, Final, Literal

from forwarder.reservation.outcome import Status
from forwarder.store.lists.keyset import FIRST
from forwarder.store.lists.port import Days, Filters, Order
from forwarder.store.submissions.batch import PARAMETER, as_batch

Filter = Literal["property", "status", "arrival", "departure", "updated"]

_LARGEST_ID: Final = 2**63 - 1
_WAITING: Final = frozenset({Status.PENDING, Status.IN_DOUBT, Status.FAILED})
"""The statuses that few reservations have: something is still to be done about them."""
_ENDLESS: Final = date.max.toordinal()
_FEW_DAYS: Final = 92
"""To look for something on a day on which there is nothing costs less than to find the next on which there is: for so many days no
more than a page does."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the text of a list's statements depends on: which filters there are, which of them leads, and the order. `every_day`: a
    range of so few days leads that each is looked at; else those on which there is anything are found first."""

    given: tuple[Filter, ...] = ()
    lead: Filter | None = None
    descending: bool = False
    every_day: bool = False


def shape_of(filters: Filters, order: Order) -> Shape:
    """The shape of the list of what `filters` let through."""
    is_given: dict[Filter, bool] = {
        "property": filters.property_id is not None,
        "status": bool(filters.statuses),
        "arrival": filters.arrival != Days(),
        "departure": filters.departure != Days(),
        "updated": filters.updated_since is not None,
    }
    given = tuple(name for name, given in is_given.items() if given)
    ranked = sorted(given, key=lambda name: _rank(name, filters))
    lead = ranked[0] if ranked else None
    return Shape(given, lead, order == "desc", every_day=_days(lead, filters) <= _FEW_DAYS)


def _rank(name: Filter, filters: Filters) -> tuple[int, int]:
    """Lower likely lets fewer through. A fixed order, and no guess from statistics: that may turn from one page to the next."""
    match name:
        case "property":
            return (0, 0)
        case "status":
            return (1, 0) if filters.statuses <= _WAITING else (5, 0)
        case "updated":
            return (3, 0)
        case "arrival" | "departure":
            days = _days(name, filters)
            return (4 if days == _ENDLESS else 2, days)


def _days(name: Filter | None, filters: Filters) -> int:
    """How many days that range has, but for one."""
    days = {"arrival": filters.arrival, "departure": filters.departure}.get(name or "", Days())
    return _ENDLESS if days.first is None or days.last is None else (days.last - days.first).days


def parameters_of(filters: Filters, shape: Shape, cursor: int) -> dict[str, Any]:
    """What the statements of that list take, but for its account and its size."""
    since, statuses = filters.updated_since, sorted(filters.statuses)
    values = [filters.property_id] if shape.lead == "property" else statuses
    return {
        # Above every id there is: descending, the first page is what is below that.
        "cursor": _LARGEST_ID if shape.descending and cursor == FIRST else cursor,
        "property": filters.property_id,
        "statuses": statuses,
        "arrival_first": filters.arrival.first or date.min,
        "arrival_last": filters.arrival.last or date.max,
        "departure_first": filters.departure.first or date.min,
        "departure_last": filters.departure.last or date.max,
        "updated_since": since,
        "updated_first": since and since.astimezone(UTC).date(),
        "updated_last": date.max,
        PARAMETER: as_batch([{"value": value} for value in values]),
    }

"""Paging: cursors by keyset, and which filter of a list leads. No I/O.

**Cursors.** Ascending, a cursor is the id at which a page starts. Descending, it is one above it: a page holds the rows below its
cursor. So 1, which no id is below, can mean the first page in either order. Ids are only ever added above the visible ones, and a
page is a range of ids: a client that follows `next` sees each exactly once, even if a filter drops some of them.

**Filters.** A page is merged from the runs of its leading filter: the rows that have one of its keys, in order of ids. The other
filters are checked on these rows, and rows that they drop were read in vain. So the most selective filter should lead.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final, Literal

from forwarder.reservation.outcome import LISTED_STATUSES, Status
from forwarder.store.lists.port import Days, Filters, Order

FIRST: Final = 1
"""The cursor of the first page: no id is smaller."""

MAX_PAGE_BYTES: Final = 1024 * 1024
"""The maximum size of a page's items: it ends before the item that exceeds this, unless that is its first."""


def fitting(sizes: Iterable[int]) -> int:
    """How many items of these sizes in bytes fit on a page: at least one, if there is one."""
    count = total = 0
    for size in sizes:
        total += size
        if count and total > MAX_PAGE_BYTES:
            break
        count += 1
    return count


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The cursors of the previous and the next page; None if there is none."""

    previous: int | None
    next: int | None


def sides(ids: Collection[int], cursor: int, *, descending: bool = False) -> tuple[Sequence[int], Sequence[int]]:
    """These ids, in any order, split into those before the cursor and those from it onward, each nearest first."""
    below = sorted((each for each in ids if each < cursor), reverse=True)
    above = sorted(each for each in ids if each >= cursor)
    return (above, below) if descending else (below, above)


def neighbours(
    before: Sequence[int],
    onward: Sequence[int],
    limit: int,
    *,
    shown: int | None = None,
    descending: bool = False,
) -> Neighbours:
    """The neighbours of a page of `limit`, from up to `limit + 1` ids on either side of its cursor, nearest first: those `before`
    it, and those from it `onward`. The previous page starts `limit` ids earlier; if it is the first one, at `FIRST`. The next one
    starts after those `shown`, which are fewer than `limit` where no more fit."""
    above = 1 if descending else 0
    if not before:
        previous = None
    elif len(before) <= limit:
        previous = FIRST
    else:
        previous = before[limit - 1] + above
    end = limit if shown is None else shown
    return Neighbours(previous, onward[end] + above if len(onward) > end else None)


# --- filters ----------------------------------------------------------------------------------------------------------

Filter = Literal["property", "status", "arrival", "departure", "updated", "listed"]
"""`listed`: the default statuses of a list, which a separate index serves as one run. `status`: any others."""

_WAITING: Final = frozenset({Status.PENDING, Status.IN_DOUBT, Status.FAILED})
"""The statuses with work left, which few reservations have."""
_ENDLESS: Final = date.max.toordinal()
_FEW_DAYS: Final = 92
"""Reading an empty day costs less than finding the next day with any rows: for this many days, no more than a page."""


@dataclass(frozen=True, slots=True)
class ListShape:
    """The inputs that determine the text of a list's statements: the given filters, the leading one, and the order.
    `every_day`: the leading range is so short that each day is read; otherwise the days with any rows are found first."""

    given: tuple[Filter, ...] = ("listed",)
    lead: Filter = "listed"
    descending: bool = False
    every_day: bool = False


def shape_of(filters: Filters, order: Order) -> ListShape:
    """The shape of the list with these `filters`."""
    is_listed = filters.statuses == LISTED_STATUSES
    is_given: dict[Filter, bool] = {
        "property": filters.property_id is not None,
        "status": not is_listed and filters.statuses != frozenset(Status),
        "arrival": filters.arrival != Days(),
        "departure": filters.departure != Days(),
        "updated": filters.updated_since is not None,
        "listed": is_listed,
    }
    # All statuses are no filter. But some filter must lead, and the runs of all statuses have every row.
    given = tuple(name for name, given in is_given.items() if given) or ("status",)
    lead = min(given, key=lambda name: _rank(name, filters))
    return ListShape(given, lead, order == "desc", every_day=_days(lead, filters) <= _FEW_DAYS)


def _rank(name: Filter, filters: Filters) -> tuple[int, int]:
    """Lower probably selects fewer rows. A fixed order rather than statistics, which might change from one page to the next."""
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
        case "listed":
            return (6, 0)


def _days(name: Filter, filters: Filters) -> int:
    """The number of days in that range, minus one."""
    days = {"arrival": filters.arrival, "departure": filters.departure}.get(name, Days())
    return _ENDLESS if days.first is None or days.last is None else (days.last - days.first).days

"""What is asked of the query stage: pages anywhere in the list and under each filter, a status, one reservation."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Final, Literal
from urllib.parse import urlencode

import asyncpg

from bench.flows import ACCOUNT
from bench.pages_rows import FIRST_ARRIVAL, LAST_UPDATE
from forwarder.reservation.outcome import LISTED_STATUSES, Status
from forwarder.store.lists.port import FIRST, Days, Filters, Order

LIMIT: Final = 10
_LIST: Final = "/api/v1/vrs/reservations"
_WEEK: Final = timedelta(days=7)
_SPRING: Final = Days(FIRST_ARRIVAL + timedelta(days=90), FIRST_ARRIVAL + timedelta(days=119))
_CONFIRMED: Final = frozenset({Status.CONFIRMED})
_WAITING: Final = frozenset({Status.PENDING, Status.IN_DOUBT})
_LISTS: Final[dict[str, Filters]] = {
    "all": Filters(),
    "every status": Filters(frozenset(Status)),
    "status=CONFIRMED": Filters(_CONFIRMED),
    "status=PENDING,IN_DOUBT": Filters(_WAITING),
    "propertyId": Filters(property_id="10007"),
    "arrival, 30 days": Filters(arrival=_SPRING),
    "departure, 30 days": Filters(departure=_SPRING),
    "updatedSince, 7 days": Filters(updated_since=LAST_UPDATE - _WEEK),
    "propertyId, CONFIRMED": Filters(_CONFIRMED, "10007"),
    "arrival, CONFIRMED": Filters(_CONFIRMED, arrival=_SPRING),
}
_CONDITIONS: Final[dict[str, str]] = {
    "statuses": "status = ANY($%d)",
    "property_id": "property_id = $%d",
    "arrival": "arrival_date BETWEEN $%d AND $%d",
    "departure": "departure_date BETWEEN $%d AND $%d",
    "updated_since": "updated_at >= $%d",
}

Place = Literal["first", "middle", "last"]


@dataclass(frozen=True, slots=True)
class Case:
    """One address that is asked for again and again; a page's list, order and cursor, which `EXPLAIN` is asked about, too."""

    name: str
    path: str
    filters: Filters | None = None
    order: Order = "asc"
    cursor: int = FIRST


@dataclass(slots=True)
class _Condition:
    texts: list[str] = field(default_factory=lambda: ["account_id = $1"])
    values: list[Any] = field(default_factory=lambda: [ACCOUNT])

    def add(self, name: str, *values: Any) -> None:
        numbers = range(len(self.values) + 1, len(self.values) + 1 + len(values))
        self.texts.append(_CONDITIONS[name] % tuple(numbers))
        self.values += values


async def cases(database_url: str) -> list[Case]:
    """Those that the rows at hand allow: each list's first page, one of its middle and its last, either way round."""
    connection = await asyncpg.connect(database_url)
    try:
        pages = [case for name, filters in _LISTS.items() for case in await _pages(connection, name, filters)]
        row = await connection.fetchrow(
            "SELECT id, request_id FROM reservations WHERE account_id = $1 AND record IS NOT NULL ORDER BY id LIMIT 1",
            ACCOUNT,
        )
    finally:
        await connection.close()
    assert row is not None
    status = Case("submission status", f"/api/v1/vrs/submissions/{row['request_id']}")
    return [*pages, status, Case("one reservation", f"{_LIST}/{row['id']}")]


async def _pages(connection: asyncpg.Connection, name: str, filters: Filters) -> list[Case]:
    condition = _condition(filters)
    where = f"FROM reservations WHERE {' AND '.join(condition.texts)} ORDER BY id"
    count = await connection.fetchval(f"SELECT count(*) FROM (SELECT id {where}) AS listed", *condition.values)  # noqa: S608
    found: list[Case] = []
    for place, offset in (("first", 0), ("middle", count // 2), ("last", max(count - LIMIT, 0))):
        at = await connection.fetchval(f"SELECT id {where} LIMIT 1 OFFSET {offset}", *condition.values)
        found.append(_case(name, place, filters, "asc", FIRST if place == "first" else at))
    found.append(_case(name, "middle", filters, "desc", found[1].cursor))
    return found


def _case(name: str, place: str, filters: Filters, order: Order, cursor: int) -> Case:
    asked = {"limit": LIMIT, "cursor": cursor, "order": order, **_asked(filters)}
    return Case(f"{name}: {place}, {order}", f"{_LIST}?{urlencode(asked)}", filters, order, cursor)


def _condition(filters: Filters) -> _Condition:
    condition = _Condition()
    condition.add("statuses", sorted(filters.statuses))
    if filters.property_id:
        condition.add("property_id", filters.property_id)
    for name, days in (("arrival", filters.arrival), ("departure", filters.departure)):
        if days.first:
            condition.add(name, days.first, days.last)
    if filters.updated_since:
        condition.add("updated_since", filters.updated_since)
    return condition


def _asked(filters: Filters) -> dict[str, str]:
    shown: Sequence[tuple[str, str | date | datetime | None]] = (
        ("status", "" if filters.statuses == LISTED_STATUSES else ",".join(sorted(filters.statuses))),
        ("propertyId", filters.property_id),
        ("arrivalFrom", filters.arrival.first),
        ("arrivalTo", filters.arrival.last),
        ("departureFrom", filters.departure.first),
        ("departureTo", filters.departure.last),
        ("updatedSince", filters.updated_since and filters.updated_since.isoformat()),
    )
    return {name: str(value) for name, value in shown if value}

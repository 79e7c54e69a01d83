"""Lists: what may be asked for, and their pages. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal, TypedDict

from reservation_forwarder_client.records import Reservation
from reservation_forwarder_client.wire import read

MAX_PAGE = 200


class Filters(TypedDict, total=False):
    """Which reservations are listed: those to which all of this applies. Days count themselves; `updated_since` is aware. Without
    a `status`: what was made and what is under way, not what was rejected or has failed."""

    status: str | Sequence[str]
    property_id: str | int
    arrival_from: date
    arrival_to: date
    departure_from: date
    departure_to: date
    updated_since: datetime
    order: Literal["asc", "desc"]


@dataclass(frozen=True, slots=True)
class Cursors:
    """Where this page and its neighbours begin; empty where there is none."""

    current: str
    previous: str = ""
    next: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list."""

    reservations: tuple[Reservation, ...]
    limit: int
    cursors: Cursors


@dataclass(frozen=True, slots=True)
class _Meta:
    limit: int
    cursors: Cursors


@dataclass(frozen=True, slots=True)
class _Answer:
    data: tuple[Reservation, ...]
    meta: _Meta


def page_of(members: Mapping[str, Any]) -> Page:
    """The page that is answered. Raises `Malformed`."""
    answer = read(_Answer, members)
    return Page(answer.data, answer.meta.limit, answer.meta.cursors)


def parameters_of(filters: Filters) -> dict[str, str]:
    """The query parameters that say the same."""
    return {_camel(name): _text(value) for name, value in filters.items() if value is not None}


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _text(value: Any) -> str:
    if isinstance(value, date):  # a datetime is one
        return value.isoformat()
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else ",".join(value)

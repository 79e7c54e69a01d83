"""Section 8 of the contract: what page is asked for, and how a page is written. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic_core import to_json

from forwarder.reservation.catalogue import requests
from forwarder.reservation.problem import Fault, Problem
from forwarder.store.reading import Page

DEFAULT_LIMIT: Final = 10
LARGEST_LIMIT: Final = 200
LARGEST_ID: Final = 2**63 - 1
FIRST: Final = 1

_INVALID_QUERY: Final = "invalid_query"


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The page of `limit` records that starts at id `cursor`."""

    cursor: int = FIRST
    limit: int = DEFAULT_LIMIT


def read_page_request(parameters: Mapping[str, Sequence[str]]) -> PageRequest | Problem:
    """The page that the query parameters ask for; every fault in one problem. Parameters that we do not know are left alone."""
    limit = _number("limit", [*parameters.get("limit", ())], DEFAULT_LIMIT, LARGEST_LIMIT)
    cursor = _number("cursor", [*parameters.get("cursor", ()), *parameters.get("cursors", ())], FIRST, LARGEST_ID)
    if isinstance(limit, int) and isinstance(cursor, int):
        return PageRequest(cursor, limit)
    faults = tuple(fault for fault in (limit, cursor) if isinstance(fault, Fault))
    detail = "; ".join(f"{fault.pointer[1:]} {fault.detail}" for fault in faults)
    return requests.INVALID_QUERY.problem(f"{detail}.", faults=faults)


def _number(name: str, given: Sequence[str], default: int, largest: int) -> int | Fault:
    if not given:
        return default
    if len(set(given)) > 1:
        return Fault(f"/{name}", "contradictory", "is given more than once, with different values")
    number = positive(given[0], largest)
    # An empty cursor is refused as well: it is what `next` says on the last page, and must not lead back to the first.
    return (
        Fault(f"/{name}", "out_of_range", f"must be a whole number from 1 to {largest}") if number is None else number
    )


def positive(text: str, largest: int) -> int | None:
    """The number that `text` writes in decimal digits, if it is from 1 to `largest`."""
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(largest))):
        return None
    number = int(text)
    return number if 1 <= number <= largest else None


def write_page(page: Page, limit: int) -> bytes:
    """`{data, meta}`, put together from the records as they are kept: none is read or written anew."""
    cursors = {"previous": _cursor(page.previous), "current": _cursor(page.current), "next": _cursor(page.next)}
    meta = to_json({"limit": limit, "cursors": cursors})
    return f'{{"data":[{",".join(page.records)}],"meta":'.encode() + meta + b"}"


def _cursor(at: int | None) -> str:
    return "" if at is None else str(at)

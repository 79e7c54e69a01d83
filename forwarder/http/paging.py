"""Section 8 of the contract, for every list over HTTP: the numbers that a page is asked for by, and how a page is written. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic_core import to_json

from forwarder.reservation.problems import requests
from forwarder.reservation.problems.problem import Fault, Problem

DEFAULT_LIMIT: Final = 10
LARGEST_LIMIT: Final = 200
LARGEST_ID: Final = 2**63 - 1
FIRST: Final = 1

Parameters = Mapping[str, Sequence[str]]
"""Query parameters by name, each with all of its values."""


@dataclass(frozen=True, slots=True)
class Cursors:
    """Where a page begins, and its neighbours; None where there is none."""

    previous: int | None
    current: int
    next: int | None


def read_limit(parameters: Parameters) -> int | Fault:
    """How many items the page has."""
    return _number("limit", [*parameters.get("limit", ())], DEFAULT_LIMIT, LARGEST_LIMIT)


def read_cursor(parameters: Parameters) -> int | Fault:
    """Where the page begins."""
    return _number("cursor", [*parameters.get("cursor", ()), *parameters.get("cursors", ())], FIRST, LARGEST_ID)


def invalid_query(faults: Sequence[Fault]) -> Problem:
    """Every fault in one problem."""
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


def write_list(items: Sequence[str], cursors: Cursors, limit: int) -> bytes:
    """`{data, meta}`, put together from items that are JSON already."""
    shown = {name: _cursor(getattr(cursors, name)) for name in ("previous", "current", "next")}
    meta = to_json({"limit": limit, "cursors": shown})
    return f'{{"data":[{",".join(items)}],"meta":'.encode() + meta + b"}"


def _cursor(at: int | None) -> str:
    return "" if at is None else str(at)

"""Section 8 of the contract, for every list over HTTP: the numbers that a page is asked for by, and how a page is written. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic_core import to_json

from forwarder.http.query_string import Parameters
from forwarder.reservation.problems.problem import Fault

DEFAULT_LIMIT: Final = 10
LARGEST_LIMIT: Final = 200
LARGEST_ID: Final = 2**63 - 1
FIRST: Final = 1
PAGE_PARAMETERS: Final = frozenset({"limit", "cursor", "cursors"})


@dataclass(frozen=True, slots=True)
class Cursors:
    """The cursors of a page and its neighbours; None if there is none."""

    previous: int | None
    current: int
    next: int | None


def read_limit(parameters: Parameters) -> int | Fault:
    """The page size, capped at the maximum; the fault if invalid."""
    given = parameters.get("limit", ())
    if len(set(given)) > 1:
        return _contradictory("limit")
    if not given:
        return DEFAULT_LIMIT
    if not is_digits(given[0]) or not (digits := given[0].lstrip("0")):
        return Fault(
            "/limit", "out_of_range", f"must be a whole number from 1; a page has at most {LARGEST_LIMIT} items"
        )
    return LARGEST_LIMIT if len(digits) > len(str(LARGEST_LIMIT)) else min(int(digits), LARGEST_LIMIT)


def read_cursor(parameters: Parameters) -> int | Fault:
    """The cursor of the page; the first page if empty, as from clients that have none yet."""
    given = [*parameters.get("cursor", ()), *parameters.get("cursors", ())]
    if len(set(given)) > 1:
        return _contradictory("cursor")
    if not any(given):
        return FIRST
    return positive(given[0], LARGEST_ID) or Fault(
        "/cursor", "out_of_range", f"must be a whole number from 1 to {LARGEST_ID}, or empty for the first page"
    )


def _contradictory(name: str) -> Fault:
    return Fault(f"/{name}", "contradictory", "is given more than once, with different values")


def is_digits(text: str) -> bool:
    """Whether `text` is one or more ASCII digits."""
    return text.isascii() and text.isdecimal()


def positive(text: str, largest: int) -> int | None:
    """The number that `text` writes in decimal digits, if it is from 1 to `largest`."""
    if not (is_digits(text) and len(text) <= len(str(largest))):
        return None
    number = int(text)
    return number if 1 <= number <= largest else None


def write_list(items: Sequence[str], cursors: Cursors, limit: int) -> bytes:
    """`{data, meta}`, put together from items that are JSON already."""
    numbers = {"previous": cursors.previous, "current": cursors.current, "next": cursors.next}
    shown = {name: "" if number is None else str(number) for name, number in numbers.items()}
    meta = to_json({"limit": limit, "cursors": shown})
    return f'{{"data":[{",".join(items)}],"meta":'.encode() + meta + b"}"

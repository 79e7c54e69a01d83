"""What callers ask for. Header fields: `Prefer` (RFC 7240), `Retry-After` and the charset of a `Content-Type` (RFC 9110); their
parsers do not raise on any input. Query parameters, and pages of lists (section 8 of the contract). Pure.

A misspelt `dryRun` would book, and a misspelt filter would match everything; so unknown query parameters are refused."""

import codecs
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import parse_qs
from urllib.request import parse_http_list

from pydantic_core import to_json
from starlette.types import Scope

from forwarder.reservation import problems as catalogue
from forwarder.reservation.checks.faults import nearest
from forwarder.reservation.parsing import http_date, number
from forwarder.reservation.problems import FieldFault, Problem, pointer_to

MAX_RETRY_AFTER: Final = 2.0**31
"""Seconds that a longer `Retry-After` counts as: 68 years, the bound that RFC 9111 sets for such numbers."""
_CHARSET: Final = re.compile(r';\s*charset\s*=\s*"?([A-Za-z0-9._:+-]{1,40})', re.ASCII | re.IGNORECASE)
_TEXT: Final = re.compile(
    r"ascii|utf-(8|16|32)(-[bl]e)?|iso8859-\d+|cp125\d|gb\d+|gbk|big5|shift_jis|euc_(jp|kr)|koi8-[ru]"
)
"""The codecs that a body may be in: Python has others, which are no charsets."""


@dataclass(frozen=True, slots=True)
class Wait:
    """How long to wait for the outcome; 0 answers at once. `applied`: the value of `Preference-Applied`."""

    seconds: float
    applied: str = ""


def read_wait(prefer: str, default: Wait, max_seconds: int) -> Wait:
    """The wait that the `Prefer` header requests. Ignores unknown and malformed preferences."""
    asked: dict[str, str] = {}
    for preference in parse_http_list(prefer):
        name, _, value = preference.partition(";")[0].partition("=")
        asked.setdefault(name.strip().lower(), value.strip())
    seconds = re.fullmatch(r'([0-9]{1,18})|"([0-9]{1,18})"', asked.get("wait", ""))
    respond_async = "respond-async" in asked
    if seconds is None:
        return Wait(0, "respond-async") if respond_async else default
    # Together they request the outcome if it comes within the wait, else a 202, which is what a wait always means here.
    wait = min(int(seconds[1] or seconds[2]), max_seconds)
    return Wait(wait, f"respond-async, wait={wait}" if respond_async else f"wait={wait}")


def read_retry_after(text: str, now: datetime) -> float | None:
    """The seconds in `Retry-After` (RFC 9110, section 10.2.3), a number or the time until a date, in any of the three forms of
    section 5.6.7, also with a numeric zone or none (UTC); at most `MAX_RETRY_AFTER`, negative for a past date, None if neither."""
    text = text.strip()
    seconds = float(text) if is_digits(text) else number(text)
    if seconds is None and (moment := http_date(text)) is not None:
        seconds = (moment - now).total_seconds()
    return None if seconds is None else min(seconds, MAX_RETRY_AFTER)


def charset_of(content_type: str) -> str | None:
    """The codec of the charset that a `Content-Type` names; None where it names none, or none of texts."""
    named = _CHARSET.search(content_type)
    try:
        codec = codecs.lookup(named[1]).name if named else ""
    except (LookupError, ValueError):
        return None
    return codec if _TEXT.fullmatch(codec) else None


Parameters = Mapping[str, Sequence[str]]
"""Query parameters by name, each with all of its values."""


def parameters_of(scope: Scope) -> Parameters:
    """The query parameters of the request, including empty values."""
    query: bytes = scope["query_string"]
    return parse_qs(query.decode("latin-1"), keep_blank_values=True) if query else {}


def refuse_unknown(scope: Scope, known: Collection[str]) -> Problem | None:
    """The refusal if a parameter is not `known`, with the name that was probably meant."""
    faults: list[FieldFault] = []
    for name in [name for name in parameters_of(scope) if name not in known][:10]:
        hint = f"there are {', '.join(sorted(known))}" if known else "this operation takes none"
        if (meant := nearest(name, known)) is not None:
            hint = f"did you mean {meant}?"
        said = f"is no query parameter of this operation: {hint}"
        faults.append(FieldFault(pointer_to(name), "unknown_parameter", said))
    return invalid_query(faults) if faults else None


def invalid_query(faults: Sequence[FieldFault]) -> Problem:
    detail = "; ".join(f"{fault.pointer[1:]} {fault.detail}" for fault in faults)
    return catalogue.INVALID_QUERY.problem(detail if detail.endswith("?") else f"{detail}.", faults=faults)


DEFAULT_LIMIT: Final = 10
LARGEST_LIMIT: Final = 200
LARGEST_ID: Final = 2**63 - 1
FIRST: Final = 1
PAGE_PARAMETERS: Final = frozenset({"limit", "cursor", "cursors"})


def read_limit(parameters: Parameters) -> int | FieldFault:
    """The page size, capped at the maximum; the fault if invalid."""
    given = parameters.get("limit", (str(DEFAULT_LIMIT),))
    if len(set(given)) > 1:
        return contradictory("limit")
    if not is_digits(given[0]) or not (digits := given[0].lstrip("0")):
        wrong = f"must be a whole number from 1; a page has at most {LARGEST_LIMIT} items"
        return FieldFault("/limit", "out_of_range", wrong)
    return min(int(digits[:4]), LARGEST_LIMIT)  # of more digits each is larger


def read_cursor(parameters: Parameters) -> int | FieldFault:
    """The cursor of the page; the first page if empty, as from clients that have none yet."""
    given = [*parameters.get("cursor", ()), *parameters.get("cursors", ())]
    if len(set(given)) > 1:
        return contradictory("cursor")
    if not any(given):
        return FIRST
    return positive(given[0], LARGEST_ID) or FieldFault(
        "/cursor", "out_of_range", f"must be a whole number from 1 to {LARGEST_ID}, or empty for the first page"
    )


def contradictory(name: str) -> FieldFault:
    return FieldFault(f"/{name}", "contradictory", "is given more than once, with different values")


def is_digits(text: str) -> bool:
    """Whether `text` is one or more ASCII digits."""
    return text.isascii() and text.isdecimal()


def positive(text: str, largest: int) -> int | None:
    """The number that `text` writes in decimal digits, if it is from 1 to `largest`."""
    return int(text) if is_digits(text) and len(text) <= len(str(largest)) and 1 <= int(text) <= largest else None


def write_list(items: Sequence[str], limit: int, **cursors: int | None) -> bytes:
    """`{data, meta}`, put together from items that are JSON already. `cursors`: of the `previous`, `current` and `next` page."""
    shown = {name: "" if number is None else str(number) for name, number in cursors.items()}
    return b'{"data":[%b],"meta":%b}' % (",".join(items).encode(), to_json({"limit": limit, "cursors": shown}))

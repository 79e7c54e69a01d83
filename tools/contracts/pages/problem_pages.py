"""The problems for people: docs/reference/problems.md, and the pages behind each problem's `type`. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from html import escape
from typing import Any, Final

from forwarder.reservation.problems.catalogue import CATALOGUE, CHAPTERS, Chapter
from forwarder.reservation.problems.problem import ProblemType
from tools.contracts.pages.page import page, prose

_ABOUT: Final = """\
Every refusal of the service is a problem (RFC 9457, `application/problem+json`), and so is the reason why a reservation was not
made. Programs branch on `code`, which means the same for ever. `type` is a relative reference with its whole path (RFC 9457,
3.1.1): at the address that was asked it leads to the problem's page, which says when it happens and what to do, as HTML or, for
`Accept: application/json`, as JSON.
As the body of an answer a problem carries `success: false` as well, for callers who look at that alone."""
_EXAMPLE: Final = """\
```json
{
  "success": false,
  "type": "/problems/room_unavailable",
  "title": "The room is not available",
  "status": 409,
  "detail": "The room is taken on 2027-06-03.",
  "code": "room_unavailable",
  "requestId": "rsv_…",
  "instance": "/api/v1/vrs/submissions/rsv_…"
}
```"""
FAULTS: Final = {
    "required": "The value is missing.",
    "unknown_field": "The operation has no such field.",
    "wrong_type": "The value is of another JSON type than is expected.",
    "invalid_value": "The value is none of those that are taken, or is not written as it should be.",
    "invalid_date": "The value is no date that exists, written `YYYY-MM-DD`.",
    "wrong_check_digit": "A digit of the card number is wrong, by its check digit.",
    "card_expired": "The card's month of expiry is past.",
    "not_the_property": "The integration has no rooms, and the value is another than `propertyId`.",
    "too_long": "The text has too many characters.",
    "too_small": "The number is under its bound.",
    "too_large": "The number is over its bound.",
    "inexact_number": "The whole number is written so that JSON readers may take it for another one.",
    "unknown_currency": "There is no such currency in ISO 4217.",
    "departure_not_after_arrival": "The stay has not a single night.",
    "stay_too_long": "The stay has too many nights.",
    "arrival_in_the_past": "The stay begins before yesterday, wherever on Earth yesterday is earliest.",
    "fewer_than_adults_and_children": "`numberOfGuests` is less than `numberOfAdults` and `numberOfChildren` together.",
    "guest_without_name": "`name`, `firstName` and `lastName` are all missing or blank.",
    "impossible_time": "The text looks like a time, or the number is one, that no clock shows.",
    "not_a_url": "The address is not written as a whole one.",
    "https_needed": "The address does not begin with `https://`.",
    "address_not_public": "The address leads to no host of the public internet.",
    "credentials_in_url": "The address holds a user name or a password.",
    "contradictory": "A query parameter is there twice with different values, or a range ends before it begins.",
    "out_of_range": "A query parameter is no whole number within its bounds.",
}
"""The codes of `errors`: what is wrong with one value."""


def problems_markdown() -> str:
    """docs/reference/problems.md."""
    chapters = "\n\n".join("\n".join(_chapter(chapter)) for chapter in CHAPTERS)
    faults = "\n".join(f"| `{code}` | {meaning} |" for code, meaning in FAULTS.items())
    return (
        "<!-- Written by `python -m tools.contracts write`; change the catalogue, not this page. -->\n"
        f"# Problems\n\n{_ABOUT}\n\n{_EXAMPLE}\n\n{chapters}\n\n"
        "## Faults of a request\n\n`validation_failed`, `invalid_query` and the rules of the integration carry `errors`,\n"
        "one entry for each value at fault: its `pointer` (RFC 6901; of a query parameter `/` and its name), a `code`, and\n"
        "a `detail`.\n\n"
        f"| code | meaning |\n|---|---|\n{faults}\n"
    )


def _chapter(chapter: Chapter) -> Iterator[str]:
    yield f"## {chapter.title}\n"
    if chapter.about:
        yield f"{chapter.about}\n"
    yield "| code | status | when | what to do |"
    yield "|---|---|---|---|"
    for one in chapter.problems:
        yield f"| `{one.code}`<br>{one.title} | {one.status} | {one.when} | {one.remedy} |"


def problem_types() -> Mapping[str, Mapping[str, Any]]:
    """What each problem means, by code, for programs."""
    return {one.code: {"type": f"/problems/{one.code}", **asdict(one)} for one in CATALOGUE.values()}


def problem_page(one: ProblemType) -> str:
    """What `one` means, as HTML."""
    body = (
        f"<h1>{escape(one.title)}</h1><p><code>{one.code}</code> · HTTP {one.status}</p>"
        f"<h2>When it happens</h2><p>{prose(one.when)}</p><h2>What to do</h2><p>{prose(one.remedy)}</p>"
        '<p><a href="/problems">All problems</a> · <a href="/docs">The contract</a></p>'
    )
    return page(one.title, body)


def problems_page() -> str:
    """Every problem, as HTML."""
    return page("Problems", f"<h1>Problems</h1><p>{prose(_ABOUT)}</p>" + "".join(map(_section, CHAPTERS)))


def _section(chapter: Chapter) -> str:
    rows = "".join(
        f'<tr><td><a href="/problems/{one.code}"><code>{one.code}</code></a></td><td>{one.status}</td>'
        f"<td>{escape(one.title)}</td></tr>"
        for one in chapter.problems
    )
    about = f"<p>{prose(chapter.about)}</p>" if chapter.about else ""
    return f"<h2>{escape(chapter.title)}</h2>{about}<table>{rows}</table>"

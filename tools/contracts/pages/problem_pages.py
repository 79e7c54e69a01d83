"""The problems for people: docs/reference/problems.md, and the pages behind each problem's `type`. Pure."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any, Final

from forwarder.reservation.problems import CATALOGUE, CHAPTERS, Chapter, ProblemType
from tools.contracts.pages.page import page, prose
from tools.contracts.written import written

_ABOUT: Final = """\
Every error response is a problem (RFC 9457, `application/problem+json`), and so is the reason why a reservation was not made.
Branch on `code`, whose meaning never changes. `type` links to the page of the problem, which explains when it occurs and what to
do, as HTML or, with `Accept: application/json`, as JSON. It begins with `FORWARDER_PUBLIC_URL`, if
the operator set that; otherwise it is a path on the host that you called (a relative reference, RFC 9457, 3.1.1).
In the body of a response a problem also has `success: false`, for clients that only look at that."""
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
EXAMPLES: Final[Mapping[str, tuple[str, str]]] = tomllib.loads(
    (Path(__file__).parent / "problem_examples.toml").read_text(encoding="utf-8")
)
"""What is refused and what would be right, by code."""
FAULTS: Final[Mapping[str, str]] = written("openapi.yaml")["x-faults"]
"""The codes of `errors`: what is wrong with one value."""


def problems_markdown() -> str:
    """docs/reference/problems.md."""
    chapters = "\n\n".join("\n".join(_chapter(chapter)) for chapter in CHAPTERS)
    faults = "\n".join(f"| `{code}` | {meaning} |" for code, meaning in FAULTS.items())
    return (
        "<!-- Written by `python -m tools.contracts write`; change the catalogue, not this page. -->\n"
        f"# Problems\n\n{_ABOUT}\n\n{_EXAMPLE}\n\n{chapters}\n\n"
        "## Invalid values\n\n`validation_failed`, `invalid_query` and the integration's rules have `errors`, with one entry\n"
        "for each invalid value: its `pointer` (RFC 6901; for a query parameter, `/` and its name), a `code` and a `detail`.\n\n"
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
        f"<h2>When it happens</h2><p>{prose(one.when)}</p><h2>What to do</h2><p>{prose(one.remedy)}</p>{_example(one.code)}"
        '<p><a href="/problems">All problems</a> · <a href="/docs">The contract</a></p>'
    )
    return page(one.title, body)


def _example(code: str) -> str:
    if code not in EXAMPLES:
        return ""
    wrong, right = map(escape, EXAMPLES[code])
    return f"<h2>Example</h2><p>Wrong:</p><pre>{wrong}</pre><p>Right:</p><pre>{right}</pre>"


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

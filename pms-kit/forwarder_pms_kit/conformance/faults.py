"""What can go wrong in one exchange with a PMS, as data: what the faulty proxy does instead of passing the response on. Pure.

A `Disruption` is a fault and whether the PMS had the request before it. Where it had, what the request asked for was done.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from pydantic_core import from_json, to_json

from forwarder.pms.http.response import Response
from forwarder.simulator.faults import lists_for_objects, with_leaves

TRAP: Final = "/conformance-trap"
"""Where redirects point. Nobody should come."""

ASKED_SECONDS: Final = 7
"""What a throttling response asks for by `Retry-After`."""

_HUGE_BYTES: Final = 2 * 1024 * 1024
_HTML: Final = b"<html><body><h1>It works!</h1></body></html>"


@dataclass(frozen=True, slots=True)
class Break:
    """The exchange breaks, `after` that share of the response. `how`: nothing more comes (silence), or a byte at a time and never
    the whole (drip), or bytes that are not HTTP (noise); or the connection is closed or reset."""

    how: Literal["silence", "close", "reset", "drip", "noise"]
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Instead:
    """Another response comes, made from the one there was, or from an empty 200."""

    made: Callable[[Response], Response]


@dataclass(frozen=True, slots=True)
class Again:
    """The response comes, and comes once more `seconds` later, whatever was asked meanwhile."""

    seconds: float


Fault = Break | Instead | Again


@dataclass(frozen=True, slots=True)
class Disruption:
    """A fault, by name. `delivered`: the PMS has the request and has responded."""

    name: str
    fault: Fault
    delivered: bool

    def __str__(self) -> str:
        return f"{self.name}, {'after' if self.delivered else 'before'} the PMS had the request"


def say(status: int, body: bytes = _HTML, **headers: str) -> Instead:
    """That response, whatever there was."""
    named = tuple((name.replace("_", "-").encode(), value.encode()) for name, value in headers.items())
    return Instead(lambda _: Response(status, named, body))


def no_that_says(said: str, code: str) -> bytes:
    """A body of the forms in which PMSs say no, with `said` in each."""
    names = ("title", "detail", "message", "error", "error_description", "reason", "notes", "status")
    errors = {"base": [said], "guest": [said], "card": [said]}
    data = [{"success": False, "message": said, "errors": [{"message": said}]}]
    return to_json({**dict.fromkeys(names, said), "success": False, "code": code, "errors": errors, "data": data})


def of_body(made: Callable[[bytes], bytes]) -> Instead:
    """The response that there was, with another body."""
    return Instead(lambda response: replace(response, content=made(response.content)))


LOST: Final[Sequence[tuple[str, Fault]]] = (
    ("a reset connection", Break("reset")),
    ("a closed connection", Break("close")),
    ("an answer that breaks off", Break("close", after=0.5)),
    ("bytes that are not HTTP", Break("noise")),
    ("HTTP 500", say(500)),
    ("HTTP 502", say(502)),
    ("HTTP 504", say(504)),
    ("HTTP 503 with Retry-After", say(503, Retry_After=str(ASKED_SECONDS))),
    ("HTTP 408", say(408)),
    ("HTTP 303", say(303, b"", Location=TRAP)),
    ("an answer of 2 MiB", of_body(lambda body: body + b" " * _HUGE_BYTES)),
)
"""No whole response came, or none of the PMS's own: whatever was asked for may have been done."""

SLOW: Final[Sequence[tuple[str, Fault]]] = (
    ("no answer in time", Break("silence")),
    ("half an answer in time", Break("silence", after=0.5)),
    ("a byte of the answer now and then", Break("drip")),
)
"""As `LOST`; each takes the whole push time-out."""

UNREADABLE: Final[Sequence[tuple[str, Fault]]] = (
    ("a page of HTML", of_body(lambda _: _HTML)),
    ("an empty body", of_body(lambda _: b"")),
    ("a body cut in half", of_body(lambda body: body[: len(body) // 2])),
    ("a body of random bytes", of_body(lambda _: bytes(range(256)))),
    ("the JSON null", of_body(lambda _: b"null")),
    ("an empty JSON object", of_body(lambda _: b"{}")),
    ("a JSON text", of_body(lambda _: b'"done"')),
    (
        "JSON with nulls for all values",
        of_body(lambda body: _spoilt(body, lambda value: with_leaves(value, lambda _: None))),
    ),
    (
        "JSON with objects for all values",
        of_body(lambda body: _spoilt(body, lambda value: with_leaves(value, lambda _: {"value": 1}))),
    ),
    ("JSON with lists for objects", of_body(lambda body: _spoilt(body, lists_for_objects))),
)
"""The status is the PMS's own and the body is not as agreed."""

PUT_OFF: Final[Sequence[tuple[str, Fault]]] = (("HTTP 429 with Retry-After", say(429, Retry_After=str(ASKED_SECONDS))),)
"""The PMS says that nothing was done, and when to try again."""

NOT_LET_IN: Final[Sequence[tuple[str, Fault]]] = (("HTTP 401", say(401)), ("HTTP 403", say(403)))
"""What an account gets whose credential is not accepted."""

NOT_THERE: Final[Sequence[tuple[str, Fault]]] = (("HTTP 404 of some server", say(404)), ("HTTP 405", say(405)))
"""What an account gets whose base URL is wrong."""

REDIRECTS: Final[Sequence[tuple[str, Fault]]] = tuple(
    (f"HTTP {status} to elsewhere", say(status, b"", Location=TRAP)) for status in (301, 302, 303, 307, 308)
)


def before(faults: Sequence[tuple[str, Fault]]) -> Iterator[Disruption]:
    """Each, of a request that the PMS never had."""
    return (Disruption(name, fault, delivered=False) for name, fault in faults)


def after(faults: Sequence[tuple[str, Fault]]) -> Iterator[Disruption]:
    """Each, of a request that the PMS has answered."""
    return (Disruption(name, fault, delivered=True) for name, fault in faults)


def _spoilt(body: bytes, way: Callable[[Any], Any]) -> bytes:
    """`body` spoilt in that way; cut short where it is no JSON that could be."""
    try:
        value = from_json(body)
    except ValueError:
        return body[: len(body) // 3]
    return to_json(way(value))

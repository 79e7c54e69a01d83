"""What a requirement of the specification is: requests that a caller sends who knows nothing else, and what is to come of them.

The tables read from left to right: a name within the section, the requirement in our own words, the request, what is expected.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from tests.support.stages.bodies import ABSENT, BOOKING_ENGINE, CARD, GENERAL, changed

__all__ = ["ABSENT", "CARD"]

BOOKING_ENGINE_PATH: Final = "/api/v1/vrs/reservations/booking-engine"
GENERAL_PATH: Final = "/api/v1/vrs/reservations"
LIST_PATH: Final = "/api/vrs/reservations"

LISTED: Final = 23
"""How many reservations the account `listed` has; one more was refused by its PMS."""


# --- what is sent ---


@dataclass(frozen=True, slots=True)
class Call:
    """A request. `changes`: by dotted path, what its body has otherwise than the example; `headers`: beside the three, or in the
    place of one. `content`: the body as it is, in the place of JSON. `follow`: every page from this one on, by `next`."""

    method: str
    path: str
    example: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)
    account: str = "generic"
    headers: Mapping[str, Any] = field(default_factory=dict)
    content: str = ""
    follow: bool = False

    def but(self, **changes: Any) -> "Call":
        return replace(self, **changes)

    def body(self, number: int, nights: Mapping[str, str]) -> dict[str, Any]:
        """The example on `nights` in a room of its own, with the changes. No other call has the same room and nights."""
        body = {**self.example, **nights}
        if "roomId" not in self.changes and "propertyId" not in self.changes:
            body["roomId"] = f"R{number}"
        for path, value in self.changes.items():
            body = changed(body, path, value)
        return body


# A transaction names one reservation: the calls have none, unless they are about it.
_BOOKING_ENGINE: Final = changed(BOOKING_ENGINE, "transactionId", ABSENT)


def engine(changes: Mapping[str, Any] | None = None, account: str = "generic") -> Call:
    """A creation by the booking-engine operation, every field of section 2.1 filled in."""
    return Call("POST", BOOKING_ENGINE_PATH, _BOOKING_ENGINE, changes or {}, account)


def general(changes: Mapping[str, Any] | None = None, account: str = "generic") -> Call:
    """A creation by the general operation, every field of section 2.2 filled in."""
    return Call("POST", GENERAL_PATH, GENERAL, changes or {}, account)


def listed(query: str = "", path: str = LIST_PATH) -> Call:
    """A page of the account `listed`."""
    return Call("GET", path + query, account="listed")


# --- what is expected ---


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: `body` is the JSON, of `follow` that of each page. `pushed`: what the PMS was asked to make of a
    creation that was accepted, and `pushed_to` at which path."""

    call: Call
    sent: Mapping[str, Any]
    status: int
    body: Any
    pushed: Mapping[str, Any] = field(default_factory=dict)
    pushed_to: str = ""


Expected = Callable[[Answer], None]
Shape = Any
"""A value, or a predicate of one."""


class Row(NamedTuple):
    """A requirement. Its name is one of its own within the section."""

    name: str
    title: str
    calls: Call | Sequence[Call]
    expected: Expected


def arrives(answer: Answer) -> None:
    """It is accepted, and the PMS is asked for what was changed, in the form in which it was sent."""
    accepted(answer)
    for path, value in answer.call.changes.items():
        if value is not ABSENT:
            pushed = at(answer.pushed, path)
            assert (type(pushed), pushed) == (type(value), value), path


def arrives_with(fields: Mapping[str, Any]) -> Expected:
    """It is accepted, and the PMS is asked for these fields."""

    def check(answer: Answer) -> None:
        accepted(answer)
        _holds(answer.pushed, fields)

    return check


def accepted(answer: Answer) -> None:
    assert answer.status in {200, 201, 202}, answer.body
    assert answer.call.method == "GET" or answer.body["success"] is True


def refused(*words: str) -> Expected:
    """It is the caller's fault, which the answer names by these words, and does not look like a success."""

    def check(answer: Answer) -> None:
        says_failure(answer)
        assert answer.status < 500, answer.body
        for word in words:
            assert word in str(answer.body), word

    return check


def says_failure(answer: Answer) -> None:
    """A program that looks at `success` alone sees that nothing was made."""
    assert answer.status >= 400, answer.body
    assert answer.body.get("success") is False, answer.body


def shows(shapes: Mapping[str, Shape]) -> Expected:
    """It is accepted, and its answer has each value at its dotted path."""

    def check(answer: Answer) -> None:
        accepted(answer)
        _holds(answer.body, shapes)

    return check


def record(shapes: Mapping[str, Shape]) -> Expected:
    """As `shows`, of the reservation record."""
    return shows({f"data.{path}": shape for path, shape in shapes.items()})


def _holds(body: Any, shapes: Mapping[str, Shape]) -> None:
    for path, shape in shapes.items():
        found = at(body, path)
        if callable(shape):
            assert shape(found), (path, found)
        else:
            assert (type(found), found) == (type(shape), shape), path


def at(body: Any, path: str) -> Any:
    """The value at a dotted path, whose steps are names and places in lists; `ABSENT` where there is none."""
    for step in path.split("."):
        if isinstance(body, Mapping) and step in body:
            body = body[step]
        elif isinstance(body, list) and step.isdecimal() and int(step) < len(body):
            body = body[int(step)]
        else:
            return ABSENT
    return body


def a_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def a_text(value: object) -> bool:
    return isinstance(value, str)


def line_items(*types: str) -> Callable[[object], bool]:
    """A list of line items, in which each of the types is."""

    def check(value: object) -> bool:
        return (
            isinstance(value, list)
            and all(a_text(item["name"]) and a_text(item["type"]) and a_number(item["total"]) for item in value)
            and {*types} <= {item["type"] for item in value}
        )

    return check


def many(count: int) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and len(value) == count

"""Requests to a simulated PMS, and their results. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

from forwarder.simulator.magic import Effect


@dataclass(frozen=True, slots=True)
class Wanted:
    """A requested booking. `key`: its idempotency key; `fingerprint` distinguishes bodies; `answer` builds the PMS's response,
    in JSON, from the booking's id; `effect`: the effect of a test value in it."""

    name: str
    place: str
    room: str
    arrival: date
    departure: date
    reference: str
    answer: Callable[[int], bytes]
    key: str | None = None
    fingerprint: str = ""
    effect: Effect | None = None


@dataclass(frozen=True, slots=True)
class Made:
    """A booking that was made."""

    id: int
    name: str
    place: str
    room: str
    arrival: date
    departure: date
    reference: str
    answer: bytes
    key: str | None
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """The key was used before with the same body: this is the booking made then."""

    made: Made


@dataclass(frozen=True, slots=True)
class KeyReused:
    """The key was used before with another body."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Another booking has some of these nights."""


@dataclass(frozen=True, slots=True)
class OtherPrice:
    """The price differs from the requested one."""


@dataclass(frozen=True, slots=True)
class CardDeclined:
    """The card is declined."""


Booked = Made | Replayed | KeyReused | Taken | OtherPrice | CardDeclined
"""The possible results of a booking request."""


class Down(Exception):
    """The PMS is down for this caller, because of a test value."""

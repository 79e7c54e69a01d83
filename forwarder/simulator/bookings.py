"""What is asked of a simulated PMS, and what comes of it. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

from forwarder.simulator.magic import Effect


@dataclass(frozen=True, slots=True)
class Wanted:
    """A booking as it is asked for. `key` makes it once only; `fingerprint` tells bodies apart; `answer` says how the PMS
    answers, in JSON, once the booking has the id given to it; `effect`: what a magic value in it asks for."""

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
    """The key was seen before, with the same body: this is what was made then."""

    made: Made


@dataclass(frozen=True, slots=True)
class KeyReused:
    """The key was seen before, with another body."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Another booking has some of these nights."""


@dataclass(frozen=True, slots=True)
class OtherPrice:
    """It costs something else than what was asked."""


@dataclass(frozen=True, slots=True)
class CardDeclined:
    """The card is not taken."""


Booked = Made | Replayed | KeyReused | Taken | OtherPrice | CardDeclined
"""What may come of it."""


class Down(Exception):
    """The PMS is down for the one who asks, as a magic value wanted it."""

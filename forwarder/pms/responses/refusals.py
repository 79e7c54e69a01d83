"""A PMS's no: its codes, and what its messages mean where a failure has no code that could be read."""

import re
from collections.abc import Mapping
from enum import Enum, auto
from http import HTTPStatus
from typing import Final, assert_never

from forwarder.pms.responses.record import discreet
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Deferred, InDoubt, Rejected
from forwarder.reservation.problems import endings

_KINDS: Final = {one.code: one for one in endings.REFUSALS}

REFUSALS: Final[Mapping[str, str]] = {code: one.title for code, one in _KINDS.items()}
"""The codes of recognised refusals, and their titles. Any other refusal is `pms_refused`."""

PRICE_AND_CARD: Final = (
    (re.compile(r"price\b.{0,40}\b(chang|differ|mismatch|(not|n't) match)", re.IGNORECASE), "price_changed"),
    (re.compile(r"\bcard\b.{0,40}\b(declin|refus|reject|expired|not accepted)", re.IGNORECASE), "card_refused"),
)
"""Words for two refusals that no vendor here has written down, and that every one of them may have to say."""


def refusal(booking: Booking, code: str, detail: str) -> Rejected:
    """The PMS's no, with `detail` in its own words as far as they may be kept."""
    known = _KINDS.get(code, endings.PMS_REFUSED)
    # Servers put no more than an HTTP status and its name where a reason belongs: "400 Bad Request".
    said = "" if _words(detail) in _PHRASES else discreet(detail, booking)
    return Rejected(known.problem(said or f"{known.title}. {_UNSAID[known.code]}", booking.reference))


_UNSAID: Final[Mapping[str, str]] = {
    endings.ROOM_UNAVAILABLE.code: "The PMS says no more. Check roomId, arrivalDate and departureDate.",
    endings.CARD_REFUSED.code: "The PMS says no more. Check cardDetails.",
    endings.PRICE_CHANGED.code: "The PMS says no more. Check totalPrice and currency.",
    endings.PROPERTY_NOT_FOUND.code: "The PMS says no more. Check propertyId.",
    endings.ROOM_NOT_FOUND.code: "The PMS says no more. Check roomId.",
    endings.GUEST_REFUSED.code: "The PMS does not say which part. Check each member of guest.",
    endings.CANCELLATION_REFUSED.code: "It does not say why. Ask the property.",
    endings.PMS_REFUSED.code: (
        "It does not say why. Check propertyId, roomId, the dates, the number of guests, totalPrice and currency against what the "
        "property offers."
    ),
}
"""Advice after a refusal without a reason, in terms of the caller's fields."""

_NO_LETTERS: Final = re.compile(r"[\W\d_]+")
_HTTP: Final = frozenset({"http", "status", "code", "error"})


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in _NO_LETTERS.split(text.casefold()) if word and word not in _HTTP)


_PHRASES: Final = frozenset({(), *(_words(status.phrase) for status in HTTPStatus)})


class Meaning(Enum):
    """The meanings of a failure that does not concern the reservation."""

    UNAUTHORIZED = auto()
    THROTTLED = auto()
    FAILED = auto()


def outcome_of_message(meaning: Meaning | str, message: str, booking: Booking) -> Rejected | Deferred | InDoubt:
    """The outcome of a failure with that message. A meaning that is a text is the refusal's code in `REFUSALS`."""
    said = discreet(message, booking) or "nothing more"
    match meaning:
        case Meaning.UNAUTHORIZED:
            return Deferred("pms_unauthorized", f"The PMS does not let the account do this. It says: {said}")
        case Meaning.THROTTLED:
            return Deferred("pms_throttled", f"The PMS takes no more requests for now. It says: {said}")
        case Meaning.FAILED:
            return InDoubt("pms_failed", f"The PMS failed while it had the request. It says: {said}")
        case str():
            return refusal(booking, meaning, message)
        case _:
            assert_never(meaning)

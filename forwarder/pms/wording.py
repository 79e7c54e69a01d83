"""What a PMS tells by words alone, where a failure has no code that could be read. Which words mean what is each kind's own matter.

Private to the seam.
"""

import re
from enum import Enum, auto
from typing import Final, assert_never

from forwarder.pms.kinds.generic.adapter import refusal
from forwarder.pms.redaction import discreet
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Deferred, InDoubt, Rejected

PRICE_AND_CARD: Final = (
    (re.compile(r"price\b.{0,40}\b(chang|differ|mismatch|(not|n't) match)", re.IGNORECASE), "price_changed"),
    (re.compile(r"\bcard\b.{0,40}\b(declin|refus|reject|expired|not accepted)", re.IGNORECASE), "card_refused"),
)
"""Words for two refusals that no vendor here has written down, and that every one of them may have to say."""


class Meaning(Enum):
    """What a failure says that does not speak of the reservation."""

    NOT_LET_IN = auto()
    THROTTLED = auto()
    FAILED = auto()


def told(meaning: Meaning | str, words: str, booking: Booking) -> Rejected | Deferred | InDoubt:
    """What `words` come to, by their meaning. One that is a text is the code of `REFUSALS` for a no."""
    said = discreet(words, booking) or "nothing more"
    match meaning:
        case Meaning.NOT_LET_IN:
            return Deferred("pms_unauthorized", f"The PMS does not let the account do this. It says: {said}")
        case Meaning.THROTTLED:
            return Deferred("pms_throttled", f"The PMS takes no more requests for now. It says: {said}")
        case Meaning.FAILED:
            return InDoubt("pms_failed", f"The PMS failed while it had the request. It says: {said}")
        case str():
            return refusal(booking, meaning, words)
        case _:
            assert_never(meaning)

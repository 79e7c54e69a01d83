"""What the words of a failure of Hostaway's say. Pure.

Hostaway publishes no list of them, and tells most failures by words alone. Where they speak of the account or of Hostaway itself,
it is no refusal of the reservation; words are looked for that may be expected in such.
"""

import re
from typing import Final

from forwarder.pms.refusals import PRICE_AND_CARD, Meaning

_MEANINGS: Final = (
    (re.compile(r"rate limit|too many requests", re.IGNORECASE), Meaning.THROTTLED),
    (
        re.compile(
            r"internal|unexpected|try (again|later)|time.?out|timed out|went wrong|exception|\b(service|server)\b",
            re.IGNORECASE,
        ),
        Meaning.FAILED,
    ),
    (
        re.compile(r"availab|overbook|overlap|occupied|reserved|blocked|already (taken|booked)", re.IGNORECASE),
        "room_unavailable",
    ),
    *PRICE_AND_CARD,
    (re.compile(r"access.?token|unauthori[sz]ed|access denied|permission", re.IGNORECASE), Meaning.UNAUTHORIZED),
    (
        re.compile(
            r"listingMapId|listing\b.{0,40}(not (found|exist)|unknown|invalid)|no (such )?listing", re.IGNORECASE
        ),
        "property_not_found",
    ),
    (re.compile(r"guest.?(first.?|last.?)?(name|e-?mail|phone)|\be-?mail|\bphone", re.IGNORECASE), "guest_refused"),
)


def meaning_of(words: str) -> Meaning | str:
    """What `words` say. A text is the code of `REFUSALS` for a no; no words at all decide nothing."""
    if not words:
        return Meaning.FAILED
    return next((meaning for pattern, meaning in _MEANINGS if pattern.search(words)), "pms_refused")

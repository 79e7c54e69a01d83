"""What the errors of one of Beds24's items say. Pure.

Beds24 publishes no list of them. Where an error speaks of the account or of Beds24 itself, it is no refusal of the reservation;
words are looked for that may be expected in such.
"""

import re
from collections.abc import Sequence
from typing import Final

from forwarder.pms.refusals import PRICE_AND_CARD, Meaning

_FAILED = re.compile(
    r"internal|unexpected|try (again|later)|time.?out|timed out|went wrong|exception|\b(service|server)\b",
    re.IGNORECASE,
)
_NOT_FREE = re.compile(r"availab|sold out|overlap|occupied|already (taken|booked)", re.IGNORECASE)
_THROTTLED = re.compile(r"(credit|usage|rate) limit|too many requests", re.IGNORECASE)
_NOT_LET_IN = re.compile(r"\bscopes?\b|permission|no (write )?access|unauthori[sz]ed|\btoken\b", re.IGNORECASE)
_MEANINGS: Final = (
    (_FAILED, Meaning.FAILED),
    (_NOT_FREE, "room_unavailable"),
    (_THROTTLED, Meaning.THROTTLED),
    (_NOT_LET_IN, Meaning.UNAUTHORIZED),
    *PRICE_AND_CARD,
)
_OF_THE_ROOM: Final = frozenset({"roomId", "unitId"})
_OF_THE_GUEST: Final = frozenset(
    {
        "title",
        "firstName",
        "lastName",
        "email",
        "phone",
        "mobile",
        "address",
        "city",
        "state",
        "postcode",
        "country",
        "country2",
    }
)


def meaning_of(faults: Sequence[tuple[str, str]], *, room_named: bool) -> Meaning | str:
    """What `faults`, each a field and a message, say together. A text is the code of `REFUSALS` for a no. `room_named`: the room
    was asked for by name, and not for the property's id."""
    said = " ".join(message for _, message in faults)
    for pattern, meaning in _MEANINGS:
        if pattern.search(said):
            return meaning
    fields = {field for field, _ in faults}
    if fields & _OF_THE_ROOM:
        return unknown_room(room_named=room_named)
    return "guest_refused" if fields & _OF_THE_GUEST else "pms_refused"


def unknown_room(*, room_named: bool) -> str:
    """The code of `REFUSALS` for a room that is not known."""
    return "room_not_found" if room_named else "property_not_found"

"""What the messages of Cloudbeds' `success: false` mean: there is no code beside them. Pure."""

import re
from collections.abc import Mapping
from typing import Any, Final

from forwarder.pms.refusals import PRICE_AND_CARD, Meaning

# The vendor documents the first three of these messages (Common API errors & How to handle); it publishes no list of the others,
# so that words are looked for that may be expected in them.
_OF_THE_PROPERTY = re.compile(
    r"included property id|property ?id\b.{0,40}(not (found|exist)|invalid|unknown)", re.IGNORECASE
)
_MEANINGS: Final = (
    (
        re.compile(
            r"approved this connection|invalid status|access.?token|api.?key|permission|\bscope|not authori[sz]ed|unauthori[sz]ed",
            re.IGNORECASE,
        ),
        Meaning.UNAUTHORIZED,
    ),
    (re.compile(r"rate limit|too many requests", re.IGNORECASE), Meaning.THROTTLED),
    (
        re.compile(
            r"internal|unexpected|try (again|later)|again later|time.?out|timed out|temporar|went wrong|server error|exception",
            re.IGNORECASE,
        ),
        Meaning.FAILED,
    ),
)
_REFUSALS: Final = (
    (
        re.compile(r"availab|sold out|overbook|no (more )?rooms?\b|occupied|already (taken|booked)", re.IGNORECASE),
        "room_unavailable",
    ),
    *PRICE_AND_CARD,
    (re.compile(r"room ?(type)? ?id|room ?type", re.IGNORECASE), "room_not_found"),
    (re.compile(r"guest|e-?mail|first ?name|last ?name|zip|country", re.IGNORECASE), "guest_refused"),
)


def message_of(body: Mapping[str, Any]) -> str:
    """Why a request was not completed, in Cloudbeds' words; empty where it does not say."""
    message = body.get("message")
    return message.strip() if isinstance(message, str) else ""


def meaning_of(message: str, *, property_asked: bool) -> Meaning | str:
    """What a `success: false` says. A text is the code of `REFUSALS` for a no.

    `property_asked`: the booking names the property, so that one which the credential does not reach is a mistake of the
    booking's; else it is one of the account's. A message that is empty decides nothing.
    """
    if _OF_THE_PROPERTY.search(message):
        return "property_not_found" if property_asked else Meaning.UNAUTHORIZED
    for pattern, meaning in _MEANINGS:
        if pattern.search(message):
            return meaning
    if not message:
        return Meaning.FAILED
    return next((code for pattern, code in _REFUSALS if pattern.search(message)), "pms_refused")

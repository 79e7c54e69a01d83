"""Fit to be kept: what a PMS or a driver said, without card numbers and without what is the guest's own. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from forwarder.reservation.booking import Booking
from forwarder.reservation.card import masked
from forwarder.reservation.request import CardDetails

MAX_DETAIL = 500
_SHORTEST_CARD_NUMBER = 12
_SHORTEST_SECRET = 3
# A run of digits as long as a card number, or grouped as card numbers are written (4-4-4-4, 4-6-5); dates do not match.
_CARD_LIKE = re.compile(r"\d{12,}|\d{4}(?:[ -]\d{4}){2,}(?:[ -]?\d{1,4})?|\d{4}[ -]\d{6}[ -]\d{5}")
_SPACES = re.compile(r"[\s\x00-\x1f\x7f]+")


def shortened(text: str) -> str:
    """`text` on one line, at most `MAX_DETAIL` characters, with asterisks for whatever looks like a card number."""
    line = _CARD_LIKE.sub(_asterisks, _SPACES.sub(" ", text).strip())
    return line if len(line) <= MAX_DETAIL else line[: MAX_DETAIL - 1] + "…"


def discreet(text: str, booking: Booking) -> str:
    """As `shortened`, and with `[…]` for every value of the card and of the guest that `text` repeats."""
    for secret in sorted(_secrets(booking), key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "[…]", text, flags=re.IGNORECASE)
    return shortened(text)


def without_card(value: Any, card: CardDetails | None) -> Any:
    """`value`, JSON of any depth, with the card's number masked wherever a text in it repeats that number."""
    digits = _digits(card)
    if len(digits) < _SHORTEST_CARD_NUMBER:
        return value
    return _replaced(value, re.compile("[ -]?".join(digits)), masked(digits))


def _replaced(value: Any, pattern: re.Pattern[str], replacement: str) -> Any:
    match value:
        case str():
            return pattern.sub(replacement, value)
        case dict():
            return {name: _replaced(part, pattern, replacement) for name, part in value.items()}
        case list():
            return [_replaced(part, pattern, replacement) for part in value]
        case _:
            return value


def _asterisks(match: re.Match[str]) -> str:
    return "*" * len(match.group())


def _digits(card: CardDetails | None) -> str:
    number = "" if card is None else card.card_number or ""
    return "".join(character for character in number if character.isdigit())


def _secrets(booking: Booking) -> Iterator[str]:
    card = booking.card or CardDetails()
    # Not the expiry: a year by itself gives nothing away, and stands in every date.
    of_card = {"number": card.card_number, "holder": card.card_holder_name, "cvv": card.cvv}
    for text in (*_texts(booking.guest), *_texts(of_card)):
        if len(text) >= _SHORTEST_SECRET:
            yield text


def _texts(parts: Mapping[str, Any]) -> Iterator[str]:
    for part in parts.values():
        if isinstance(part, Mapping):
            yield from _texts(part)
        elif part is not None:
            yield str(part).strip()

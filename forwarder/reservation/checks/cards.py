"""Checks of a card: its number and its expiry. Only its bank knows whether it is accepted. Pure.

Faults never quote a value.
"""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from forwarder.reservation.checks.card_numbers import passes_luhn
from forwarder.reservation.problems.problem import Fault
from forwarder.reservation.request import CardDetails

_BETWEEN_DIGITS: Final = re.compile(r"[\s\-\u2010-\u2015\u2212]+")
"""Separators that people write within a card number: spaces, and dashes of any length."""
_DIGITS: Final = re.compile(r"[0-9]+")
_MIN_DIGITS: Final = 12
_MAX_DIGITS: Final = 19
_MONTH: Final = re.compile(r"0?[1-9]|1[0-2]")
_YEAR: Final = re.compile(r"(?:20)?([0-9]{2})|([0-9]{4})")
_LATEST_ZONE: Final = timedelta(hours=-12)
"""UTC-12, the last time zone in which a month ends."""

NUMBER: Final = "/cardDetails/cardNumber"
MONTH: Final = "/cardDetails/expiryMonth"
YEAR: Final = "/cardDetails/expiryYear"


def has_number(card: CardDetails | None) -> bool:
    """Whether there is a card number, of any form; a blank one does not count."""
    return card is not None and bool(_given(card.card_number))


def card_faults(card: CardDetails, now: datetime) -> tuple[Fault, ...]:
    """The faults of the given, non-blank parts of `card`. A card is valid until its month has ended in every time zone."""
    return (*_number_faults(_given(card.card_number)), *_expiry_faults(card, now))


def _given(text: str | None) -> str:
    return "" if text is None else text.strip()


def _number_faults(number: str) -> Iterator[Fault]:
    if not number:
        return
    digits = _BETWEEN_DIGITS.sub("", number)
    if _DIGITS.fullmatch(digits) is None:
        yield Fault(
            NUMBER, "invalid_value", "must be a card number: digits, with nothing but spaces or dashes between them"
        )
    elif not _MIN_DIGITS <= len(digits) <= _MAX_DIGITS:
        yield Fault(NUMBER, "invalid_value", f"must be a card number of {_MIN_DIGITS} to {_MAX_DIGITS} digits")
    elif not passes_luhn(digits):
        yield Fault(
            NUMBER, "wrong_check_digit", "must be a card number: one of its digits is wrong, by its check digit (Luhn)"
        )


def _expiry_faults(card: CardDetails, now: datetime) -> Iterator[Fault]:
    month, year = _given(card.expiry_month), _given(card.expiry_year)
    if month and _MONTH.fullmatch(month) is None:
        yield Fault(MONTH, "invalid_value", "must be a month from 1 to 12")
        month = ""
    if not year:
        return
    if (written := _YEAR.fullmatch(year)) is None:
        yield Fault(YEAR, "invalid_value", "must be a year of two or four digits, such as 31 or 2031")
        return
    there = now + _LATEST_ZONE
    expires = 2000 + int(written[1]) if written[1] else int(written[2])
    if expires < there.year:
        yield Fault(YEAR, "card_expired", "must not be past: the card has expired")
    elif expires == there.year and month and int(month) < there.month:
        yield Fault(MONTH, "card_expired", "must not be past: the card has expired")

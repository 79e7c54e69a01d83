"""The booking to make in a PMS: a submission that passed the rules of its integration; and our reference to it there. Pure.

A rule is a further requirement of a kind of PMS: of the request, the kind and the time only. The ingress applies it before
accepting, a dry run reports it, and the worker checks again, because the account may have changed since. No rule's problem quotes
the value at fault: it may be a card number.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from html import unescape
from itertools import accumulate, takewhile
from typing import Any, Final, Literal
from unicodedata import combining, normalize
from urllib.parse import unquote

from forwarder.reservation import problems as catalogue
from forwarder.reservation.checks.card_numbers import passes_luhn
from forwarder.reservation.fast import value
from forwarder.reservation.problems import FieldFault, Problem
from forwarder.reservation.request import CardDetails
from forwarder.reservation.submission import Submission


@dataclass(frozen=True, slots=True)
class Traits:
    """The requirements of a kind of PMS on a reservation. `rooms`: whether it distinguishes rooms of a property; otherwise the room
    is the property. `website`: whether `paymentProviderId` carries the booked website. `cards`: which cards are sent to it: all,
    only those that pay the PMS (`morChannel` PMS; then a card is required), or none."""

    rooms: bool = True
    website: bool = False
    cards: Literal["all", "payment", "none"] = "all"

    def sends_card(self, reservation: Mapping[str, Any]) -> bool:
        return self.cards == "all" or (self.cards == "payment" and reservation.get("morChannel") == "PMS")


@value(frozen=True, slots=True)
class Booking:
    """The booking to make: a submission after the rules, with the card unsealed. Kept in memory only. `reference` is our request
    id, which the PMS stores with the reservation if it can. `fields` are the request's own fields, unchanged, with `roomId` filled
    in and without the card. `trace`: the caller's trace; requests about the booking carry it, independently of the adapter.
    `pms_id`: in a look-up, the id with which the PMS answered the create."""

    reference: str
    fields: Mapping[str, Any]
    card: CardDetails | None = field(default=None, repr=False)
    website_id: str | None = None
    trace: str | None = field(default=None, repr=False, compare=False)
    pms_id: str | None = field(default=None, compare=False)

    @property
    def property_id(self) -> str:
        return str(self.fields["propertyId"])

    @property
    def room_id(self) -> str:
        return str(self.fields["roomId"])

    @property
    def arrival(self) -> date:
        return date.fromisoformat(self.fields["arrivalDate"])

    @property
    def departure(self) -> date:
        return date.fromisoformat(self.fields["departureDate"])

    @property
    def total_price(self) -> Decimal | None:
        price = self.fields.get("totalPrice")
        return None if price is None else Decimal(str(price))

    @property
    def currency(self) -> str | None:
        return self.fields.get("currency")

    @property
    def guest(self) -> Mapping[str, Any]:
        return self.fields.get("guest") or {}

    @property
    def guest_name(self) -> str:
        """The guest's full name, joined from its parts if only those were given; empty if there is none."""
        return full_name(self.guest)


def full_name(guest: Mapping[str, Any]) -> str:
    """`name`, or else first and last name; empty if there is none."""
    parts = (guest.get("firstName"), guest.get("lastName"))
    return guest.get("name") or " ".join(part for part in parts if part)


def apply_rules(traits: Traits, submission: Submission, card: CardDetails | None, now: datetime) -> Booking | Problem:
    """The booking to push to a PMS with these `traits`, every rule applied, or the refusal."""
    refused = refusal(traits, submission.reservation, card, now)
    if refused is not None:
        return replace(refused, request_id=submission.request_id)
    return booking_of(traits, submission.request_id, submission.reservation, card, submission.trace)


def booking_of(
    traits: Traits, reference: str, reservation: Mapping[str, Any], card: CardDetails | None, trace: str | None = None
) -> Booking:
    """The booking for a PMS with these traits, if no rule refuses it."""
    fields = {**reservation, "roomId": room_of(reservation)}
    fields.pop("cardDetails", None)
    return Booking(reference, fields, card, website_id(reservation) if traits.website else None, trace)


def booking_without_card(traits: Traits, submission: Submission) -> Booking:
    """The booking as it was made, for cancelling it: it passed the rules before, and its card is erased."""
    return booking_of(traits, submission.request_id, submission.reservation, None, submission.trace)


# --- the rules ---


def refusal(traits: Traits, reservation: Mapping[str, Any], card: CardDetails | None, now: datetime) -> Problem | None:
    """The problem of the first rule that `reservation` breaks, with the faults of all broken rules; None if it breaks none.
    `card`: the reservation's card, in the clear; `now`: aware."""
    broken = list(refusals(traits, reservation, card, now))
    return replace(broken[0], faults=tuple(each for one in broken for each in one.faults)) if broken else None


def refusals(
    traits: Traits, reservation: Mapping[str, Any], card: CardDetails | None, now: datetime
) -> Iterator[Problem]:
    """The problem of each rule that `reservation` breaks, in the order of the rules."""
    sent = traits.sends_card(reservation)
    if sent and traits.cards == "payment" and (card is None or not _given(card.card_number)):
        pointer = "/cardDetails" if card is None else "/cardDetails/cardNumber"
        yield catalogue.CARD_REQUIRED.problem(
            "This integration takes a reservation with morChannel PMS only with cardDetails that have a cardNumber; pass them, or "
            "morChannel SELF.",
            faults=(FieldFault(pointer, "required", "is required where morChannel is PMS"),),
        )
    elif card is not None and sent and (faults := tuple(_card_faults(card, now))):
        yield catalogue.CARD_INVALID.problem(
            "The card would be sent to the PMS, and cannot be one: errors names what is wrong with it by JSON Pointer.",
            faults=faults,
        )
    if traits.website and website_id(reservation) in {"", ".", ".."}:  # the last two would resolve to another address
        yield catalogue.WEBSITE_REQUIRED.problem(
            "This integration takes its website identifier from paymentProviderId, which is missing, empty or names none.",
            faults=(FieldFault("/paymentProviderId", "required", "is required: the identifier of the website"),),
        )
    if not traits.rooms and str(room_of(reservation)) != str(reservation["propertyId"]):
        yield catalogue.NO_ROOMS.problem(
            "This integration books whole properties, and has no rooms: roomId is the propertyId, or left out where the operation "
            "lets it.",
            faults=(FieldFault("/roomId", "not_the_property", "must be the same as propertyId"),),
        )


def website_id(reservation: Mapping[str, Any]) -> str:
    return "" if (named := reservation.get("paymentProviderId")) is None else str(named).strip()


def room_of(reservation: Mapping[str, Any]) -> str | int:
    """The room; the property if no room was given."""
    room: str | int | None = reservation.get("roomId")
    property_id: str | int = reservation["propertyId"]
    return property_id if room is None else room


# --- a card: the faults of its given, non-blank parts; only its bank knows whether it is accepted ---

_MIN_DIGITS: Final = 12
_MAX_DIGITS: Final = 19
NUMBER: Final = "/cardDetails/cardNumber"
MONTH: Final = "/cardDetails/expiryMonth"
YEAR: Final = "/cardDetails/expiryYear"


def _given(text: str | None) -> str:
    return "" if text is None else text.strip()


def _card_faults(card: CardDetails, now: datetime) -> Iterator[FieldFault]:
    """A card is valid until its month has ended in every time zone."""
    number, month, year = map(_given, (card.card_number, card.expiry_month, card.expiry_year))
    # People write spaces, and dashes of any length, within a card number.
    digits = re.sub(r"[\s\-\u2010-\u2015\u2212]+", "", number)
    wanted = "must be a card number"
    if not number:
        pass
    elif re.fullmatch(r"[0-9]+", digits) is None:
        yield FieldFault(NUMBER, "invalid_value", f"{wanted}: digits, with nothing but spaces or dashes between them")
    elif not _MIN_DIGITS <= len(digits) <= _MAX_DIGITS:
        yield FieldFault(NUMBER, "invalid_value", f"{wanted} of {_MIN_DIGITS} to {_MAX_DIGITS} digits")
    elif not passes_luhn(digits):
        yield FieldFault(
            NUMBER, "wrong_check_digit", f"{wanted}: one of its digits is wrong, by its check digit (Luhn)"
        )
    if month and re.fullmatch(r"0?[1-9]|1[0-2]", month) is None:
        yield FieldFault(MONTH, "invalid_value", "must be a month from 1 to 12")
        month = ""
    if not year:
        return
    if (written := re.fullmatch(r"(?:20)?([0-9]{2})|([0-9]{4})", year)) is None:
        yield FieldFault(YEAR, "invalid_value", "must be a year of two or four digits, such as 31 or 2031")
        return
    there = now - timedelta(hours=12)  # UTC-12, the last time zone in which a month ends
    expires = 2000 + int(written[1]) if written[1] else int(written[2])
    if expires < there.year:
        yield FieldFault(YEAR, "card_expired", "must not be past: the card has expired")
    elif expires == there.year and month and int(month) < there.month:
        yield FieldFault(MONTH, "card_expired", "must not be past: the card has expired")


# --- our reference at a PMS: the form sent, which the PMS keeps unshortened, and the forms recognized in responses ---

_LEAST: Final = 24  # characters of a request id: at least 100 bits, as unique as the whole
_KNOWN_BY: Final = 20
"""How many letters and digits identify our reference if a PMS cut the rest off: no two ids share them."""
_ANY: Final = re.compile(
    rf"(?<![a-z0-9])rsv[\W_]?(?:[a-z0-9]{{32}}|(?=[a-z]*[0-9])[a-z0-9]{{{_KNOWN_BY - 3},}})", re.IGNORECASE
)
"""Any submission's reference. A shortened one needs a digit, or a field name such as `rsvConfirmationNumber` would be one."""


@dataclass(frozen=True, slots=True)
class ReferenceForm:
    """What a PMS keeps of a reference: its first `max_length` characters, in capitals if `upper`, no `_` if `alphanumeric`."""

    max_length: int | None = None
    upper: bool = False
    alphanumeric: bool = False

    def __post_init__(self) -> None:
        if self.max_length is not None and self.max_length < _LEAST:
            raise ValueError(f"a reference needs {_LEAST} characters at least")

    @property
    def name(self) -> str:
        parts = (str(self.max_length or ""), "upper" if self.upper else "", "alphanumeric" if self.alphanumeric else "")
        return "-".join(filter(None, parts)) or "id"

    def of(self, request_id: str) -> str:
        text = (request_id.replace("_", "") if self.alphanumeric else request_id)[: self.max_length]
        return text.upper() if self.upper else text


AS_IT_IS: Final = ReferenceForm()


def is_reference(shown: object, ours: str) -> bool:
    """Whether `shown` is or contains our reference: unchanged, in other case, with other punctuation, escaped for HTML or
    an address, cut by the PMS, alone without `rsv`, behind a prefix of its own, or in a text."""
    if shown == ours:  # nearly always
        return True
    if not isinstance(shown, str):
        return False
    words, wanted = _words(unquote(unescape(shown))), _bare(ours)
    if "".join(words) == wanted.removeprefix("rsv"):
        return True
    # No more words than letters can be ours together: a PMS repeats texts of guests, which may be long.
    return any(
        _is_same(found, wanted)
        for start in range(len(words))
        for found in takewhile(wanted.startswith, accumulate(words[start : start + len(wanted)]))
    )


def names_another(text: str, ours: str) -> bool:
    """Whether `text` names another submission's reference, in any form in which references are sent, and not ours."""
    text = unquote(text)
    named, wanted = [_bare(found) for found in _ANY.findall(text)], _bare(ours)
    return bool(named) and wanted not in _bare(text) and not any(_is_same(found, wanted) for found in named)


def _is_same(found: str, wanted: str) -> bool:
    return found == wanted or (len(found) >= _KNOWN_BY and wanted.startswith(found))


def _words(text: str) -> list[str]:
    plain = text.casefold()
    if not plain.isascii():
        # A Turkish PMS has İ for the capital of i: its dot is a sign of its own in NFKD. One by one: normalizing sorts long runs of
        # such signs, in quadratic time.
        plain = "".join(each for letter in plain for each in normalize("NFKD", letter) if not combining(each))
    return [word for word in re.split(r"[\W_]+", plain) if word]


def _bare(text: str) -> str:
    return "".join(_words(text))

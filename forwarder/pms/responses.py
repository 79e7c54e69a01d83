"""Makes a PMS's responses fit for storage, and compares them with the request. Pure.

Only what has the shape of section 2.5 gets into a record. Text that is kept has no card number and no data of the guest.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import to_json

from forwarder.reservation import parsing
from forwarder.reservation.booking import Booking
from forwarder.reservation.checks.card_numbers import MIN_DIGITS, digits_of, mask, masked, may_hold_any, plain
from forwarder.reservation.outcome import Absent, Cancelled, Confirmed, Deferred, InDoubt, Rejected
from forwarder.reservation.parsing import decimal
from forwarder.reservation.record import cut_list, cut_text
from forwarder.reservation.request import CardDetails, json_number

# No U+0000: databases do not take it. The published contract has the limits as such; a PMS's longer values are cut, not refused.
_Storable = Annotated[str, Field(strict=True, pattern=r"^[^\x00]*$")]
_Line = Annotated[_Storable, Field(json_schema_extra={"maxLength": 256}), AfterValidator(partial(cut_text, most=256))]
_Text = Annotated[
    _Storable, Field(json_schema_extra={"maxLength": 10_000}), AfterValidator(partial(cut_text, most=10_000))
]
_Currency = Annotated[str, Field(strict=True, pattern=r"^[A-Z]{3}$")]
_MAX_AMOUNT: Final = 10**12
_BOUNDED: Final = Field(strict=True, ge=-_MAX_AMOUNT, le=_MAX_AMOUNT)
_Amount = Annotated[int, _BOUNDED] | Annotated[float, _BOUNDED]


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, frozen=True, allow_inf_nan=False)


class LineItem(_Part):
    """One line of a breakdown."""

    name: _Line
    type: _Line
    total: _Amount


_MAX_LINES: Final = 200
_Lines = Annotated[tuple[LineItem, ...], Field(json_schema_extra={"maxItems": _MAX_LINES})]
_Texts = Annotated[
    tuple[_Line, ...],
    Field(json_schema_extra={"maxItems": 50}),
    AfterValidator(lambda texts: tuple(cut_list(texts, 50))),
]


class BasePrice(_Part):
    """The price of the rooms."""

    total_base_price: _Amount
    breakdown: _Lines


class Fee(_Part):
    """Fees."""

    total_fee: _Amount
    breakdown: _Lines


class Tax(_Part):
    """Taxes."""

    total_tax: _Amount
    breakdown: _Lines


class Discount(_Part):
    """Discounts."""

    total_discount: _Amount
    breakdown: _Lines


class Finances(_Part):
    """What the stay costs and what of that is paid."""

    total_price: _Amount | None = None
    currency: _Currency | None = None
    total_paid: _Amount | None = None
    remaining_balance: _Amount | None = None
    base_price: BasePrice | None = None
    fee: Fee | None = None
    tax: Tax | None = None
    discount: Discount | None = None


class Codes(_Part):
    """Codes that open doors."""

    access_code: _Texts


class PrimaryGuest(_Part):
    """The guest as the PMS knows them."""

    name: _Line
    emails: _Texts
    mobile_numbers: _Texts
    nationality: _Line | None = None


class RecordFields(_Part):
    """The fields of the reservation record (section 2.5) that a PMS may give. Null is the same as absent; what is too long is
    cut."""

    source: _Line | None = None
    codes: Codes | None = None
    notes: _Text | None = None
    payment_url: Annotated[str, Field(strict=True, max_length=2048, pattern=r"^(https?://[^\s\x00]+)?$")] | None = None
    finances: Finances | None = None
    total_price: _Amount | None = None
    currency: _Currency | None = None
    primary_guest: PrimaryGuest | None = None


_FIELD_NAMES: Final = frozenset(to_camel(name) for name in RecordFields.model_fields)
_NO_ID: Final = {"", "null", "none", "nil", "undefined", "nan", "n/a"}


def identifier(value: object) -> str | None:
    """A reservation's id, which is a number or a text, as text; None for anything else, for a text that came damaged, and for the
    words by which programs write that they have none."""
    is_number = type(value) is int and abs(value) <= 10**30  # `str` refuses larger ones
    text = str(value) if is_number or isinstance(value, str) else ""
    is_one = len(text) <= 256 and "\0" not in text and "\ufffd" not in text  # noqa: PLR2004 - characters
    return text if is_one and text.strip().casefold() not in _NO_ID else None


def record_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """The record's fields that `given` holds, by section 2.5's names; those that are not well formed are left out."""
    if _FIELD_NAMES.isdisjoint(given):
        return {}
    try:
        fields = RecordFields.model_validate(given)
    except ValidationError as error:
        # Without each field that has a fault; of the finances, without the faulty ones among their parts.
        kept = dict(given)
        for path in {detail["loc"][:2] for detail in error.errors(include_url=False, include_input=False)}:
            part = kept.pop(str(path[0]), None)
            if path[0] == "finances" and len(path) > 1 and isinstance(part, dict):
                kept["finances"] = {key: value for key, value in part.items() if key != path[1]}
        return record_fields(kept)
    record = _given(fields.model_dump(mode="json", by_alias=True))
    if "finances" in record:
        record["finances"] = _given(record["finances"])
        for part in record["finances"].values():
            if isinstance(part, dict) and len(part["breakdown"]) > _MAX_LINES:
                part["breakdown"] = cut_list(part["breakdown"], _MAX_LINES)
    return record


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def amount(text: object) -> Decimal | None:
    """A decimal amount that a PMS wrote as text, exactly; None for anything that is not one."""
    value = decimal(text) if isinstance(text, str) else None
    return value if value is not None and abs(value) <= _MAX_AMOUNT else None


def finances(price: Decimal | None, paid: Decimal | None, left: Decimal | None) -> dict[str, Any]:
    """The amounts that are known, as JSON numbers; what is left to pay is the difference where nobody said it."""
    if left is None and price is not None and paid is not None:
        left = price - paid
    amounts = {"totalPrice": price, "totalPaid": paid, "remainingBalance": left}
    return {name: json_number(value) for name, value in amounts.items() if value is not None}


def price_part(part: str, lines: Iterable[tuple[str, Decimal]], total: Decimal | None = None) -> dict[str, Any]:
    """A part of the finances (basePrice, fee, …) with its lines, each a name and an amount. Without `total` it is their sum."""
    name, kind = f"total{part[0].upper()}{part[1:]}", "RoomRate" if part == "basePrice" else part.capitalize()
    listed = list(lines)
    total = sum((value for _, value in listed), Decimal()) if total is None else total
    breakdown = [{"name": text, "type": kind, "total": json_number(value)} for text, value in listed]
    return {name: json_number(total), "breakdown": breakdown}


def objects(parts: object) -> list[Mapping[str, Any]]:
    """The JSON objects in a list; none for anything else."""
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


# A run of digits as long as a card number, or grouped as card numbers are written (4-4-4-4, 4-6-5); dates do not match.
_CARD_LIKE: Final = re.compile(r"\d{12,}|\d{4}(?:[ -]\d{4}){2,}(?:[ -]?\d{1,4})?|\d{4}[ -]\d{6}[ -]\d{5}")
_MAX_DETAIL: Final = 500


def shortened(text: str) -> str:
    """`text` on one line, at most 500 characters, with asterisks for everything that looks like a card number."""
    one_line = re.sub(r"[\s\x00-\x1f\x7f]+", " ", text).strip()
    masked_line = _CARD_LIKE.sub(lambda match: "*" * len(match.group()), one_line)
    return masked_line if len(masked_line) <= _MAX_DETAIL else masked_line[: _MAX_DETAIL - 1] + "…"


def discreet(text: str, booking: Booking) -> str:
    """As `shortened`, and with `[…]` for every value of the card and of the guest that `text` repeats."""
    card = booking.card or CardDetails()
    # Not the expiry: a year by itself gives nothing away, and every date contains one.
    of_card = {"number": card.card_number, "holder": card.card_holder_name, "cvv": card.cvv}
    for secret in sorted((*_texts(booking.guest), *_texts(of_card)), key=len, reverse=True):
        if len(secret) > 2:  # noqa: PLR2004 - shorter ones are parts of any text
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "[…]", text, flags=re.IGNORECASE)
    return shortened(text)


def _texts(parts: Mapping[str, Any]) -> Iterator[str]:
    for part in parts.values():
        if isinstance(part, Mapping):
            yield from _texts(part)
        elif part is not None:
            yield str(part).strip()


# --- whether a response is about the booking that it was asked for, where it need not name our reference ---


@dataclass(frozen=True, slots=True)
class Echo:
    """Under which names a PMS shows again what it was asked; empty for what it does not show, or not as it was sent."""

    arrival: str = ""
    departure: str = ""
    price: str = ""
    email: str = ""

    def contradicts(self, shown: Mapping[str, Any], booking: Booking) -> bool:
        """Whether any of them is present and differs from `booking`'s. Missing values, and values of another type, do not count."""
        for name, field in ((self.arrival, "arrivalDate"), (self.departure, "departureDate")):
            seen = parsing.day(shown.get(name))
            if seen is not None and seen.isoformat() != booking.fields[field]:
                return True
        price = shown.get(self.price)
        exact, asked = None if isinstance(price, str) else decimal(price), booking.total_price
        if exact is not None and asked is not None and abs(exact) <= _MAX_AMOUNT and abs(exact - asked) * 100 >= 1:
            return True
        given = (shown.get(self.email), booking.guest.get("email"))
        emails = {text.strip().casefold() for text in given if isinstance(text, str)} - {""}
        return len(emails) > 1


# --- the last step of an outcome: without card numbers and security codes ---

O = TypeVar("O", bound=Confirmed | Rejected | Deferred | InDoubt | Absent | Cancelled)  # noqa: E741 - an outcome


async def clean(outcome: O, booking: Booking) -> O:
    """As `without_card_data`; in a thread where that would hold up the loop: 16 KiB take some 20 ms at the worst."""
    if isinstance(outcome, Confirmed) and outcome.record and len(to_json(outcome.record)) > 16 * 1024:
        return await asyncio.to_thread(without_card_data, outcome, booking)
    return without_card_data(outcome, booking)


def without_card_data(outcome: O, booking: Booking) -> O:
    """`outcome` with everything masked that looks like a card, also the card of `booking` with other text between its digits."""
    number = "" if booking.card is None else digits_of(booking.card.card_number or "")
    if len(number) < MIN_DIGITS - 1:
        number = ""
    match outcome:
        case Confirmed() if number or (outcome.record and may_hold_any(to_json(outcome.record))):  # nearly never
            record = _masked(outcome.record, number)
            if "paymentUrl" in record:  # where the guest pays: changed because it looks like something, nobody could
                record["paymentUrl"] = _mask_split_digits(str(outcome.record["paymentUrl"]), number)
            doubles = tuple(_mask_split_digits(one, number) for one in outcome.doubles)
            pms_id = _mask_split_digits(outcome.pms_reservation_id, number)
            return replace(outcome, record=record, pms_reservation_id=pms_id, doubles=doubles)
        case Rejected(problem):
            texts = _masked({"title": problem.title, "detail": problem.detail, "extra": problem.extra}, number)
            return replace(outcome, problem=replace(problem, **texts))
        case InDoubt(_, detail) if outcome.pms_reservation_id is not None:
            pms_id = _mask_split_digits(str(outcome.pms_reservation_id), number)
            return replace(outcome, detail=mask(_mask_split_digits(detail, number)), pms_reservation_id=pms_id)
        case Deferred() | InDoubt():
            return replace(outcome, detail=mask(_mask_split_digits(outcome.detail, number)))
        case _:
            return outcome


def _masked(value: Any, number: str) -> Any:
    match value:
        case str():
            return mask(_mask_split_digits(value, number))
        case Mapping():
            return {name: _masked(part, number) for name, part in value.items()}
        case list() | tuple():
            return [_masked(part, number) for part in value]
        case _:
            return value


def _mask_split_digits(text: str, number: str) -> str:
    """`text` with each place masked where its digits, ignoring what separates them, are those of `number`."""
    if not number or len(text) < len(number):
        return text
    digits = plain(text)
    places = [match.start() for match in re.finditer("[0-9]", digits)]
    in_a_row, shown, end = "".join(digits[place] for place in places), [], 0
    at = in_a_row.find(number)
    while at >= 0:
        after = at + len(number)
        shown += [text[end : places[at]], masked(number)]
        end, at = places[after - 1] + 1, in_a_row.find(number, after)
    return "".join([*shown, text[end:]])

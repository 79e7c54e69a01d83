"""The fields of a booking by the names that a mapping gives them, and how their values are written. Pure."""

import re
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from difflib import get_close_matches
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from forwarder.pms.countries import code_of
from forwarder.pms.fields import as_text
from forwarder.pms.guests import first_and_last, headcount
from forwarder.reservation.booking import Booking
from forwarder.reservation.parsing import days_later, decimal
from forwarder.reservation.request import (
    CURRENCY_DECIMALS,
    Address,
    BookingEngineRequest,
    CardDetails,
    Guest,
    json_number,
)

Written = Literal["text", "number", "integer", "id", "minorUnits", "hour", "clockTime", "country"]
"""How a value is written. `id` is a whole number above 0; `minorUnits` are an amount's cents, or whatever its currency has in their
place; `hour` is the hour of a time, `clockTime` a time as 15:30:00, `country` a country's code of two letters. What one of the last
three cannot say goes into the notes; a booking that cannot be written in another form is refused."""

_TIME: Final = re.compile(r"(\d{1,2})(?::(\d{2}))?")
_HOURS: Final = 24
_MOST_DIGITS: Final = 18
PMS_ID: Final = "pmsReservationId"
PMS_GUEST_ID: Final = "pmsGuestId"
DATES: Final = frozenset({"arrivalDate", "departureDate"})


def _names(model: type[BaseModel], prefix: str = "") -> frozenset[str]:
    return frozenset(prefix + to_camel(name) for name in model.model_fields)


CARD_FIELDS: Final = _names(CardDetails, "card.")
_OF_THE_GUEST = (_names(Guest, "guest.") - {"guest.address"}) | _names(Address, "guest.address.")
_OF_THE_REQUEST = _names(BookingEngineRequest) - {"guest", "cardDetails", "status"}
_GUESTS: Final = ("numberOfAdults", "numberOfChildren", "numberOfInfants")

DERIVED: Final[Mapping[str, tuple[str, ...]]] = {
    "guest.first": ("guest.firstName", "guest.name"),
    "guest.last": ("guest.lastName", "guest.name"),
    "guests.total": ("numberOfGuests", *_GUESTS),
    "guests.adults": ("numberOfAdults", "numberOfGuests"),
    "guests.children": ("numberOfChildren", "numberOfInfants"),
}
"""Values that are worked out → the fields that they come from: a name by its parts, all guests, those who are no children, and
children with infants, for a PMS that counts no infants."""

SAID: Final[Mapping[str, tuple[str, ...]]] = {
    **DERIVED,
    "guests.total": ("numberOfGuests",),
    "guests.adults": ("numberOfAdults",),
    "guests.children": ("numberOfChildren",),
}
"""Values that are worked out → the fields that say nothing more."""

FIELDS: Final = (
    _OF_THE_REQUEST | _OF_THE_GUEST | CARD_FIELDS | DERIVED.keys() | {"reference", "nights", PMS_ID, PMS_GUEST_ID}
)
"""Every name. `card.…` may stand in the body of a create alone, `pmsReservationId` where one
reservation is asked about, and `pmsGuestId` where `create.guest` made the guest."""


def _known(name: str) -> str:
    if name not in FIELDS:
        near = get_close_matches(name, FIELDS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(FIELDS))}"
        raise PydanticCustomError("field_name", "there is no field {name}; {hint}", {"name": repr(name), "hint": hint})
    return name


FieldName = Annotated[str, AfterValidator(_known)]


class DoesNotFit(ValueError):
    """A booking's value cannot be written as the mapping wants it. `name` is its field."""

    def __init__(self, name: str, wanted: str) -> None:
        super().__init__(f"The PMS takes {name} as {wanted}; this value is none.")
        self.name = name


def field_value(booking: Booking, name: str, pms_id: str | None = None) -> Any:
    """The value of a field; None where the booking has none."""
    match name.split("."):
        case ["reference"]:
            value: Any = booking.reference
        case ["nights"]:
            value = (booking.departure - booking.arrival).days
        case ["totalPrice"]:
            value = booking.total_price
        case ["guest", "name"]:
            value = booking.guest_name
        case ["guest", "first" | "last" as part]:
            first, last, _ = first_and_last(booking)
            value = first if part == "first" else last
        case ["guests", "total"]:
            value = _all_guests(booking)
        case ["guests", "adults"]:
            value = headcount(booking, infants_are_children=False).adults
        case ["guests", "children"]:
            value = headcount(booking, infants_are_children=True).children
        case ["guest", "address", part]:
            value = (booking.guest.get("address") or {}).get(part)
        case ["guest", part]:
            value = booking.guest.get(part)
        case ["card", part]:
            value = _of_the_card(booking.card).get(part)
        case _:
            value = pms_id if name == PMS_ID else booking.fields.get(name)
    return None if value == "" else value


def _all_guests(booking: Booking) -> int | None:
    fields = booking.fields
    if fields.get("numberOfGuests") is not None:
        return int(fields["numberOfGuests"])
    return sum(fields.get(name) or 0 for name in _GUESTS) or None


def _of_the_card(card: CardDetails | None) -> Mapping[str, Any]:
    return {} if card is None else card.model_dump(by_alias=True)


def moved(value: Any, days: int) -> str:
    """The day that comes `days` after."""
    return days_later(date.fromisoformat(str(value)), days).isoformat()


def written(booking: Booking, name: str, value: Any, form: Written | None, date_format: str | None) -> tuple[Any, bool]:
    """`value` of the field `name` as JSON, None where that form cannot say it; and whether it says all of it. Raises
    `DoesNotFit`."""
    if date_format is not None:
        return date.fromisoformat(str(value)).strftime(date_format), True
    match form:
        case "id":
            return _id(name, value), True
        case None:
            return (json_number(value) if isinstance(value, Decimal) else value), True
        case "text":
            return as_text(value), True
        case "minorUnits":
            return _minor_units(booking, name, value), True
        case "country":
            code = code_of(value)
            return code, code is not None
        case "hour" | "clockTime":
            time = _TIME.fullmatch(str(value))
            if time is None or int(time[1]) >= _HOURS:
                return None, False
            if form == "hour":
                return int(time[1]), not int(time[2] or 0)
            return f"{int(time[1]):02d}:{time[2] or '00'}:00", True
        case _:
            number = _number(name, value, form)
            if form == "integer" and number != number.to_integral_value():
                raise DoesNotFit(name, "a whole number")
            return json_number(number), True


def _id(name: str, value: Any) -> int:
    text = str(value)
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else 0
    if not number:
        raise DoesNotFit(name, "a whole number above 0")
    return number


def _minor_units(booking: Booking, name: str, value: Any) -> int:
    decimals = CURRENCY_DECIMALS.get(booking.currency or "")
    units = None if decimals is None else _number(name, value, "number").scaleb(decimals)
    if units is None or units != units.to_integral_value():
        raise DoesNotFit(name, "an amount in the minor units of its currency")
    return int(units)


def _number(name: str, value: Any, form: str) -> Decimal:
    wanted = "a whole number" if form == "integer" else "a number"
    number = decimal(value)
    # What a number would not give back as it was: "00123", "1e5".
    if number is None or (isinstance(value, str) and format(number, "f") != value):
        raise DoesNotFit(name, wanted)
    return number

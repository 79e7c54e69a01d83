"""What becomes of each field of a request at BookingSync, as an account is set, and the comment for what has no field. Pure."""

import re
from collections.abc import Mapping
from typing import Any, Final

from forwarder.pms.kinds.booking_sync.options import BookingSyncOptions
from forwarder.pms.sdk import (
    Booking,
    Fate,
    FieldTable,
    Headcount,
    InNotes,
    LeftOut,
    Refused,
    SentAs,
    country_code,
    first_and_last,
)

CLOCK_TIME: Final = re.compile(r"\d{1,2}(:\d{2})?")
_NO_ROOMS: Final = Refused("no_rooms", "it is another")
_NO_CLOCK_TIME: Final = InNotes("where it is no clock time")
_NO_CARD: Final = LeftOut("sensitive: BookingSync's API takes no cards; the option securePayments charges them")
_NO_CHARGE: Final = LeftOut("sensitive: it is charged where morChannel is PMS, and else goes nowhere")
_CARD: Final = {
    "cardNumber": "card_number",
    "cardHolderName": "cardholder_name",
    "expiryMonth": "expires_at_month",
    "expiryYear": "expires_at_year",
    "cvv": "security_code",
}

FIELDS: Final = FieldTable(
    {
        "propertyId": SentAs(("path", "rental_id"), otherwise=Refused("property_not_found", "no path can name it")),
        "roomId": SentAs(("path", "rental_id"), "is the property", otherwise=_NO_ROOMS),
        "arrivalDate": SentAs(("start_at",)),
        "departureDate": SentAs(("end_at",)),
        "arrivalEstimatedTime": SentAs(("expected_checkin_time",), otherwise=_NO_CLOCK_TIME),
        "departureEstimatedTime": SentAs(("expected_checkout_time",), otherwise=_NO_CLOCK_TIME),
        "numberOfGuests": SentAs(("adults",), "less children and infants", otherwise=InNotes()),
        "numberOfAdults": SentAs(("adults",), "with the guests of whom nothing is said", otherwise=InNotes()),
        "numberOfChildren": SentAs(("children",)),
        "numberOfInfants": InNotes(),
        "numberOfPets": InNotes(),
        "notes": SentAs(("notes",)),
        "comments": SentAs(("comments.content",), "a comment of its own"),
        "status": LeftOut("says nothing more: what is sent is booked", lost=False),
        "morChannel": InNotes(),
        "guest.name": SentAs(("fullname",)),
        "guest.firstName": SentAs(("firstname", "fullname"), "together with the last name", otherwise=InNotes()),
        "guest.lastName": SentAs(("lastname", "fullname"), "together with the first name", otherwise=InNotes()),
        "guest.email": SentAs(("email",), "in the place of a name, too, if there is none"),
        "guest.phone": SentAs(("phones.number",)),
        "guest.address.line1": SentAs(("address1",)),
        "guest.address.line2": SentAs(("address2",)),
        "guest.address.postalCode": SentAs(("zip",)),
        "guest.address.city": SentAs(("city",)),
        "guest.address.state": SentAs(("state",)),
        "guest.address.country": SentAs(("country_code",), otherwise=InNotes("where it is no code of two letters")),
        "totalPrice": SentAs(("final_price",)),
        "currency": SentAs(("currency",)),
        "paymentProviderKey": InNotes(),
        "paymentProviderId": InNotes(),
        "transactionId": InNotes(),
        "promotionCode": InNotes(),
        **{f"cardDetails.{name}": _NO_CARD for name in _CARD},
    },
    notes="comments.content",
)
"""Those of an account without options."""

_STRICT: Final[Mapping[str, Fate]] = {
    "propertyId": SentAs(("rental_id",)),
    "roomId": SentAs(("rental_id",), "is the property", otherwise=_NO_ROOMS),
    "guest.name": SentAs(("firstname", "lastname"), "where these are missing", otherwise=InNotes()),
    "guest.firstName": SentAs(("firstname",)),
    "guest.lastName": SentAs(("lastname",)),
    "guest.phone": SentAs(("phone_number",)),
    **{f"guest.address.{part}": InNotes() for part in ("line1", "line2", "postalCode", "city", "state")},
}
_NOTED: Final[Mapping[str, Fate]] = {
    "transactionId": InNotes(also=("payments.transaction_id",)),
    "totalPrice": SentAs(("final_price", "payments.amount_in_cents"), "the latter in cents"),
}
_STRICT_AND_NOTED: Final[Mapping[str, Fate]] = {
    "guest.name": SentAs(("firstname", "lastname", "fullname"), "where the others are missing", otherwise=InNotes()),
    "guest.firstName": SentAs(("firstname", "fullname")),
    "guest.lastName": SentAs(("lastname", "fullname")),
    "guest.address.line1": InNotes(also=("payments.address1",)),
    "guest.address.line2": InNotes(also=("payments.address2",)),
    "guest.address.postalCode": InNotes(also=("payments.zip",)),
    "guest.address.city": InNotes(also=("payments.city",)),
    "guest.address.state": InNotes(also=("payments.state",)),
}


def table_for(options: BookingSyncOptions) -> FieldTable:
    """The table of an account that is set so."""
    changes: dict[str, Fate] = dict(_STRICT) if options.strict_bookings else {}
    if options.record_payments:
        changes |= _NOTED if not options.strict_bookings else {**_NOTED, **_STRICT_AND_NOTED}
    if options.secure_payments is not None:
        changes |= {
            f"cardDetails.{name}": SentAs((theirs,), only_if=("morChannel", "PMS"), otherwise=_NO_CHARGE)
            for name, theirs in _CARD.items()
        }
    return FIELDS.but(changes) if changes else FIELDS


def comments(
    booking: Booking, table: FieldTable, options: BookingSyncOptions, people: Headcount
) -> list[dict[str, str]]:
    """The caller's comment, and one that says in plain words what BookingSync has no field for."""
    unfit = {**people.unfit, **country_code(booking)[1], **_name(booking, options), **_times(booking)}
    if options.record_payments:
        unfit["transactionId"] = _paid(booking.fields)
    contents = (booking.fields.get("comments"), "\n".join(table.lines(booking, unfit)))
    return [{"content": content} for content in contents if content]


def _paid(fields: Mapping[str, Any]) -> str | None:
    """By the option recordPayments the account says that whoever took the payment and names its transaction has been paid. By
    themselves, neither word says so."""
    transaction = fields.get("transactionId")
    return f"{transaction}, paid with the booking" if transaction and fields.get("morChannel") == "SELF" else None


def _name(booking: Booking, options: BookingSyncOptions) -> dict[str, str | None]:
    if options.strict_bookings:
        return first_and_last(booking)[2]
    guest, parts = booking.guest, ("firstName", "lastName")
    if all(guest.get(part) for part in parts):
        return {}
    alone = [part for part in parts if guest.get(part) and guest[part] not in booking.guest_name]
    return {f"guest.{part}": None for part in alone}


def _times(booking: Booking) -> dict[str, str | None]:
    names = ("arrivalEstimatedTime", "departureEstimatedTime")
    return {name: None for name in names if not CLOCK_TIME.fullmatch(str(booking.fields.get(name)))}

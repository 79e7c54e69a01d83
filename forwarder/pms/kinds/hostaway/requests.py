"""What Hostaway is asked: bodies and queries. Pure."""

import re
from typing import Any, Final
from urllib.parse import urlencode

from pydantic_core import to_json

from forwarder.pms.sdk import (
    Booking,
    FieldTable,
    InNotes,
    LeftOut,
    Refused,
    SentAs,
    country_code,
    days_later,
    json_number,
)

PER_PAGE: Final = 100
_DIRECT: Final = 2000
REFERENCE_FIELD: Final = "customerUserId"
_MOST_DIGITS: Final = 18
_HOUR = re.compile(r"(\d{1,2})(?::(\d{2}))?")
_HOURS: Final = 24
_WHOLE_HOURS: Final = InNotes("where it is no whole hour")
_NO_CARD: Final = LeftOut("sensitive: cards go to payment providers, not to Hostaway")

FIELDS: Final = FieldTable(
    {
        "propertyId": SentAs(("listingMapId",), otherwise=Refused("property_not_found", "it is no number")),
        "roomId": SentAs(("listingMapId",), "is the property", otherwise=Refused("no_rooms", "it is another")),
        "arrivalDate": SentAs(("arrivalDate",)),
        "departureDate": SentAs(("departureDate",)),
        "arrivalEstimatedTime": SentAs(("checkInTime",), "the hour", otherwise=_WHOLE_HOURS),
        "departureEstimatedTime": SentAs(("checkOutTime",), "the hour", otherwise=_WHOLE_HOURS),
        "numberOfGuests": SentAs(("numberOfGuests",)),
        "numberOfAdults": SentAs(("adults",)),
        "numberOfChildren": SentAs(("children",)),
        "numberOfInfants": SentAs(("infants",)),
        "numberOfPets": SentAs(("pets",)),
        "notes": SentAs(("hostNote",)),
        "comments": SentAs(("comment",)),
        "status": LeftOut("says nothing more: what is sent is a new reservation", lost=False),
        "morChannel": InNotes(),
        "guest.name": SentAs(("guestName",)),
        "guest.firstName": SentAs(("guestFirstName",)),
        "guest.lastName": SentAs(("guestLastName",)),
        "guest.email": SentAs(("guestEmail",)),
        "guest.phone": SentAs(("phone",)),
        "guest.address.line1": SentAs(("guestAddress",)),
        "guest.address.line2": SentAs(("guestAddress",), "after line 1"),
        "guest.address.postalCode": SentAs(("guestZipCode",)),
        "guest.address.city": SentAs(("guestCity",)),
        "guest.address.state": InNotes(),
        "guest.address.country": SentAs(("guestCountry",), otherwise=InNotes("where it is no code of two letters")),
        "totalPrice": SentAs(("totalPrice",)),
        "currency": SentAs(("currency",)),
        "paymentProviderKey": InNotes(),
        "paymentProviderId": InNotes(),
        "transactionId": InNotes(),
        "promotionCode": InNotes(),
        "cardDetails.cardNumber": _NO_CARD,
        "cardDetails.cardHolderName": _NO_CARD,
        "cardDetails.expiryMonth": _NO_CARD,
        "cardDetails.expiryYear": _NO_CARD,
        "cardDetails.cvv": _NO_CARD,
    },
    notes="hostNote",
)


def listing_id_of(booking: Booking) -> int | None:
    """Hostaway's id of the listing; None where it is no number, and so names no listing there."""
    listing = booking.property_id
    number = int(listing) if listing.isascii() and listing.isdigit() and len(listing) <= _MOST_DIGITS else 0
    return number or None


def reservation_body(booking: Booking, listing_id: int) -> bytes:
    """POST /reservations. What is not known is left out."""
    fields, price = booking.fields, booking.total_price
    country, unfit = country_code(booking)
    hours = {}
    for name in ("arrivalEstimatedTime", "departureEstimatedTime"):
        hours[name], whole = _hour(fields.get(name))
        unfit |= {} if whole else {name: None}
    body = {
        "channelId": _DIRECT,
        "listingMapId": listing_id,
        "isManuallyChecked": 0,
        "isInitial": 0,
        REFERENCE_FIELD: booking.reference,
        **_guest(booking),
        "guestCountry": country,
        "numberOfGuests": fields.get("numberOfGuests"),
        "adults": fields.get("numberOfAdults"),
        "children": fields.get("numberOfChildren"),
        "infants": fields.get("numberOfInfants"),
        "pets": fields.get("numberOfPets"),
        "arrivalDate": booking.arrival.isoformat(),
        "departureDate": booking.departure.isoformat(),
        "checkInTime": hours["arrivalEstimatedTime"],
        "checkOutTime": hours["departureEstimatedTime"],
        "totalPrice": None if price is None else json_number(price),
        "currency": booking.currency,
        "hostNote": "\n".join(line for line in (fields.get("notes"), *FIELDS.lines(booking, unfit)) if line),
        "comment": fields.get("comments"),
        "status": "new",
    }
    return to_json({name: value for name, value in body.items() if value not in (None, "")})


def _guest(booking: Booking) -> dict[str, Any]:
    guest, address = booking.guest, booking.guest.get("address") or {}
    phone = guest.get("phone")
    return {
        "guestName": booking.guest_name or guest.get("email"),
        "guestFirstName": guest.get("firstName"),
        "guestLastName": guest.get("lastName"),
        "guestEmail": guest.get("email"),
        "phone": None if phone is None else str(phone),
        "guestAddress": ", ".join(line for line in (address.get("line1"), address.get("line2")) if line),
        "guestZipCode": address.get("postalCode"),
        "guestCity": address.get("city"),
    }


def _hour(value: object) -> tuple[int | None, bool]:
    """Hostaway counts in whole hours: the hour, and whether it says all that was said."""
    match = _HOUR.fullmatch("" if value is None else str(value))
    if match is None or int(match[1]) >= _HOURS:
        return None, False
    return int(match[1]), not int(match[2] or 0)


def token_body(client_id: str, client_secret: str) -> bytes:
    """POST /accessTokens, a form."""
    form = {
        "grant_type": "client_credentials",
        "client_id": client_id,
        "client_secret": client_secret,
        "scope": "general",
    }
    return urlencode(form).encode("ascii")


def cancellation_body() -> bytes:
    """PUT /reservations/:id/statuses/cancelled. Who booked through a booking engine also cancels there."""
    return to_json({"cancelledBy": "guest"})


def lookup_query(booking: Booking, listing_id: int, after_id: int | None) -> str:
    """The listing's reservations around the day of arrival, a day more on either side: the documents do not say whether the
    first and last days count. In an order that does not change while pages are read, unlike the usual one (last updated)."""
    query = {
        "listingId": listing_id,
        "arrivalStartDate": days_later(booking.arrival, -1).isoformat(),
        "arrivalEndDate": days_later(booking.arrival, 1).isoformat(),
        "sortOrder": "arrivalDate",
        "limit": PER_PAGE,
    }
    return urlencode(query if after_id is None else query | {"afterId": after_id})


def any_query() -> str:
    """A listing of next to nothing, which shows that there is a Hostaway."""
    return urlencode({"limit": 1})

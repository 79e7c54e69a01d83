"""What Hostaway is asked: bodies and queries. Pure."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlencode

from pydantic_core import to_json

from forwarder.pms.sdk import Booking, json_number

PER_PAGE: Final = 100
_DIRECT: Final = 2000
REFERENCE_FIELD: Final = "customerUserId"
_MOST_DIGITS: Final = 18
_COUNTRY_CODE = re.compile(r"[A-Z]{2}")
_HOUR = re.compile(r"(\d{1,2})(?::\d{2})?")
_HOURS: Final = 24


def listing_id_of(booking: Booking) -> int | None:
    """Hostaway's id of the listing; None where it is no number, and so names no listing there."""
    listing = booking.property_id
    number = int(listing) if listing.isascii() and listing.isdigit() and len(listing) <= _MOST_DIGITS else 0
    return number or None


def reservation_body(booking: Booking, listing_id: int) -> bytes:
    """POST /reservations. What is not known is left out."""
    fields, price = booking.fields, booking.total_price
    body = {
        "channelId": _DIRECT,
        "listingMapId": listing_id,
        "isManuallyChecked": 0,
        "isInitial": 0,
        REFERENCE_FIELD: booking.reference,
        **_guest(booking),
        "numberOfGuests": fields.get("numberOfGuests"),
        "adults": fields.get("numberOfAdults"),
        "children": fields.get("numberOfChildren"),
        "infants": fields.get("numberOfInfants"),
        "pets": fields.get("numberOfPets"),
        "arrivalDate": booking.arrival.isoformat(),
        "departureDate": booking.departure.isoformat(),
        "checkInTime": _hour(fields.get("arrivalEstimatedTime")),
        "checkOutTime": _hour(fields.get("departureEstimatedTime")),
        "totalPrice": None if price is None else json_number(price),
        "currency": booking.currency,
        "hostNote": fields.get("notes"),
        "comment": _comment(fields),
        "status": "new",
    }
    return to_json({name: value for name, value in body.items() if value not in (None, "")})


def _guest(booking: Booking) -> dict[str, Any]:
    guest, address = booking.guest, booking.guest.get("address") or {}
    phone, country = guest.get("phone"), address.get("country") or ""
    return {
        "guestName": booking.guest_name or guest.get("email"),
        "guestFirstName": guest.get("firstName"),
        "guestLastName": guest.get("lastName"),
        "guestEmail": guest.get("email"),
        "phone": None if phone is None else str(phone),
        "guestAddress": ", ".join(line for line in (address.get("line1"), address.get("line2")) if line),
        "guestZipCode": address.get("postalCode"),
        "guestCity": address.get("city"),
        # The general operation takes country names too, which Hostaway does not know.
        "guestCountry": country if _COUNTRY_CODE.fullmatch(country) else None,
    }


def _hour(value: object) -> int | None:
    """Hostaway counts in whole hours."""
    match = _HOUR.fullmatch("" if value is None else str(value))
    return int(match[1]) if match is not None and int(match[1]) < _HOURS else None


def _comment(fields: Mapping[str, Any]) -> str:
    paid = fields.get("transactionId")
    lines = (fields.get("comments"), f"Paid with the booking, transaction {paid}" if paid else None)
    return "\n".join(line for line in lines if line)


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
        "arrivalStartDate": (booking.arrival - timedelta(days=1)).isoformat(),
        "arrivalEndDate": (booking.arrival + timedelta(days=1)).isoformat(),
        "sortOrder": "arrivalDate",
        "limit": PER_PAGE,
    }
    return urlencode(query if after_id is None else query | {"afterId": after_id})


def any_query() -> str:
    """A listing of next to nothing, which shows that there is a Hostaway."""
    return urlencode({"limit": 1})

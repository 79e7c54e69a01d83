"""What becomes of each field of a request at Cloudbeds. Pure."""

import re
from typing import Final

from forwarder.pms.sdk import Booking, FieldTable, InNotes, LeftOut, SentAs, country_code, first_and_last

_CLOCK_TIME: Final = re.compile(r"(\d{1,2})(?::(\d{2}))?")
_HOURS: Final = 24
_NO_CARD: Final = LeftOut("sensitive: Cloudbeds forbids card data in its API")

FIELDS: Final = FieldTable(
    {
        "propertyId": SentAs(("propertyID",), otherwise=InNotes("where the option propertyId names another")),
        "roomId": SentAs(("roomTypeID",)),
        "arrivalDate": SentAs(("startDate",)),
        "departureDate": SentAs(("endDate",)),
        "arrivalEstimatedTime": SentAs(("estimatedArrivalTime",), otherwise=InNotes("where it is no clock time")),
        "departureEstimatedTime": InNotes(),
        "numberOfGuests": SentAs(("adults.quantity",), "less children and infants", otherwise=InNotes()),
        "numberOfAdults": SentAs(("adults.quantity",), "with the guests of whom nothing is said", otherwise=InNotes()),
        "numberOfChildren": SentAs(("children.quantity",), "with the infants"),
        "numberOfInfants": InNotes("and counted as children", also=("children.quantity",)),
        "numberOfPets": InNotes(),
        "notes": SentAs(("reservationNote",)),
        "comments": SentAs(("reservationNote",), "below the notes"),
        "status": LeftOut("says nothing more: what is sent is confirmed", lost=False),
        "morChannel": InNotes(),
        "guest.name": SentAs(("guestFirstName", "guestLastName"), "where these are missing", otherwise=InNotes()),
        "guest.firstName": SentAs(("guestFirstName",)),
        "guest.lastName": SentAs(("guestLastName",)),
        "guest.email": SentAs(("guestEmail",)),
        "guest.phone": SentAs(("guestPhone",)),
        "guest.address.line1": InNotes(),
        "guest.address.line2": InNotes(),
        "guest.address.postalCode": SentAs(("guestZip",)),
        "guest.address.city": InNotes(),
        "guest.address.state": InNotes(),
        "guest.address.country": SentAs(("guestCountry",), otherwise=InNotes("where it is no code of two letters")),
        "totalPrice": InNotes("Cloudbeds sets the price by its rates"),
        "currency": InNotes(),
        "paymentProviderKey": InNotes(),
        "paymentProviderId": InNotes(),
        "transactionId": InNotes(),
        "promotionCode": SentAs(("promoCode",), "where the room has a rate in rateIds", otherwise=InNotes()),
        "cardDetails.cardNumber": _NO_CARD,
        "cardDetails.cardHolderName": _NO_CARD,
        "cardDetails.expiryMonth": _NO_CARD,
        "cardDetails.expiryYear": _NO_CARD,
        "cardDetails.cvv": _NO_CARD,
    },
    notes="reservationNote",
)
"""Those of an account without options."""

_CUSTOM_FIELD: Final = "customFields.fieldValue"


def table_for(*, notes_field: bool) -> FieldTable:
    """The table of an account whose notes go into a note of the reservation, or into a custom field."""
    if not notes_field:
        return FIELDS
    own = {"notes": SentAs((_CUSTOM_FIELD,)), "comments": SentAs((_CUSTOM_FIELD,), "below the notes")}
    return FIELDS.but(own, notes=_CUSTOM_FIELD)


def unfit_in(booking: Booking, *, property_sent: str, has_rate: bool) -> dict[str, str | None]:
    """What does not fit into the form, beside the number of guests."""
    fits = {
        "propertyId": property_sent == booking.property_id,
        "promotionCode": has_rate,
        "arrivalEstimatedTime": clock_time(booking.fields.get("arrivalEstimatedTime")) is not None,
    }
    unfit: dict[str, str | None] = {name: None for name, fitting in fits.items() if not fitting}
    return {**unfit, **first_and_last(booking)[2], **country_code(booking)[1]}


def clock_time(value: object) -> str | None:
    """A time of day as Cloudbeds has it; None for what is none."""
    match = _CLOCK_TIME.fullmatch("" if value is None else str(value))
    return None if match is None or int(match[1]) >= _HOURS else f"{int(match[1]):02d}:{match[2] or '00'}:00"

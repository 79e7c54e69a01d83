"""What Cloudbeds is asked, as forms and queries, and what it leaves to choose. Pure."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode

from pydantic import Field

from forwarder.pms.kinds.cloudbeds.fields import clock_time, unfit_in
from forwarder.pms.sdk import Booking, FieldTable, Headcount, NoOptions, country_code, first_and_last, headcount

_THIRD_PARTY: Final = "ss-"
_Text = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f]+$")]


class CloudbedsOptions(NoOptions):
    """What Cloudbeds wants to know and a reservation request does not say."""

    property_id: _Text | None = Field(
        None,
        description="Cloudbeds' property, for every booking of the account; without it, the request's propertyId is one.",
    )
    source_id: Annotated[str, Field(pattern=r"^(s-\d+(-1)?|ss-\d+-[01])$")] | None = Field(
        None,
        description="Where bookings are said to come from, as getSources names it. A third-party source (ss-7-1) is needed for "
        "bookings to be found again by their reference.",
    )
    rate_ids: Mapping[_Text, _Text] = Field(
        default_factory=dict, description="Room type → the rate to book it at; Cloudbeds' own choice for the others."
    )
    payment_method: Literal["cash", "credit", "ebanking", "pay_pal"] = Field(
        "cash", description="How the guest pays the property."
    )
    authorization: Literal["api-key", "bearer"] = Field(
        "api-key", description="What the credential is: an API key, or an OAuth 2.0 access token."
    )
    default_country: Annotated[str, Field(pattern=r"^[A-Z]{2}$")] | None = Field(
        None, description="The country code of guests who come without one."
    )
    default_zip: _Text | None = Field(None, description="The ZIP code of guests who come without one.")
    default_email: _Text | None = Field(None, description="The e-mail address of guests who come without one.")
    notes_field: _Text | None = Field(
        None,
        description="The short code of a custom field that takes notes and comments; without it, they become a note of the "
        "reservation, by a request of their own.",
    )
    send_email_confirmation: bool = Field(default=False, description="Whether Cloudbeds writes to the guest.")
    accept_unconfirmed: bool = Field(
        default=False,
        description="Whether a booking that the property has yet to confirm (not_confirmed) counts as confirmed.",
    )

    @property
    def shows_reference(self) -> bool:
        """Whether Cloudbeds is documented to keep and to show our reference: of bookings from a booking channel."""
        return self.source_id is not None and self.source_id.startswith(_THIRD_PARTY)

    def property_of(self, booking: Booking) -> str:
        return self.property_id or booking.property_id


PER_PAGE: Final = 100
_NAMELESS: Final = "Guest"


def people_of(booking: Booking) -> Headcount:
    """The guests as Cloudbeds counts them: adults and children."""
    return headcount(booking, infants_are_children=True)


def notes_of(booking: Booking, options: CloudbedsOptions, table: FieldTable) -> str:
    """The caller's notes and comments, and in plain words what Cloudbeds has no field for."""
    property_sent, has_rate = options.property_of(booking), booking.room_id in options.rate_ids
    unfit = people_of(booking).unfit | unfit_in(booking, property_sent=property_sent, has_rate=has_rate)
    own = (booking.fields.get("notes"), booking.fields.get("comments"))
    return "\n".join(line for line in (*own, *table.lines(booking, unfit)) if line)


def reservation_form(booking: Booking, options: CloudbedsOptions, notes: str) -> bytes:
    """The form of postReservation: one room of the type that `roomId` names. It takes no card, and no price: that is Cloudbeds'
    to set. `notes` are in it where the account has a field for them."""
    room, rate, people = booking.room_id, options.rate_ids.get(booking.room_id), people_of(booking)
    form = {
        "propertyID": options.property_of(booking),
        "sourceID": options.source_id,
        "thirdPartyIdentifier": booking.reference,
        "startDate": booking.arrival.isoformat(),
        "endDate": booking.departure.isoformat(),
        **_guest(booking, options),
        "estimatedArrivalTime": clock_time(booking.fields.get("arrivalEstimatedTime")),
        "rooms[0][roomTypeID]": room,
        "rooms[0][quantity]": 1,
        "rooms[0][roomRateID]": rate,
        "adults[0][roomTypeID]": room,
        "adults[0][quantity]": people.adults or 1,
        "children[0][roomTypeID]": room,
        "children[0][quantity]": people.children or 0,
        "paymentMethod": options.payment_method,
        "promoCode": booking.fields.get("promotionCode") if rate else None,  # Cloudbeds takes one with a rate alone
        "customFields[0][fieldName]": options.notes_field if notes else None,
        "customFields[0][fieldValue]": notes if options.notes_field else None,
        "sendEmailConfirmation": "true" if options.send_email_confirmation else "false",
    }
    return _encoded(form)


def note_form(property_id: str, reservation_id: str, notes: str) -> bytes:
    """The form of postReservationNote."""
    return _encoded({"propertyID": property_id, "reservationID": reservation_id, "reservationNote": notes})


def cancellation_form(property_id: str, reservation_id: str) -> bytes:
    """The form of putReservation."""
    return _encoded({"propertyID": property_id, "reservationID": reservation_id, "status": "canceled"})


def lookup_query(property_id: str, reference: str) -> str:
    """The query of getReservations: every status, cancelled ones too, since none is asked for."""
    query = {
        "propertyID": property_id,
        "sourceReservationId": reference,
        "pageNumber": 1,
        "pageSize": PER_PAGE,
    }
    return urlencode(query)


def details_query(property_id: str, reservation_id: str) -> str:
    """The query of getReservation."""
    return urlencode({"propertyID": property_id, "reservationID": reservation_id})


def _encoded(form: Mapping[str, Any]) -> bytes:
    return urlencode({name: value for name, value in form.items() if value not in (None, "")}).encode("ascii")


def _guest(booking: Booking, options: CloudbedsOptions) -> dict[str, Any]:
    guest, address = booking.guest, booking.guest.get("address") or {}
    first, last, _ = first_and_last(booking)
    phone = guest.get("phone")
    return {
        "guestFirstName": first or _NAMELESS,
        "guestLastName": last or _NAMELESS,
        "guestCountry": country_code(booking)[0] or options.default_country,
        "guestZip": address.get("postalCode") or options.default_zip,
        "guestEmail": guest.get("email") or options.default_email,
        "guestPhone": None if phone is None else str(phone),
    }

"""What an account of kind `cloudbeds` says beside its address and credential. Pure."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field

from forwarder.pms.adapter import NoOptions
from forwarder.reservation.booking import Booking

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
        description="The short code of the custom field that takes notes, comments and transaction; without it, they stay behind.",
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

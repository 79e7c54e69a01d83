"""The reservation that a PMS is asked to make: the submission after the rules, with the card unsealed. Kept in memory only."""

from collections.abc import Mapping
from dataclasses import field
from datetime import date
from decimal import Decimal
from typing import Any

from forwarder.reservation.request import CardDetails
from forwarder.reservation.value import value


@value(frozen=True, slots=True)
class Booking:
    """What to book. `reference` is our request id, which the PMS keeps with the reservation where it can.

    `fields` are the request's own fields, in the forms in which they came, with `roomId` filled in and without the card.
    """

    reference: str
    fields: Mapping[str, Any]
    card: CardDetails | None = field(default=None, repr=False)
    website_id: str | None = None

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
        """The exact decimal amount that the caller wrote."""
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
        """The guest's full name, put together from its parts where only those were given; empty when none was."""
        return full_name(self.guest)


def full_name(guest: Mapping[str, Any]) -> str:
    """`name`, or else first and last name; empty when none is there."""
    parts = (guest.get("firstName"), guest.get("lastName"))
    return guest.get("name") or " ".join(part for part in parts if part)

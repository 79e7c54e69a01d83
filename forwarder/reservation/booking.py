"""The booking to make in a PMS: a submission that passed the rules. Pure."""

from collections.abc import Mapping
from dataclasses import field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from forwarder.reservation.checks.rules import Traits, refusal, room_of, website_id
from forwarder.reservation.problems.problem import Problem
from forwarder.reservation.request import CardDetails
from forwarder.reservation.submission import Submission
from forwarder.reservation.value import value


@value(frozen=True, slots=True)
class Booking:
    """The booking to make: a submission after the rules, with the card unsealed. Kept in memory only.

    `reference` is our request id, which the PMS stores with the reservation if it can.
    `fields` are the request's own fields, unchanged, with `roomId` filled in and without the card.
    `trace`: the caller's trace; requests about the booking carry it, independently of the adapter.
    `pms_id`: in a look-up, the id with which the PMS answered the create.
    """

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
        """The exact decimal amount from the caller."""
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
    asks_nothing = card is None and traits.concern_card_alone  # as nearly always
    refused = None if asks_nothing else refusal(traits, submission.reservation, card, now)
    if refused is not None:
        return replace(refused, request_id=submission.request_id)
    return booking_of(traits, submission.request_id, submission.reservation, card, submission.trace)


def booking_of(
    traits: Traits,
    reference: str,
    reservation: Mapping[str, Any],
    card: CardDetails | None,
    trace: str | None = None,
) -> Booking:
    """The booking for a PMS with these traits, if no rule refuses it."""
    fields = {**reservation, "roomId": room_of(reservation)}
    fields.pop("cardDetails", None)
    return Booking(reference, fields, card, website_id(reservation) if traits.website else None, trace)


def booking_without_card(traits: Traits, submission: Submission) -> Booking:
    """The booking as it was made, for cancelling it: it passed the rules before, and its card is erased."""
    return booking_of(traits, submission.request_id, submission.reservation, None, submission.trace)

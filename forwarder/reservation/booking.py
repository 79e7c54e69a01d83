"""The reservation that a PMS is asked to make, and the integration rules that make it of a submission or refuse it. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from datetime import date
from decimal import Decimal
from typing import Any, Final

from forwarder.reservation.problems import endings
from forwarder.reservation.problems.problem import Problem
from forwarder.reservation.request import CardDetails
from forwarder.reservation.submission import Submission
from forwarder.reservation.value import value


@value(frozen=True, slots=True)
class Booking:
    """What to book: a submission after the rules, with the card unsealed. Kept in memory only.

    `reference` is our request id, which the PMS keeps with the reservation where it can.
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


# --- the rules ---

BOOKING_SYNC: Final = "booking-sync"
WEBSITE_BUILDER: Final = "website-builder"


def apply_rules(kind: str, submission: Submission, card: CardDetails | None) -> Booking | Problem:
    """The booking to push to a PMS of this `kind`, every rule applied, or the first rule's refusal."""
    refusal = next(refusals(kind, submission.reservation, card), None)
    if refusal is not None:
        return replace(refusal, request_id=submission.request_id)
    return booking_of(kind, submission.request_id, submission.reservation, card)


def refusals(kind: str, reservation: Mapping[str, Any], card: CardDetails | None) -> Iterator[Problem]:
    """The refusal of each rule for this `kind` of PMS that `reservation` breaks, in the order of the rules."""
    for rule in _RULES:
        refusal = rule(kind, reservation, card)
        if refusal is not None:
            yield refusal


def booking_of(kind: str, reference: str, reservation: Mapping[str, Any], card: CardDetails | None) -> Booking:
    """The booking that a PMS of this `kind` is asked to make, if no rule refuses it."""
    fields = {**reservation}
    fields.pop("cardDetails", None)
    if fields.get("roomId") is None:
        fields["roomId"] = fields["propertyId"]
    website_id = _website_id(reservation) if kind == WEBSITE_BUILDER else None
    return Booking(reference, fields, card, website_id)


def booking_without_card(kind: str, submission: Submission) -> Booking:
    """The booking as it was made, to cancel it: it passed the rules then, and its card is erased."""
    return booking_of(kind, submission.request_id, submission.reservation, None)


def _card_required(kind: str, reservation: Mapping[str, Any], card: CardDetails | None) -> Problem | None:
    """If the PMS takes the payment, booking-sync cannot make the reservation without a card."""
    if kind != BOOKING_SYNC or reservation.get("morChannel") != "PMS":
        return None
    if card is not None and card.card_number:
        return None
    return endings.CARD_REQUIRED.problem(
        "A booking-sync integration with morChannel PMS needs cardDetails with a cardNumber; pass them, or morChannel SELF.",
    )


def _website_required(kind: str, reservation: Mapping[str, Any], _card: CardDetails | None) -> Problem | None:
    if kind != WEBSITE_BUILDER or _website_id(reservation):
        return None
    return endings.WEBSITE_REQUIRED.problem(
        "A website-builder integration takes its website identifier from paymentProviderId, which is missing or empty.",
    )


def _website_id(reservation: Mapping[str, Any]) -> str:
    value = reservation.get("paymentProviderId")
    return "" if value is None else str(value).strip()


_RULES: Final = (_card_required, _website_required)

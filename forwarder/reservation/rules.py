"""The integration rules: from a submission to a booking for one kind of PMS, or to the problem that refuses it. Pure."""

from typing import Final

from forwarder.reservation.booking import Booking
from forwarder.reservation.catalogue import endings
from forwarder.reservation.problem import Problem
from forwarder.reservation.request import CardDetails
from forwarder.reservation.submission import Submission

BOOKING_SYNC: Final = "booking-sync"
WEBSITE_BUILDER: Final = "website-builder"


def apply_rules(kind: str, submission: Submission, card: CardDetails | None) -> Booking | Problem:
    """The booking to push to a PMS of this `kind`, every rule applied, or the first rule's refusal."""
    refusal = _card_required(kind, submission, card) or _website_required(kind, submission)
    return refusal or _booking(kind, submission, card)


def booking_without_card(kind: str, submission: Submission) -> Booking:
    """The booking as it was made, for it to be cancelled: the rules held then, and the card is gone."""
    return _booking(kind, submission, None)


def _card_required(kind: str, submission: Submission, card: CardDetails | None) -> Problem | None:
    """Where the PMS takes the payment, booking-sync cannot make the reservation without a card."""
    if kind != BOOKING_SYNC or submission.reservation.get("morChannel") != "PMS":
        return None
    if card is not None and card.card_number:
        return None
    return endings.CARD_REQUIRED.problem(
        "A booking-sync integration with morChannel PMS needs cardDetails with a cardNumber; pass them, or morChannel SELF.",
        submission.request_id,
    )


def _website_required(kind: str, submission: Submission) -> Problem | None:
    if kind != WEBSITE_BUILDER or _website_id(submission):
        return None
    return endings.WEBSITE_REQUIRED.problem(
        "A website-builder integration takes its website identifier from paymentProviderId, which is missing or empty.",
        submission.request_id,
    )


def _website_id(submission: Submission) -> str:
    value = submission.reservation.get("paymentProviderId")
    return "" if value is None else str(value).strip()


def _booking(kind: str, submission: Submission, card: CardDetails | None) -> Booking:
    fields = {name: value for name, value in submission.reservation.items() if name != "cardDetails"}
    if fields.get("roomId") is None:
        fields["roomId"] = fields["propertyId"]
    website_id = _website_id(submission) if kind == WEBSITE_BUILDER else None
    return Booking(submission.request_id, fields, card, website_id)

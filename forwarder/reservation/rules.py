"""The integration rules: from a submission to a booking for one kind of PMS, or to the problem that refuses it. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from forwarder.reservation.booking import Booking
from forwarder.reservation.problems import endings
from forwarder.reservation.problems.problem import Problem
from forwarder.reservation.request import CardDetails
from forwarder.reservation.submission import Submission

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

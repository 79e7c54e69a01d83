"""The rules of an integration: further requirements of its kind of PMS on a reservation. Pure.

A rule depends on the request, the kind and the time only, and is written once: the ingress applies it before accepting, a dry run
reports it, and the worker checks again, because the account may have changed since. No rule's problem quotes the value at fault: it
may be a card number.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal

from forwarder.reservation.checks.cards import card_faults, has_number
from forwarder.reservation.problems import rules
from forwarder.reservation.problems.problem import Fault, Problem
from forwarder.reservation.request import CardDetails


@dataclass(frozen=True, slots=True)
class Traits:
    """The requirements of a kind of PMS on a reservation.

    `rooms`: whether it distinguishes rooms of a property; otherwise the room is the property. `website`: whether
    `paymentProviderId` carries the booked website. `cards`: which cards are sent to it: all, only those that pay the PMS
    (`morChannel` PMS; then a card is required), or none.
    """

    rooms: bool = True
    website: bool = False
    cards: Literal["all", "payment", "none"] = "all"

    def sends_card(self, reservation: Mapping[str, Any]) -> bool:
        """Whether the reservation's card, if it has one, is sent to the PMS."""
        return self.cards == "all" or (self.cards == "payment" and reservation.get("morChannel") == "PMS")

    @property
    def concern_card_alone(self) -> bool:
        """Whether they require nothing of a reservation without a card."""
        return self.rooms and not self.website and self.cards != "payment"


def refusal(traits: Traits, reservation: Mapping[str, Any], card: CardDetails | None, now: datetime) -> Problem | None:
    """The problem of the first rule that `reservation` breaks, with the faults of all broken rules; None if it breaks none.
    `card`: the reservation's card, in the clear; `now`: aware."""
    broken = list(refusals(traits, reservation, card, now))
    if not broken:
        return None
    return replace(broken[0], faults=tuple(fault for problem in broken for fault in problem.faults))


def refusals(
    traits: Traits, reservation: Mapping[str, Any], card: CardDetails | None, now: datetime
) -> Iterator[Problem]:
    """The problem of each rule that `reservation` breaks, in the order of the rules."""
    sent = traits.sends_card(reservation)
    if sent and traits.cards == "payment" and not has_number(card):
        yield _card_required(card)
    elif card is not None and sent and (faults := card_faults(card, now)):
        yield rules.CARD_INVALID.problem(_CARD_INVALID, faults=faults)
    if traits.website and website_id(reservation) in _NO_WEBSITE:
        yield _WEBSITE_REQUIRED
    if not traits.rooms and str(room_of(reservation)) != str(reservation["propertyId"]):
        yield _NO_ROOMS


def website_id(reservation: Mapping[str, Any]) -> str:
    """The website in `paymentProviderId`; empty if it names none."""
    value = reservation.get("paymentProviderId")
    return "" if value is None else str(value).strip()


def room_of(reservation: Mapping[str, Any]) -> str | int:
    """The room; the property if no room was given."""
    room: str | int | None = reservation.get("roomId")
    property_id: str | int = reservation["propertyId"]
    return property_id if room is None else room


def _card_required(card: CardDetails | None) -> Problem:
    pointer = "/cardDetails" if card is None else "/cardDetails/cardNumber"
    return rules.CARD_REQUIRED.problem(
        "This integration takes a reservation with morChannel PMS only with cardDetails that have a cardNumber; pass them, or "
        "morChannel SELF.",
        faults=(Fault(pointer, "required", "is required where morChannel is PMS"),),
    )


_NO_WEBSITE: Final = frozenset({"", ".", ".."})
"""The last two would resolve to another address."""

_CARD_INVALID: Final = (
    "The card would be sent to the PMS, and cannot be one: errors names what is wrong with it by JSON Pointer."
)
_WEBSITE_REQUIRED: Final = rules.WEBSITE_REQUIRED.problem(
    "This integration takes its website identifier from paymentProviderId, which is missing, empty or names none.",
    faults=(Fault("/paymentProviderId", "required", "is required: the identifier of the website"),),
)
_NO_ROOMS: Final = rules.NO_ROOMS.problem(
    "This integration books whole properties, and has no rooms: roomId is the propertyId, or left out where the operation lets it.",
    faults=(Fault("/roomId", "not_the_property", "must be the same as propertyId"),),
)

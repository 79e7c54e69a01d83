"""Payments of simulated BookingSyncs, and the platform that charges cards for them. Stores nothing of a card.

A card that ends in 1112 is declined, one that ends in 1113 makes the gateway fail, as the vendor's test cards do; one that ends in
3220 needs its holder to authenticate. Any other is charged, and its booking confirmed. It forgets all with the process.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from forwarder.simulator.bookings import Made

_INTERNAL: Final = {"bookingsync", "instant-booking"}
_KINDS: Final = _INTERNAL | {
    "cash",
    "cheque",
    "credits",
    "credit-card",
    "online",
    "paypal",
    "travel-cheque",
    "wiretransfer",
}
_GATEWAY: Final = ("gateway_id", "gateway_name", "gateway_type")
_OF_A_CARD: Final = (
    "tentative_payment_id",
    "card_number",
    "cardholder_name",
    "expires_at_month",
    "expires_at_year",
    "security_code",
    "address1",
    "zip",
    "city",
    "country_code",
    *_GATEWAY,
)
_BLANK: Final = "can't be blank"


@dataclass(slots=True)
class Payment:
    """`paid`: whether it has been paid."""

    id: int
    made: Made
    cents: int
    shown: Mapping[str, Any]
    paid: bool


class Till:
    """Every payment."""

    def __init__(self) -> None:
        self._payments: dict[int, Payment] = {}
        self._of: defaultdict[Made, list[Payment]] = defaultdict(list)

    def note(self, made: Made, asked: Mapping[str, Any]) -> Payment | dict[str, str]:
        """Records a payment for a booking, or returns its errors."""
        needed = ["amount_in_cents", "currency", "kind"]
        needed += _GATEWAY if asked.get("kind") in _INTERNAL else ["paid_at"]
        errors = {name: _BLANK for name in needed if not asked.get(name)}
        if not errors and asked["kind"] not in _KINDS:
            errors = {"kind": "is not included in the list"}
        if errors:
            return errors
        payment_id = len(self._payments) + 1
        shown = {**asked, "id": payment_id, "links": {"bookings": [made.id]}}
        payment = Payment(payment_id, made, int(asked["amount_in_cents"]), shown, asked["kind"] not in _INTERNAL)
        self._payments[payment_id] = payment
        self._of[made].append(payment)
        return payment

    def charge(self, order: Mapping[str, Any]) -> tuple[int, dict[str, Any] | None]:
        """The status and body with which a charge ends."""
        errors = {name: [_BLANK] for name in _OF_A_CARD if not order.get(name)}
        payment = self._payments.get(order.get("tentative_payment_id") or 0)
        if not errors and payment is None:
            errors = {"tentative_payment_id": ["is invalid"]}
        if errors or payment is None:
            return 422, errors
        match str(order["card_number"])[-4:]:
            case "1112":
                return 422, {"payment": ["authorization declined"]}
            case "1113":
                return 422, {"server": ["the gateway failed"]}
            case "3220":
                return 202, {"gateway_name": order["gateway_name"], "uuid": f"uuid-{payment.id}"}
            case _:
                payment.paid = True
                return 200, None

    def changes(self, made: Made, booking: Mapping[str, Any]) -> dict[str, Any]:
        """The changes to `booking` by payments since it was made."""
        payments = self._of.get(made, [])
        paid = Decimal(sum(payment.cents for payment in payments if payment.paid)) / 100
        changes: dict[str, Any] = {"links": {**booking["links"], "payments": [payment.id for payment in payments]}}
        if paid:
            price = Decimal(booking["final_price"] or 0)
            changes |= {"paid_amount": format(paid, "f"), "payment_left_to_collect": format(price - paid, "f")}
            changes |= {"status": "Booked", "booked": True}
        return changes

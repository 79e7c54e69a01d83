"""BookingSync's live quote: what a stay costs now, with the fees and taxes that a booking at that price has to name. Pure.

GET {base_url}/rentals/search?rental_id=…&start_at=…&end_at=…&adults=…   (content/guides/pricing-concepts.md of the vendor)
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from forwarder.pms.sdk import Booking, Response, amount, decimal


@dataclass(frozen=True, slots=True)
class Quote:
    """What the stay costs. `fees` and `taxes` are in the form in which a new booking names them."""

    final_price: Decimal
    currency: str
    initial_price: Decimal | None
    to_pay_now: Decimal | None
    fees: Sequence[Mapping[str, Any]]
    taxes: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class NotFree:
    """No such rental is free on these nights."""


def quote_in(response: Response, booking: Booking) -> Quote | NotFree | None:
    """The quote in the body; None where it does not hold a list of rentals with this one's price, or an empty one."""
    try:
        body = json.loads(response.json_text, parse_float=Decimal)
        rentals = body["rentals"]
    except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError):
        return None
    if rentals == []:
        return NotFree()
    try:
        [rental] = [rental for rental in rentals if str(rental["id"]) == booking.property_id]
        return _quote(rental)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _quote(rental: Mapping[str, Any]) -> Quote | None:
    final, currency = _amount(rental["final_price"]), rental["currency"]
    if final is None or not isinstance(currency, str):
        return None
    details = rental.get("price_details") or {}
    return Quote(
        final,
        currency,
        _amount(rental.get("initial_price")),
        _amount(rental.get("price_to_pay_now")),
        [_fee(fee) for fee in details.get("fees") or ()],
        [_tax(tax) for tax in details.get("taxes") or ()],
    )


def _fee(fee: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": in_one_language(fee["name"]),
        "price": str(fee["price"]),
        "times_booked": str(fee["quantity"]),
        "rentals_fee_id": str(fee["rentals_fee_id"]),
    }


def _tax(tax: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": in_one_language(tax["name"]),
        "taxable_type": tax["taxable_type"],
        "taxable_id": str(tax["taxable_id"]),
        "tax_id": str(tax["tax_id"]),
        "amount": str(tax["amount"]),
        "percentage": str(tax["percentage"]),
        "included": bool(tax["included"]),
    }


def _amount(value: object) -> Decimal | None:
    """An amount that is a number here, where everything else of BookingSync writes it as a text."""
    exact = decimal(value)
    return None if exact is None else amount(format(exact, "f"))


def in_one_language(name: object) -> str:
    """A name that is given in several languages, in English where that is among them."""
    if isinstance(name, Mapping):
        return str(name.get("en") or next(iter(name.values()), ""))
    return str(name)

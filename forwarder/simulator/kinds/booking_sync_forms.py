"""The bodies of simulated BookingSyncs: requests, responses, and their 422. Pure."""

from collections.abc import Mapping
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

from pydantic_core import from_json, to_json

from forwarder.http.messages import Response

UNKNOWN = "unknown"  # the rental that there is not
MEDIA_TYPE = b"application/vnd.api+json; charset=utf-8"
_SHOWN_AGAIN = (
    *("tentative_expires_at", "currency", "notes", "adults", "children", "external_reference"),
    *("expected_checkin_time", "expected_checkout_time"),
)
_PER_NIGHT, _CLEANING, _TAX_PERCENT = Decimal(100), Decimal(50), Decimal(10)

Headers = tuple[tuple[bytes, bytes], ...]


class Invalid(Exception):
    """The 422 of BookingSync."""

    def __init__(self, **errors: str) -> None:
        super().__init__(*errors)
        self.answer = answer_of(422, {"errors": {field: [message] for field, message in errors.items()}})


def answer_of(status: int, body: Mapping[str, Any], headers: Headers = ()) -> Response:
    """A response in BookingSync's media type."""
    return Response(status, to_json(body), headers, MEDIA_TYPE)


def the_one(resources: str, content: bytes) -> dict[str, Any]:
    """The one resource in a body; BookingSync wraps it in a list under its plural. Raises `Invalid`."""
    try:
        [resource] = from_json(content)[resources]
    except (KeyError, TypeError, ValueError) as error:
        raise Invalid(base=f"one of {resources} is expected") from error
    if not isinstance(resource, dict):
        raise Invalid(base=f"one of {resources} is expected")
    return resource


def day(text: str | None, default: date) -> date:
    """A day of a query; `default` if it is missing or invalid."""
    try:
        return default if text is None else date.fromisoformat(text[:10])
    except ValueError:
        return default


def quoted(rental: str, nights: int) -> dict[str, Any]:
    """A rental with its price: so much a night, the cleaning, and a tax on the nights."""
    initial = _PER_NIGHT * nights
    tax = initial * _TAX_PERCENT / 100
    final = initial + _CLEANING + tax
    detail = {"name": {"en": "Tourist tax"}, "percentage": f"{_TAX_PERCENT}", "amount": f"{tax}"}
    return {
        "id": number(rental),
        "currency": "EUR",
        "initial_price": float(initial),
        "final_price": float(final),
        "price_to_pay_now": float(final),
        "price_details": {
            "taxes": [{**detail, "taxable_type": "Rental", "taxable_id": 1, "tax_id": 5, "included": False}],
            "fees": [
                {
                    "name": {"en": "Cleaning"},
                    "required": True,
                    "price": f"{_CLEANING}",
                    "quantity": 1,
                    "id": 9,
                    "rentals_fee_id": 10,
                }
            ],
        },
    }


def number(rental: str) -> int | str:
    """A rental's id as BookingSync shows it: a number if possible."""
    return int(rental) if rental.isdecimal() else rental


def booking_shown(made_id: int, rental: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """A booking of that rental, as it was asked for."""
    comments = [
        {"id": made_id * 100 + place, "content": comment.get("content"), "links": {"booking": made_id}}
        for place, comment in enumerate(asked.get("comments") or (), 1)
    ]
    price = asked.get("final_price")
    initial = asked.get("initial_price") or price
    shown: dict[str, Any] = {
        "links": {
            "account": 1,
            "rental": number(rental),
            "client": asked.get("client_id"),
            "payments": [],
            "booking_comments": [comment["id"] for comment in comments],
        },
        "id": made_id,
        "start_at": f"{str(asked['start_at'])[:10]}T16:00:00Z",
        "end_at": f"{str(asked['end_at'])[:10]}T10:00:00Z",
        "status": "Booked" if asked.get("booked") else "Tentative",
        "reference": f"{made_id:06X}",
        "booked": bool(asked.get("booked")),
        "unavailable": False,
        "initial_price": initial,
        "initial_rental_price": initial,
        "final_rental_price": initial,
        "final_price": price,
        "paid_amount": "0.0",
        "payment_left_to_collect": price,
        "canceled_at": None,
        "payment_url": f"https://pay.example/{made_id}",
        "door_key_code": None,
        "owned_by_app": True,
        **{name: asked.get(name) for name in _SHOWN_AGAIN},
    }
    if comments:
        shown["booking_comments"] = comments
    if asked.get("bookings_fees") or asked.get("bookings_taxes"):
        shown["bookings_fees"] = [
            {
                "id": position,
                "name": {"en": fee["name"]},
                "price": _decimal(fee["price"]),
                "included_in_price": True,
                "times_booked": int(fee["times_booked"]),
            }
            for position, fee in enumerate(asked.get("bookings_fees", ()), 1)
        ]
        shown["bookings_taxes"] = [
            {
                "id": position,
                "name": {"en": tax["name"]},
                "tax_included_in_price": tax["included"],
                "percentage": tax.get("percentage"),
                "amount": _decimal(tax["amount"]),
            }
            for position, tax in enumerate(asked.get("bookings_taxes", ()), 1)
        ]
    return shown


def _decimal(text: str) -> str:
    try:
        return format(Decimal(text), "f")
    except InvalidOperation as error:
        raise Invalid(base="is not a number") from error

"""What a dry run takes for BookingSync's answers, to show the requests that follow them. Pure."""

from typing import Any

from pydantic_core import to_json

from forwarder.pms.kinds.booking_sync.options import BookingSyncOptions
from forwarder.pms.kinds.booking_sync.payment import charges_card, paid_elsewhere
from forwarder.pms.sdk import Booking, Request, Response, StandIn

_ID = 0
_PRICED = "The price is taken to be the one that was asked for; the fees and taxes that the booking names come from the quote."
_CLIENT = "client_id: 0 stands for the id that BookingSync gives to the guest."
_BOOKING = "0 in the path of the payment stands for the id that BookingSync gives to the booking."
_PAYMENT = "tentative_payment_id: 0 stands for the id that BookingSync gives to the payment."


def stand_in_for(request: Request, booking: Booking, options: BookingSyncOptions) -> StandIn | None:
    """None for the last request of a push, and for one whose answer cannot be guessed."""
    charged = options.secure_payments is not None and charges_card(booking)
    noted = options.record_payments and paid_elsewhere(booking) is not None
    match request.method, request.url.rpartition("/")[2]:
        case "GET", "search" if booking.total_price is not None and booking.currency is not None:
            price = {"final_price": format(booking.total_price, "f"), "currency": booking.currency}
            return _answer(200, _PRICED, rentals=[{"id": booking.property_id, **price}])
        case "POST", "clients":
            return _answer(201, _CLIENT, clients=[{"id": _ID}])
        case "POST", "bookings" | "strict_bookings" if charged or noted:
            made = {"id": _ID, "status": "Tentative" if charged else "Booked", "external_reference": booking.reference}
            return _answer(201, _BOOKING, bookings=[made])
        case "POST", "payments" if charged:
            return _answer(201, _PAYMENT, payments=[{"id": _ID}])
        case _:
            return None


def _answer(status: int, means: str, **body: Any) -> StandIn:
    return StandIn(Response(status, (), to_json(body)), means)

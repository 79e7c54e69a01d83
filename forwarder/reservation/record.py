"""The reservation record (section 2.5), composed of the request, the PMS's response and the submission's state. Pure."""

from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from typing import Any

from forwarder.reservation.booking import full_name
from forwarder.reservation.outcome import Status
from forwarder.reservation.request import json_number
from forwarder.reservation.value import value

_MAX_EXACT_INTEGER = 2**53 - 1
"""The largest integer that every JSON reader keeps exact (RFC 8259, section 6)."""

_AMOUNTS = (int, float)
_MAX_USUAL_ID_LENGTH = 256
_COUNTS = ("numberOfAdults", "numberOfChildren", "numberOfInfants")
_NAMES = ("name", "firstName", "lastName")

_FROM_THE_PMS = frozenset(
    ("source", "codes", "notes", "paymentUrl", "finances", "totalPrice", "currency", "primaryGuest")
)
"""Fields that the PMS decides; all others are as they were requested."""


@value(frozen=True, slots=True)
class SubmissionState:
    """A submission at one moment: all that its record needs besides the request."""

    id: int
    request_id: str
    status: Status
    created_at: str
    updated_at: str
    cancelled_at: str = ""
    pms_reservation_id: str | None = None
    answer: Mapping[str, Any] | None = None
    problem: Mapping[str, Any] | None = None


def compose_record(request: Mapping[str, Any], state: SubmissionState) -> dict[str, Any]:
    """The record in full: every field of section 2.5 in its order, then ours. Timestamps are ISO 8601 UTC, milliseconds, `Z`."""
    record: dict[str, Any] = {
        "id": state.id,
        "createdAt": state.created_at,
        "updatedAt": state.updated_at,
        "cancelledAt": state.cancelled_at,
        "arrivalDate": request["arrivalDate"],
        "departureDate": request["departureDate"],
        "nights": (date.fromisoformat(request["departureDate"]) - date.fromisoformat(request["arrivalDate"])).days,
        "propertyId": _number_where_it_is_one(request["propertyId"]),
        "numberOfGuests": _guests(request),
        "primaryGuest": _primary_guest(request.get("guest") or {}),
        "source": "UNKNOWN",
        "totalPrice": request.get("totalPrice") or 0,
        "currency": request.get("currency") or "",
        "status": str(state.status),
        "arrivalEstimatedTime": _text(request.get("arrivalEstimatedTime")),
        "departureEstimatedTime": _text(request.get("departureEstimatedTime")),
        "codes": {"accessCode": []},
        "notes": request.get("notes"),
        "paymentUrl": "",
        "finances": {},
    }
    answer = state.answer
    if answer:
        for name in answer.keys() & _FROM_THE_PMS:
            record[name] = answer[name]
    given = (answer and answer.get("finances")) or {}
    record["finances"] = _finances(record["totalPrice"], record["currency"], given)
    _add_ours(record, request, state)
    return record


def can_compose(request: Mapping[str, Any]) -> bool:
    """Whether `request` has the usual form: then its record can be composed, and its property and room written as text. For
    any other form only composing it tells."""
    try:
        _ = date.fromisoformat(request["departureDate"]) - date.fromisoformat(request["arrivalDate"])
    except (LookupError, TypeError, ValueError):
        return False
    property_id, guests, price = request.get("propertyId"), request.get("numberOfGuests"), request.get("totalPrice")
    return (
        (type(property_id) is int or (type(property_id) is str and len(property_id) <= _MAX_USUAL_ID_LENGTH))
        and (type(guests) is int or (guests is None and _each(request, _COUNTS, int)))
        and (price is None or (type(price) in _AMOUNTS and abs(price) <= _MAX_EXACT_INTEGER))
        and type(guest := request.get("guest")) is dict
        and ((type(guest.get("name")) is str and bool(guest["name"])) or _each(guest, _NAMES, str))
    )


def _each(fields: Mapping[str, Any], names: Iterable[str], kind: type) -> bool:
    return all(fields.get(name) is None or type(fields[name]) is kind for name in names)


def _add_ours(record: dict[str, Any], request: Mapping[str, Any], state: SubmissionState) -> None:
    room = request.get("roomId")
    record["requestId"] = state.request_id
    record["pmsReservationId"] = state.pms_reservation_id
    record["roomId"] = record["propertyId"] if room is None else room
    if state.problem is not None:
        record["problem"] = state.problem


def _number_where_it_is_one(identifier: str | int) -> str | int:
    """A number for "1001"; the string itself for "00123" or "A7", which a number would not give back."""
    if isinstance(identifier, str) and identifier.isascii() and identifier.isdigit():
        number = int(identifier)
        if str(number) == identifier and number <= _MAX_EXACT_INTEGER:
            return number
    return identifier


def _guests(request: Mapping[str, Any]) -> int:
    """The number of guests; if it was not given, the sum of adults, children and infants."""
    total: int | None = request.get("numberOfGuests")
    if total is not None:
        return total
    return sum(request.get(name) or 0 for name in _COUNTS)


def _primary_guest(guest: Mapping[str, Any]) -> dict[str, Any]:
    email, phone = guest.get("email"), guest.get("phone")
    return {
        "name": full_name(guest),
        "emails": [email] if email else [],
        "mobileNumbers": [] if phone is None or phone == "" else [str(phone)],
        "nationality": None,
    }


def _text(value: str | float | None) -> str:
    return "" if value is None else str(value)


def _finances(total: float, currency: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The breakdown that the PMS gave. What it left out is derived: the whole price as one room rate, nothing paid yet."""
    paid = given.get("totalPaid", 0)
    line = {"name": "Room rate", "type": "RoomRate", "total": total}
    derived: dict[str, Any] = {
        "totalPrice": total,
        "currency": currency,
        "totalPaid": paid,
        "remainingBalance": _remaining(total, paid),
        "basePrice": {"totalBasePrice": total, "breakdown": [line]},
        "fee": {"totalFee": 0, "breakdown": []},
        "tax": {"totalTax": 0, "breakdown": []},
        "discount": {"totalDiscount": 0, "breakdown": []},
    }
    if given:
        for name in given.keys() & derived.keys():
            derived[name] = given[name]
    return derived


def _remaining(total: float, paid: float) -> float:
    """`total` less `paid`, exactly."""
    if type(paid) is int and paid == 0 and type(total) is float and abs(total) <= _MAX_EXACT_INTEGER:
        return int(total) if total.is_integer() else total  # as nearly always: there is nothing to reckon with
    return json_number(Decimal(str(total)) - Decimal(str(paid)))

"""Cloudbeds' own words: the forms that it takes, and the answers that it gives. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

from forwarder.pms.http.response import Response, read_object
from forwarder.pms.kinds.cloudbeds.options import CloudbedsOptions
from forwarder.pms.record import amount, record_fields
from forwarder.reservation.booking import Booking
from forwarder.reservation.request import json_number

PER_PAGE: Final = 100
_DONE = {HTTPStatus.OK, HTTPStatus.CREATED}
_NOT_DONE = {HTTPStatus.BAD_REQUEST, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY}
_NAMELESS: Final = "Guest"
_CLOCK_TIME = re.compile(r"(\d{1,2})(?::(\d{2}))?")
_COUNTRY_CODE = re.compile(r"[A-Z]{2}")


def reservation_form(booking: Booking, options: CloudbedsOptions) -> bytes:
    """The form of postReservation: one room of the type that `roomId` names. It takes no card, and no price: that is Cloudbeds'
    to set."""
    room, rate = booking.room_id, options.rate_ids.get(booking.room_id)
    children = _count(booking, "numberOfChildren") + _count(booking, "numberOfInfants")
    form = {
        "propertyID": options.property_of(booking),
        "sourceID": options.source_id,
        "thirdPartyIdentifier": booking.reference,
        "startDate": booking.arrival.isoformat(),
        "endDate": booking.departure.isoformat(),
        **_guest(booking, options),
        "estimatedArrivalTime": _clock_time(booking.fields.get("arrivalEstimatedTime")),
        "rooms[0][roomTypeID]": room,
        "rooms[0][quantity]": 1,
        "rooms[0][roomRateID]": rate,
        "adults[0][roomTypeID]": room,
        "adults[0][quantity]": _adults(booking, children),
        "children[0][roomTypeID]": room,
        "children[0][quantity]": children,
        "paymentMethod": options.payment_method,
        "promoCode": booking.fields.get("promotionCode") if rate else None,  # Cloudbeds takes one with a rate alone
        **_notes(booking, options),
        "sendEmailConfirmation": "true" if options.send_email_confirmation else "false",
    }
    return _encoded(form)


def cancellation_form(property_id: str, reservation_id: str) -> bytes:
    """The form of putReservation."""
    return _encoded({"propertyID": property_id, "reservationID": reservation_id, "status": "canceled"})


def lookup_query(property_id: str, reference: str) -> str:
    """The query of getReservations: every status, cancelled ones too, since none is asked for."""
    query = {
        "propertyID": property_id,
        "sourceReservationId": reference,
        "pageNumber": 1,
        "pageSize": PER_PAGE,
    }
    return urlencode(query)


def details_query(property_id: str, reservation_id: str) -> str:
    """The query of getReservation."""
    return urlencode({"propertyID": property_id, "reservationID": reservation_id})


def _encoded(form: Mapping[str, Any]) -> bytes:
    return urlencode({name: value for name, value in form.items() if value not in (None, "")}).encode("ascii")


def _guest(booking: Booking, options: CloudbedsOptions) -> dict[str, Any]:
    guest, address = booking.guest, booking.guest.get("address") or {}
    first, _, last = booking.guest_name.strip().partition(" ")
    country, phone = address.get("country") or "", guest.get("phone")
    return {
        "guestFirstName": guest.get("firstName") or first or _NAMELESS,
        "guestLastName": guest.get("lastName") or last.strip() or _NAMELESS,
        # The general operation takes country names too, which Cloudbeds does not know.
        "guestCountry": country if _COUNTRY_CODE.fullmatch(country) else options.default_country,
        "guestZip": address.get("postalCode") or options.default_zip,
        "guestEmail": guest.get("email") or options.default_email,
        "guestPhone": None if phone is None else str(phone),
    }


def _count(booking: Booking, name: str) -> int:
    count: int = booking.fields.get(name) or 0
    return count


def _adults(booking: Booking, children: int) -> int:
    """As given; else those of the guests who are not said to be anything else, one at the least."""
    return _count(booking, "numberOfAdults") or max(_count(booking, "numberOfGuests") - children, 1)


def _clock_time(value: object) -> str | None:
    match = _CLOCK_TIME.fullmatch("" if value is None else str(value))
    return None if match is None else f"{int(match[1]):02d}:{match[2] or '00'}:00"


def _notes(booking: Booking, options: CloudbedsOptions) -> dict[str, str]:
    if options.notes_field is None:
        return {}
    paid = booking.fields.get("transactionId")
    notes = [booking.fields.get("notes"), booking.fields.get("comments"), f"Paid, transaction {paid}" if paid else None]
    text = "\n".join(note for note in notes if note)
    return {"customFields[0][fieldName]": options.notes_field, "customFields[0][fieldValue]": text} if text else {}


def answer_in(response: Response) -> dict[str, Any] | None:
    """The body of an answer that says whether the request was completed. None for any other, and where body and HTTP status
    contradict each other."""
    body = read_object(response) or {}
    match body.get("success"):
        case True if response.status_code in _DONE:
            return body
        case False if response.status_code in _DONE | _NOT_DONE:
            return body
        case _:
            return None


def status_of(reservation: Mapping[str, Any]) -> str:
    """A reservation's status; empty where it has none."""
    status = reservation.get("status")
    return status if isinstance(status, str) else ""


def record_of(reservation: Mapping[str, Any]) -> dict[str, Any]:
    """What of section 2.5's record is in an answer of postReservation, getReservations or getReservation. No currency is."""
    total = _number(reservation.get("grandTotal", reservation.get("total")))
    sums = _sums(reservation.get("balanceDetailed"))
    finances = {
        "totalPrice": total,
        "totalPaid": _number(sums.get("paid")),
        "remainingBalance": _number(reservation.get("balance")),
        "basePrice": _base_price(_number(sums.get("subTotal")), reservation),
        "fee": _one_line("totalFee", "Additional items", "Fee", sums.get("additionalItems")),
        "tax": _one_line("totalTax", "Taxes and fees", "Tax", sums.get("taxesFees")),
    }
    answer = {
        "source": reservation.get("source") or reservation.get("sourceName"),
        "totalPrice": total,
        "finances": finances,
    }
    record = record_fields(answer)
    return record if record.get("finances") else {name: value for name, value in record.items() if name != "finances"}


def _sums(detailed: object) -> Mapping[str, Any]:
    """Documented as an object, or a list of them."""
    first = detailed[0] if isinstance(detailed, list) and detailed else detailed
    return first if isinstance(first, dict) else {}


def _base_price(total: float | None, reservation: Mapping[str, Any]) -> dict[str, Any] | None:
    if total is None:
        return None
    nights = [
        {"name": f"Night of {night.get('date')}", "type": "RoomRate", "total": rate}
        for night in _nights(reservation)
        if (rate := _number(night.get("rate"))) is not None
    ]
    return {"totalBasePrice": total, "breakdown": nights}


def _nights(reservation: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for room in (*_objects(reservation.get("assigned")), *_objects(reservation.get("unassigned"))):
        yield from _objects(room.get("dailyRates"))


def _objects(parts: object) -> Iterable[Mapping[str, Any]]:
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _one_line(total_name: str, name: str, kind: str, value: object) -> dict[str, Any] | None:
    total = _number(value)
    if total is None:
        return None
    return {total_name: total, "breakdown": [{"name": name, "type": kind, "total": total}] if total else []}


def _number(value: object) -> float | int | None:
    """An amount, which Cloudbeds writes as a number, and in places as a text."""
    if isinstance(value, bool):
        return None
    exact = Decimal(str(value)) if isinstance(value, int | float) else amount(value)
    return None if exact is None or not exact.is_finite() else json_number(exact)

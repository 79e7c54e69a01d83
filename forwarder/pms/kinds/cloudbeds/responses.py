"""What Cloudbeds responds with: bookings, and the messages of `success: false`, beside which there is no code. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

from forwarder.pms.sdk import (
    PRICE_AND_CARD,
    Meaning,
    Response,
    amount,
    decimal,
    json_number,
    read_object,
    record_fields,
)

# The vendor documents the first three of these messages (Common API errors & How to handle); it publishes no list of the others,
# so that words are looked for that may be expected in them.
_OF_THE_PROPERTY = re.compile(
    r"included property id|property ?id\b.{0,40}(not (found|exist)|invalid|unknown)", re.IGNORECASE
)
_MEANINGS: Final = (
    (
        re.compile(
            r"approved this connection|invalid status|access.?token|api.?key|permission|\bscope|not authori[sz]ed|unauthori[sz]ed",
            re.IGNORECASE,
        ),
        Meaning.UNAUTHORIZED,
    ),
    (re.compile(r"rate limit|too many requests", re.IGNORECASE), Meaning.THROTTLED),
    (
        re.compile(
            r"internal|unexpected|try (again|later)|again later|time.?out|timed out|temporar|went wrong|server error|exception",
            re.IGNORECASE,
        ),
        Meaning.FAILED,
    ),
)
_REFUSALS: Final = (
    (
        re.compile(r"availab|sold out|overbook|no (more )?rooms?\b|occupied|already (taken|booked)", re.IGNORECASE),
        "room_unavailable",
    ),
    *PRICE_AND_CARD,
    (re.compile(r"room ?(type)? ?id|room ?type", re.IGNORECASE), "room_not_found"),
    (re.compile(r"guest|e-?mail|first ?name|last ?name|zip|country", re.IGNORECASE), "guest_refused"),
)
_DONE = {HTTPStatus.OK, HTTPStatus.CREATED}
_NOT_DONE = {HTTPStatus.BAD_REQUEST, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY}


def answer_in(response: Response) -> dict[str, Any] | None:
    """The body of a response that says whether the request was completed. None for any other, and where body and HTTP status
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
    """What of section 2.5's record is in a response of postReservation, getReservations or getReservation. No currency is."""
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
    fields = {
        "source": reservation.get("source") or reservation.get("sourceName"),
        "totalPrice": total,
        "finances": finances,
    }
    record = record_fields(fields)
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
    exact = amount(value) if isinstance(value, str) else decimal(value)
    return None if exact is None else json_number(exact)


def message_of(body: Mapping[str, Any]) -> str:
    """Why a request was not completed, in Cloudbeds' words; empty where it does not say."""
    message = body.get("message")
    return message.strip() if isinstance(message, str) else ""


def meaning_of(message: str, *, property_asked: bool) -> Meaning | str:
    """What a `success: false` says. A text is the code of `REFUSALS` for a no.

    `property_asked`: the booking names the property, so that one which the credential does not reach is a mistake of the
    booking's; else it is one of the account's. A message that is empty decides nothing.
    """
    if _OF_THE_PROPERTY.search(message):
        return "property_not_found" if property_asked else Meaning.UNAUTHORIZED
    for pattern, meaning in _MEANINGS:
        if pattern.search(message):
            return meaning
    if not message:
        return Meaning.FAILED
    return next((code for pattern, code in _REFUSALS if pattern.search(message)), "pms_refused")

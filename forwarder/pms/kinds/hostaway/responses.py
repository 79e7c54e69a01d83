"""What Hostaway responds with: the envelope, reservations, access tokens, and what the words of a failure mean. Pure.

Hostaway publishes no list of its failures, and most have a message and no code. A message about the account or Hostaway itself is
no refusal of the reservation; it is recognised by words that such messages usually have.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import BaseModel, Field, StrictInt, StrictStr, ValidationError

from forwarder.pms.kinds.hostaway.requests import REFERENCE_FIELD
from forwarder.pms.sdk import (
    PRICE_AND_CARD,
    Meaning,
    Response,
    decimal,
    finances,
    json_number,
    read_object,
    record_fields,
)

HELD: Final = frozenset({"new", "modified", "confirmed", "ownerStay"})
GONE: Final = frozenset({"cancelled", "declined", "expired"})
_MEANINGS: Final = (
    (re.compile(r"rate limit|too many requests", re.IGNORECASE), Meaning.THROTTLED),
    (
        re.compile(
            r"internal|unexpected|try (again|later)|time.?out|timed out|went wrong|exception|\b(service|server)\b",
            re.IGNORECASE,
        ),
        Meaning.FAILED,
    ),
    (
        re.compile(r"availab|overbook|overlap|occupied|reserved|blocked|already (taken|booked)", re.IGNORECASE),
        "room_unavailable",
    ),
    *PRICE_AND_CARD,
    (re.compile(r"access.?token|unauthori[sz]ed|access denied|permission", re.IGNORECASE), Meaning.UNAUTHORIZED),
    (
        re.compile(
            r"listingMapId|listing\b.{0,40}(not (found|exist)|unknown|invalid)|no (such )?listing", re.IGNORECASE
        ),
        "property_not_found",
    ),
    (re.compile(r"guest.?(first.?|last.?)?(name|e-?mail|phone)|\be-?mail|\bphone", re.IGNORECASE), "guest_refused"),
)


@dataclass(frozen=True, slots=True)
class ShownReservation:
    """A reservation as Hostaway shows it, `whole`, and what of it is read.

    `shows_reference` is False where the field of our reference is not part of it: then
    nothing can be concluded from its absence."""

    id: int
    status: str | None
    reference: object
    shows_reference: bool
    record: Mapping[str, Any]
    whole: Mapping[str, Any]

    @property
    def listing_id(self) -> object:
        return self.whole.get("listingMapId")


@dataclass(frozen=True, slots=True)
class Envelope:
    """What every response comes in. `words`: why it failed, in Hostaway's own."""

    success: bool
    result: object
    count: int | None
    words: str


@dataclass(frozen=True, slots=True)
class Token:
    """An access token, and for how many seconds it is good."""

    access_token: str
    seconds: int


class _Token(BaseModel):
    access_token: Annotated[StrictStr, Field(min_length=1)]
    expires_in: Annotated[StrictInt, Field(ge=0, le=10**9)]


def token_in(response: Response) -> Token | None:
    """The token in the body; None where there is none."""
    try:
        token = _Token.model_validate_json(response.json_text)
    except ValidationError:
        return None
    return Token(token.access_token, token.expires_in)


def envelope_in(response: Response) -> Envelope | None:
    """The envelope that the body is; None for any other body. A failure has its reason in `result`, or in `message`."""
    body = read_object(response) or {}
    result, count = body.get("result"), body.get("count")
    if body.get("status") not in ("success", "fail"):
        return None
    words = next((said.strip() for said in (body.get("message"), result) if isinstance(said, str)), "")
    counted = count if isinstance(count, int) and not isinstance(count, bool) else None
    return Envelope(body["status"] == "success", result, counted, words)


def reservations_in(envelope: Envelope) -> Sequence[ShownReservation] | None:
    """The reservations in the result; None where it is not a list of them."""
    if not envelope.success or not isinstance(envelope.result, list):
        return None
    shown = [reservation_in(item) for item in envelope.result]
    known = [reservation for reservation in shown if reservation is not None]
    return known if len(known) == len(shown) else None


def reservation_in(result: object) -> ShownReservation | None:
    """The reservation that `result` is; None where it is none."""
    if not isinstance(result, dict):
        return None
    reservation_id, status = result.get("id"), result.get("status")
    if not isinstance(reservation_id, int) or isinstance(reservation_id, bool) or reservation_id <= 0:
        return None
    if not isinstance(status, str | None):
        return None
    return ShownReservation(
        reservation_id, status, result.get(REFERENCE_FIELD), REFERENCE_FIELD in result, _record(result), result
    )


def _record(reservation: Mapping[str, Any]) -> dict[str, Any]:
    """What of section 2.5's record is in it."""
    price, left = _number(reservation.get("totalPrice")), _number(reservation.get("remainingBalance"))
    paid = price - left if price is not None and left is not None else None
    lines = [line for line in _objects(reservation.get("financeField")) if _counts(line)]
    return record_fields(
        {
            "totalPrice": None if price is None else json_number(price),
            "currency": reservation.get("currency"),
            "notes": reservation.get("hostNote"),
            "codes": {"accessCode": [reservation["doorCode"]]} if reservation.get("doorCode") else None,
            "finances": finances(price, paid, left)
            | {
                "currency": reservation.get("currency"),
                "fee": _part(lines, "fee", "totalFee", "Fee"),
                "tax": _part(lines, "tax", "totalTax", "Tax"),
                "discount": _part(lines, "discount", "totalDiscount", "Discount"),
            },
        }
    )


def _objects(parts: object) -> Iterable[Mapping[str, Any]]:
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _counts(line: Mapping[str, Any]) -> bool:
    return not line.get("isDeleted") and bool(line.get("isIncludedInTotalPrice", 1))


def _part(lines: Sequence[Mapping[str, Any]], of_type: str, total_name: str, our_type: str) -> dict[str, Any] | None:
    """The lines of one type, and their sum; None without any."""
    amounts = [
        (str(line.get("title") or line.get("name") or our_type), amount)
        for line in lines
        if line.get("type") == of_type and (amount := _number(line.get("total"))) is not None
    ]
    if not amounts:
        return None
    breakdown = [{"name": name, "type": our_type, "total": json_number(amount)} for name, amount in amounts]
    return {total_name: json_number(sum((amount for _, amount in amounts), Decimal())), "breakdown": breakdown}


def _number(value: object) -> Decimal | None:
    """A JSON number, exactly as it was written."""
    return None if isinstance(value, str) else decimal(value)


def meaning_of(words: str) -> Meaning | str:
    """What `words` say. A text is the code of `REFUSALS` for a no; no words at all decide nothing."""
    if not words:
        return Meaning.FAILED
    return next((meaning for pattern, meaning in _MEANINGS if pattern.search(words)), "pms_refused")

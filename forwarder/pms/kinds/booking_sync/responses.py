"""BookingSync's responses, and the meaning of its 422 and of lists without our booking. Pure."""

import re
from collections.abc import Mapping
from decimal import Decimal
from http import HTTPStatus
from typing import Any, Final

from pydantic import BaseModel, StrictInt, StrictStr, ValidationError

from forwarder.pms import sdk
from forwarder.pms.kinds.booking_sync.requests import FIELDS, in_one_language

_ECHO: Final = sdk.Echo("start_at", "end_at")


class SyncBooking(BaseModel):
    """A booking as BookingSync shows it, as far as we read it. Amounts are decimal texts."""

    id: StrictInt
    status: StrictStr
    external_reference: StrictStr | None = None
    links: Any = None
    booked: Any = None
    start_at: Any = None
    end_at: Any = None
    initial_rental_price: Any = None
    final_rental_price: Any = None
    final_price: Any = None
    paid_amount: Any = None
    payment_left_to_collect: Any = None
    currency: Any = None
    notes: Any = None
    payment_url: Any = None
    door_key_code: Any = None
    bookings_fees: Any = None
    bookings_taxes: Any = None

    @property
    def came_to_nothing(self) -> bool:
        """Whether it was held only, never confirmed, and surely nobody began to pay for it."""
        payments = self.links.get("payments") if isinstance(self.links, dict) else None
        return self.status == "Canceled" and self.booked is False and payments == []

    def is_ours(self, booking: sdk.Booking) -> bool:
        """Whether it carries our reference; or the id that our create was answered with, the same days, and no other reference."""
        if sdk.is_reference(self.external_reference, booking.reference):
            return True
        if sdk.names_another(self.external_reference or "", booking.reference):
            return False
        return str(self.id) == booking.pms_id and not _ECHO.contradicts(vars(self), booking)

    def may_be(self, booking: sdk.Booking) -> bool:
        """Whether nothing that it shows is another booking's."""
        rental = self.links.get("rental") if isinstance(self.links, dict) else None
        return (
            (self.external_reference is None or self.is_ours(booking))
            and (rental is None or str(rental) == booking.property_id)
            and not _ECHO.contradicts(vars(self), booking)
        )

    def record(self, paid_since: Decimal = Decimal(0)) -> dict[str, Any]:
        """The fields of section 2.5's record that it has. `paid_since`: what was paid after it was shown."""
        price, paid = sdk.amount(self.final_price), sdk.amount(self.paid_amount)
        left = sdk.amount(self.payment_left_to_collect)
        if paid_since:
            paid, left = (paid or Decimal(0)) + paid_since, None
        fields = {
            "totalPrice": None if price is None else sdk.json_number(price),
            "currency": self.currency,
            "notes": self.notes,
            "paymentUrl": self.payment_url,
            "codes": {"accessCode": [self.door_key_code]} if self.door_key_code else None,
            "finances": sdk.finances(price, paid, left) | {"currency": self.currency} | self._breakdown(),
        }
        return sdk.record_fields(fields)

    def _breakdown(self) -> dict[str, Any]:
        """The parts of the price, if more than the rental is in it. What is part of another amount is no line: the lines add up."""
        fees: list[tuple[str, Decimal]] = []
        taxes: list[tuple[str, Decimal]] = []
        for fee in sdk.objects(self.bookings_fees):
            match fee:
                case {"name": name, "price": str() as price, "times_booked": int() as times}:
                    each = None if fee.get("canceled_at") else sdk.amount(price)
                    if each is not None and fee.get("included_in_price", True):
                        fees.append((in_one_language(name), each * times))
        for tax in sdk.objects(self.bookings_taxes):
            match tax:
                case {"name": name, "amount": str() as text} if not tax.get("tax_included_in_price"):
                    if (value := sdk.amount(text)) is not None:
                        taxes.append((in_one_language(name), value))
        initial, final = sdk.amount(self.initial_rental_price), sdk.amount(self.final_rental_price)
        discount = initial - final if initial is not None and final is not None and final < initial else Decimal(0)
        if not (fees or taxes or discount):
            return {}
        parts = {"fee": fees, "tax": taxes, "discount": [("Discount", discount)] if discount else []}
        if initial is not None:
            parts["basePrice"] = [("Room rate", initial)]
        return {part: sdk.price_part(part, lines) for part, lines in parts.items()}


class _Bookings(BaseModel, extra="allow"):
    bookings: list[SyncBooking]


def only_id_in(response: sdk.Response, name: str, status: int = HTTPStatus.CREATED) -> int | None:
    """The id of the one resource under `name` in the body; None for any other body or status."""
    match (sdk.read_object(response) or {}).get(name):
        case [{"id": int() as found}] if response.status_code == status and not isinstance(found, bool):
            return found
    return None


def bookings_in(response: sdk.Response) -> list[SyncBooking] | None:
    """The bookings in the body; None where it does not hold a list of them, or says that something failed."""
    try:
        known = _Bookings.model_validate_json(response.json_text)
        return None if sdk.says_no(known.model_extra) else known.bookings
    except ValidationError:
        return None


def errors_in(response: sdk.Response) -> dict[str, str]:
    """The errors of a 422 by field; empty if it has another form."""
    body = sdk.read_object(response) or {}
    errors = body.get("errors", body)
    each = errors.items() if isinstance(errors, dict) else ()
    return {str(field): ", ".join(map(str, said if isinstance(said, list) else [said])) for field, said in each}


def listed(errors: Mapping[str, str]) -> str:
    return "; ".join(f"{field}: {text}" for field, text in errors.items())


def refusal_in(response: sdk.Response) -> tuple[str, str]:
    """The code of `REFUSALS` for a 422, and BookingSync's messages, each with its field and the caller's name of that."""
    messages = errors_in(response)
    detail = "; ".join(f"{FIELDS.in_callers_words(field)}: {message}" for field, message in messages.items())
    not_free = r"(?i)availab|overlap|taken|booked|occupied|conflict"
    if any(re.search(not_free, messages[field]) for field in messages.keys() & {"start_at", "end_at", "base"}):
        return "room_unavailable", detail
    for words, code in sdk.PRICE_AND_CARD:
        if words.search(listed(messages)):
            return code, detail
    if messages.keys() & {"rental", "rental_id"}:
        return "property_not_found", detail
    return "guest_refused" if any(re.match(r"client(\.|$)", field) for field in messages) else "pms_refused", detail


def not_booked(shown: list[SyncBooking], booking: sdk.Booking, *, strict: bool) -> sdk.Absent | sdk.Deferred:
    """What a list without a confirmed booking of ours means. A hold that was neither confirmed nor paid for does not count.
    `strict`: it may have been made as a strict booking, of which BookingSync does not document whether it keeps its reference."""
    others = [found for found in shown if not found.is_ours(booking)]
    if not all("external_reference" in found.model_fields_set for found in others):
        detail = "The account's credential may not see the references of bookings; it needs the scope bookings_read."
        return sdk.Deferred("pms_scope_too_small", detail)
    for found in others if strict else ():
        arrival, departure = sdk.day(found.start_at), sdk.day(found.end_at)
        may_be = arrival is None or departure is None or (arrival < booking.departure and departure > booking.arrival)
        if may_be and found.external_reference is None:
            detail = "A booking without a reference is on these nights, and may be this one."
            return sdk.Deferred("pms_reference_not_shown", detail)
    ours = [found for found in shown if found.is_ours(booking) and not found.came_to_nothing]
    if not ours:
        return sdk.Absent()
    if all(found.status == "Canceled" for found in ours):
        return sdk.Deferred(sdk.CANCELLED_IN_PMS, "The PMS made the booking, and it was cancelled there since.")
    return sdk.Deferred("pms_still_working", "The PMS holds the nights for the booking and has not confirmed it yet.")

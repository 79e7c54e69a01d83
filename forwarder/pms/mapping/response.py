"""What responses mean by a mapping. Pure; what the mapping does not decide is left to the caller."""

from collections.abc import Sequence
from typing import Any, Final

from pydantic_core import from_json

from forwarder.pms.http.outcomes import harmless, not_understood
from forwarder.pms.http.response import Response
from forwarder.pms.mapping.json_path import MISSING, value_at
from forwarder.pms.mapping.model import Operation, PmsMapping
from forwarder.pms.mapping.parts import Rule, Shown
from forwarder.pms.port import CANCELLED_IN_PMS
from forwarder.pms.record import amount, identifier, record_fields
from forwarder.pms.refusals import refusal
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Absent, Confirmed, Deferred, LookupOutcome, Outcome
from forwarder.reservation.request import json_number

_LINES: Final = {
    "basePrice": ("totalBasePrice", "Room rate", "RoomRate"),
    "fee": ("totalFee", "Fees", "Fee"),
    "tax": ("totalTax", "Taxes", "Tax"),
    "discount": ("totalDiscount", "Discounts", "Discount"),
}
_MONEY: Final = {"totalPrice", "totalPaid", "remainingBalance", *_LINES}


def body_of(response: Response) -> Any:
    """The JSON in the body; `MISSING` where it is none."""
    try:
        return from_json(response.content, allow_inf_nan=False)
    except ValueError:
        return MISSING


def decide(operation: Operation, response: Response, body: Any) -> bool | Rule | None:
    """True: it succeeded; a rule: what that says; None: nothing was said that the mapping knows. False: it was said to have
    succeeded, and not to have: by `success.when` in a status that is none of success, or together with a rule."""
    rule = next((rule for rule in operation.errors if rule.applies(response.status_code, body)), None)
    if operation.success.says(body):
        return rule is None and response.status_code in operation.success.status
    return True if rule is None and operation.success.passes(response.status_code, body) else rule


def made(mapping: PmsMapping, response: Response, body: Any, booking: Booking) -> Outcome:
    """What a create that succeeded made. Without an id, or with another's reference, it is in doubt."""
    shown = value_at(body, mapping.create.reservation)
    bare_id = mapping.create.id
    pms_id = identifier(value_at(shown, mapping.reservation.id) if bare_id is None else value_at(body, bare_id))
    if pms_id is None or not _may_be_ours(mapping.reservation, shown, booking):
        return not_understood(response)
    match _state(mapping.reservation, shown):
        case _ if bare_id is not None:
            return Confirmed(pms_id)
        case "confirmed":
            return _confirmed(mapping.reservation, pms_id, shown, booking)
        case "cancelled" | "refused":
            return refusal(booking, "pms_refused", words(mapping, body) or "The PMS made it as a refused one.")
        case _:
            return not_understood(response)


def is_ours(shown: Shown, item: Any, booking: Booking) -> bool:
    """Whether a reservation carries our reference."""
    return shown.reference is not None and value_at(item, shown.reference) == booking.reference


def hides_its_reference(shown: Shown, item: Any) -> bool:
    """Whether nothing stands where the reference should: then nothing can be concluded from its absence."""
    return shown.reference is None or value_at(item, shown.reference) is MISSING


def found(mapping: PmsMapping, ours: Sequence[Any], response: Response, booking: Booking) -> LookupOutcome:
    """What of ours, of which there is one at least, has become."""
    states = {_state(mapping.reservation, item): item for item in ours}
    if "confirmed" in states:
        pms_id = identifier(value_at(states["confirmed"], mapping.reservation.id))
        if pms_id is not None:
            return _confirmed(mapping.reservation, pms_id, states["confirmed"], booking)
    elif "cancelled" in states:
        return Deferred(CANCELLED_IN_PMS, "The PMS made the reservation, and it was cancelled there since.")
    return Absent() if states.keys() == {"refused"} else harmless(not_understood(response))


def words(mapping: PmsMapping, body: Any) -> str:
    """Why the PMS refuses, in its own words; empty where it does not say."""
    said = MISSING if mapping.message is None else value_at(body, mapping.message)
    return said.strip() if isinstance(said, str) else ""


def _may_be_ours(shown: Shown, item: Any, booking: Booking) -> bool:
    reference = MISSING if shown.reference is None else value_at(item, shown.reference)
    return reference in (MISSING, None, "", booking.reference)


def _state(shown: Shown, item: Any) -> str:
    """confirmed, cancelled or refused; empty for a word that the mapping does not know. Confirmed where it knows no states."""
    if shown.status is None:
        return "confirmed"
    word = value_at(item, shown.status.path)
    said = "" if word is MISSING or isinstance(word, dict | list) else str(word).casefold()
    named = {"confirmed": shown.status.confirmed, "cancelled": shown.status.cancelled, "refused": shown.status.refused}
    return next((state for state, those in named.items() if said in map(str.casefold, those)), "")


def _confirmed(shown: Shown, pms_id: str, item: Any, booking: Booking) -> Confirmed:
    return Confirmed(pms_id, _record(shown, item), named=is_ours(shown, item, booking))


def _record(shown: Shown, item: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    finances: dict[str, Any] = {}
    for name, path in shown.record.items():
        value = value_at(item, path)
        last = name.removeprefix("finances.")
        part = finances if last != name else fields
        part[last] = None if value is MISSING else _of_the_record(last, value)
    if "accessCode" in fields:
        code = fields.pop("accessCode")
        fields["codes"] = None if code is None else {"accessCode": code if isinstance(code, list) else [str(code)]}
    record = record_fields(fields | {"finances": finances})
    return record if record.get("finances") else {name: value for name, value in record.items() if name != "finances"}


def _of_the_record(name: str, value: Any) -> Any:
    if name not in _MONEY:
        return value
    number = _number(value)
    if name not in _LINES or number is None:
        return number
    total, label, kind = _LINES[name]
    return {total: number, "breakdown": [{"name": label, "type": kind, "total": number}] if number else []}


def _number(value: Any) -> Any:
    """An amount, be it a number or a decimal text."""
    exact = amount(value)
    if exact is not None:
        return json_number(exact)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None

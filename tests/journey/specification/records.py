"""Sections 2.5, 3 and 7: the record that the general operation answers with, its status, and what there is in its place.

The specification leaves open what an error looks like; that nobody takes one for a success follows from `success`.
"""

import re
from collections.abc import Sequence

from tests.journey.specification.requirement import (
    ABSENT,
    Row,
    a_number,
    a_text,
    engine,
    general,
    line_items,
    record,
    says_failure,
    shows,
)

_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def _an_instant(value: object) -> bool:
    return isinstance(value, str) and _INSTANT.fullmatch(value) is not None


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(a_text(each) for each in value)


_STAY = {"arrivalDate": "2031-02-28", "departureDate": "2031-03-02"}
_BREAKDOWNS = {"basePrice": "totalBasePrice", "fee": "totalFee", "tax": "totalTax", "discount": "totalDiscount"}
_QUOTED = general({"totalPrice": 270, "currency": "EUR", "propertyId": 31, "roomId": 31}, account="quoting")

# fmt: off
RECORD: Sequence[Row] = [
    Row("success", "a creation says that it succeeded", general(), shows({"success": True})),
    Row("success-waiting", "also while the PMS is away", general(account="away"),
        shows({"success": True, "data.status": a_text})),
    Row("success-engine", "and by the other operation", engine(), shows({"success": True, "data.status": a_text})),
    Row("data", "the record is an object", general(), shows({"data": lambda data: isinstance(data, dict)})),
    Row("id", "an id, which is a number", general(), record({"id": a_number})),
    Row("createdAt", "when it was created, to the millisecond", general(), record({"createdAt": _an_instant})),
    Row("updatedAt", "when it was changed, to the millisecond", general(), record({"updatedAt": _an_instant})),
    Row("cancelledAt", "empty: it is not cancelled", general(), record({"cancelledAt": ""})),
    Row("arrivalDate", "the day of arrival", general(_STAY), record({"arrivalDate": "2031-02-28"})),
    Row("departureDate", "the day of departure", general(_STAY | {"arrivalDate": "2031-02-26"}),
        record({"departureDate": "2031-03-02"})),
    Row("nights", "the nights between them", general(_STAY | {"arrivalDate": "2031-02-23"}), record({"nights": 7})),
    Row("propertyId", "the property, which is a number", general({"propertyId": 31}), record({"propertyId": 31})),
    Row("propertyId-text", "also if it was named by text", general({"propertyId": "32"}), record({"propertyId": 32})),
    Row("numberOfGuests", "how many come", general({"numberOfGuests": 5}), record({"numberOfGuests": 5})),
    Row("primaryGuest.name", "the guest's name", general({"guest.name": "Jo Ñu"}), record({"primaryGuest.name": "Jo Ñu"})),
    Row("primaryGuest.emails", "addresses of e-mail, a list", general({"guest.email": "jo@example.com"}),
        record({"primaryGuest.emails": ["jo@example.com"]})),
    Row("primaryGuest.mobileNumbers", "telephone numbers, a list of texts", general({"guest.phone": 34600111222}),
        record({"primaryGuest.mobileNumbers": ["34600111222"]})),
    Row("primaryGuest.nationality", "a nationality, or null", general(),
        record({"primaryGuest.nationality": lambda value: value is None or a_text(value)})),
    Row("source", "where it came from", general(), record({"source": a_text})),
    Row("totalPrice", "the price", general({"totalPrice": 480.35}), record({"totalPrice": 480.35})),
    Row("currency", "the currency", general({"currency": "USD"}), record({"currency": "USD"})),
    Row("status", "a status", general(), record({"status": a_text})),
    Row("arrivalEstimatedTime", "when guests come, as text", general({"arrivalEstimatedTime": 16}),
        record({"arrivalEstimatedTime": "16"})),
    Row("arrivalEstimatedTime-empty", "empty if it was not said", general({"arrivalEstimatedTime": ABSENT}),
        record({"arrivalEstimatedTime": ""})),
    Row("departureEstimatedTime", "when guests leave, as text", general({"departureEstimatedTime": "10:30"}),
        record({"departureEstimatedTime": "10:30"})),
    Row("departureEstimatedTime-empty", "empty if it was not said", general({"departureEstimatedTime": ABSENT}),
        record({"departureEstimatedTime": ""})),
    Row("codes", "codes to get in, a list of texts", general(), record({"codes.accessCode": _texts})),
    Row("notes", "the notes", general({"notes": "Late"}), record({"notes": "Late"})),
    Row("notes-null", "null if there are none", general({"notes": ABSENT}), record({"notes": None})),
    Row("paymentUrl", "where to pay", general(), record({"paymentUrl": a_text})),
    Row("finances.totalPrice", "the price again", general({"totalPrice": 480.35}), record({"finances.totalPrice": 480.35})),
    Row("finances.currency", "the currency again", general({"currency": "USD"}), record({"finances.currency": "USD"})),
    Row("finances.paid", "what is paid, and what is left: together the price", general({"totalPrice": 480.35}),
        record({"finances": lambda money: money["totalPaid"] + money["remainingBalance"] == money["totalPrice"]})),
    *(
        Row(f"finances.{part}", "its total, and the lines that it is made of", general(),
            record({f"finances.{part}.{total}": a_number, f"finances.{part}.breakdown": line_items()}))
        for part, total in _BREAKDOWNS.items()
    ),
    Row("line-items", "lines name room rate, fee and tax", _QUOTED,
        record({"finances.basePrice.breakdown": line_items("RoomRate"), "finances.fee.breakdown": line_items("Fee"),
                        "finances.tax.breakdown": line_items("Tax")})),
]

STATES: Sequence[Row] = [
    Row("confirmed", "what the PMS made is confirmed", general(), record({"status": "CONFIRMED"})),
    Row("letters", "a request may write that in large and small letters, for either operation",
        [make({"status": status}) for make in (engine, general) for status in ("CONFIRMED", "confirmed", "Confirmed")],
        shows({"data": lambda data: isinstance(data, dict)})),
]

FAILURES: Sequence[Row] = [
    Row("success", "a refusal says that nothing was made", general({"propertyId": ABSENT}),
        says_failure),
    Row("success-by-pms", "also if it is the PMS that refuses", general({"roomId": "unknown"}),
        says_failure),
]
# fmt: on

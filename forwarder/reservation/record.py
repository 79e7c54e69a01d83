"""The reservation record (section 2.5), composed of the request, the PMS's response and the submission's state; and the result
event that reports it to downstream services once the submission has an outcome; and how much of outside data both keep. Pure."""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from msgspec import Struct

from forwarder.reservation.booking import full_name
from forwarder.reservation.checks.card_numbers import passes_luhn
from forwarder.reservation.fast import json_text, value
from forwarder.reservation.outcome import Cancellation, Status
from forwarder.reservation.request import json_number
from forwarder.reservation.submission import is_test

_MAX_EXACT_INTEGER: Final = 2**53 - 1  # the largest integer that is exact in every JSON reader (RFC 8259, section 6)
MAX_ID: Final = 256  # maximum characters of a PMS's id of a reservation

_COUNTS = ("numberOfAdults", "numberOfChildren", "numberOfInfants")
"""Their sum is the number of guests, where that was not given."""

_FROM_THE_PMS = frozenset("source codes notes paymentUrl finances totalPrice currency primaryGuest".split())
"""Fields that the PMS decides; all others come from the request."""


class SubmissionState(Struct, frozen=True):
    """The state of a submission: everything that its record needs besides the request. `pms_record`: the PMS's fields."""

    id: int
    request_id: str
    status: Status
    created_at: str
    updated_at: str
    cancelled_at: str = ""
    pms_reservation_id: str | None = None
    pms_record: Mapping[str, Any] | None = None
    problem: Mapping[str, Any] | None = None


def record_id_of(request_id: str, *, taken: int = 0) -> int:
    """The `id` of a submission's record: the same in any copy of the store, and revealing nothing about the number of others. From
    1 to 2**53 - 1, exact in every JSON reader. `taken`: how many earlier candidates belong to other submissions."""
    digest = blake2b(f"{request_id}#{taken}".encode(), digest_size=8, person=b"record-id").digest()
    record_id = int.from_bytes(digest, "big") % _MAX_EXACT_INTEGER + 1
    if not passes_luhn(str(record_id)):
        return record_id
    # Most have as many digits as a card number, and scanners would report one that passes Luhn as a card. Another last digit breaks
    # the check.
    return record_id - 1 if record_id % 10 else record_id + 1


def compose_record(request: Mapping[str, Any], state: SubmissionState) -> dict[str, Any]:
    """The record in full: every field of section 2.5 in its order, then ours. Timestamps are ISO 8601 UTC, milliseconds, `Z`."""
    total, guest = request.get("numberOfGuests"), request.get("guest") or {}
    email, phone = guest.get("email"), guest.get("phone")
    arrival, departure = request.get("arrivalEstimatedTime"), request.get("departureEstimatedTime")
    record: dict[str, Any] = {
        "id": state.id,
        "createdAt": state.created_at,
        "updatedAt": state.updated_at,
        "cancelledAt": state.cancelled_at,
        "arrivalDate": request["arrivalDate"],
        "departureDate": request["departureDate"],
        "nights": (date.fromisoformat(request["departureDate"]) - date.fromisoformat(request["arrivalDate"])).days,
        "propertyId": _number_where_it_is_one(request["propertyId"]),
        "numberOfGuests": sum(request.get(name) or 0 for name in _COUNTS) if total is None else total,
        "primaryGuest": {
            "name": full_name(guest),
            "emails": [email] if email else [],
            "mobileNumbers": [] if phone is None or phone == "" else [str(phone)],
            "nationality": None,
        },
        "source": "UNKNOWN",
        "totalPrice": request.get("totalPrice") or 0,
        "currency": request.get("currency") or "",
        "status": str(state.status),
        "arrivalEstimatedTime": "" if arrival is None else str(arrival),
        "departureEstimatedTime": "" if departure is None else str(departure),
        "codes": {"accessCode": []},
        "notes": request.get("notes"),
        "paymentUrl": "",
        "finances": {},
    }
    pms_record = state.pms_record or {}
    for name in pms_record.keys() & _FROM_THE_PMS:
        record[name] = pms_record[name]
    record["finances"] = _finances(record["totalPrice"], record["currency"], pms_record.get("finances") or {})
    room = request.get("roomId")
    record |= {"requestId": state.request_id, "pmsReservationId": state.pms_reservation_id}
    record["roomId"] = record["propertyId"] if room is None else room
    if state.problem is not None:
        record["problem"] = state.problem
    return record


def fitting_record(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """`record`, too large to publish or impossible to write, with the PMS's fields cut until it fits."""
    own = {name: value for name, value in record.items() if name not in _FROM_THE_PMS}
    decided = {name: value for name, value in record.items() if name in _FROM_THE_PMS}
    cut = bounded(decided, max(MAX_RECORD_BYTES - len(json_text(own)), 16 * 1024)) or {}
    return {**record, **{name: cut.get(name) for name in decided}}


def pending_record(request: Mapping[str, Any], request_id: str, accepted_at: str) -> dict[str, Any]:
    """The record of a submission that no worker has ingested: complete but for its `id`, which ingestion assigns."""
    record = compose_record(request, SubmissionState(0, request_id, Status.PENDING, accepted_at, accepted_at))
    del record["id"]
    return record


def can_compose(request: Mapping[str, Any]) -> bool:
    """Whether `request` has the usual form, of which `compose_record` surely makes a record. Of any other only trying shows it."""
    try:
        _ = date.fromisoformat(request["departureDate"]), date.fromisoformat(request["arrivalDate"])
    except (LookupError, TypeError, ValueError):
        return False
    property_id, price, guest = request.get("propertyId"), request.get("totalPrice"), request.get("guest")
    return (
        (type(property_id) is int or (type(property_id) is str and len(property_id) <= MAX_ID))
        and type(request.get("numberOfGuests")) is int
        and (type(price) is int or type(price) is float)
        and abs(price) <= _MAX_EXACT_INTEGER
        and type(guest) is dict
        and type(guest.get("name")) is str
        and guest["name"] != ""
    )


def _number_where_it_is_one(identifier: str | int) -> str | int:
    """A number for "1001"; the string itself for "00123" or "A7", which a number would not reproduce."""
    if isinstance(identifier, str) and identifier.isascii() and identifier.isdigit():
        number = int(identifier)
        if str(number) == identifier and number <= _MAX_EXACT_INTEGER:
            return number
    return identifier


def _finances(total: float, currency: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The PMS's price breakdown. Missing parts are derived: the whole price as one room rate, nothing paid yet."""
    paid = given.get("totalPaid", 0)
    if type(paid) is int and paid == 0 and type(total) in {int, float} and abs(total) <= _MAX_EXACT_INTEGER:
        remaining: float = total if total % 1 else int(total)  # as nearly always
    else:
        remaining = json_number(Decimal(str(total)) - Decimal(str(paid)))
    line = {"name": "Room rate", "type": "RoomRate", "total": total}
    derived: dict[str, Any] = {
        "totalPrice": total,
        "currency": currency,
        "totalPaid": paid,
        "remainingBalance": remaining,
        "basePrice": {"totalBasePrice": total, "breakdown": [line]},
        "fee": {"totalFee": 0, "breakdown": []},
        "tax": {"totalTax": 0, "breakdown": []},
        "discount": {"totalDiscount": 0, "breakdown": []},
    }
    for name in given.keys() & derived.keys():
        derived[name] = given[name]
    return derived


# --- the result event ---

EVENT_TYPES: dict[Status, str] = {s: f"reservation.{s.lower()}.v1" for s in Status if s is not Status.PENDING}
"""The CloudEvents type for each status; PENDING has no event."""

_UNSUCCESSFUL_CANCELLATIONS = {each: f"reservation.cancellation_{each.lower()}.v1" for each in ("REFUSED", "FAILED")}
"""The event type of a cancellation that did not change the reservation."""

RESULT_TYPES: tuple[str, ...] = (*EVENT_TYPES.values(), *_UNSUCCESSFUL_CANCELLATIONS.values())
"""Every type of result event."""

_RECORD: Final = b'"reservation":'


class SerializedData(NamedTuple):
    """The JSON text of an event's data in three parts: the record, the text before it, and the text after it."""

    before: bytes
    record: bytes
    after: bytes


@value(frozen=True, slots=False)  # no slots: it caches its serialized form
class ResultEvent:
    """One change of status. `event_id` stays the same when the event is published again; `revision` counts a submission's changes
    from 1, so that a consumer can order them and skip those that it has seen."""

    request_id: str
    revision: int
    status: Status
    key: str
    occurred_at: str
    data: Mapping[str, Any]
    trace: str | None = None

    @property
    def event_id(self) -> str:
        return f"{self.request_id}.{self.revision}"

    @property
    def type(self) -> str:
        cancellation = self.data.get("cancellation")
        came_to_nothing = cancellation and _UNSUCCESSFUL_CANCELLATIONS.get(cancellation["status"])
        return came_to_nothing or EVENT_TYPES[self.status]

    @cached_property
    def written(self) -> SerializedData:
        """`data` as JSON, written once for all readers. NaN and infinity, which JSON lacks, are null."""
        # Within a text the quotes would be escaped, so the first match is the member itself.
        if [*self.data][-1] == "reservation":  # as nearly always
            before, _, rest = json_text(self.data).partition(_RECORD)
            return SerializedData(before + _RECORD, rest[:-1], b"}")
        record = json_text(self.data["reservation"])
        before, _, after = json_text({**self.data, "reservation": None}).partition(_RECORD + b"null")
        return SerializedData(before + _RECORD, record, after)


def result_data(
    *,
    request_id: str,
    workspace_id: str,
    account_id: str,
    status: Status,
    record: Mapping[str, Any],
    cancellation: Cancellation | None = None,
    doubles: Sequence[str] = (),
    similar_to: Sequence[str] = (),
) -> dict[str, Any]:
    """The body of a result event: whose it is, how it ended, and the whole record (with its `problem`, if any); the cancellation,
    if the event is about one; the ids of other reservations that the PMS shows under its reference, if there are any; the request
    ids of others for the same stay and guest, if there are any; and `test`, if it belongs to test mode."""
    data: dict[str, Any] = {"requestId": request_id, "workspaceId": workspace_id, "integrationAccountId": account_id}
    data |= {"status": str(status), "reservation": record}
    if doubles:
        data["otherPmsReservationIds"] = list(doubles)
    if similar_to:
        data["similarTo"] = list(similar_to)
    if is_test(account_id):
        data["test"] = True
    return data if cancellation is None else {**data, "cancellation": cancellation.as_json()}


# --- what is kept once the guest's data is erased ---
#
# Nothing identifies the guest, and it still shows the outcome, answers duplicates and can be cancelled. An allowlist: all other
# members of a request, record or problem are dropped.


def anonymous_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """The request without its guest. `paymentProviderId` is the website that it came from; some PMSs need it to cancel."""
    kept = "propertyId roomId arrivalDate departureDate numberOfGuests numberOfAdults numberOfChildren numberOfInfants"
    return {**_scalars(request, f"{kept} totalPrice currency paymentProviderId".split()), "guest": {}}


def anonymous_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record without its guest; all members are present."""
    names = "id createdAt updatedAt cancelledAt arrivalDate departureDate nights propertyId numberOfGuests totalPrice currency"
    kept = _scalars(record, f"{names} status requestId pmsReservationId roomId".split())
    blank: dict[str, Any] = {
        "primaryGuest": {"name": "", "emails": [], "mobileNumbers": [], "nationality": None},
        "source": "UNKNOWN",
        "arrivalEstimatedTime": "",
        "departureEstimatedTime": "",
        "codes": {"accessCode": []},
        "notes": None,
        "paymentUrl": "",
        "finances": _finances(kept.get("totalPrice") or 0, kept.get("currency") or "", {}),
    }
    problem = record.get("problem")
    found = {**blank, **kept, **({"problem": anonymous_problem(problem)} if isinstance(problem, Mapping) else {})}
    return {name: found[name] for name in record if name in found}  # in the order of a record


def anonymous_problem(problem: Mapping[str, Any]) -> dict[str, Any]:
    """The problem without the words of a PMS or an operator."""
    kept = _scalars(problem, "type title status code requestId instance transactionOf duplicateOf".split())
    return {**kept, "detail": "What it said was removed together with the guest's data."}


def anonymous_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data of a result event without the guest."""
    kept = {**data, "reservation": anonymous_record(data["reservation"])}
    cancellation = data.get("cancellation")
    if isinstance(cancellation, Mapping):
        problem = cancellation.get("problem")
        said = {"problem": anonymous_problem(problem)} if isinstance(problem, Mapping) else {}
        kept["cancellation"] = {name: None if name == "reason" else each for name, each in cancellation.items()} | said
    return kept


def _scalars(fields: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Keeps scalars only: a value of any other type may hold anything."""
    return {name: fields[name] for name in names if isinstance(fields.get(name, ()), str | int | float | None)}


# --- bounds on outside data, so that it can always be stored and published ---
#
# A text that is too long ends in `… [cut]`. A list that is too long ends with an item that gives the number of the rest; the last
# line of a breakdown has their sum, so that its total still adds up. Values that databases or JSON cannot hold are replaced: half
# of a surrogate pair by U+FFFD; NaN, infinity and numbers of absurd size by null.

MAX_RECORD_BYTES: Final = 64 * 1024
"""Maximum size of a record as JSON. Everything that a caller can send in one request fits."""

MAX_EVENT_BYTES: Final = 128 * 1024  # maximum size of a result event's data: its record and the rest
MAX_DETAIL: Final = 1000  # maximum characters of an attempt's detail, and of a problem's
MAX_REASON: Final = 100

_CUT: Final = "… [cut]"
_LARGEST: Final = 10**30


def cut_text(text: str, most: int) -> str:
    """`text`, at most `most` characters, without halves of surrogate pairs and U+0000."""
    if not text.isascii():
        text = re.sub("[\ud800-\udfff]", "\ufffd", text)
    text = text.replace("\0", "\ufffd")
    return text if len(text) <= most else text[: most - len(_CUT)] + _CUT


def cut_list(items: Sequence[Any], most: int) -> list[Any]:
    """At most `most` of `items`, the last of which summarizes the omitted ones."""
    if len(items) <= most:
        return list(items)
    kept, rest = items[: most - 1], items[most - 1 :]
    summary = f"… [{len(rest)} more]"
    if not all(isinstance(each, Mapping) for each in rest):
        return [*kept, summary]
    if not all("total" in each for each in rest):
        return [*kept, {"name": summary}]
    totals = [each["total"] for each in rest if isinstance(each["total"], int | float)]
    total = json_number(sum((Decimal(str(each)) for each in totals if math.isfinite(each)), Decimal(0)))
    return [*kept, {"name": summary, "type": "Cut", "total": total}]


def bounded(value: Any, max_bytes: int) -> Any:
    """JSON-like `value`, cut to JSON of at most `max_bytes`; null if even its structure is larger."""
    # Limits of list items and text characters, tried in turn until the whole fits.
    for items, characters in ((200, 10_000), (100, 2_000), (50, 500), (20, 200), (5, 100), (1, 40)):
        cut = _cut(value, items, characters, depth=8)
        if len(json_text(cut)) <= max_bytes:
            return cut
    return None


def _cut(value: Any, items: int, characters: int, depth: int) -> Any:
    match value:
        case None | bool():
            return value
        case int() | float():  # NaN is not smaller either
            return value if abs(value) <= _LARGEST else None
        case str():
            return cut_text(value, characters)
        case Mapping() if depth:
            some = [*value.items()][: items + 20]
            return {cut_text(str(name), 100): _cut(each, items, characters, depth - 1) for name, each in some}
        case list() | tuple() if depth:
            return [_cut(each, items, characters, depth - 1) for each in cut_list(value, items)]
        case _:
            return None


def fits(value: Mapping[str, Any], max_bytes: int) -> bool:
    """Whether `value` can be written as JSON of at most `max_bytes`."""
    try:
        return len(json_text(value)) <= max_bytes
    except (ValueError, TypeError, RecursionError):
        return False

"""The anonymous remainder of a submission after its guest's data is erased: nothing identifies the guest, and it still shows the
outcome, answers duplicates and can be cancelled. Pure.

An allowlist: all other members of a request, record or problem are dropped.
"""

from collections.abc import Mapping
from typing import Any, Final

from forwarder.reservation.record import derived_finances

REMOVED: Final = "What it said was removed together with the guest's data."

_KEPT_OF_REQUEST: Final = (
    "propertyId",
    "roomId",
    "arrivalDate",
    "departureDate",
    "numberOfGuests",
    "numberOfAdults",
    "numberOfChildren",
    "numberOfInfants",
    "totalPrice",
    "currency",
    "paymentProviderId",  # the website that it came from; some PMSs need it to cancel
)
_KEPT_OF_RECORD: Final = (
    "id",
    "createdAt",
    "updatedAt",
    "cancelledAt",
    "arrivalDate",
    "departureDate",
    "nights",
    "propertyId",
    "numberOfGuests",
    "totalPrice",
    "currency",
    "status",
    "requestId",
    "pmsReservationId",
    "roomId",
)
_KEPT_OF_PROBLEM: Final = ("type", "title", "status", "code", "requestId", "instance", "transactionOf", "duplicateOf")
_NO_GUEST: Final[Mapping[str, Any]] = {"name": "", "emails": [], "mobileNumbers": [], "nationality": None}


def anonymous_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """The request without its guest."""
    return {**_scalars(request, _KEPT_OF_REQUEST), "guest": {}}


def anonymous_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record without its guest; all members are present."""
    kept = _scalars(record, _KEPT_OF_RECORD)
    blank: dict[str, Any] = {
        "primaryGuest": dict(_NO_GUEST),
        "source": "UNKNOWN",
        "arrivalEstimatedTime": "",
        "departureEstimatedTime": "",
        "codes": {"accessCode": []},
        "notes": None,
        "paymentUrl": "",
        "finances": derived_finances(kept.get("totalPrice") or 0, kept.get("currency") or ""),
    }
    problem = record.get("problem")
    found = {**blank, **kept, **({"problem": anonymous_problem(problem)} if isinstance(problem, Mapping) else {})}
    return {name: found[name] for name in record if name in found}  # in the order of a record


def anonymous_problem(problem: Mapping[str, Any]) -> dict[str, Any]:
    """The problem without the words of a PMS or an operator."""
    return {**_scalars(problem, _KEPT_OF_PROBLEM), "detail": REMOVED}


def anonymous_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data of a result event without the guest."""
    kept = {**data, "reservation": anonymous_record(data["reservation"])}
    cancellation = data.get("cancellation")
    if isinstance(cancellation, Mapping):
        problem = cancellation.get("problem")
        said = {"problem": anonymous_problem(problem)} if isinstance(problem, Mapping) else {}
        kept["cancellation"] = {name: None if name == "reason" else each for name, each in cancellation.items()} | said
    return kept


def _scalars(fields: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Keeps scalars only: a value of any other type may hold anything."""
    return {name: fields[name] for name in names if isinstance(fields.get(name, ()), str | int | float | None)}

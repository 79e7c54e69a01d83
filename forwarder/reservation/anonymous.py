"""What stays of a submission once its guest's data is removed: nothing that tells who the guest was, and enough to know what became
of it, to answer for it, and to cancel it. Pure.

What is kept is named here; whatever else a request, record or problem holds is dropped.
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
    "paymentProviderId",  # the website that it came from, by which some PMSs are asked to cancel it
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
_NOBODY: Final[Mapping[str, Any]] = {"name": "", "emails": [], "mobileNumbers": [], "nationality": None}


def anonymous_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """The request without its guest."""
    return {**_scalars(request, _KEPT_OF_REQUEST), "guest": {}}


def anonymous_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record without its guest, with all of its members."""
    kept = _scalars(record, _KEPT_OF_RECORD)
    blank: dict[str, Any] = {
        "primaryGuest": dict(_NOBODY),
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
    """The problem without what a PMS or an operator said in it."""
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
    """Whatever has another form than usual may hold anything."""
    return {name: fields[name] for name in names if isinstance(fields.get(name, ()), str | int | float | None)}

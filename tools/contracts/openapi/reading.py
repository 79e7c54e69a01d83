"""The operations of the query stage: how a submission stands, one reservation, pages of reservations."""

from typing import Final

from forwarder.reservation.problems import requests, service
from forwarder.reservation.problems.problem import ProblemType
from tools.contracts.openapi.parameters import CALLER, references
from tools.contracts.openapi.responses import COMMON_PROBLEMS, Json, needs, not_modified, problems, success

_COMMON: Final = (
    *COMMON_PROBLEMS,
    requests.ACCOUNT_NOT_FOUND,
    service.OVERLOADED,
    service.STORE_UNAVAILABLE,
    service.TENANCY_UNAVAILABLE,
    service.INTERNAL_ERROR,
)
_FILTERS: Final = (
    "status",
    "propertyId",
    "arrivalFrom",
    "arrivalTo",
    "departureFrom",
    "departureTo",
    "updatedSince",
)
_LISTS: Final = {
    "/api/vrs/reservations": "listReservations",
    "/api/v1/vrs/reservations": "listReservationsV1",
}


def reading_paths() -> Json:
    """The paths of the query stage."""
    return {
        "/api/v1/vrs/submissions/{request_id}": {"get": _submission()},
        "/api/v1/vrs/reservations/{id}": {"get": _reservation()},
        **{path: {"get": _page(operation_id)} for path, operation_id in _LISTS.items()},
    }


def _submission() -> Json:
    headers = ("ETag", "Cache-Control", "Preference-Applied", "Duplicate-Of")
    states = ("Untaken", "Confirmed", "Rejected", "InDoubt", "Cancelled")
    return _get(
        "getSubmission",
        "Where a submission stands",
        "From the moment at which it was accepted: never unknown. A caller may wait for news of it instead of asking again. One "
        "that turned out to be an earlier one sent again stands where that one stands.",
        ("requestId", "PreferNews", "IfNoneMatch"),
        success("It stands so.", "SubmissionEnvelope", [f"submission{state}" for state in states], *headers),
        requests.SUBMISSION_NOT_FOUND,
        unchanged=not_modified(*headers),
    )


def _reservation() -> Json:
    return _get(
        "getReservation",
        "One reservation",
        "Whatever its status.",
        ("reservationId", "IfNoneMatch"),
        success("The reservation.", "ReservationEnvelope", ("reservationMade",), "ETag", "Cache-Control"),
        requests.RESERVATION_NOT_FOUND,
        unchanged=not_modified("ETag", "Cache-Control"),
    )


def _page(operation_id: str) -> Json:
    return _get(
        operation_id,
        "The account's reservations, page by page",
        "In the order in which they were taken in, or the newest first. What is listed meets every filter that is given. Follow "
        "`meta.cursors.next` until it is empty: each reservation that was there when you began, and that the filters let through "
        "all the while, comes exactly once, whatever is added and changed meanwhile. Both addresses are one; a slash may follow.",
        ("limit", "cursor", "order", *_FILTERS),
        success("A page.", "ReservationPage", ("page",), "Cache-Control"),
    )


def _get(
    operation_id: str,
    summary: str,
    about: str,
    parameters: tuple[str, ...],
    found: Json,
    *refusals: ProblemType,
    unchanged: Json | None = None,
) -> Json:
    answers = {"200": found} | ({} if unchanged is None else {"304": unchanged})
    return {
        "operationId": operation_id,
        "tags": ["Reading"],
        "summary": summary,
        "description": about,
        **needs("read"),
        "parameters": references((*parameters, *CALLER)),
        "responses": {**answers, **problems((*refusals, *_COMMON))},
    }

"""The operations of the query stage: how a submission stands, one reservation, pages of reservations."""

from typing import Final

from forwarder.published.answering import Json, answer, problems
from forwarder.published.parameters import CALLER, references
from forwarder.reservation.catalogue import requests, service
from forwarder.reservation.catalogue.problem_type import ProblemType

_COMMON: Final = (
    requests.UNAUTHENTICATED,
    requests.MISSING_HEADER,
    requests.WRONG_WORKSPACE,
    requests.ACCOUNT_NOT_FOUND,
    service.STORE_UNAVAILABLE,
    service.TENANCY_UNAVAILABLE,
    service.INTERNAL_ERROR,
)
_LISTS: Final = {
    "/api/vrs/reservations": "listReservations",
    "/api/vrs/reservations/": "listReservationsSlash",
    "/api/v1/vrs/reservations": "listReservationsV1",
    "/api/v1/vrs/reservations/": "listReservationsV1Slash",
}


def reading_paths() -> Json:
    """The paths of the query stage."""
    return {
        "/api/v1/vrs/submissions/{request_id}": {"get": _submission()},
        "/api/v1/vrs/reservations/{id}": {"get": _reservation()},
        **{path: {"get": _page(operation_id)} for path, operation_id in _LISTS.items()},
    }


def _submission() -> Json:
    states = ("Untaken", "Confirmed", "Rejected", "InDoubt", "Cancelled")
    return _get(
        "getSubmission",
        "Where a submission stands",
        "From the moment at which it was accepted: never unknown.",
        ("requestId",),
        answer("It stands so.", "SubmissionEnvelope", [f"submission{state}" for state in states], "Cache-Control"),
        requests.SUBMISSION_NOT_FOUND,
    )


def _reservation() -> Json:
    return _get(
        "getReservation",
        "One reservation",
        "Whatever its status.",
        ("reservationId",),
        answer("The reservation.", "ReservationEnvelope", ("reservationMade",), "Cache-Control"),
        requests.RESERVATION_NOT_FOUND,
    )


def _page(operation_id: str) -> Json:
    return _get(
        operation_id,
        "The account's reservations, page by page",
        "In the order in which they were taken in, whatever their status. Follow `meta.cursors.next` until it is empty: each "
        "reservation that was there when you began comes exactly once, while others are added. The four addresses are one.",
        ("limit", "cursor"),
        answer("A page.", "ReservationPage", ("page",), "Cache-Control"),
        requests.INVALID_QUERY,
    )


def _get(
    operation_id: str, summary: str, about: str, parameters: tuple[str, ...], found: Json, *refusals: ProblemType
) -> Json:
    return {
        "operationId": operation_id,
        "tags": ["Reading"],
        "summary": summary,
        "description": about,
        "parameters": references((*parameters, *CALLER)),
        "responses": {"200": found, **problems((*refusals, *_COMMON))},
    }

"""One reservation from its request to its result, for the contracts to show. Made by the code that makes the real ones. Pure."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from pydantic_core import from_json, to_json

from forwarder.ingress.message import canonical_form, published_form
from forwarder.reservation import problems as catalogue
from forwarder.reservation.outcome import Cancellation, CancellationStatus, Status
from forwarder.reservation.problems import FieldFault, Problem, summary_of
from forwarder.reservation.record import SubmissionState, compose_record, record_id_of
from forwarder.reservation.request import BookingEngineRequest, Operation
from forwarder.reservation.submission import (
    DEFAULT_WINDOW_SECONDS,
    NaturalKey,
    RequestIds,
    Submission,
    contents_of,
    fingerprint,
)
from tools.contracts.written import written

ACCOUNT_ID: Final = "seaside-generic"
WORKSPACE_ID: Final = "seaside"
ACCEPTED_AT: Final = "2027-01-15T09:30:00.000Z"
SETTLED_AT: Final = "2027-01-15T09:30:00.412Z"
CANCELLED_AT: Final = "2027-01-20T16:05:00.120Z"
TRACEPARENT: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACESTATE: Final = "vendor=t61rcWkgMzE"
TRACE: Final = f"{TRACEPARENT} {TRACESTATE}"
PMS_ID: Final = "PMS-7001"


def _body(operation_id: str) -> Any:
    """The example body of an operation, as schemas/openapi.yaml has it."""
    paths = written("openapi.yaml")["paths"].values()
    (operation,) = [one for path in paths for one in path.values() if one["operationId"] == operation_id]
    return operation["requestBody"]["content"]["application/json"]["example"]


BOOKING_ENGINE: Final[Mapping[str, Any]] = _body("submitBookingEngineReservation")
GENERAL: Final[Mapping[str, Any]] = _body("submitReservation")
CANCELLATION: Final[Mapping[str, Any]] = _body("cancelReservation")
FAULT: Final = FieldFault("/guest/email", "invalid_value", "must be an e-mail address, such as guest@example.com")


def request_id() -> str:
    """The submission that the examples are about."""
    return RequestIds(b"an example alone").derive(ACCOUNT_ID, "order-42")


def repetition_id() -> str:
    """The same submission, sent again under another key."""
    return RequestIds(b"an example alone").derive(ACCOUNT_ID, "order-42, again")


def submission(operation: Operation = "booking-engine") -> Submission:
    """It, as it travels."""
    request = BookingEngineRequest.model_validate_json(to_json(BOOKING_ENGINE))
    body, ids = published_form(request, None), RequestIds(b"an example alone")
    natural = NaturalKey(
        ids.content_key(ACCOUNT_ID, "natural-key", contents_of(operation, request, b"{}", b"")[0]),
        None,
        DEFAULT_WINDOW_SECONDS,
        keyed=True,
    )
    return Submission(
        request_id=request_id(),
        workspace_id=WORKSPACE_ID,
        account_id=ACCOUNT_ID,
        operation=operation,
        accepted_at=datetime(2027, 1, 15, 9, 30, tzinfo=UTC),
        reservation=from_json(body),
        fingerprint=fingerprint(operation, canonical_form(request, body)),
        trace=TRACE,
        natural=natural,
    )


_WHY: Final = {
    Status.REJECTED: (catalogue.ROOM_UNAVAILABLE, "The room is taken on 2027-06-03."),
    Status.FAILED: (
        catalogue.DELIVERY_FAILED,
        "The PMS could not be made to take it before the deadline. Last: pms_unavailable: The PMS is not in service.",
    ),
    Status.IN_DOUBT: (
        catalogue.IN_DOUBT,
        "The PMS did not say. It is not sent again until that is settled. Last: pms_timed_out: No answer came in time.",
    ),
}


def problem(status: Status) -> Mapping[str, Any] | None:
    """Why it is of that status; None where nothing is wrong."""
    if status not in _WHY:
        return None
    kind, detail = _WHY[status]
    return kind.problem(detail, request_id()).as_json()


def record(status: Status) -> dict[str, Any]:
    """Its record while it is of that status."""
    cancelled_at = CANCELLED_AT if status is Status.CANCELLED else ""
    made = status in (Status.CONFIRMED, Status.CANCELLED)
    standing = SubmissionState(
        id=record_id_of(request_id()),
        request_id=request_id(),
        status=status,
        created_at=ACCEPTED_AT,
        updated_at=cancelled_at or SETTLED_AT,
        cancelled_at=cancelled_at,
        pms_reservation_id=PMS_ID if made else None,
        problem=problem(status),
    )
    return compose_record(submission().reservation, standing)


def cancellation(status: CancellationStatus) -> Cancellation:
    """Its cancellation, while that stands so."""
    why: dict[str, Any] | None = None
    if status is CancellationStatus.REFUSED:
        why = catalogue.CANCELLATION_REFUSED.problem("Too late: the guest arrives today.", request_id()).as_json()
    if status is CancellationStatus.FAILED:
        detail = "The PMS could not be made to cancel it before the deadline. It may be asked for again."
        why = catalogue.CANCELLATION_FAILED.problem(detail, request_id()).as_json()
    return Cancellation(status, CANCELLED_AT, CANCELLATION["reason"], why)


def invalid() -> Problem:
    """The refusal of a request with a fault."""
    detail = summary_of((FAULT,))
    return catalogue.VALIDATION_FAILED.problem(detail, faults=(FAULT,))

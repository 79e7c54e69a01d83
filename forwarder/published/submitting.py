"""The operations of the ingress: to submit a reservation, in either form, and to cancel one."""

from typing import Any, Final

from forwarder.published import examples
from forwarder.published.answering import Json, answer, problems
from forwarder.published.parameters import CALLER, references
from forwarder.reservation.catalogue import endings, requests, service
from forwarder.reservation.catalogue.problem_type import ProblemType
from forwarder.reservation.request import MAX_BODY_BYTES

_CALLER: Final = (
    requests.UNAUTHENTICATED,
    requests.MISSING_HEADER,
    requests.WRONG_WORKSPACE,
    requests.ACCOUNT_NOT_FOUND,
)
_BODY: Final = (
    requests.UNSUPPORTED_MEDIA_TYPE,
    requests.BODY_TOO_LARGE,
    requests.BODY_TIMED_OUT,
    requests.MALFORMED_JSON,
    requests.VALIDATION_FAILED,
)
_SERVICE: Final = (
    service.LOG_UNAVAILABLE,
    service.OVERLOADED,
    service.STORE_UNAVAILABLE,
    service.TENANCY_UNAVAILABLE,
    service.INTERNAL_ERROR,
)
_TERMS: Final = (requests.INVALID_KEY, requests.INVALID_DEADLINE, requests.KEY_REUSED)
_REJECTIONS: Final = (
    endings.CARD_REQUIRED,
    endings.WEBSITE_REQUIRED,
    endings.ROOM_UNAVAILABLE,
    endings.CARD_REFUSED,
    endings.PRICE_CHANGED,
    endings.PROPERTY_NOT_FOUND,
    endings.ROOM_NOT_FOUND,
    endings.GUEST_REFUSED,
    endings.PMS_REFUSED,
    endings.REJECTED,
    endings.REJECTED_BY_OPERATOR,
)
_APPLIED: Final = ("Cache-Control", "Preference-Applied")


def submit_operation(operation_id: str, summary: str, about: str, schema: str, example: Any) -> Json:
    """One that submits a reservation."""
    accepted = "Safe: it will be carried to its end, whatever happens. Follow it at `Location`."
    made = "Made, within the time that the caller waits."
    return {
        "operationId": operation_id,
        "tags": ["Submitting"],
        "summary": summary,
        "description": about,
        "parameters": references((*CALLER, "IdempotencyKey", "Prefer", "ForwardDeadline", "traceparent")),
        "requestBody": _body(schema, example, required=True),
        "responses": {
            "201": answer(made, "ReservationEnvelope", ("reservationMade",), "Location", *_APPLIED),
            "202": answer(
                accepted,
                "ReceiptEnvelope",
                ("submissionAccepted",),
                *("Location", "Retry-After", "Preference-Applied"),
            ),
            **_refusals(*_CALLER, *_BODY, *_TERMS, *_REJECTIONS, *_SERVICE),
        },
    }


def cancel_operation() -> Json:
    """The one that cancels."""
    accepted = "Safe: it will be carried to its end, whatever happens. Follow it at `Location`."
    return {
        "operationId": "cancelReservation",
        "tags": ["Submitting"],
        "summary": "Cancel a reservation",
        "description": "May be asked for as soon as the submission was accepted, and any number of times. "
        "What was not sent to the PMS yet is not sent any more; what was is cancelled there.",
        "parameters": references(("eitherId", *CALLER, "Prefer", "traceparent")),
        "requestBody": _body("CancellationBody", examples.CANCELLATION, required=False),
        "responses": {
            "200": answer("Cancelled.", "ReservationEnvelope", ("reservationCancelled",), "Location", *_APPLIED),
            "202": answer(
                accepted,
                "CancellationReceiptEnvelope",
                ("cancellationAccepted",),
                *("Location", "Retry-After", "Preference-Applied"),
            ),
            **_refusals(*_CALLER, *_BODY, requests.SUBMISSION_NOT_FOUND, *_CANCELLATIONS, *_SERVICE),
        },
    }


_CANCELLATIONS: Final = (
    endings.NOT_MADE,
    endings.CANCELLATION_NOT_SUPPORTED,
    endings.CANCELLATION_REFUSED,
    endings.PMS_REFUSED,
    endings.CANCELLATION_FAILED,
)


def _refusals(*types: ProblemType) -> Json:
    return problems(types, headers=dict.fromkeys((409, 422), _APPLIED) | {503: _APPLIED})


def _body(schema: str, example: Any, *, required: bool) -> Json:
    return {
        "required": required,
        "description": f"JSON in UTF-8, at most {MAX_BODY_BYTES:,} bytes.",
        "content": {
            "application/json": {
                "schema": {"$ref": f"#/components/schemas/{schema}"},
                "examples": {"example": {"value": example}},
            }
        },
    }


def submitting_paths() -> Json:
    """The paths of the ingress."""
    engine = submit_operation(
        "submitBookingEngineReservation",
        "Submit a reservation of a booking engine",
        "With the payment arrangement, the guest in full, and perhaps a card. Answered 202 at once; `Prefer: wait=N` waits for "
        "the outcome.",
        "BookingEngineRequest",
        examples.BOOKING_ENGINE,
    )
    general = submit_operation(
        "submitReservation",
        "Submit a reservation",
        "The smaller form. Waits for the outcome for a while, 10 seconds unless the deployment says otherwise: 201 with the "
        "record, or a problem; 202 where it has not come by then. `Prefer: respond-async` does not wait.",
        "GeneralRequest",
        examples.GENERAL,
    )
    return {
        "/api/v1/vrs/reservations/booking-engine": {"post": engine},
        "/api/v1/vrs/reservations": {"post": general},
        "/api/v1/vrs/reservations/{id}/cancel": {"post": cancel_operation()},
    }

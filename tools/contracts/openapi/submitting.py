"""The operations of the ingress: to submit a reservation, in either form, or many at once, and to cancel one."""

from typing import Any, Final

from forwarder.reservation.bulk import MAX_BULK_BYTES, MAX_ITEM_BYTES, MAX_ITEMS
from forwarder.reservation.problems import endings, requests, rules, service
from forwarder.reservation.problems.problem import ProblemType
from forwarder.reservation.request import MAX_BODY_BYTES
from tools.contracts import examples
from tools.contracts.openapi.parameters import CALLER, references
from tools.contracts.openapi.responses import BODY_PROBLEMS, COMMON_PROBLEMS, Json, needs, problems, success

_CALLER: Final = (
    *COMMON_PROBLEMS,
    requests.ACCOUNT_NOT_FOUND,
    requests.TEST_MODE_UNAVAILABLE,
)
_SERVICE: Final = (
    service.LOG_UNAVAILABLE,
    service.OVERLOADED,
    service.STORE_UNAVAILABLE,
    service.TENANCY_UNAVAILABLE,
    service.INTERNAL_ERROR,
)
_TERMS: Final = (
    requests.INVALID_KEY,
    requests.INVALID_DEADLINE,
    requests.KEY_REUSED,
    requests.TRANSACTION_REUSED,
    requests.SIMILAR_SUBMISSION,
)
_RULES: Final = (rules.CARD_REQUIRED, rules.CARD_INVALID, rules.WEBSITE_REQUIRED, rules.NO_ROOMS)
_REJECTIONS: Final = (
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
_AGAIN: Final = ("Duplicate-Of", "Idempotent-Replayed", "Link")


def submit_operation(
    operation_id: str, summary: str, about: str, schema: str, example: Any, receipt: tuple[str, str]
) -> Json:
    """One that submits a reservation. `receipt`: schema and example of what a submission that is safe is answered with."""
    accepted = "Safe: it will be carried to its end, whatever happens. Follow it at `Location`."
    made = "Made, within the time that the caller waits."
    return {
        "operationId": operation_id,
        "tags": ["Submitting"],
        "summary": summary,
        "description": about,
        **needs("submit"),
        "parameters": references(
            (*CALLER, "IdempotencyKey", "Prefer", "ForwardDeadline", "dryRun", "traceparent", "tracestate")
        ),
        "requestBody": _body(schema, example, required=True),
        "responses": {
            "200": success("To `dryRun=true`.", "DryRunEnvelope", ("dryRun", "dryRunRefused"), "Cache-Control"),
            "201": success(made, "ReservationEnvelope", ("reservationMade",), "Location", *_APPLIED, *_AGAIN),
            "202": success(
                accepted,
                receipt[0],
                (receipt[1],),
                *("Location", "Retry-After", *_APPLIED, *_AGAIN),
            ),
            **_submission_refusals(*_CALLER, *BODY_PROBLEMS, *_TERMS, *_RULES, *_REJECTIONS, *_SERVICE),
        },
    }


def bulk_operation() -> Json:
    """The one that submits many."""
    read = f"at most {MAX_BULK_BYTES:,} bytes, {MAX_ITEM_BYTES:,} an item."
    items = {
        "type": "array",
        "minItems": 1,
        "maxItems": MAX_ITEMS,
        "items": {"$ref": "#/components/schemas/BulkItem"},
    }
    shown = {"example": {"value": [*examples.BULK]}}
    refused = (requests.INVALID_BULK_SIZE, requests.INVALID_KEY, requests.INVALID_DEADLINE)
    return {
        "operationId": "submitReservations",
        "tags": ["Submitting"],
        "summary": f"Submit up to {MAX_ITEMS:,} reservations",
        "description": _BULK,
        **needs("submit"),
        "parameters": references((*CALLER, "ForwardDeadline", "dryRun", "traceparent", "tracestate")),
        "requestBody": {
            "required": True,
            "description": f"A JSON array in UTF-8, {read}",
            "content": {"application/json": {"schema": items, "examples": shown}},
        },
        "responses": {
            "200": success("What became of each item.", "BulkEnvelope", ("bulkAnswered", "bulkTried"), "Cache-Control"),
            **problems((*_CALLER, *BODY_PROBLEMS, *refused, *_SERVICE)),
        },
    }


_BULK: Final = """\
Each item is what a single submission is, of either operation, with `idempotencyKey` and `deadlineSeconds` in the place of headers;
a key sent here and singly is the same submission. The answer has one result an item, in their order: the receipt of what is
safe, or the problem of what is not; one item's problem concerns no other. `validation_failed` points into the item's `reservation`,
as the single operations do, `invalid_item` into the item. Nobody waits for outcomes here.

Everything is published as one batch. Any other answer than 200 means that nothing was accepted; after a 503 send it again: what has
keys is made once.

Items may come as lines of JSON too (NDJSON, `Content-Type: application/x-ndjson`): then a line that is not JSON is that item's
problem, whereas an array with such an item is refused as a whole."""


def cancel_operation() -> Json:
    """The one that cancels."""
    accepted = "Safe: it will be carried to its end, whatever happens. Follow it at `Location`."
    return {
        "operationId": "cancelReservation",
        "tags": ["Submitting"],
        "summary": "Cancel a reservation",
        "description": "May be asked for as soon as the submission was accepted, and any number of times. "
        "What was not sent to the PMS yet is not sent any more; what was is cancelled there.",
        **needs("cancel"),
        "parameters": references(("eitherId", *CALLER, "Prefer", "traceparent", "tracestate")),
        "requestBody": _body("CancellationBody", examples.CANCELLATION, required=False),
        "responses": {
            "200": success("Cancelled.", "ReservationEnvelope", ("reservationCancelled",), "Location", *_APPLIED),
            "202": success(
                accepted,
                "CancellationReceiptEnvelope",
                ("cancellationAccepted",),
                *("Location", "Retry-After", "Preference-Applied"),
            ),
            **_refusals(*_CALLER, *BODY_PROBLEMS, requests.SUBMISSION_NOT_FOUND, *_CANCELLATIONS, *_SERVICE),
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


def _submission_refusals(*types: ProblemType) -> Json:
    applied = (*_APPLIED, *_AGAIN)
    return problems(types, headers=dict.fromkeys((409, 422), applied) | {503: _APPLIED})


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
        ("ReceiptEnvelope", "submissionAccepted"),
    )
    general = submit_operation(
        "submitReservation",
        "Submit a reservation",
        "The smaller form. Waits for the outcome for a while, 10 seconds unless the deployment says otherwise: 201 with the "
        "record, or a problem; 202 where it has not come by then. `Prefer: respond-async` does not wait.",
        "GeneralRequest",
        examples.GENERAL,
        ("AcceptedEnvelope", "reservationAccepted"),
    )
    return {
        "/api/v1/vrs/reservations/booking-engine": {"post": engine},
        "/api/v1/vrs/reservations": {"post": general},
        "/api/v1/vrs/reservations/bulk": {"post": bulk_operation()},
        "/api/v1/vrs/reservations/{id}/cancel": {"post": cancel_operation()},
    }

"""The ingress's refusals of a submission, other than faults of the request, and their response."""

from collections.abc import Sequence
from typing import Final

from forwarder.http.messages import BodyFault, Response, problem_response
from forwarder.reservation.checks.fields import MAX_ITEM_BYTES, MAX_ITEMS
from forwarder.reservation.checks.plausibility import Plausibility
from forwarder.reservation.problems import catalogue
from forwarder.reservation.problems.problem import Fault, Problem, summary_of
from forwarder.reservation.request import MAX_BODY_BYTES
from forwarder.reservation.usual import AnyRequest

_NOTHING_ACCEPTED = "Nothing was accepted. Send the same request again in a moment"

LOG_UNAVAILABLE: Final = catalogue.LOG_UNAVAILABLE.problem(
    "It is not known whether the log stored this. Send the same request again in a moment; with an Idempotency-Key it is booked at "
    "most once.",
)
OVERLOADED: Final = catalogue.OVERLOADED.problem(f"{_NOTHING_ACCEPTED}.")
NO_ROOM_FOR_BODY: Final = catalogue.OVERLOADED.problem(
    f"Your workspace is sending as many bytes at once as it may. {_NOTHING_ACCEPTED}."
)
CARDS_UNAVAILABLE: Final = catalogue.CARDS_UNAVAILABLE.problem(f"{_NOTHING_ACCEPTED}, or without the card.")
STORE_UNAVAILABLE: Final = catalogue.STORE_UNAVAILABLE.problem(
    f"{_NOTHING_ACCEPTED}, under the same key.",
)
SUBMISSION_UNREADABLE: Final = catalogue.STORE_UNAVAILABLE.problem(
    f"{_NOTHING_ACCEPTED}; what is to be cancelled twice is cancelled once.",
)
NO_SUBMISSION: Final = catalogue.SUBMISSION_NOT_FOUND.problem("This integration account has no submission of that id.")
TENANCY_UNAVAILABLE: Final = catalogue.TENANCY_UNAVAILABLE.problem(f"{_NOTHING_ACCEPTED}.")
TEST_MODE_UNAVAILABLE: Final = catalogue.TEST_MODE_UNAVAILABLE.problem(
    "The API key is a test key, and this deployment has no simulator for it. Nothing was accepted.",
)
UNSUPPORTED_MEDIA_TYPE: Final = catalogue.UNSUPPORTED_MEDIA_TYPE.problem(
    "The body must be JSON in UTF-8, not compressed, sent with Content-Type: application/json.",
)
BODY_TOO_LARGE: Final = catalogue.BODY_TOO_LARGE.problem(f"The body must have at most {MAX_BODY_BYTES} bytes.")
BODY_TIMED_OUT: Final = catalogue.BODY_TIMED_OUT.problem(f"{_NOTHING_ACCEPTED}.")
BULK_MEDIA_TYPE: Final = catalogue.UNSUPPORTED_MEDIA_TYPE.problem(
    "The body must be a JSON array sent with Content-Type: application/json, or lines of JSON sent with Content-Type: "
    "application/x-ndjson; in UTF-8 and not compressed.",
)
NDJSON_AS_JSON: Final = catalogue.UNSUPPORTED_MEDIA_TYPE.problem(
    "The body is lines of JSON: send them with Content-Type: application/x-ndjson, or one array of them as application/json.",
)
NOT_AN_ARRAY: Final = catalogue.VALIDATION_FAILED.problem(
    "The body must be a JSON array of items. A single reservation goes to its own operation.",
    faults=(Fault("", "wrong_type", "must be an array"),),
)
INVALID_BULK_SIZE: Final = catalogue.INVALID_BULK_SIZE.problem(
    f"A bulk has 1 to {MAX_ITEMS} items. Nothing was accepted."
)
ITEM_TOO_LARGE: Final = catalogue.BODY_TOO_LARGE.problem(f"An item of a bulk must have at most {MAX_ITEM_BYTES} bytes.")
KEYS_OF_ITEMS: Final = catalogue.INVALID_KEY.problem(
    "A bulk takes no Idempotency-Key header: each of its items has its own, as idempotencyKey. Nothing was accepted.",
)
_UNREAD: Final = frozenset({BODY_TOO_LARGE.code, BODY_TIMED_OUT.code})


def too_large_for_log(size: int, limit: int | None) -> Problem:
    """The deployment's log does not accept a message of `size` bytes: the request and the forwarder's own fields."""
    takes = "less" if limit is None else f"at most {limit}"
    return catalogue.BODY_TOO_LARGE.problem(
        f"With the forwarder's own fields the request has {size} bytes; this deployment accepts {takes}. Nothing was accepted."
    )


def unread_body(fault: BodyFault, too_large: Problem = BODY_TOO_LARGE) -> Problem:
    """Why a body was not read."""
    match fault:
        case BodyFault.TOO_LARGE:
            return too_large
        case BodyFault.TIMED_OUT:
            return BODY_TIMED_OUT
        case BodyFault.NO_ROOM:
            return NO_ROOM_FOR_BODY


def malformed_json(where: str, what: str = "body") -> Problem:
    """`where`: the position at which `what` stops being JSON."""
    return catalogue.MALFORMED_JSON.problem(f"The {what} is not one JSON document: {where}.")


def validation_failed(faults: Sequence[Fault]) -> Problem:
    """Every fault in one problem."""
    return catalogue.VALIDATION_FAILED.problem(summary_of(faults), faults=faults)


def implausible(check: Plausibility, request: AnyRequest) -> Problem | None:
    """The refusal of a well-formed request with implausible values."""
    faults = check.faults(request)
    return validation_failed(faults) if faults else None


def invalid_item(faults: Sequence[Fault]) -> Problem:
    """Every fault of the item in one problem, those of its reservation included."""
    return catalogue.INVALID_ITEM.problem(summary_of(faults), faults=faults)


def bulk_too_large(max_bytes: int) -> Problem:
    """The refusal of a bulk whose body exceeds the limit."""
    return catalogue.BODY_TOO_LARGE.problem(
        f"The body of a bulk must have at most {max_bytes} bytes. Send fewer items at once."
    )


def key_reused(request_id: str) -> Problem:
    """The key was used before, in this account, for something else."""
    return catalogue.KEY_REUSED.problem(
        "This Idempotency-Key was used before with another body or for the other operation. Use a new key for a new reservation.",
        request_id,
    )


def refusal(problem: Problem, retry_after_seconds: int) -> Response:
    """The response to a submission that was not accepted."""
    # The rest of such a body is not read, so the connection cannot be used again.
    unread = problem.code in _UNREAD or problem is NO_ROOM_FOR_BODY
    headers = ((b"connection", b"close"),) if unread else ()
    return problem_response(problem, *headers, retry_after_seconds=retry_after_seconds)

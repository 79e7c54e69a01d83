"""Why the ingress refuses a submission, beside the faults of a request; and the answer that says so."""

from collections.abc import Sequence
from typing import Final

from forwarder.reservation.problem import Fault, Problem
from forwarder.reservation.request import MAX_BODY_BYTES
from forwarder.runtime.http import Answer, problem_answer

_NOTHING_ACCEPTED = "Nothing was accepted. Send the same request again in a moment"

LOG_UNAVAILABLE: Final = Problem(
    "log_unavailable",
    "The service cannot take reservations in right now",
    503,
    f"{_NOTHING_ACCEPTED}; with an Idempotency-Key it is made at most once.",
)
OVERLOADED: Final = Problem("overloaded", "Too many submissions at once", 503, f"{_NOTHING_ACCEPTED}.")
STORE_UNAVAILABLE: Final = Problem(
    "store_unavailable",
    "The service cannot look the Idempotency-Key up right now",
    503,
    f"{_NOTHING_ACCEPTED}, under the same key.",
)
TENANCY_UNAVAILABLE: Final = Problem(
    "tenancy_unavailable", "The service cannot check credentials right now", 503, f"{_NOTHING_ACCEPTED}."
)
UNSUPPORTED_MEDIA_TYPE: Final = Problem(
    "unsupported_media_type",
    "Unsupported media type",
    415,
    "The body must be JSON in UTF-8, not compressed, sent with Content-Type: application/json.",
)
BODY_TOO_LARGE: Final = Problem(
    "body_too_large", "The body is too large", 413, f"The body must have at most {MAX_BODY_BYTES} bytes."
)


def malformed_json(where: str) -> Problem:
    """`where` says at which place the body stops being JSON."""
    return Problem("malformed_json", "The body is not JSON", 400, f"The body is not one JSON document: {where}.")


def validation_failed(faults: Sequence[Fault]) -> Problem:
    """Every fault in one answer."""
    count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    detail = f"The request has {count}; errors names each by JSON Pointer."
    return Problem("validation_failed", "The request is not valid", 422, detail, faults=tuple(faults))


def key_reused(request_id: str) -> Problem:
    """The key was used before, in this account, for something else."""
    return Problem(
        "idempotency_key_reused",
        "The Idempotency-Key belongs to another request",
        422,
        "This Idempotency-Key came before with another body or for the other operation. Use a new key for a new reservation.",
        request_id,
    )


def refusal(problem: Problem, retry_after_seconds: int) -> Answer:
    """The answer to a submission that was not accepted."""
    # The rest of too large a body is not read, so the connection cannot be used again.
    headers = ((b"connection", b"close"),) if problem is BODY_TOO_LARGE else ()
    return problem_answer(problem, *headers, retry_after_seconds=retry_after_seconds)

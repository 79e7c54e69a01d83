"""Why the ingress refuses a submission, beside the faults of a request; and the answer that says so."""

from collections.abc import Sequence
from typing import Final

from forwarder.reservation.catalogue import requests, service
from forwarder.reservation.problem import Fault, Problem
from forwarder.reservation.request import MAX_BODY_BYTES
from forwarder.runtime.http import Answer, problem_answer

_NOTHING_ACCEPTED = "Nothing was accepted. Send the same request again in a moment"

LOG_UNAVAILABLE: Final = service.LOG_UNAVAILABLE.problem(
    f"{_NOTHING_ACCEPTED}; with an Idempotency-Key it is made at most once.",
)
OVERLOADED: Final = service.OVERLOADED.problem(f"{_NOTHING_ACCEPTED}.")
STORE_UNAVAILABLE: Final = service.STORE_UNAVAILABLE.problem(
    f"{_NOTHING_ACCEPTED}, under the same key.",
)
SUBMISSION_UNREADABLE: Final = service.STORE_UNAVAILABLE.problem(
    f"{_NOTHING_ACCEPTED}; what is to be cancelled twice is cancelled once.",
)
NO_SUBMISSION: Final = requests.SUBMISSION_NOT_FOUND.problem("This integration account has no submission of that id.")
TENANCY_UNAVAILABLE: Final = service.TENANCY_UNAVAILABLE.problem(f"{_NOTHING_ACCEPTED}.")
UNSUPPORTED_MEDIA_TYPE: Final = requests.UNSUPPORTED_MEDIA_TYPE.problem(
    "The body must be JSON in UTF-8, not compressed, sent with Content-Type: application/json.",
)
BODY_TOO_LARGE: Final = requests.BODY_TOO_LARGE.problem(f"The body must have at most {MAX_BODY_BYTES} bytes.")
BODY_TIMED_OUT: Final = requests.BODY_TIMED_OUT.problem(f"{_NOTHING_ACCEPTED}.")


def malformed_json(where: str) -> Problem:
    """`where` says at which place the body stops being JSON."""
    return requests.MALFORMED_JSON.problem(f"The body is not one JSON document: {where}.")


def validation_failed(faults: Sequence[Fault]) -> Problem:
    """Every fault in one answer."""
    count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    detail = f"The request has {count}; errors names each by JSON Pointer."
    return requests.VALIDATION_FAILED.problem(detail, faults=tuple(faults))


def key_reused(request_id: str) -> Problem:
    """The key was used before, in this account, for something else."""
    return requests.KEY_REUSED.problem(
        "This Idempotency-Key came before with another body or for the other operation. Use a new key for a new reservation.",
        request_id,
    )


def refusal(problem: Problem, retry_after_seconds: int) -> Answer:
    """The answer to a submission that was not accepted."""
    # The rest of such a body is not read, so the connection cannot be used again.
    headers = ((b"connection", b"close"),) if problem in (BODY_TOO_LARGE, BODY_TIMED_OUT) else ()
    return problem_answer(problem, *headers, retry_after_seconds=retry_after_seconds)

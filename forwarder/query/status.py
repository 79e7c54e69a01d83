"""The status of a submission, as `GET /api/v1/vrs/submissions/{requestId}` shows it. Pure.

`success` describes the submission, not the request: a client that polls and tests only that must not take a failure for a
reservation.
"""

from typing import Any

from pydantic_core import to_json

from forwarder.http.messages import envelope
from forwarder.reservation.duplicates import CONFLICTING_BODY
from forwarder.reservation.outcome import Status
from forwarder.store.lists.port import StoredSubmission
from forwarder.store.submissions.port import Attempt


def write_status(stored: StoredSubmission) -> bytes:
    """The status of an ingested submission: every attempt, the record, the problem if there is one, and its cancellation."""
    head = to_json(
        {
            "requestId": stored.request_id,
            "status": stored.status.value,
            "acceptedAt": stored.accepted_at,
            "updatedAt": stored.updated_at,
            "reservationId": stored.id,
            "attempts": [_attempt(attempt) for attempt in stored.attempts],
            "problem": stored.problem,
            "cancellation": stored.cancellation and stored.cancellation.as_json(),
            **_only_if_any(stored),
        }
    )
    return envelope(stored.status.success, head[:-1] + b',"record":' + stored.record.encode() + b"}")


def _only_if_any(stored: StoredSubmission) -> dict[str, Any]:
    """Members that most submissions lack: evidence of pushes in doubt, similar submissions, and a conflicting body."""
    shown: dict[str, Any] = {}
    if known := stored.evidence.words:
        shown["evidence"] = known
    if stored.similar_to:
        shown["similarTo"] = list(stored.similar_to)
    if stored.conflicting_at is not None:
        detail = "Another body came under its Idempotency-Key, and was not made. Send it with a key of its own."
        shown["conflictingBody"] = {
            "code": CONFLICTING_BODY,
            "acceptedAt": stored.conflicting_at,
            "detail": detail,
        }
    return shown


def untaken_status(request_id: str) -> bytes:
    """The status of a submission that is on the log and not in the store yet."""
    data: dict[str, Any] = {
        "requestId": request_id,
        "status": Status.PENDING.value,
        "acceptedAt": None,
        "updatedAt": None,
        "reservationId": None,
        "attempts": [],
        "problem": None,
        "cancellation": None,
        "record": None,
    }
    return envelope(Status.PENDING.success, to_json(data))


def _attempt(attempt: Attempt) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "number": attempt.number,
        "action": attempt.action,
        "startedAt": attempt.started_at,
        "durationMs": attempt.duration_ms,
        "outcome": attempt.outcome,
    }
    said = {"reason": attempt.reason, "detail": attempt.detail}
    return shown | {name: text for name, text in said.items() if text is not None}

"""The ingress's responses: receipts, outcomes within the wait, warnings; and its refusals, other than faults of the request."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, assert_never

from pydantic_core import from_json, to_json

from forwarder.http import messages
from forwarder.http.messages import NO_STORE, PROBLEM_JSON, BodyFault, Response
from forwarder.http.parameters import Wait
from forwarder.ingress.caller_warnings import CallerWarning
from forwarder.reservation.checks.fields import MAX_ITEM_BYTES, MAX_ITEMS
from forwarder.reservation.checks.plausibility import Plausibility
from forwarder.reservation.json_text import json_text
from forwarder.reservation.outcome import Status
from forwarder.reservation.problems import catalogue
from forwarder.reservation.problems.problem import Fault, Problem, summary_of
from forwarder.reservation.record import pending_record
from forwarder.reservation.request import MAX_BODY_BYTES
from forwarder.reservation.usual import AnyRequest
from forwarder.store.lists.port import StoredSubmission
from forwarder.topics.outcomes import OutcomeEvent

_NOTHING_ACCEPTED = "Nothing was accepted. Send the same request again in a moment"
LOG_UNAVAILABLE: Final = catalogue.LOG_UNAVAILABLE.problem(
    "It is not known whether the log stored this. Send the same request again in a moment; with an Idempotency-Key it is booked at "
    "most once."
)
OVERLOADED: Final = catalogue.OVERLOADED.problem(f"{_NOTHING_ACCEPTED}.")
NO_ROOM_FOR_BODY: Final = catalogue.OVERLOADED.problem(
    f"Your workspace is sending as many bytes at once as it may. {_NOTHING_ACCEPTED}."
)
CARDS_UNAVAILABLE: Final = catalogue.CARDS_UNAVAILABLE.problem(f"{_NOTHING_ACCEPTED}, or without the card.")
STORE_UNAVAILABLE: Final = catalogue.STORE_UNAVAILABLE.problem(f"{_NOTHING_ACCEPTED}, under the same key.")
SUBMISSION_UNREADABLE: Final = catalogue.STORE_UNAVAILABLE.problem(
    f"{_NOTHING_ACCEPTED}; what is to be cancelled twice is cancelled once."
)
NO_SUBMISSION: Final = catalogue.SUBMISSION_NOT_FOUND.problem("This integration account has no submission of that id.")
TENANCY_UNAVAILABLE: Final = catalogue.TENANCY_UNAVAILABLE.problem(f"{_NOTHING_ACCEPTED}.")
TEST_MODE_UNAVAILABLE: Final = catalogue.TEST_MODE_UNAVAILABLE.problem(
    "The API key is a test key, and this deployment has no simulator for it. Nothing was accepted."
)
UNSUPPORTED_MEDIA_TYPE: Final = catalogue.UNSUPPORTED_MEDIA_TYPE.problem(
    "The body must be JSON in UTF-8, not compressed, sent with Content-Type: application/json."
)
BODY_TOO_LARGE: Final = catalogue.BODY_TOO_LARGE.problem(f"The body must have at most {MAX_BODY_BYTES} bytes.")
BODY_TIMED_OUT: Final = catalogue.BODY_TIMED_OUT.problem(f"{_NOTHING_ACCEPTED}.")
BULK_MEDIA_TYPE: Final = catalogue.UNSUPPORTED_MEDIA_TYPE.problem(
    "The body must be a JSON array sent with Content-Type: application/json, or lines of JSON sent with Content-Type: "
    "application/x-ndjson; in UTF-8 and not compressed."
)
NDJSON_AS_JSON: Final = catalogue.UNSUPPORTED_MEDIA_TYPE.problem(
    "The body is lines of JSON: send them with Content-Type: application/x-ndjson, or one array of them as application/json."
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
    "A bulk takes no Idempotency-Key header: each of its items has its own, as idempotencyKey. Nothing was accepted."
)
_UNREAD: Final = frozenset({BODY_TOO_LARGE.code, BODY_TIMED_OUT.code})
UNREAD_BODY: Final = {
    BodyFault.TOO_LARGE: BODY_TOO_LARGE,
    BodyFault.TIMED_OUT: BODY_TIMED_OUT,
    BodyFault.NO_ROOM: NO_ROOM_FOR_BODY,
}


def too_large_for_log(size: int, limit: int | None) -> Problem:
    """The deployment's log does not accept a message of `size` bytes: the request and the forwarder's own fields."""
    takes = "less" if limit is None else f"at most {limit}"
    return catalogue.BODY_TOO_LARGE.problem(
        f"With the forwarder's own fields the request has {size} bytes; this deployment accepts {takes}. Nothing was accepted."
    )


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
    return messages.problem_response(problem, *headers, retry_after_seconds=retry_after_seconds)


_SUBMISSIONS: Final = "/api/v1/vrs/submissions/"
_REJECTED: Final = catalogue.REJECTED.problem("The PMS gave no reason. Ask the property.")


class Receipt(NamedTuple):
    """A safe submission, with its outcome if it has one. `duplicate`: the receipt of an earlier one that was sent again without its
    key; `changed`: with another body; `replayed`: the receipt of the earlier one with the same key. `similar_to`: the request ids
    of others for the same stay and guest that this process knows. `record`: of the store, while it has no outcome."""

    request_id: str
    accepted_at: str
    settled: OutcomeEvent | None = None
    duplicate: bool = False
    replayed: bool = False
    changed: bool = False
    similar_to: Sequence[str] = ()
    record: bytes | None = None

    @property
    def status(self) -> Status:
        return Status.PENDING if self.settled is None else self.settled.status


def receipt_of(stored: StoredSubmission) -> Receipt:
    """The receipt of a stored submission."""
    if stored.status is Status.PENDING:
        return Receipt(stored.request_id, stored.accepted_at, record=stored.record.encode())
    settled = OutcomeEvent(stored.status, stored.id, stored.record.encode(), stored.problem)
    return Receipt(stored.request_id, stored.accepted_at, settled)


def receipt_response(
    receipt: Receipt, wait: Wait, origin: str, retry_after_seconds: int, reservation: bytes | None = None
) -> Response:
    """The response: the outcome if the caller waits and there is one; otherwise 202 with the address to poll, and the record of
    `reservation` if given."""
    applied = ((b"preference-applied", wait.applied.encode()),) if wait.applied else ()
    if receipt.duplicate:
        applied = (*applied, (b"duplicate-of", receipt.request_id.encode()))
    if receipt.replayed:
        applied = (*applied, (b"idempotent-replayed", b"true"))
    settled = receipt.settled
    if wait.seconds and settled is not None:
        match settled.status:
            case Status.CONFIRMED | Status.CANCELLED:
                location = (b"location", b"/api/v1/vrs/reservations/%d" % settled.reservation_id)
                return Response(
                    201, messages.envelope(settled.status.success, settled.record), (location, NO_STORE, *applied)
                )
            case Status.REJECTED:
                problem = settled.problem or _REJECTED.as_json()
                return Response(problem["status"], messages.problem_body(problem), (NO_STORE, *applied), PROBLEM_JSON)
            case Status.PENDING | Status.FAILED | Status.IN_DOUBT:
                pass
            case _:
                assert_never(settled.status)
    shown = receipt_json(receipt, origin)
    if reservation is not None:
        known = receipt.record if settled is None else settled.record
        if known is None:
            record = pending_record(from_json(reservation), receipt.request_id, receipt.accepted_at)
        else:
            record = from_json(known)
        shown = record | shown
    location = (b"location", f"{_SUBMISSIONS}{receipt.request_id}".encode())
    headers = (location, NO_STORE, messages.retry_after(retry_after_seconds), *applied)
    return Response(202, messages.envelope(receipt.status.success, json_text(shown)), headers)


def with_warnings(response: Response, warnings: Sequence[CallerWarning]) -> Response:
    """The response with `warnings` in its body. Refusals are returned unchanged."""
    if response.status >= 300:  # noqa: PLR2004 - HTTP's successes
        return response
    shown = to_json([warning.as_json() for warning in warnings])
    return replace(response, body=b'%b,"warnings":%b}' % (response.body[:-1], shown))


def receipt_json(receipt: Receipt, origin: str) -> dict[str, Any]:
    """The receipt as a caller reads it who does not wait."""
    # In the header a path, which stays true behind any proxy; here the address to paste.
    shown: dict[str, Any] = {
        "requestId": receipt.request_id,
        "status": receipt.status,
        "acceptedAt": receipt.accepted_at,
        "statusUrl": f"{origin}{_SUBMISSIONS}{receipt.request_id}",
    }
    duplicate = {"duplicate": True} if receipt.duplicate else {}
    return {**shown, **duplicate, **({"similarTo": list(receipt.similar_to)} if receipt.similar_to else {})}


def receipt_warnings(receipt: Receipt) -> Sequence[CallerWarning]:
    """Warns of a submission that repeats an earlier one, or adds a reservation to another for the same stay and guest."""
    if receipt.duplicate:
        differs = " Its body differs in other fields, which were not taken over." if receipt.changed else ""
        detail = (
            f"This is the submission {receipt.request_id}, sent again, and books nothing more.{differs} For another room, send "
            "an Idempotency-Key of its own."
        )
        return (CallerWarning("sent_again", "", detail),)
    if receipt.similar_to:
        others = ", ".join(receipt.similar_to)
        detail = (
            f"The same guest has the same stay there already: {others}. This is a reservation of its own; cancel the one that is "
            "not meant."
        )
        return (CallerWarning("similar_submission", "", detail),)
    return ()

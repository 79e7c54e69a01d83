"""The example's answers, as the stages write them."""

from typing import Any, Final

from pydantic_core import from_json, to_json

from forwarder.http.paging import DEFAULT_LIMIT, FIRST
from forwarder.http.prefer import Wait
from forwarder.ingress.cancel import Requested
from forwarder.ingress.cancel_response import cancellation_answer
from forwarder.ingress.receipt import Receipt, answer
from forwarder.published import examples
from forwarder.published.shown_bulk import bulk_examples
from forwarder.query.paging import write_page
from forwarder.query.status import untaken_status, write_status
from forwarder.reservation.cancellation import CancellationStatus
from forwarder.reservation.outcome import Status
from forwarder.store.lists.port import Page, Stored
from forwarder.store.submissions.work import Attempt
from forwarder.topics.outcomes import OutcomeEvent

_ORIGIN: Final = "https://forwarder.example"
_SUCCEEDED: Final = Attempt(1, "create", "2027-01-15T09:30:00.020Z", 380, "confirmed")
_ATTEMPTS: Final = {
    Status.CONFIRMED: _SUCCEEDED,
    Status.CANCELLED: _SUCCEEDED,
    Status.REJECTED: Attempt(1, "create", "2027-01-15T09:30:00.020Z", 380, "rejected", "room_unavailable"),
    Status.IN_DOUBT: Attempt(
        1,
        "create",
        "2027-01-15T09:30:00.020Z",
        30_000,
        "in_doubt",
        "pms_timed_out",
        "The PMS was sent the request and did not answer in time.",
    ),
}


def answer_examples() -> dict[str, Any]:
    """By name."""
    bodies = {
        "submissionAccepted": answer(Receipt(examples.request_id(), examples.ACCEPTED_AT), Wait(0), _ORIGIN, 1).body,
        "reservationMade": answer(_receipt(Status.CONFIRMED), Wait(10), _ORIGIN, 1).body,
        "cancellationAccepted": cancellation_answer(_requested(None), _ORIGIN, 1).body,
        "reservationCancelled": cancellation_answer(_requested(_settled(Status.CANCELLED)), _ORIGIN, 1).body,
        "submissionUntaken": untaken_status(examples.request_id()),
        "submissionConfirmed": write_status(_stored(Status.CONFIRMED)),
        "submissionRejected": write_status(_stored(Status.REJECTED)),
        "submissionInDoubt": write_status(_stored(Status.IN_DOUBT)),
        "submissionCancelled": write_status(_stored(Status.CANCELLED)),
        "page": write_page(Page((_record(Status.CONFIRMED),), FIRST, None, None), DEFAULT_LIMIT),
    }
    return {name: from_json(body) for name, body in bodies.items()} | bulk_examples(_ORIGIN)


def _receipt(status: Status) -> Receipt:
    return Receipt(examples.request_id(), examples.ACCEPTED_AT, _settled(status))


def _requested(settled: OutcomeEvent | None) -> Requested:
    return Requested(examples.request_id(), Status.CONFIRMED, Wait(10), settled)


def _record(status: Status) -> str:
    return to_json(examples.record(status)).decode()


def _settled(status: Status) -> OutcomeEvent:
    return OutcomeEvent(status, 1, _record(status).encode(), examples.problem(status))


def _stored(status: Status) -> Stored:
    record = examples.record(status)
    asked = examples.cancellation(CancellationStatus.DONE) if status is Status.CANCELLED else None
    return Stored(
        id=record["id"],
        request_id=examples.request_id(),
        status=status,
        accepted_at=examples.ACCEPTED_AT,
        updated_at=record["updatedAt"],
        fingerprint=examples.submission().fingerprint,
        record=_record(status),
        attempts=(_ATTEMPTS[status],),
        problem=examples.problem(status),
        property_id="1001",
        revision=1,
        cancellation=asked,
    )

"""What a caller is told of its submission: accepted, or already settled. Pure but for the form of an answer."""

from typing import Final, NamedTuple, assert_never

from pydantic_core import to_json

from forwarder.http.prefer import Wait
from forwarder.http.responses import NO_STORE, PROBLEM_JSON, Response, retry_after
from forwarder.reservation.outcome import Status
from forwarder.reservation.problems import endings
from forwarder.store.lists.port import Stored
from forwarder.topics.outcomes import OutcomeEvent

_SUBMISSIONS: Final = "/api/v1/vrs/submissions/"
_REJECTED = endings.REJECTED.problem("The property management system gave no reason.")


class Receipt(NamedTuple):
    """A submission that is safe, and how it ended, if it has."""

    request_id: str
    accepted_at: str
    settled: OutcomeEvent | None = None

    @property
    def status(self) -> Status:
        return Status.PENDING if self.settled is None else self.settled.status


def receipt_of(stored: Stored) -> Receipt:
    """The receipt of a submission that was taken in before."""
    if stored.status is Status.PENDING:
        return Receipt(stored.request_id, stored.accepted_at)
    settled = OutcomeEvent(stored.status, stored.id, stored.record.encode(), stored.problem)
    return Receipt(stored.request_id, stored.accepted_at, settled)


def answer(receipt: Receipt, wait: Wait, origin: str, retry_after_seconds: int) -> Response:
    """The answer on the caller's terms: to one who waits, the outcome where there is one; else where to follow it."""
    applied = ((b"preference-applied", wait.applied.encode()),) if wait.applied else ()
    if not wait.seconds or receipt.settled is None:
        return _accepted(receipt, origin, retry_after(retry_after_seconds), *applied)
    match receipt.settled.status:
        case Status.CONFIRMED | Status.CANCELLED:
            return _created(receipt.settled, *applied)
        case Status.REJECTED:
            return _rejected(receipt.settled, *applied)
        case Status.PENDING | Status.FAILED | Status.IN_DOUBT:
            return _accepted(receipt, origin, retry_after(retry_after_seconds), *applied)
        case _:
            assert_never(receipt.settled.status)


def receipt_json(receipt: Receipt, origin: str) -> dict[str, str]:
    """What a caller who does not wait is told."""
    # In the header a path, which stays true behind any proxy; here the address to paste.
    return {
        "requestId": receipt.request_id,
        "status": receipt.status,
        "acceptedAt": receipt.accepted_at,
        "statusUrl": f"{origin}{_SUBMISSIONS}{receipt.request_id}",
    }


def _accepted(receipt: Receipt, origin: str, *headers: tuple[bytes, bytes]) -> Response:
    body = to_json({"data": receipt_json(receipt, origin)})
    return Response(202, body, ((b"location", f"{_SUBMISSIONS}{receipt.request_id}".encode()), *headers))


def _created(settled: OutcomeEvent, *headers: tuple[bytes, bytes]) -> Response:
    location = (b"location", b"/api/v1/vrs/reservations/%d" % settled.reservation_id)
    return Response(201, b'{"success":true,"data":' + settled.record + b"}", (location, NO_STORE, *headers))


def _rejected(settled: OutcomeEvent, *headers: tuple[bytes, bytes]) -> Response:
    problem = settled.problem or _REJECTED.as_json()
    return Response(problem["status"], to_json(problem), (NO_STORE, *headers), PROBLEM_JSON)

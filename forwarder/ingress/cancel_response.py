"""What a caller is told of its cancellation: accepted, done, or why not. Pure but for the form of an answer."""

from http import HTTPStatus

from pydantic_core import to_json

from forwarder.http.responses import NO_STORE, PROBLEM_JSON, Response, problem_response, retry_after
from forwarder.ingress.cancel import Requested
from forwarder.reservation.cancellation import CancellationStatus, not_made
from forwarder.reservation.outcome import Status
from forwarder.topics.outcomes import OutcomeEvent


def cancellation_answer(requested: Requested, origin: str, retry_after_seconds: int) -> Response:
    """What came of it, where that is known; else where to follow it."""
    wait, settled = requested.wait, requested.settled
    headers = ((b"preference-applied", wait.applied.encode()),) if wait.applied else ()
    if settled is None:
        return _accepted(requested, origin, retry_after(retry_after_seconds), *headers)
    match settled.status:
        case Status.CANCELLED:
            return _done(settled, *headers)
        case Status.REJECTED | Status.FAILED:
            return problem_response(not_made(requested.request_id, settled.status), NO_STORE, *headers)
        case _:
            return _came_to_nothing(settled, retry_after_seconds, *headers)


def _accepted(requested: Requested, origin: str, *headers: tuple[bytes, bytes]) -> Response:
    path = f"/api/v1/vrs/submissions/{requested.request_id}"
    data = {
        "requestId": requested.request_id,
        "status": requested.status.value,
        "cancellation": CancellationStatus.REQUESTED.value,
        "statusUrl": origin + path,
    }
    return Response(HTTPStatus.ACCEPTED, to_json({"data": data}), ((b"location", path.encode()), *headers))


def _done(settled: OutcomeEvent, *headers: tuple[bytes, bytes]) -> Response:
    location = (b"location", b"/api/v1/vrs/reservations/%d" % settled.reservation_id)
    body = b'{"success":true,"data":' + settled.record + b"}"
    return Response(HTTPStatus.OK, body, (location, NO_STORE, *headers))


def _came_to_nothing(settled: OutcomeEvent, retry_after_seconds: int, *headers: tuple[bytes, bytes]) -> Response:
    problem = (settled.cancellation or {})["problem"]
    again = (retry_after(retry_after_seconds),) if problem["status"] == HTTPStatus.SERVICE_UNAVAILABLE else ()
    return Response(problem["status"], to_json(problem), (NO_STORE, *again, *headers), PROBLEM_JSON)

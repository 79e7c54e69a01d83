"""The responses to submissions: receipts, outcomes within the wait, warnings, dry runs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, assert_never

from pydantic_core import from_json, to_json

from forwarder.http.fields import Wait
from forwarder.http.messages import (
    NO_STORE,
    PROBLEM_JSON,
    Response,
    envelope,
    problem_body,
    retry_after,
)
from forwarder.ingress.dry_run import DryRun
from forwarder.ingress.losses import CallerWarning
from forwarder.ingress.publish.idempotency import Receipt
from forwarder.reservation.json_text import json_text
from forwarder.reservation.outcome import Status
from forwarder.reservation.problems import catalogue
from forwarder.reservation.record import pending_record

_SUBMISSIONS: Final = "/api/v1/vrs/submissions/"

SENT_AGAIN: Final = "sent_again"
SIMILAR: Final = "similar_submission"

_REPLAYED: Final = (b"idempotent-replayed", b"true")
_REJECTED: Final = catalogue.REJECTED.problem("The PMS gave no reason. Ask the property.")


def dry_run_response(tried: DryRun) -> Response:
    """The response to who tried a submission out."""
    return Response(200, envelope(tried.success, to_json(tried.as_json())), (NO_STORE,))


def receipt_response(
    receipt: Receipt, wait: Wait, origin: str, retry_after_seconds: int, reservation: bytes | None = None
) -> Response:
    """The response: the outcome if the caller waits and there is one; otherwise 202 with the address to poll, and the record of
    `reservation` if given."""
    applied = ((b"preference-applied", wait.applied.encode()),) if wait.applied else ()
    if receipt.duplicate:
        applied = (*applied, (b"duplicate-of", receipt.request_id.encode()))
    if receipt.replayed:
        applied = (*applied, _REPLAYED)
    settled = receipt.settled
    if wait.seconds and settled is not None:
        match settled.status:
            case Status.CONFIRMED | Status.CANCELLED:
                location = (b"location", b"/api/v1/vrs/reservations/%d" % settled.reservation_id)
                return Response(201, envelope(settled.status.success, settled.record), (location, NO_STORE, *applied))
            case Status.REJECTED:
                problem = settled.problem or _REJECTED.as_json()
                return Response(problem["status"], problem_body(problem), (NO_STORE, *applied), PROBLEM_JSON)
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
    headers = (location, NO_STORE, retry_after(retry_after_seconds), *applied)
    return Response(202, envelope(receipt.status.success, json_text(shown)), headers)


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
    """Warns the caller that the submission repeats an earlier one, or that it adds a reservation to another for the same stay and
    guest."""
    if receipt.duplicate:
        differs = " Its body differs in other fields, which were not taken over." if receipt.changed else ""
        detail = (
            f"This is the submission {receipt.request_id}, sent again, and books nothing more.{differs} For another room, send "
            "an Idempotency-Key of its own."
        )
        return (CallerWarning(SENT_AGAIN, "", detail),)
    if receipt.similar_to:
        others = ", ".join(receipt.similar_to)
        detail = (
            f"The same guest has the same stay there already: {others}. This is a reservation of its own; cancel the one that is "
            "not meant."
        )
        return (CallerWarning(SIMILAR, "", detail),)
    return ()

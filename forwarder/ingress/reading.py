"""From a call's body to a valid request, or to what is said with a cancellation, or to the problem that refuses it."""

import asyncio

from forwarder.http.bodies import JSON, declares, sent_as
from forwarder.ingress.problems import (
    BODY_TIMED_OUT,
    BODY_TOO_LARGE,
    UNSUPPORTED_MEDIA_TYPE,
    malformed_json,
    validation_failed,
)
from forwarder.ingress.request import Call
from forwarder.reservation.cancellation import CancellationBody
from forwarder.reservation.problem import Problem
from forwarder.reservation.request import MAX_BODY_BYTES, Operation, ReservationRequest
from forwarder.reservation.validation import MalformedJson, read_cancellation, read_request


def read_at_hand(operation: Operation, call: Call) -> ReservationRequest | Problem | None:
    """As `read_valid`, of a body that came together with the head, as most do; None where it is to be waited for."""
    if not declares(JSON, call.fields.get(b"content-type", b""), call.fields.get(b"content-encoding", b"identity")):
        return UNSUPPORTED_MEDIA_TYPE
    body = call.body_at_hand()
    if body is None:
        return None
    return _read(operation, body) if len(body) <= MAX_BODY_BYTES else BODY_TOO_LARGE


async def read_valid(operation: Operation, call: Call, *, within: float) -> ReservationRequest | Problem:
    """The request in the body of `call`, with nothing wrong in it. Raises `ClientDisconnect`."""
    if not sent_as(JSON, call.headers):
        return UNSUPPORTED_MEDIA_TYPE
    body = await read_body(call, within)
    return body if isinstance(body, Problem) else _read(operation, body)


def _read(operation: Operation, body: bytes) -> ReservationRequest | Problem:
    try:
        request = read_request(operation, body)
    except MalformedJson as error:
        return malformed_json(str(error))
    return validation_failed(request) if isinstance(request, list) else request


async def read_valid_cancellation(call: Call, *, within: float) -> CancellationBody | Problem:
    """What the body of `call` says; there need not be one. Raises `ClientDisconnect`."""
    body = await read_body(call, within)
    if isinstance(body, Problem):
        return body
    if not body:
        return CancellationBody()
    if not sent_as(JSON, call.headers):
        return UNSUPPORTED_MEDIA_TYPE
    try:
        said = read_cancellation(body)
    except MalformedJson as error:
        return malformed_json(str(error))
    return validation_failed(said) if isinstance(said, list) else said


async def read_body(
    call: Call, within: float, *, at_most: int = MAX_BODY_BYTES, too_large: Problem = BODY_TOO_LARGE
) -> bytes | Problem:
    """The whole body, of `at_most` bytes, that came `within` so many seconds. Raises `ClientDisconnect`."""
    body = call.body_at_hand()
    if body is not None:  # most are: they need no time limit
        return body if len(body) <= at_most else too_large
    try:
        async with asyncio.timeout(within):
            body = await call.body(at_most)
    except TimeoutError:
        return BODY_TIMED_OUT
    return too_large if body is None else body

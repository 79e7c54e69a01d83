"""From a call's body to a valid request, or to what is said with a cancellation, or to the problem that refuses it."""

import asyncio
import re

from forwarder.ingress.call import Call
from forwarder.ingress.problems import (
    BODY_TIMED_OUT,
    BODY_TOO_LARGE,
    UNSUPPORTED_MEDIA_TYPE,
    malformed_json,
    validation_failed,
)
from forwarder.reservation.cancellation import CancellationBody
from forwarder.reservation.problem import Problem
from forwarder.reservation.request import MAX_BODY_BYTES, Operation, ReservationRequest
from forwarder.reservation.validation import MalformedJson, read_cancellation, read_request

_JSON = re.compile(r'application/json\s*(;\s*charset\s*=\s*("utf-8"|utf-8)\s*)?;?', re.IGNORECASE)


async def read_valid(operation: Operation, call: Call, *, within: float) -> ReservationRequest | Problem:
    """The request in the body of `call`, with nothing wrong in it. Raises `ClientDisconnect`."""
    if not _is_json(call):
        return UNSUPPORTED_MEDIA_TYPE
    body = await _body(call, within)
    if isinstance(body, Problem):
        return body
    try:
        request = read_request(operation, body)
    except MalformedJson as error:
        return malformed_json(str(error))
    return validation_failed(request) if isinstance(request, list) else request


async def read_valid_cancellation(call: Call, *, within: float) -> CancellationBody | Problem:
    """What the body of `call` says; there need not be one. Raises `ClientDisconnect`."""
    body = await _body(call, within)
    if isinstance(body, Problem):
        return body
    if not body:
        return CancellationBody()
    if not _is_json(call):
        return UNSUPPORTED_MEDIA_TYPE
    try:
        said = read_cancellation(body)
    except MalformedJson as error:
        return malformed_json(str(error))
    return validation_failed(said) if isinstance(said, list) else said


async def _body(call: Call, within: float) -> bytes | Problem:
    try:
        async with asyncio.timeout(within):
            body = await call.body(MAX_BODY_BYTES)
    except TimeoutError:
        return BODY_TIMED_OUT
    return BODY_TOO_LARGE if body is None else body


def _is_json(call: Call) -> bool:
    content_type = call.headers.get("content-type", "")
    encoding = call.headers.get("content-encoding", "identity")
    plain = content_type == "application/json" or _JSON.fullmatch(content_type.strip()) is not None
    return plain and encoding.lower() == "identity"

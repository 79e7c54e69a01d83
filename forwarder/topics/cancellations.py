"""Cancellation requests as messages of the log: JSON values, CloudEvents as in `codec`. Uses `codec`, nothing else of topics."""

from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.json import Decoder
from pydantic_core import to_json

from forwarder.process.clock import iso
from forwarder.reservation.cancellation import MAX_REASON, CancellationRequest
from forwarder.topics.codec import (
    CANCELLATION_REQUESTED,
    Id,
    Instant,
    Undecodable,
    event_headers,
    instant,
    refuse_unstorable,
    trace_of,
)
from forwarder.topics.port import Message


def encode_cancellation(request: CancellationRequest) -> Message:
    """The message for `request`. Two requests to cancel the same revision get the same event id."""
    requested_at = iso(request.requested_at)
    value = {
        "requestId": request.request_id,
        "integrationAccountId": request.account_id,
        "requestedAt": requested_at,
        "reason": request.reason,
        "revision": request.revision,
    }
    event_id = f"{request.request_id}.cancellation.{request.revision}"
    headers = event_headers(event_id, CANCELLATION_REQUESTED.encode(), requested_at, request.request_id, request.trace)
    return Message(request.key.encode(), to_json(value), headers, request.partition)


def decode_cancellation(message: Message) -> CancellationRequest:
    """The cancellation request in `message`. Raises `Undecodable`."""
    refuse_unstorable(message, "not a cancellation")
    try:
        body = _ENVELOPE.decode(message.value)
        requested_at, key = instant(body.requestedAt), message.key.decode()
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"not a cancellation: {type(error).__name__}") from error
    return CancellationRequest(
        request_id=body.requestId,
        account_id=body.integrationAccountId,
        key=key,
        requested_at=requested_at,
        reason=body.reason,
        revision=body.revision,
        trace=trace_of(message.headers),
    )


class _CancellationEnvelope(Struct, frozen=True):
    """The value of the message. Later versions may add members."""

    requestId: Id  # noqa: N815 - the message's own names
    integrationAccountId: Id  # noqa: N815
    requestedAt: Instant  # noqa: N815
    reason: Annotated[str, Meta(max_length=MAX_REASON)] | None
    revision: Annotated[int, Meta(ge=0, lt=10**9)]


_ENVELOPE: Final = Decoder(_CancellationEnvelope)

"""An example of every message of the topics, written by the codec. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from pydantic_core import from_json, to_json

from forwarder.reservation.outcome import CancellationRequest, CancellationStatus, Status
from forwarder.reservation.record import EVENT_TYPES, ResultEvent, result_data
from forwarder.topics.codec import (
    MessageSigner,
    encode_cancellation,
    encode_conflict,
    encode_duplicate,
    encode_result,
    encode_submission,
)
from forwarder.topics.port import Message
from tools.contracts import examples

_SIGNER: Final = MessageSigner(b"a key of examples alone")


class MessageExample(NamedTuple):
    """A message, and its type."""

    kind: str
    example: Message

    def shown(self) -> dict[str, Any]:
        """The message as JSON."""
        headers = {name: value.decode() for name, value in self.example.headers}
        return {"key": self.example.key.decode(), "headers": headers, "value": from_json(self.example.value)}


def all_messages() -> Sequence[MessageExample]:
    """One of every type."""
    return (*request_messages(), *result_messages(), *other_messages())


def request_messages() -> Sequence[MessageExample]:
    """Those of the requests topic."""
    submission = examples.submission()
    asked = CancellationRequest(
        request_id=examples.request_id(),
        account_id=examples.ACCOUNT_ID,
        key=submission.key,
        requested_at=datetime(2027, 1, 20, 16, 5, tzinfo=UTC),
        reason=examples.CANCELLATION["reason"],
        revision=1,
        trace=examples.TRACE,
    )
    submitted = encode_submission(submission, examples.ACCEPTED_AT, to_json(submission.reservation))
    return _typed(_SIGNER.signed(submitted), _SIGNER.signed(encode_cancellation(asked)))


def result_messages() -> Sequence[MessageExample]:
    """The results on the results topic."""
    ended = (_result(status, CancellationStatus.DONE if status is Status.CANCELLED else None) for status in EVENT_TYPES)
    refused = _result(Status.CONFIRMED, CancellationStatus.REFUSED)
    return _typed(*ended, refused, _result(Status.CONFIRMED, CancellationStatus.FAILED))


def other_messages() -> Sequence[MessageExample]:
    """The other messages on the results topic."""
    repeated = replace(examples.submission(), request_id=examples.repetition_id())
    return _typed(
        encode_duplicate(repeated, examples.request_id(), examples.SETTLED_AT),
        encode_conflict(examples.submission(), examples.SETTLED_AT),
    )


def _typed(*messages: Message) -> Sequence[MessageExample]:
    return [MessageExample(dict(one.headers)["ce_type"].decode(), one) for one in messages]


def _result(status: Status, cancellation: CancellationStatus | None) -> Message:
    """The event of that status; with a `cancellation`, the event is about that."""
    data = result_data(
        request_id=examples.request_id(),
        workspace_id=examples.WORKSPACE_ID,
        account_id=examples.ACCOUNT_ID,
        status=status,
        record=examples.record(status),
        cancellation=None if cancellation is None else examples.cancellation(cancellation),
    )
    event = ResultEvent(
        request_id=examples.request_id(),
        revision=1 if cancellation is None else 2,
        status=status,
        key=examples.submission().key,
        occurred_at=examples.SETTLED_AT if cancellation is None else examples.CANCELLED_AT,
        data=data,
        trace=examples.TRACE,
    )
    return encode_result(event)

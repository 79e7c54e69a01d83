"""Every message of the topics: its type, what it is about, the shape of its value, and an example that the codec wrote. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import BaseModel
from pydantic_core import to_json

from forwarder.reservation.cancellation import CancellationRequest, CancellationStatus
from forwarder.reservation.outcome import Status
from forwarder.reservation.record import EVENT_TYPES, ResultEvent, result_data
from forwarder.topics.codec import (
    encode_cancellation,
    encode_conflict,
    encode_duplicate,
    encode_result,
    encode_submission,
)
from forwarder.topics.port import Message
from forwarder.topics.signing import MessageSigner
from tools.contracts import examples
from tools.contracts.messages import event_data

_SIGNER: Final = MessageSigner(b"a key of examples alone")

_ENDED: Final = {
    Status.CONFIRMED: "The PMS has the reservation.",
    Status.REJECTED: "A rule, or the PMS, said no. `reservation.problem` says why.",
    Status.FAILED: "It could not be delivered before its deadline, and was surely not made. It may be put back, and end otherwise.",
    Status.IN_DOUBT: "It may have been made. It is not sent again until that is settled, which another event tells.",
    Status.CANCELLED: "The PMS holds it no longer, or it was never sent.",
}


@dataclass(frozen=True, slots=True)
class Described:
    """The messages of one type. `fixed`: values that are the same in all; `always`: optional fields that all have."""

    kind: str
    about: str
    model: type[BaseModel]
    example: Message
    fixed: Mapping[str, Any]
    always: Sequence[str] = ()


def request_messages() -> Sequence[Described]:
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
    return (
        Described(
            "reservation.submitted.v1",
            "A reservation was accepted. Between the service's own processes; its card can only be opened by a worker.",
            event_data.SubmittedData,
            _SIGNER.signed(submitted),
            {},
        ),
        Described(
            "reservation.cancellation_requested.v1",
            "A submission is to be cancelled. Between the service's own processes.",
            event_data.CancellationRequestedData,
            _SIGNER.signed(encode_cancellation(asked)),
            {},
        ),
    )


def result_messages() -> Sequence[Described]:
    """Those of the results topic."""
    ended = [
        Described(
            kind, _ENDED[status], event_data.ResultData, _result(status, _asked(status)), {"status": status.value}
        )
        for status, kind in EVENT_TYPES.items()
    ]
    return (
        *ended,
        _not_cancelled(CancellationStatus.REFUSED, "The PMS refused to cancel the reservation, which stays as it was."),
        _not_cancelled(
            CancellationStatus.FAILED,
            "The cancellation came to nothing before its deadline. It may be asked for again.",
        ),
    )


def other_messages() -> Sequence[Described]:
    """Those on the results topic that are no results."""
    return _duplicate(), _conflict()


def _conflict() -> Described:
    return Described(
        "reservation.conflicting_body.v1",
        "A submission was not made: another body came before under its `Idempotency-Key`. Its `requestId` is that of the first, "
        "whose outcome is not its outcome.",
        event_data.ConflictData,
        encode_conflict(examples.submission(), examples.SETTLED_AT),
        {},
    )


def _duplicate() -> Described:
    submission = replace(examples.submission(), request_id=examples.repetition_id())
    return Described(
        "reservation.duplicate.v1",
        "A submission turned out to be an earlier one sent again: it has no outcome but that one's. For those who wait for an "
        "outcome; whoever reads results passes over it.",
        event_data.DuplicateData,
        encode_duplicate(submission, examples.request_id(), examples.SETTLED_AT),
        {},
    )


def _asked(status: Status) -> CancellationStatus | None:
    return CancellationStatus.DONE if status is Status.CANCELLED else None


def _not_cancelled(status: CancellationStatus, about: str) -> Described:
    example = _result(Status.CONFIRMED, status)
    kind = dict(example.headers)["ce_type"].decode()
    return Described(kind, about, event_data.ResultData, example, {}, ("cancellation",))


def _result(status: Status, asked: CancellationStatus | None = None) -> Message:
    """The event of that status; where a cancellation was `asked` for, it is about that."""
    cancellation = None if asked is None else examples.cancellation(asked)
    data = result_data(
        request_id=examples.request_id(),
        workspace_id=examples.WORKSPACE_ID,
        account_id=examples.ACCOUNT_ID,
        status=status,
        record=examples.record(status),
        cancellation=cancellation,
    )
    event = ResultEvent(
        request_id=examples.request_id(),
        revision=1 if asked is None else 2,
        status=status,
        key=examples.submission().key,
        occurred_at=examples.SETTLED_AT if asked is None else examples.CANCELLED_AT,
        data=data,
        trace=examples.TRACE,
    )
    return encode_result(event)

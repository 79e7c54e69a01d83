"""Submissions and result events as messages of the log: JSON values, CloudEvents 1.0 in Kafka's binary mode.

https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Protocol

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field
from pydantic_core import from_json, to_json

from forwarder.reservation.card import SealedCard
from forwarder.reservation.outcome import Status
from forwarder.reservation.record import Standing, compose_record, surely_composes
from forwarder.reservation.request import Operation
from forwarder.reservation.result import ResultEvent
from forwarder.reservation.submission import LONGEST_DEADLINE_SECONDS, Submission
from forwarder.topics.port import Headers, Message

_SOURCE = b"/forwarder"
_SUBMITTED = b"reservation.submitted.v1"
_REQUEST = b',"reservation":'
"""What the request, an envelope's last member, comes after. Within a text its quotes would be escaped."""

_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
"""How JSON writes the one character that databases do not take: after an even number of backslashes, for an odd one would make it
six plain characters. The ingress lets none through."""


MAX_SUBMISSION_BYTES: Final = 256 * 1024
"""Of a message of the requests topic. The ingress takes a quarter of that from a caller. What is larger is of somebody else, and
might come to a dead letter or a result that the log does not take."""

MAX_ID: Final = 256
"""Characters of an identifier: as many as fit in a database's index."""

_LARGEST_INTEGER: Final = 2**63
_FIRST_YEAR, _LAST_YEAR = 1970, 8999


def _in_reach(moment: datetime) -> datetime:
    """Deadlines are reckoned from it, and no sum of them may leave what a clock can show."""
    if not _FIRST_YEAR <= moment.year <= _LAST_YEAR:
        raise ValueError("no moment of a submission")
    return moment


Id = Annotated[str, Field(min_length=1, max_length=MAX_ID)]
Instant = Annotated[AwareDatetime, AfterValidator(_in_reach)]

REPLAY_OF = "replay-of"
"""The header of a dead letter that was put back: the id of the event that told of its failure."""


TEST_MODE = ("ce_test", b"true")
"""The header of an event of test mode: a CloudEvents extension attribute."""


_REVISION_DIGITS = 9
"""More, and it is none of ours, nor a number that every database takes."""


class Undecodable(ValueError):
    """A message that is not what its topic holds. The message says what is wrong with it, and quotes none of it."""


class Submitted(Protocol):
    """What a message says of a submission beside its request. See `Submission`, which is one."""

    @property
    def request_id(self) -> str: ...
    @property
    def workspace_id(self) -> str: ...
    @property
    def account_id(self) -> str: ...
    @property
    def operation(self) -> Operation: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def card(self) -> SealedCard | None: ...
    @property
    def traceparent(self) -> str | None: ...
    @property
    def deadline_seconds(self) -> int | None: ...


def encode_submission(submission: Submitted, accepted_at: str, reservation: bytes) -> Message:
    """The message that carries `submission`. `accepted_at` and `reservation` are its fields as already written out,
    so that the request is serialised once on its way."""
    envelope: dict[str, Any] = {
        "requestId": submission.request_id,
        "workspaceId": submission.workspace_id,
        "integrationAccountId": submission.account_id,
        "operation": submission.operation,
        "acceptedAt": accepted_at,
        "fingerprint": submission.fingerprint,
        "card": submission.card and {"keyId": submission.card.key_id, "sealed": submission.card.sealed},
    }
    if submission.deadline_seconds is not None:
        envelope["deadlineSeconds"] = submission.deadline_seconds
    return Message(
        submission.key.encode(),
        to_json(envelope)[:-1] + b',"reservation":' + reservation + b"}",
        event_headers(submission.request_id, _SUBMITTED, accepted_at, submission.request_id, submission.traceparent),
    )


def decode_submission(message: Message) -> Submission:
    """The submission in `message`. Raises `Undecodable`: now, where a fault still has a place to go, and not in a lane."""
    return decode_written(message)[0]


def decode_written(message: Message) -> tuple[Submission, bytes | None]:
    """As `decode_submission`, and with it the JSON text of its request, where the message has that as it is; else None."""
    refuse_unstorable(message, "not a submission")
    try:
        body, reservation, text = _parted(message.value) or _whole(message.value)
        _require_ids(reservation["propertyId"], reservation.get("roomId"))
        card = None if body.card is None else SealedCard(body.card.keyId, body.card.sealed)
        submission = Submission(
            request_id=body.requestId,
            workspace_id=body.workspaceId,
            account_id=body.integrationAccountId,
            operation=body.operation,
            accepted_at=body.acceptedAt.astimezone(UTC),
            reservation=reservation,
            fingerprint=body.fingerprint,
            card=card,
            traceparent=header(message.headers, "traceparent"),
            deadline_seconds=body.deadlineSeconds or None,
        )
        if not surely_composes(reservation):
            # All that the worker will read of the request, read once here.
            compose_record(reservation, Standing(0, submission.request_id, Status.PENDING, "", ""))
            _ = (submission.room_id, submission.key)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise Undecodable(f"not a submission: {type(error).__name__}") from error
    return submission, text


_Parts = tuple["_Head", dict[str, Any], bytes | None]


def _parted(value: bytes) -> _Parts | None:
    """The envelope and the request, each read by itself, and the request's text: where the request is the last member, as we write
    it. None where it may be otherwise: that both parts are whole by themselves is the proof."""
    head, member, rest = value.partition(_REQUEST)
    if not member or not rest.endswith(b"}"):
        return None
    text = rest[:-1]
    try:
        request = from_json(text, allow_inf_nan=False)
        return (_Head.model_validate_json(head + b"}"), request, text) if isinstance(request, dict) else None
    except ValueError:
        return None


def _whole(value: bytes) -> _Parts:
    """Any order of members, read in one. Raises `ValueError`."""
    reservation = from_json(value, allow_inf_nan=False)["reservation"]
    if not isinstance(reservation, dict):
        raise TypeError("a request is a JSON object")
    return _Head.model_validate_json(value), reservation, None


def _require_ids(property_id: object, room_id: object) -> None:
    """Raise `ValueError` where the store has no place for one of them in its indexes, or it is no identifier at all."""
    for each in (property_id, "" if room_id is None else room_id):
        short = type(each) is str and len(each) <= MAX_ID
        if not short and not (type(each) is int and abs(each) < _LARGEST_INTEGER):
            raise ValueError("no identifier")


def replay_revision(message: Message, submission: Submission) -> int | None:
    """The revision of the failure that `message` is a replay of; None where it is none, or not one of this submission."""
    event_id = header(message.headers, REPLAY_OF)
    if event_id is None:
        return None
    request_id, _, revision = event_id.rpartition(".")
    ours = request_id == submission.request_id and revision.isdecimal() and len(revision) <= _REVISION_DIGITS
    return int(revision) if ours else None


class _SealedCard(BaseModel):
    keyId: Id  # noqa: N815 - the message's own name
    sealed: str


class _Head(BaseModel):
    """The message's value, but for the request; a later version may add to it."""

    model_config = ConfigDict(strict=True, extra="ignore")

    requestId: Id  # noqa: N815 - the message's own names
    workspaceId: Id  # noqa: N815
    integrationAccountId: Id  # noqa: N815
    operation: Operation
    acceptedAt: Instant  # noqa: N815
    fingerprint: Id
    card: _SealedCard | None
    # Left out where the caller set none; 0, which no message may carry, stands for that here.
    deadlineSeconds: Annotated[int, Field(ge=1, le=LONGEST_DEADLINE_SECONDS)] = 0  # noqa: N815


def encode_result(event: ResultEvent) -> Message:
    """The message that announces `event`. One of test mode can be told by its headers."""
    headers = event_headers(event.event_id, event.type.encode(), event.occurred_at, event.request_id, event.traceparent)
    if event.data.get("test"):
        headers = (*headers, TEST_MODE)
    return Message(event.key.encode(), b"".join(event.written), headers)


def decode_data(message: Message) -> Mapping[str, Any]:
    """The JSON object that a message of ours carries. Raises `Undecodable`."""
    try:
        data = from_json(message.value, allow_inf_nan=False)
    except ValueError as error:
        raise Undecodable("not JSON") from error
    if not isinstance(data, dict):
        raise Undecodable("not a JSON object")
    return data


def refuse_unstorable(message: Message, what: str) -> None:
    """Raise `Undecodable`, which begins with `what`, where no store of ours would take the message: too large, or with U+0000."""
    if message.size > MAX_SUBMISSION_BYTES:
        raise Undecodable(f"{what}: it has more than {MAX_SUBMISSION_BYTES:,} bytes")
    if has_nul(message.value):
        raise Undecodable(f"{what}: it has the character U+0000")


def has_nul(value: bytes) -> bool:
    """Whether a text in the JSON document `value` has the character U+0000."""
    return b"\\u0000" in value and _NUL.search(value) is not None


def subject(headers: Headers) -> str | None:
    """The request id that a message is about, without reading its value."""
    return header(headers, "ce_subject")


def header(headers: Headers, name: str) -> str | None:
    """The value of the first header of that name."""
    for key, value in headers:
        if key == name:
            return value.decode("utf-8", "replace")
    return None


def event_headers(event_id: str, kind: bytes, time: str, about: str, traceparent: str | None) -> Headers:
    """The headers of a message: CloudEvents' attributes, and the caller's trace where there is one."""
    headers = (
        ("ce_specversion", b"1.0"),
        ("ce_id", event_id.encode()),
        ("ce_source", _SOURCE),
        ("ce_type", kind),
        ("ce_time", time.encode()),
        ("ce_subject", about.encode()),
        ("content-type", b"application/json"),
    )
    return headers if traceparent is None else (*headers, ("traceparent", traceparent.encode()))

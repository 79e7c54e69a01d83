"""Submissions, cancellation requests and result events as messages of the log: JSON values, CloudEvents 1.0 in Kafka's binary mode,
and their signatures. Dead letters are the messages themselves, with headers that say why each was set aside.

https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md
https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md for `structured_event`"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from hmac import compare_digest
from typing import Annotated, Any, Final, Protocol

from msgspec import Meta, Raw, Struct
from msgspec.json import Decoder
from pydantic_core import from_json, to_json

from forwarder.observability.tracing import TRACEPARENT, TRACESTATE, read_trace, trace_headers
from forwarder.process.clock import iso
from forwarder.reservation import outcome
from forwarder.reservation.fast import json_text, read_json
from forwarder.reservation.outcome import CancellationRequest, Status
from forwarder.reservation.parsing import whole_number
from forwarder.reservation.record import ResultEvent, SubmissionState, can_compose, compose_record
from forwarder.reservation.request import Operation, SealedCard
from forwarder.reservation.submission import (
    CONFLICTING_BODY,
    MAX_DEADLINE_SECONDS,
    MAX_WINDOW_SECONDS,
    NaturalKey,
    Submission,
    is_test,
)
from forwarder.topics.port import Headers, Message

CANCELLATION_REQUESTED = "reservation.cancellation_requested.v1"
DUPLICATE: Final = "reservation.duplicate.v1"
CONFLICT: Final = "reservation.conflicting_body.v1"
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
"""U+0000 in JSON, which databases refuse: after an even number of backslashes, because after an odd number it is plain text."""
MAX_SUBMISSION_BYTES: Final = 256 * 1024
"""Of key and value on the requests topic. The ingress accepts a quarter of it from a caller. A larger message is not ours, and its
dead letter or result might be too large for the log."""
MAX_ID: Final = 256  # Maximum characters of an identifier: what fits into a database index
REVISION_DIGITS: Final = 9  # A longer revision is not ours, and not every database would accept it
Id = Annotated[str, Meta(min_length=1, max_length=MAX_ID)]
Instant = Annotated[datetime, Meta(tz=True)]


def instant(moment: datetime) -> datetime:
    """`moment` in UTC. Raises `ValueError` if it is out of range: deadlines are added to it, and the sum must be a valid date."""
    if moment.year not in range(1970, 9000):
        raise ValueError("out of range")
    return moment if moment.tzinfo is UTC else moment.astimezone(UTC)


TEST_MODE = ("ce_test", b"true")  # the header of a test mode event: a CloudEvents extension attribute
PREFIX: Final = "dlt-"
"""How every header of a dead letter begins. The names are Spring Kafka's without their prefix; `dlt-event-id` is ours: the result
event of the failure that a letter is about. A replayed letter carries it as `replay-of`, so that a replay works only once."""
EVENT_ID: Final = "dlt-event-id"
REPLAY_OF: Final = "replay-of"
CUT: Final = "dlt-cut-from-bytes"  # of a letter that was cut because its message was too large: the message's size
SIGNATURE: Final = "signature"  # the header: `v1,` and 32 hexadecimal digits


class Undecodable(ValueError):
    """A message that does not belong on its topic. The error says what is wrong without quoting the message."""


class SubmissionFields(Protocol):
    """The fields of a message other than the request itself. `Submission` has them."""

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
    def trace(self) -> str | None: ...
    @property
    def deadline_seconds(self) -> int | None: ...
    @property
    def natural(self) -> NaturalKey | None: ...
    @property
    def api_key_id(self) -> str | None: ...


def encode_submission(
    submission: SubmissionFields, accepted_at: str, reservation: bytes, partition: int | None = None
) -> Message:
    """The message for `submission`. `accepted_at` and `reservation` are passed in serialised: that is done only once."""
    envelope: dict[str, Any] = {
        "requestId": submission.request_id,
        "workspaceId": submission.workspace_id,
        "integrationAccountId": submission.account_id,
        "operation": submission.operation,
        "acceptedAt": accepted_at,
        "fingerprint": submission.fingerprint,
        "card": submission.card and {"keyId": submission.card.key_id, "sealed": submission.card.sealed},
        "deadlineSeconds": submission.deadline_seconds,
        "apiKeyId": submission.api_key_id,
    }
    if (natural := submission.natural) is not None:
        envelope |= {"naturalKey": natural.key, "keyed": natural.keyed}
        envelope |= {"duplicateWindowSeconds": natural.window_seconds, "transactionKey": natural.transaction}
        envelope |= {"sameKey": natural.same, "stayKey": natural.stay}
    given = {name: value for name, value in envelope.items() if value is not None or name == "card"}
    request_id = submission.request_id
    headers = event_headers(request_id, b"reservation.submitted.v1", accepted_at, request_id, submission.trace)
    value = json_text(given)[:-1] + b',"reservation":' + reservation + b"}"
    return Message(submission.key.encode(), value, headers, partition)


def decode_submission(message: Message) -> Submission:
    """The submission in `message`. Raises `Undecodable` for anything on which the worker could fail later: here it can still be set
    aside."""
    return decode_with_text(message)[0]


def decode_with_text(message: Message) -> tuple[Submission, bytes]:
    """As `decode_submission`, with the JSON text of its request from the message."""
    refuse_unstorable(message, "not a submission")
    try:
        body = _ENVELOPE.decode(message.value)
        text = bytes(body.reservation)
        reservation = read_json(text)
        # A value that is not an object has no members, and is refused here.
        room_id = reservation.get("roomId")
        for each in (reservation["propertyId"], "" if room_id is None else room_id):
            if not (len(each) <= MAX_ID if type(each) is str else type(each) is int and abs(each) < 2**63):
                raise ValueError("not an identifier, or too long for the indexes of the store")  # noqa: TRY301
        transaction, same, stay = (each or None for each in (body.transaction_key, body.same_key, body.stay_key))
        window = body.duplicate_window_seconds
        natural = NaturalKey(body.natural_key, transaction, window, body.keyed, same, stay)
        submission = Submission(
            request_id=body.request_id,
            workspace_id=body.workspace_id,
            account_id=body.integration_account_id,
            operation=body.operation,
            accepted_at=instant(body.accepted_at),
            reservation=reservation,
            fingerprint=body.fingerprint,
            card=None if body.card is None else SealedCard(body.card.key_id, body.card.sealed),
            trace=trace_of(message.headers),
            deadline_seconds=body.deadline_seconds or None,
            natural=natural if body.natural_key else None,
            api_key_id=body.api_key_id or None,
        )
        if not can_compose(reservation):
            # Reads everything of the request that the worker will read.
            compose_record(reservation, SubmissionState(0, submission.request_id, Status.PENDING, "", ""))
            _ = (submission.room_id, submission.key)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Undecodable(f"not a submission: {type(error).__name__}") from error
    return submission, text


def replay_revision(message: Message, submission: Submission) -> int | None:
    """The revision of the failure that `message` replays; None if it is not a replay of this submission."""
    event_id = header(message.headers, REPLAY_OF)
    if event_id is None:
        return None
    request_id, _, revision = event_id.rpartition(".")
    return whole_number(revision, REVISION_DIGITS) if request_id == submission.request_id else None


class _SealedCard(Struct, frozen=True, rename="camel"):
    key_id: Id
    sealed: str


class _SubmissionEnvelope(Struct, frozen=True, rename="camel"):
    """The value of the message, the request as its text. Later versions may add members."""

    request_id: Id
    workspace_id: Id
    integration_account_id: Id
    operation: Operation
    accepted_at: Instant
    fingerprint: Id
    card: _SealedCard | None
    reservation: Raw
    # 0, which no message may carry, if the caller set none and the member is missing.
    deadline_seconds: Annotated[int, Meta(ge=1, le=MAX_DEADLINE_SECONDS)] = 0
    # Missing if its content does not identify it.
    natural_key: Id = ""
    transaction_key: Id = ""
    duplicate_window_seconds: Annotated[int, Meta(ge=0, le=MAX_WINDOW_SECONDS)] = 0
    keyed: bool = False
    # Missing in messages of releases before 0.2, as the next two are.
    api_key_id: Id = ""
    same_key: Id = ""
    stay_key: Id = ""


_ENVELOPE: Final = Decoder(_SubmissionEnvelope)


def is_cancellation(message: Message) -> bool:
    return header(message.headers, "ce_type") == CANCELLATION_REQUESTED


def encode_result(event: ResultEvent) -> Message:
    """The message for `event`. Test mode adds a header."""
    headers = event_headers(event.event_id, event.type.encode(), event.occurred_at, event.request_id, event.trace)
    if event.data.get("test"):
        headers = (*headers, TEST_MODE)
    return Message(event.key.encode(), b"".join(event.written), headers)


def encode_duplicate(submission: Submission, duplicate_of: str, time: str) -> Message:
    """The message that `submission` is a duplicate of the one with request id `duplicate_of`. It points requests that wait for its
    outcome to the original; its status, which is the original's, says the same."""
    return _not_made(submission, "duplicate", DUPLICATE, time, {"duplicateOf": duplicate_of})


def encode_conflict(submission: Submission, time: str) -> Message:
    """The message that `submission` was not made, because its idempotency key was used before with another body."""
    more = {"acceptedAt": iso(submission.accepted_at), "fingerprint": submission.fingerprint, "code": CONFLICTING_BODY}
    return _not_made(submission, f"conflict.{submission.fingerprint}", CONFLICT, time, more)


def _not_made(submission: Submission, ending: str, event_type: str, time: str, more: Mapping[str, Any]) -> Message:
    request_id = submission.request_id
    data: dict[str, Any] = {"requestId": request_id, "workspaceId": submission.workspace_id}
    data |= {"integrationAccountId": submission.account_id, **more}
    headers = event_headers(f"{request_id}.{ending}", event_type.encode(), time, request_id, submission.trace)
    if is_test(submission.account_id):
        data["test"], headers = True, (*headers, TEST_MODE)
    return Message(submission.key.encode(), to_json(data), headers)


def is_outcome(message: Message) -> bool:
    """Whether `message`, of the results topic, reports a submission's outcome."""
    return header(message.headers, "ce_type") not in {DUPLICATE, CONFLICT}


def decode_data(message: Message) -> Mapping[str, Any]:
    """The value of a message, a JSON object. Raises `Undecodable`."""
    try:
        data = from_json(message.value, allow_inf_nan=False)
    except ValueError as error:
        raise Undecodable("not JSON") from error
    if not isinstance(data, dict):
        raise Undecodable("not a JSON object")
    return data


def refuse_unstorable(message: Message, what: str) -> None:
    """Raise `Undecodable`, starting with `what`, if the store would refuse the message: too large, or with U+0000 in it."""
    if len(message.key) + len(message.value) > MAX_SUBMISSION_BYTES:
        raise Undecodable(f"{what}: it has more than {MAX_SUBMISSION_BYTES:,} bytes")
    if b"\\u0000" in message.value and _NUL.search(message.value):
        raise Undecodable(f"{what}: it has the character U+0000")


def subject(headers: Headers) -> str | None:
    """The request id that a message is about, from its headers alone."""
    return header(headers, "ce_subject")


def header(headers: Headers, name: str) -> str | None:
    for key, value in headers:
        if key == name:
            return value.decode("utf-8", "replace")
    return None


def trace_of(headers: Headers) -> str | None:
    """The trace of a message. Validated like a caller's, because anyone with write access to the topic may have set it."""
    parent = header(headers, TRACEPARENT)
    return None if parent is None else read_trace(parent, header(headers, TRACESTATE))


def event_headers(event_id: str, event_type: bytes, time: str, subject_id: str, trace: str | None) -> Headers:
    """The headers of a message: CloudEvents attributes, and the caller's trace if there is one."""
    headers = (
        ("ce_specversion", b"1.0"),
        ("ce_id", event_id.encode()),
        ("ce_source", b"/forwarder"),
        ("ce_type", event_type),
        ("ce_time", time.encode()),
        ("ce_subject", subject_id.encode()),
        ("content-type", b"application/json"),
    )
    return headers if trace is None else (*headers, *((name, value.encode()) for name, value in trace_headers(trace)))


def structured_event(message: Message) -> dict[str, Any]:
    """The event as one JSON object: attributes, extensions, trace and `data`, for readers outside the topic. Raises
    `Undecodable`."""
    attributes = ((name[3:], value) for name, value in message.headers if name.startswith("ce_"))
    event: dict[str, Any] = {name: value.decode("utf-8", "replace") for name, value in attributes}
    missing = [name for name in ("specversion", "id", "source", "type") if not event.get(name)]
    if missing:
        raise Undecodable(f"not a CloudEvent: no {', '.join(missing)}")
    event["datacontenttype"] = header(message.headers, "content-type") or "application/json"
    if (trace := trace_of(message.headers)) is not None:
        event.update(trace_headers(trace))
    return {**event, "data": decode_data(message)}


def encode_cancellation(request: CancellationRequest) -> Message:
    """The message for `request`. Two requests to cancel the same revision get the same event id."""
    request_id, requested_at = request.request_id, iso(request.requested_at)
    value: dict[str, Any] = {"requestId": request_id, "integrationAccountId": request.account_id}
    value |= {"requestedAt": requested_at, "reason": request.reason, "revision": request.revision}
    event_id = f"{request_id}.cancellation.{request.revision}"
    headers = event_headers(event_id, CANCELLATION_REQUESTED.encode(), requested_at, request_id, request.trace)
    return Message(request.key.encode(), to_json(value), headers, request.partition)


def decode_cancellation(message: Message) -> CancellationRequest:
    """The cancellation request in `message`. Raises `Undecodable`."""
    refuse_unstorable(message, "not a cancellation")
    try:
        body = _CANCELLATION.decode(message.value)
        ids = (body.request_id, body.integration_account_id, message.key.decode())
        requested_at = instant(body.requested_at)
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"not a cancellation: {type(error).__name__}") from error
    return CancellationRequest(*ids, requested_at, body.reason, body.revision, trace_of(message.headers))


class _CancellationEnvelope(Struct, frozen=True, rename="camel"):
    """The value of the message. Later versions may add members."""

    request_id: Id
    integration_account_id: Id
    requested_at: Instant
    reason: Annotated[str, Meta(max_length=outcome.MAX_REASON)] | None
    revision: Annotated[int, Meta(ge=0, lt=10**9)]


_CANCELLATION: Final = Decoder(_CancellationEnvelope)


def unread_place(letter: Message) -> tuple[int, int] | None:
    """Partition and offset of the message of a `letter` that could not be decoded or stored; None for other letters."""
    headers = {name: value.decode("utf-8", "replace") for name, value in letter.headers}
    partition, offset = (whole_number(headers.get(f"{PREFIX}original-{name}", "")) for name in ("partition", "offset"))
    unread = headers.get(outcome.FAILURE_CLASS) in {outcome.UNDECODABLE, outcome.INTERNAL_ERROR}
    if EVENT_ID in headers or not unread or partition is None or offset is None:
        return None
    return partition, offset


def replayed(letter: Message) -> Message:
    """`letter` without its dead-letter headers, to publish on the topic that it came from."""
    own = tuple((name, value) for name, value in letter.headers if not name.startswith(PREFIX) and name != REPLAY_OF)
    marked = tuple((REPLAY_OF, value) for name, value in letter.headers if name == EVENT_ID)[:1]
    return Message(letter.key, letter.value, (*own, *marked))


class MessageSigner:
    """Signs and verifies messages: write access to a topic, or knowing a request id, is not enough to forge one. Keyed BLAKE2b
    (RFC 7693) of key, value, and the headers that consumers act on; in a header, so that intermediaries may add others. The trace
    changes on the way, and is not signed. `key` (16 to 64 bytes) is the same in every process of a deployment."""

    def __init__(self, key: bytes) -> None:
        # A keyed state without data: copying it costs half as much as keying one.
        self._keyed = blake2b(digest_size=16, key=key, person=b"message")

    def signed(self, message: Message) -> Message:
        headers, by_name = message.headers, dict(message.headers)
        if SIGNATURE in by_name:
            headers = tuple(each for each in headers if each[0] != SIGNATURE)
        signed = (*headers, (SIGNATURE, self._signature(message, by_name)))
        return Message(message.key, message.value, signed, message.partition)

    def verifies(self, message: Message) -> bool:
        """Whether `message` is unchanged since a holder of the key signed it."""
        by_name = dict(message.headers)
        # With two headers of one name, another reader might use the other one.
        unique = len(by_name) == len(message.headers)
        return unique and compare_digest(by_name.get(SIGNATURE, b""), self._signature(message, by_name))

    def signed_like(self, original: Message, message: Message) -> Message:
        """`message`, derived from `original`: signed if `original` is validly signed."""
        return self.signed(message) if self.verifies(original) else message

    def _signature(self, message: Message, headers: Mapping[str, bytes]) -> bytes:
        get, none = headers.get, b""
        acted_on = (get("ce_type", none), get("ce_id", none), get("ce_time", none), get(REPLAY_OF, none))
        mac = self._keyed.copy()
        # None of these contains NUL in our messages, so the parts cannot be shifted.
        mac.update(b"\0".join((message.key, *acted_on, get(EVENT_ID, none), message.value)))
        return b"v1,%b" % mac.hexdigest().encode()

"""Submissions and results as messages: CloudEvents in Kafka's binary mode, there and back, and what is no such message."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import pytest
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic_core import from_json, to_json

from forwarder.reservation.outcome import Status
from forwarder.reservation.record import EVENT_TYPES, ResultEvent, result_data
from forwarder.reservation.request import SealedCard
from forwarder.reservation.submission import MAX_DEADLINE_SECONDS, MAX_WINDOW_SECONDS, Submission, fingerprint
from forwarder.topics.codec import (
    MAX_SUBMISSION_BYTES,
    Undecodable,
    decode_data,
    decode_submission,
    decode_with_text,
    encode_result,
    encode_submission,
    header,
    replay_revision,
    subject,
)
from forwarder.topics.port import Message
from tests.support.cases import for_each
from tests.support.stages.bodies import ABSENT, BOOKING_ENGINE, GENERAL, changed
from tests.support.worker.works import submission

ACCEPTED_AT = "2027-01-01T00:00:00.123Z"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SUBMISSION = Submission(
    request_id="rsv_1",
    workspace_id="ws",
    account_id="acc",
    operation="booking-engine",
    accepted_at=datetime(2027, 1, 1, 0, 0, 0, 123000, UTC),
    reservation=BOOKING_ENGINE,
    fingerprint="0f" * 16,
    card=SealedCard("key-1", "c2VhbGVk"),
    trace=TRACE,
)


def _encode(submission: Submission) -> Message:
    return encode_submission(submission, ACCEPTED_AT, to_json(submission.reservation))


@for_each(
    "submission",
    [
        SUBMISSION,
        replace(SUBMISSION, card=None, trace=None),
        replace(SUBMISSION, operation="general", reservation=GENERAL),
        replace(SUBMISSION, reservation=changed(GENERAL, "roomId", ABSENT)),
        replace(SUBMISSION, deadline_seconds=1),
        replace(SUBMISSION, deadline_seconds=MAX_DEADLINE_SECONDS),
        replace(SUBMISSION, reservation=GENERAL | {"notes": "what stands for a NUL in JSON: \\u0000 \\\\u0000"}),
        replace(SUBMISSION, account_id='odd "id" é', reservation=GENERAL | {"notes": '"}\\ é \u2028'}),
    ],
)
def test_a_submission_there_and_back(submission: Submission) -> None:
    assert decode_submission(_encode(submission)) == submission


@pytest.mark.parametrize(
    "reservation",
    [BOOKING_ENGINE, GENERAL, GENERAL | {"notes": ',"reservation":{}}', "guest": {"a": 1, "reservation": {"b": 2}}}],
)
def test_the_requests_text_is_what_was_written(reservation: dict[str, Any]) -> None:
    decoded, text = decode_with_text(_encode(replace(SUBMISSION, reservation=reservation)))
    assert decoded.reservation == reservation
    assert text == to_json(reservation)


NESTED = {"later": {"requestId": "rsv_2", "reservation": {"propertyId": 9}}}


@for_each(
    "value",
    [
        _encode(SUBMISSION).value + b" ",
        to_json(NESTED | from_json(_encode(SUBMISSION).value)),
        to_json(from_json(_encode(SUBMISSION).value) | {"version": 2}),
        to_json(dict(reversed(from_json(_encode(SUBMISSION).value).items()))),
        to_json({"reservation": BOOKING_ENGINE} | from_json(_encode(SUBMISSION).value)),
        to_json(from_json(_encode(SUBMISSION).value), indent=1),
    ],
)
def test_wherever_it_stands_its_text_is_what_was_written(value: bytes) -> None:
    decoded, text = decode_with_text(Message(b"", value))
    assert decoded == replace(SUBMISSION, trace=None)
    assert from_json(text) == BOOKING_ENGINE
    assert text in value


def test_of_two_requests_in_one_message_the_last_counts() -> None:
    value = _encode(SUBMISSION).value.replace(b'{"requestId"', b'{"reservation":{"propertyId":9},"requestId"', 1)
    twice = decode_with_text(Message(b"", value))
    assert twice == (replace(SUBMISSION, trace=None), to_json(BOOKING_ENGINE))
    assert from_json(value)["reservation"] == BOOKING_ENGINE


@pytest.mark.parametrize("notes", ["\0", "a\0", "\\\0", "\\\\\0"])
def test_what_no_database_takes_is_told_from_what_looks_like_it(notes: str) -> None:
    with pytest.raises(Undecodable, match="the character"):
        decode_submission(_encode(replace(SUBMISSION, reservation=GENERAL | {"notes": notes})))


def test_a_submission_on_the_wire() -> None:
    message = _encode(SUBMISSION)
    assert message.key == b"acc:1001"
    assert dict(message.headers) == {
        "ce_specversion": b"1.0",
        "ce_id": b"rsv_1",
        "ce_source": b"/forwarder",
        "ce_type": b"reservation.submitted.v1",
        "ce_time": ACCEPTED_AT.encode(),
        "ce_subject": b"rsv_1",
        "content-type": b"application/json",
        "traceparent": TRACE.encode(),
    }
    assert from_json(message.value) == {
        "requestId": "rsv_1",
        "workspaceId": "ws",
        "integrationAccountId": "acc",
        "operation": "booking-engine",
        "acceptedAt": ACCEPTED_AT,
        "fingerprint": "0f" * 16,
        "card": {"keyId": "key-1", "sealed": "c2VhbGVk"},
        "reservation": BOOKING_ENGINE,
    }


def test_a_deadline_on_the_wire() -> None:
    plain, limited = (
        from_json(_encode(replace(SUBMISSION, deadline_seconds=seconds)).value) for seconds in (None, 300)
    )
    assert "deadlineSeconds" not in plain
    assert limited == plain | {"deadlineSeconds": 300}


@for_each("value", [b"", b"{", b"null", b"[]", b"1", b'"text"', b"{}", b"\xff"])
def test_what_is_no_submission(value: bytes) -> None:
    with pytest.raises(Undecodable):
        decode_submission(Message(b"", value))


FIELDS = list(from_json(_encode(SUBMISSION).value))


@for_each("field", FIELDS)
def test_a_submission_without_one_of_its_fields(field: str) -> None:
    value = from_json(_encode(SUBMISSION).value)
    del value[field]
    with pytest.raises(Undecodable):
        decode_submission(Message(b"", to_json(value)))


@for_each(
    ("path", "wrong"),
    [
        ("acceptedAt", "yesterday"),
        ("acceptedAt", 5),
        ("acceptedAt", "9999-12-31T23:59:59Z"),
        ("acceptedAt", "9999-12-31T23:59:59-12:00"),
        ("acceptedAt", "0001-01-01T00:00:00Z"),
        ("acceptedAt", "0001-01-01T00:00:00+12:00"),
        ("acceptedAt", "1969-12-31T23:59:59Z"),
        ("acceptedAt", "2027-01-01T00:00:00"),
        ("requestId", "r" * 257),
        ("fingerprint", ""),
        ("card", {"keyId": "k" * 257, "sealed": ""}),
        ("reservation.propertyId", "p" * 257),
        ("reservation.propertyId", 10**300),
        ("reservation.propertyId", {"a": 1}),
        ("reservation.propertyId", 1.5),
        ("reservation.propertyId", True),
        ("reservation.propertyId", None),
        ("reservation.roomId", "r" * 257),
        ("reservation.roomId", [1]),
        ("reservation.guest", "4111111111111111"),
        ("card", "4111111111111111"),
        ("card", {"keyId": "k"}),
        ("reservation", []),
        ("reservation", "4111111111111111"),
        ("reservation.propertyId", ABSENT),
        ("reservation.arrivalDate", "soon"),
        ("reservation.departureDate", ABSENT),
        ("reservation.arrivalDate", 5),
        ("deadlineSeconds", 0),
        ("deadlineSeconds", -1),
        ("deadlineSeconds", MAX_DEADLINE_SECONDS + 1),
        ("deadlineSeconds", 10**30),
        ("deadlineSeconds", 60.0),
        ("deadlineSeconds", "60"),
        ("deadlineSeconds", True),
        ("deadlineSeconds", None),
        ("deadlineSeconds", []),
    ],
)
def test_a_submission_that_the_worker_could_not_use(path: str, wrong: Any) -> None:
    value = changed(from_json(_encode(SUBMISSION).value), path, wrong)
    with pytest.raises(Undecodable) as caught:
        decode_submission(Message(b"", to_json(value)))
    assert "4111" not in str(caught.value)


class Card(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)

    key_id: Annotated[str, Field(min_length=1, max_length=256)]
    sealed: str


class Envelope(BaseModel):
    """What an envelope may hold, as pydantic has it: the plain form of what the codec reads."""

    model_config = ConfigDict(strict=True, extra="ignore", alias_generator=to_camel)

    request_id: Annotated[str, Field(min_length=1, max_length=256)]
    workspace_id: Annotated[str, Field(min_length=1, max_length=256)]
    integration_account_id: Annotated[str, Field(min_length=1, max_length=256)]
    operation: Literal["booking-engine", "general"]
    accepted_at: AwareDatetime
    fingerprint: Annotated[str, Field(min_length=1, max_length=256)]
    card: Card | None
    deadline_seconds: Annotated[int, Field(ge=1, le=MAX_DEADLINE_SECONDS)] = 0
    natural_key: Annotated[str, Field(min_length=1, max_length=256)] = ""
    transaction_key: Annotated[str, Field(min_length=1, max_length=256)] = ""
    duplicate_window_seconds: Annotated[int, Field(ge=0, le=MAX_WINDOW_SECONDS)] = 0
    keyed: bool = False


ODD = [
    *(
        b"null",
        b"true",
        b"false",
        b"0",
        b"1",
        b"-1",
        b"60.0",
        b"1e2",
        b"1.5",
        b"1e400",
        b"604801",
        b"-0",
        b"12345678901234567890",
    ),
    *(
        b"[]",
        b"{}",
        b'""',
        b'"a"',
        b'"60"',
        b'"true"',
        b'"\xff"',
        b'"\\ud800"',
        b'"\\ud83d\\ude00"',
        b'"\t"',
        b"NaN",
        b"Infinity",
        b"01",
    ),
    *(b'"%s"' % (b"x" * length) for length in (256, 257)),
    b'"%s"' % ("é" * 256).encode(),
    *(
        b'"general"',
        b'"booking-engine"',
        b'"Booking-Engine"',
        b'{"keyId":"k","sealed":""}',
        b'{"keyId":"k","sealed":"","more":1}',
    ),
    *(
        b'{"keyId":"","sealed":""}',
        b'{"keyId":"k","sealed":1}',
        b'"2027-01-01T00:00:00Z"',
        b'"2027-01-01T00:00:00.123456Z"',
    ),
    *(
        b'"2027-01-01T00:00:00+02:00"',
        b'"2027-01-01T00:00:00"',
        b'"2027-02-30T00:00:00Z"',
        b'"2027-01-01T25:00:00Z"',
        b'"2027-01-01"',
    ),
]


@for_each("field", [to_camel(name) for name in Envelope.model_fields])
def test_an_envelope_is_read_as_strictly_as_by_pydantic(field: str) -> None:
    others = {name: each for name, each in from_json(_encode(SUBMISSION).value).items() if name != field}
    for odd in ODD:
        if (field, odd) == ("acceptedAt", b'"60"'):
            continue  # pydantic takes it for seconds since 1970; nobody writes that
        value = b'{"%s":%s,%s' % (field.encode(), odd, to_json(others)[1:])
        try:
            wanted = Envelope.model_validate_json(value)
        except ValueError:
            with pytest.raises(Undecodable):
                decode_submission(Message(b"", value))
            continue
        read = decode_submission(Message(b"", value))
        natural = read.natural
        assert read.request_id == wanted.request_id
        assert (read.workspace_id, read.account_id) == (wanted.workspace_id, wanted.integration_account_id)
        assert (read.operation, read.accepted_at) == (wanted.operation, wanted.accepted_at)
        assert (read.fingerprint, read.deadline_seconds) == (wanted.fingerprint, wanted.deadline_seconds or None)
        assert (read.card and (read.card.key_id, read.card.sealed)) == (
            wanted.card and (wanted.card.key_id, wanted.card.sealed)
        )
        assert (natural.key if natural else "") == wanted.natural_key
        if natural is not None:
            assert (natural.transaction or "", natural.keyed) == (wanted.transaction_key, wanted.keyed)
            assert natural.window_seconds == wanted.duplicate_window_seconds


@for_each("number", [b"NaN", b"Infinity", b"-Infinity"])
@for_each("written", [b'"totalPrice":%s', b'"notes":%s', b'"later":{"a":[%s]}'])
def test_a_submission_with_what_is_no_number_in_json(written: bytes, number: bytes) -> None:
    as_we_write_it = _encode(replace(SUBMISSION, reservation=GENERAL)).value
    odd = as_we_write_it.replace(b'"reservation":{', b'"reservation":{' + written % number + b",", 1)
    for value in (odd, odd + b" "):
        with pytest.raises(Undecodable):
            decode_submission(Message(b"", value))
    with pytest.raises(Undecodable):
        decode_data(Message(b"", odd))


def test_a_submission_that_no_ingress_takes_for_its_size() -> None:
    large = GENERAL | {"notes": "x" * MAX_SUBMISSION_BYTES}
    with pytest.raises(Undecodable, match="bytes"):
        decode_submission(_encode(replace(SUBMISSION, reservation=large)))
    with pytest.raises(Undecodable):
        decode_submission(replace(_encode(SUBMISSION), key=b"x" * MAX_SUBMISSION_BYTES))


@pytest.mark.parametrize("depth", [500, 100_000])
def test_what_nests_too_deeply_is_no_json_of_ours(depth: int) -> None:
    nested = b'{"requestId":' + b"[" * depth + b"]" * depth + b"}"
    for value in (nested, nested.replace(b"requestId", b"reservation")):
        with pytest.raises(Undecodable):
            decode_submission(Message(b"", value))
        with pytest.raises(Undecodable):
            decode_data(Message(b"", value))


@for_each(("status", "kind"), EVENT_TYPES.items())
def test_a_result_on_the_wire(status: Status, kind: str) -> None:
    record = {"id": 7, "status": status.value}
    data = result_data(request_id="rsv_1", workspace_id="ws", account_id="acc", status=status, record=record)
    message = encode_result(ResultEvent("rsv_1", 2, status, "acc:1001", ACCEPTED_AT, data, TRACE))
    assert message.key == b"acc:1001"
    assert dict(message.headers) == {
        "ce_specversion": b"1.0",
        "ce_id": b"rsv_1.2",
        "ce_source": b"/forwarder",
        "ce_type": kind.encode(),
        "ce_time": ACCEPTED_AT.encode(),
        "ce_subject": b"rsv_1",
        "content-type": b"application/json",
        "traceparent": TRACE.encode(),
    }
    assert decode_data(message) == {
        "requestId": "rsv_1",
        "workspaceId": "ws",
        "integrationAccountId": "acc",
        "status": status.value,
        "reservation": record,
    }


def test_every_status_but_pending_is_announced() -> None:
    assert set(EVENT_TYPES) == set(Status) - {Status.PENDING}
    assert all(kind == f"reservation.{status.value.lower()}.v1" for status, kind in EVENT_TYPES.items())


@for_each("value", [b"", b"{", b"[]", b"null", b"\xff"])
def test_what_carries_no_data(value: bytes) -> None:
    with pytest.raises(Undecodable):
        decode_data(Message(b"", value))


def test_headers_are_read_without_the_value() -> None:
    headers = (("ce_subject", b"rsv_1"), ("ce_subject", b"rsv_2"), ("odd", b"\xff"))
    assert subject(headers) == "rsv_1"
    assert header(headers, "odd") == "\ufffd"
    assert subject(()) is None


def test_a_fingerprint_tells_payloads_and_operations_apart() -> None:
    prints = {
        fingerprint(operation, body) for operation in ("booking-engine", "general") for body in (b"{}", b'{"a":1}')
    }
    assert len(prints) == 4
    assert all(len(text) == 32 for text in prints)
    assert fingerprint("general", b"{}") == fingerprint("general", b"{}")


def test_submissions_of_one_property_keep_one_key() -> None:
    number, text = (
        replace(SUBMISSION, reservation=GENERAL | {"propertyId": 5}),
        replace(SUBMISSION, reservation=GENERAL | {"propertyId": "5"}),
    )
    assert number.key == text.key == "acc:5"


def test_without_a_room_a_submission_is_for_the_propertys() -> None:
    assert replace(SUBMISSION, reservation=changed(GENERAL, "roomId", ABSENT)).room_id == "00123"
    assert SUBMISSION.room_id == "A-7"


@for_each("revision", ["1" * 10, "9" * 5000, "-1", "", "one", "1.0"])
def test_a_replay_of_no_revision_of_ours_is_none(revision: str) -> None:
    about = submission()
    marked = Message(b"key", b"{}", (("replay-of", f"{about.request_id}.{revision}".encode()),))
    assert replay_revision(marked, about) is None

"""Cancellations as messages: there and back, what is no such message, and the events that tell what came of them."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic_core import from_json, to_json

from forwarder.reservation.outcome import (
    Cancellation,
    CancellationRequest,
    CancellationStatus,
    Status,
    cancellation_failed,
    cancellation_status,
)
from forwarder.reservation.record import ResultEvent, result_data
from forwarder.topics.codec import (
    Undecodable,
    decode_cancellation,
    encode_cancellation,
    encode_result,
    encode_submission,
    header,
    is_cancellation,
)
from forwarder.topics.port import Message
from tests.support.cases import for_each
from tests.support.worker.works import submission

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
REQUEST = CancellationRequest(
    request_id="rsv_1",
    account_id="acc",
    key="acc:1001",
    requested_at=datetime(2027, 1, 1, 0, 0, 0, 123000, UTC),
    reason='Ill. "\\u0000" é',
    revision=3,
    trace=TRACE,
)


@pytest.mark.parametrize("request_", [REQUEST, replace(REQUEST, reason=None, revision=0, trace=None, key="é:1")])
def test_a_cancellation_there_and_back(request_: CancellationRequest) -> None:
    message = encode_cancellation(request_)
    assert is_cancellation(message)
    assert decode_cancellation(message) == request_


def test_it_is_a_cloud_event_of_its_submission() -> None:
    message = encode_cancellation(REQUEST)
    assert (message.key, from_json(message.value)) == (
        b"acc:1001",
        {
            "requestId": "rsv_1",
            "integrationAccountId": "acc",
            "requestedAt": "2027-01-01T00:00:00.123Z",
            "reason": REQUEST.reason,
            "revision": 3,
        },
    )
    assert dict(message.headers) == {
        "ce_specversion": b"1.0",
        "ce_id": b"rsv_1.cancellation.3",
        "ce_source": b"/forwarder",
        "ce_type": b"reservation.cancellation_requested.v1",
        "ce_time": b"2027-01-01T00:00:00.123Z",
        "ce_subject": b"rsv_1",
        "content-type": b"application/json",
        "traceparent": TRACE.encode(),
    }


def test_a_submission_is_none() -> None:
    taken = submission()
    assert not is_cancellation(encode_submission(taken, "2027-01-01T00:00:00.000Z", to_json(dict(taken.reservation))))
    assert not is_cancellation(Message(b"acc:1", b"{}"))


@for_each(
    "change",
    [
        {"requestId": ""},
        {"requestId": 1},
        {"requestId": "x" * 300},
        {"integrationAccountId": None},
        {"requestedAt": "soon"},
        {"requestedAt": "9999-12-31T23:59:59-12:00"},
        {"requestedAt": "0001-01-01T00:00:00+12:00"},
        {"revision": 10**30},
        {"requestedAt": "2027-01-01T00:00:00"},
        {"reason": 5},
        {"reason": "x" * 1001},
        {"reason": "a\0"},
        {"revision": -1},
        {"revision": "1"},
        {"revision": 10**9},
    ],
)
def test_what_is_none_is_said_and_not_quoted(change: dict[str, Any]) -> None:
    message = encode_cancellation(REQUEST)
    wrong = replace(message, value=to_json(from_json(message.value) | change))
    with pytest.raises(Undecodable, match="not a cancellation"):
        decode_cancellation(wrong)


@for_each("value", [b"", b"{}", b"[]", b"\xff", b"null"])
def test_nor_what_is_no_object_of_the_kind(value: bytes) -> None:
    with pytest.raises(Undecodable):
        decode_cancellation(replace(encode_cancellation(REQUEST), value=value))


def test_a_later_version_may_add_to_it() -> None:
    message = encode_cancellation(REQUEST)
    more = replace(message, value=to_json(from_json(message.value) | {"fee": 5}))
    assert decode_cancellation(more) == REQUEST


@for_each(
    ("status", "problem", "wanted"),
    [
        (Status.PENDING, None, "REQUESTED"),
        (Status.IN_DOUBT, None, "REQUESTED"),
        (Status.CONFIRMED, None, "REQUESTED"),
        (Status.CANCELLED, None, "DONE"),
        (Status.REJECTED, None, "NOT_NEEDED"),
        (Status.FAILED, None, "NOT_NEEDED"),
        (Status.CONFIRMED, {"code": "cancellation_refused"}, "REFUSED"),
        (Status.CONFIRMED, {"code": "cancellation_not_supported"}, "REFUSED"),
        (Status.CONFIRMED, cancellation_failed("rsv_1", "pms_unavailable", "Down.").as_json(), "FAILED"),
    ],
)
def test_how_it_stands_follows_from_the_submission_and_the_problem(
    status: Status, problem: dict[str, Any] | None, wanted: str
) -> None:
    assert cancellation_status(status, problem) == CancellationStatus(wanted)


@pytest.mark.parametrize(
    ("status", "came_to", "kind"),
    [
        (Status.CANCELLED, CancellationStatus.DONE, "reservation.cancelled.v1"),
        (Status.CONFIRMED, CancellationStatus.REFUSED, "reservation.cancellation_refused.v1"),
        (Status.CONFIRMED, CancellationStatus.FAILED, "reservation.cancellation_failed.v1"),
        (Status.CONFIRMED, None, "reservation.confirmed.v1"),
    ],
)
def test_what_came_of_it_is_an_event(status: Status, came_to: CancellationStatus | None, kind: str) -> None:
    about = None if came_to is None else Cancellation(came_to, "then", "Ill.", {"code": "a_code"})
    data = result_data(
        request_id="rsv_1", workspace_id="ws", account_id="acc", status=status, record={"id": 1}, cancellation=about
    )
    message = encode_result(ResultEvent("rsv_1", 2, status, "acc:1001", "2027-01-01T00:00:00.000Z", data))
    assert header(message.headers, "ce_type") == kind
    assert from_json(message.value).get("cancellation") == (
        None
        if came_to is None
        else {"status": came_to.value, "requestedAt": "then", "reason": "Ill.", "problem": {"code": "a_code"}}
    )

"""Cancelling over HTTP: accepted once safe, from the moment at which its submission was; refused before anything is published."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from forwarder.reservation.outcome import Cancellation, CancellationStatus, Status
from forwarder.reservation.problems import Problem
from forwarder.topics.codec import decode_cancellation, header, is_cancellation
from forwarder.topics.port import Message
from tests.support.cases import for_each
from tests.support.memory.clock import settle
from tests.support.stages.bodies import BOOKING_ENGINE
from tests.support.stages.http_stages import (
    BOOKING_ENGINE_PATH,
    HEADERS,
    OTHER_ACCOUNT,
    OTHER_WORKSPACE,
    REQUESTS,
    Stages,
    refused,
    stages,
)

ASKED_AT = "2027-01-01T00:00:00.000Z"
NO = Problem("cancellation_refused", "Too late", 409, "The guest has arrived.").as_json()
FAILED = Problem("cancellation_failed", "Could not", 503, "It may be asked for again.").as_json()
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with stages() as built:
        yield built


def path(name: str | int) -> str:
    return f"/api/v1/vrs/reservations/{name}/cancel"


async def accepted(house: Stages) -> str:
    """The request id of a submission that is on the log."""
    answer = await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE)
    request_id: str = answer.json()["data"]["requestId"]
    return request_id


async def cancel(house: Stages, name: str | int, **call: Any) -> httpx.Response:
    return await house.client.post(path(name), **call)


def waiting(house: Stages, name: str | int, seconds: int = 5) -> asyncio.Task[httpx.Response]:
    return asyncio.create_task(house.client.post(path(name), headers={"Prefer": f"wait={seconds}"}))


def cancellations(house: Stages) -> list[Message]:
    return [message for message in house.requests if is_cancellation(message)]


def standing(status: CancellationStatus, problem: dict[str, Any] | None = None) -> Cancellation:
    return Cancellation(status, ASKED_AT, None, problem)


async def test_it_is_accepted_before_any_worker_has_its_submission(house: Stages) -> None:
    request_id = await accepted(house)
    answer = await cancel(house, request_id, json={"reason": "Ill.", "card": "4111111111111111"})
    assert answer.status_code == 202
    assert answer.json() == {
        "success": True,
        "data": {
            "requestId": request_id,
            "status": "PENDING",
            "cancellation": "REQUESTED",
            "statusUrl": f"http://forwarder.test/api/v1/vrs/submissions/{request_id}",
        },
    }
    assert answer.headers["location"] == f"/api/v1/vrs/submissions/{request_id}"
    assert answer.headers["retry-after"] == "1"
    (message,) = cancellations(house)
    request = decode_cancellation(message)
    assert (request.request_id, request.account_id, request.reason, request.revision) == (
        request_id,
        "alpha-1",
        "Ill.",
        0,
    )
    assert request.requested_at == house.clock.now()
    assert message.key == f"alpha-1:{request_id}".encode()
    assert b"4111" not in message.value


async def test_it_goes_where_its_submission_went_once_that_is_known(house: Stages) -> None:
    request_id = await accepted(house)
    submitted = house.requests[0]
    house.ingest(submitted, Status.CONFIRMED, revision=1)
    answer = await cancel(house, request_id, headers={"traceparent": TRACE})
    assert (answer.status_code, answer.json()["data"]["status"]) == (202, "CONFIRMED")
    (message,) = cancellations(house)
    assert message.key == submitted.key
    assert decode_cancellation(message).revision == 1
    headers = {name: header(message.headers, name) for name in ("ce_id", "ce_type", "ce_subject", "traceparent")}
    assert headers == {
        "ce_id": f"{request_id}.cancellation.1",
        "ce_type": "reservation.cancellation_requested.v1",
        "ce_subject": request_id,
        "traceparent": TRACE,
    }


async def test_a_reservation_may_be_named_by_its_own_id(house: Stages) -> None:
    request_id = await accepted(house)
    stored = house.ingest(house.requests[0], Status.CONFIRMED, revision=1)
    assert (await cancel(house, stored.id)).json()["data"]["requestId"] == request_id
    assert len(cancellations(house)) == 1


@pytest.mark.parametrize("status", [Status.CONFIRMED, Status.PENDING, Status.IN_DOUBT])
async def test_what_is_asked_again_is_the_same_cancellation(house: Stages, status: Status) -> None:
    request_id = await accepted(house)
    house.ingest(house.requests[0], status, cancellation=standing(CancellationStatus.REQUESTED))
    answer = await cancel(house, request_id)
    assert (answer.status_code, answer.json()["data"]["status"]) == (202, status)
    assert cancellations(house) == []


@pytest.mark.parametrize("came_to", [CancellationStatus.REFUSED, CancellationStatus.FAILED])
async def test_what_came_to_nothing_may_be_asked_for_again(house: Stages, came_to: CancellationStatus) -> None:
    request_id = await accepted(house)
    house.ingest(house.requests[0], Status.CONFIRMED, revision=2, cancellation=standing(came_to, NO))
    assert (await cancel(house, request_id)).status_code == 202
    (message,) = cancellations(house)
    assert decode_cancellation(message).revision == 2


async def test_what_is_cancelled_already_is_answered_with_its_record(house: Stages) -> None:
    request_id = await accepted(house)
    stored = house.ingest(house.requests[0], Status.CANCELLED, cancelled_at=ASKED_AT)
    answer = await cancel(house, request_id)
    assert answer.status_code == 200
    assert answer.json() == {"success": True, "data": json.loads(stored.record)}
    assert answer.json()["data"]["cancelledAt"] == ASKED_AT
    assert answer.headers["cache-control"] == "no-store"
    assert cancellations(house) == []


@pytest.mark.parametrize("status", [Status.REJECTED, Status.FAILED])
async def test_what_was_never_made_cannot_be_cancelled(house: Stages, status: Status) -> None:
    request_id = await accepted(house)
    house.ingest(house.requests[0], status, problem=NO)
    answer = await cancel(house, request_id)
    assert (answer.status_code, answer.json()["code"]) == (409, "reservation_not_made")
    assert answer.json()["requestId"] == request_id
    assert cancellations(house) == []


async def test_a_pms_that_takes_no_cancellations_is_said_before_anything_is_published(house: Stages) -> None:
    request_id = await accepted(house)
    accounts = dict(house.directory.accounts)
    house.directory.accounts = accounts | {"alpha-1": replace(accounts["alpha-1"], kind="one-way")}
    await house.clock.advance(1)
    answer = await cancel(house, request_id)
    assert (answer.status_code, answer.json()["code"]) == (409, "cancellation_not_supported")
    assert "one-way" in answer.json()["detail"]
    assert cancellations(house) == []


@pytest.mark.parametrize("headers", [OTHER_ACCOUNT, OTHER_WORKSPACE])
async def test_nobody_cancels_what_is_anothers(house: Stages, headers: dict[str, str]) -> None:
    request_id = await accepted(house)
    stored = house.ingest(house.requests[0], Status.CONFIRMED)
    for name in (request_id, stored.id):
        answer = await cancel(house, name, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (404, "submission_not_found")
    assert cancellations(house) == []


@for_each(
    "name", ["rsv_unknown", "rsv_" + "a" * 32, "RSV_" + "A" * 32, "0", "-1", "99", "1.0", "9" * 40, "%00", "rsv_"]
)
async def test_what_was_never_issued_is_not_there(house: Stages, name: str) -> None:
    answer = await cancel(house, name)
    assert (answer.status_code, answer.json()["code"]) == (404, "submission_not_found")
    assert cancellations(house) == []


async def test_it_takes_a_key_like_everything_else(house: Stages) -> None:
    request_id = await accepted(house)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(house.app), base_url="http://forwarder.test") as nobody:
        assert (await nobody.post(path(request_id))).status_code == 401
        without = {name: value for name, value in HEADERS.items() if name != "integrationAccountId"}
        assert (await nobody.post(path(request_id), headers=without)).json()["code"] == "missing_header"
    assert cancellations(house) == []


@pytest.mark.parametrize(
    ("call", "status", "code"),
    [
        ({"json": {"reason": 5}}, 422, "validation_failed"),
        ({"json": {"reason": "x" * 1001}}, 422, "validation_failed"),
        ({"json": {"reason": "a\0b"}}, 422, "validation_failed"),
        ({"json": ["Ill."]}, 422, "validation_failed"),
        ({"content": b"{", "headers": {"Content-Type": "application/json"}}, 400, "malformed_json"),
        ({"content": b'{"reason": NaN}', "headers": {"Content-Type": "application/json"}}, 400, "malformed_json"),
        ({"content": b"reason=Ill"}, 415, "unsupported_media_type"),
        ({"json": {"reason": "Ill.", "more": "x" * 70_000}}, 413, "body_too_large"),
    ],
)
async def test_a_body_is_checked_where_there_is_one(
    house: Stages, call: dict[str, Any], status: int, code: str
) -> None:
    request_id = await accepted(house)
    answer = await cancel(house, request_id, **call)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert [error["pointer"] for error in answer.json().get("errors", [])] in ([], [""], ["/reason"])
    assert cancellations(house) == []


@pytest.mark.parametrize("body", [{}, {"reason": None}, {"reason": ""}, {"reason": "x" * 1000, "arrivalDate": "2027"}])
async def test_a_body_may_say_nothing_or_more_than_is_known(house: Stages, body: dict[str, Any]) -> None:
    assert (await cancel(house, await accepted(house), json=body)).status_code == 202
    (message,) = cancellations(house)
    assert decode_cancellation(message).reason == body.get("reason")


async def test_without_log_nothing_is_accepted(house: Stages) -> None:
    request_id = await accepted(house)
    house.log.away = True
    answer = await cancel(house, request_id)
    assert (answer.status_code, answer.json()["code"], answer.headers["retry-after"]) == (503, "log_unavailable", "1")
    assert cancellations(house) == []


@pytest.mark.parametrize("name", ["request id", "1"])
async def test_without_store_nothing_is_accepted(house: Stages, name: str) -> None:
    request_id = await accepted(house)
    house.reader.away = True
    answer = await cancel(house, request_id if name == "request id" else name)
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
    assert cancellations(house) == []


async def test_without_directory_nothing_is_accepted(house: Stages) -> None:
    request_id = await accepted(house)
    house.directory.away = True
    await house.clock.advance(1)
    answer = await cancel(house, request_id)
    assert (answer.status_code, answer.json()["code"]) == (503, "tenancy_unavailable")


async def test_who_waits_is_told_when_it_is_done_and_not_before(house: Stages) -> None:
    request_id = await accepted(house)
    submitted = house.requests[0]
    posted = waiting(house, request_id)
    await house.log.holds(REQUESTS, 2)
    await house.settle(submitted, Status.CONFIRMED)
    await settle()
    assert not posted.done()
    done = standing(CancellationStatus.DONE)
    stored = await house.settle(submitted, Status.CANCELLED, revision=2, cancellation=done, cancelled_at=ASKED_AT)
    answer = await posted
    assert (answer.status_code, answer.json()["data"]) == (200, json.loads(stored.record))
    assert answer.headers["preference-applied"] == "wait=5"
    assert answer.headers["location"] == f"/api/v1/vrs/reservations/{stored.id}"


@pytest.mark.parametrize(
    ("came_to", "problem"), [(CancellationStatus.REFUSED, NO), (CancellationStatus.FAILED, FAILED)]
)
async def test_who_waits_is_told_why_it_came_to_nothing(
    house: Stages, came_to: CancellationStatus, problem: dict[str, Any]
) -> None:
    request_id = await accepted(house)
    submitted = house.requests[0]
    house.ingest(submitted, Status.CONFIRMED, revision=1)
    posted = waiting(house, request_id)
    await house.log.holds(REQUESTS, 2)
    await house.settle(submitted, Status.CONFIRMED, revision=2, cancellation=standing(came_to, problem))
    answer = await posted
    assert (answer.status_code, answer.json()) == (problem["status"], refused(problem))
    assert answer.headers["content-type"] == "application/problem+json"
    assert ("retry-after" in answer.headers) == (problem["status"] == 503)


async def test_a_refusal_of_before_is_no_answer_to_who_asks_again(house: Stages) -> None:
    """Its event may be published again."""
    request_id = await accepted(house)
    submitted = house.requests[0]
    refused = standing(CancellationStatus.REFUSED, NO)
    house.ingest(submitted, Status.CONFIRMED, revision=2, cancellation=refused)
    posted = waiting(house, request_id)
    await house.log.holds(REQUESTS, 2)
    await house.settle(submitted, Status.CONFIRMED, revision=2, cancellation=refused)
    await settle()
    assert not posted.done()
    await house.settle(submitted, Status.CANCELLED, revision=3, cancellation=standing(CancellationStatus.DONE))
    assert (await posted).status_code == 200


@pytest.mark.parametrize("status", [Status.REJECTED, Status.FAILED])
async def test_who_waits_is_told_that_nothing_was_made(house: Stages, status: Status) -> None:
    request_id = await accepted(house)
    posted = waiting(house, request_id)
    await house.log.holds(REQUESTS, 2)
    await house.settle(house.requests[0], status, problem=NO)
    answer = await posted
    assert (answer.status_code, answer.json()["code"]) == (409, "reservation_not_made")


async def test_nothing_within_the_wait_is_202(house: Stages) -> None:
    posted = waiting(house, await accepted(house), 3)
    await house.log.holds(REQUESTS, 2)
    await settle()
    await house.clock.advance(2.9)
    assert not posted.done()
    await house.clock.advance(0.2)
    answer = await posted
    assert (answer.status_code, answer.headers["preference-applied"]) == (202, "wait=3")


async def test_who_does_not_wait_starts_no_tail(house: Stages) -> None:
    request_id = await accepted(house)
    for prefer in ({}, {"Prefer": "wait=0"}, {"Prefer": "respond-async"}):
        assert (await cancel(house, request_id, headers=prefer)).status_code == 202
    assert house.tail.seeks == 0


async def test_the_status_shows_how_it_stands(house: Stages) -> None:
    request_id = await accepted(house)
    refused = standing(CancellationStatus.REFUSED, NO)
    house.ingest(house.requests[0], Status.CONFIRMED, revision=2, cancellation=refused)
    shown = (await house.client.get(f"/api/v1/vrs/submissions/{request_id}")).json()["data"]
    assert shown["status"] == "CONFIRMED"
    assert shown["cancellation"] == {"status": "REFUSED", "requestedAt": ASKED_AT, "reason": None, "problem": NO}


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_it_is_asked_for_by_post_alone(house: Stages, method: str) -> None:
    answer = await house.client.request(method, path(await accepted(house)))
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")

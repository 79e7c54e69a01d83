"""Submitting: what is answered, what is published, and every way to be refused."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from forwarder.ingress.message import IngressSettings
from forwarder.observability.metrics import registry
from forwarder.topics.codec import decode_submission, header
from tests.support.stages.bodies import ABSENT, BOOKING_ENGINE, GENERAL, changed
from tests.support.stages.http_stages import (
    BOOKING_ENGINE_PATH,
    BULK_PATH,
    GENERAL_PATH,
    OTHER_ACCOUNT,
    Stages,
    stages,
)

ASYNC = {"Prefer": "respond-async"}


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with stages() as built:
        yield built


async def test_booking_engine_answers_202_at_once(house: Stages) -> None:
    answer = await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE)
    assert answer.status_code == 202
    assert answer.headers["content-type"] == "application/json"
    data = answer.json()["data"]
    path = f"/api/v1/vrs/submissions/{data['requestId']}"
    assert data == {
        "requestId": data["requestId"],
        "status": "PENDING",
        "acceptedAt": "2027-01-01T00:00:00.000Z",
        "statusUrl": f"http://forwarder.test{path}",
    }
    assert answer.headers["location"] == path
    assert int(answer.headers["retry-after"]) >= 1
    assert house.ids.vouches("alpha-1", data["requestId"])


async def test_the_status_address_answers_from_that_moment_on(house: Stages) -> None:
    data = (await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE)).json()["data"]
    status = await house.client.get(data["statusUrl"])
    assert status.status_code == 200
    assert status.json()["data"]["status"] == "PENDING"


@pytest.mark.parametrize("host", ["", "evil/path", 'a"b', "a b"])
async def test_a_host_that_is_none_leaves_the_status_address_a_path(house: Stages, host: str) -> None:
    answer = await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE, headers={"Host": host})
    assert answer.json()["data"]["statusUrl"] == answer.headers["location"]


async def test_202_leaves_only_after_the_log_acknowledged(house: Stages) -> None:
    house.log.acknowledging.clear()
    posted = asyncio.create_task(house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE))
    await house.log.attempted(1)
    assert not posted.done()
    house.log.acknowledging.set()
    assert (await posted).status_code == 202


@pytest.mark.parametrize(
    ("path", "body", "operation"),
    [(BOOKING_ENGINE_PATH, BOOKING_ENGINE, "booking-engine"), (GENERAL_PATH, GENERAL, "general")],
)
async def test_the_message_carries_the_submission(
    house: Stages, path: str, body: dict[str, Any], operation: str
) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    answer = await house.client.post(path, json=body, headers={**ASYNC, "traceparent": trace})
    [message] = house.requests
    submission = decode_submission(message)
    assert submission.request_id == answer.json()["data"]["requestId"] == header(message.headers, "ce_subject")
    assert (submission.workspace_id, submission.account_id, submission.operation) == ("alpha", "alpha-1", operation)
    assert submission.accepted_at == house.clock.now()
    assert submission.trace == trace
    assert submission.card is None
    assert submission.reservation == body
    assert message.key == f"alpha-1:{body['propertyId']}".encode()


@pytest.mark.parametrize(
    "trace",
    [
        "nonsense",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
    ],
)
async def test_a_traceparent_that_is_none_is_dropped(house: Stages, trace: str) -> None:
    await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE, headers={"traceparent": trace})
    assert header(house.requests[0].headers, "traceparent") is None


async def test_unknown_fields_travel_no_further(house: Stages) -> None:
    body = BOOKING_ENGINE | {"creditCard": "4111111111111111"}
    body["guest"] = body["guest"] | {"passport": "X1"}
    assert (await house.client.post(BOOKING_ENGINE_PATH, json=body)).status_code == 202
    assert house.published()["reservation"] == BOOKING_ENGINE


async def test_each_submission_without_a_key_is_its_own_where_there_is_no_duplicate_window(house: Stages) -> None:
    body = changed(BOOKING_ENGINE, "transactionId", ABSENT)
    answers = [await house.client.post(BOOKING_ENGINE_PATH, json=body) for _ in range(3)]
    assert len({answer.json()["data"]["requestId"] for answer in answers}) == 3
    assert house.reader.reads == 0


async def test_without_the_log_nothing_is_accepted(house: Stages) -> None:
    house.log.away = True
    answer = await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE)
    _assert_problem(answer, 503, "log_unavailable")
    assert int(answer.headers["retry-after"]) >= 1
    house.log.away = False
    assert (await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE)).status_code == 202


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "one"}])
async def test_what_is_too_large_for_the_topic_is_refused_for_good_with_the_limit(
    house: Stages, headers: dict[str, str]
) -> None:
    house.log.max_bytes = 100
    answer = await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE, headers=headers)
    _assert_problem(answer, 413, "body_too_large")
    assert "at most 100" in answer.json()["detail"]
    assert "retry-after" not in answer.headers
    house.log.max_bytes = 100_000
    assert (await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE, headers=headers)).status_code == 202


async def test_without_the_directory_nothing_is_accepted(house: Stages) -> None:
    house.directory.away = True
    answer = await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE)
    _assert_problem(answer, 503, "tenancy_unavailable")
    assert int(answer.headers["retry-after"]) >= 1


async def test_more_than_the_log_takes_at_a_time_is_refused() -> None:
    async with stages(IngressSettings(max_in_flight=3, retry_after_seconds=7)) as house:
        house.log.acknowledging.clear()
        posted = [asyncio.create_task(house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE)) for _ in range(2)]
        await house.log.attempted(2)
        answer = await house.client.post(GENERAL_PATH, json=GENERAL, headers=ASYNC)
        _assert_problem(answer, 503, "overloaded")
        assert answer.headers["retry-after"] == "7"
        house.log.acknowledging.set()
        assert [task.status_code for task in await asyncio.gather(*posted)] == [202, 202]
        assert (await house.client.post(GENERAL_PATH, json=GENERAL, headers=ASYNC)).status_code == 202


async def test_messages_of_one_property_in_one_account_share_a_key(house: Stages) -> None:
    await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE | {"propertyId": "1001"})
    await house.client.post(GENERAL_PATH, json=GENERAL | {"propertyId": 1001}, headers=ASYNC)
    await house.client.post(GENERAL_PATH, json=GENERAL | {"propertyId": 1001}, headers=OTHER_ACCOUNT | ASYNC)
    assert [message.key for message in house.requests] == [b"alpha-1:1001", b"alpha-1:1001", b"alpha-2:1001"]


def _assert_problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert (problem["status"], problem["code"], problem["type"]) == (status, code, f"/problems/{code}")
    assert problem["title"]
    assert problem["detail"]
    return problem


async def test_the_address_to_follow_is_the_deployments_own_where_that_is_known() -> None:
    """And not what a caller, or whoever stands between, wrote for a host."""
    house: Stages
    async with stages(settings=IngressSettings(public_url="https://reservations.example.com")) as house:
        evil = {"Host": "evil.example", "Prefer": "respond-async"}
        single = await house.client.post(GENERAL_PATH, json=GENERAL, headers=evil)
        item = {"operation": "general", "reservation": GENERAL | {"propertyId": 7}}
        bulk = await house.client.post(BULK_PATH, json=[item], headers=evil)
        cancelled = await house.client.post(f"{GENERAL_PATH}/{single.json()['data']['requestId']}/cancel", headers=evil)
        shown = [single.json()["data"], bulk.json()["data"]["results"][0], cancelled.json()["data"]]
        for each in shown:
            path = f"/api/v1/vrs/submissions/{each['requestId']}"
            assert each["statusUrl"] == "https://reservations.example.com" + path


@pytest.mark.usefixtures("nothing_usual_is_told")
async def test_what_is_accepted_may_go_untold_but_not_what_is_refused_or_comes_again(house: Stages) -> None:
    with capture_logs() as logs:
        await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE)
        assert logs == []
        house.ingest(house.requests[0])
        await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE)
        await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE | {"currency": "EURO"})
        await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE | {"transactionId": "tx-2", "shoeSize": 43})
    told = [(entry["event"], entry.get("duplicate"), entry.get("code")) for entry in logs]
    assert told == [
        ("submission.accepted", True, None),
        ("submission.refused", None, "validation_failed"),
        ("submission.accepted", False, None),
    ]


async def test_how_long_the_log_takes_to_acknowledge_is_a_metric(house: Stages) -> None:
    def seconds() -> float:
        return registry().get_sample_value("forwarder_publish_seconds_sum") or 0.0

    await house.clock.advance(1000.0)
    house.log.acknowledging.clear()
    before = seconds()
    posting = asyncio.create_task(house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE))
    await house.log.attempted(1)
    await house.clock.advance(2.0)
    house.log.acknowledging.set()
    assert (await posting).status_code == 202
    assert seconds() - before == 2.0

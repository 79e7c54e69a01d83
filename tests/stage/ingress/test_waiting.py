"""Waiting for the outcome: both operations, either way round, and everybody who leaves early."""

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from forwarder.reservation.outcome import Status
from forwarder.reservation.problems import Problem
from tests.support.stages.bodies import BOOKING_ENGINE, GENERAL
from tests.support.stages.http_stages import BOOKING_ENGINE_PATH, GENERAL_PATH, Stages, refused, stages

SOLD_OUT = Problem("room_unavailable", "The room is taken", 409, "The nights were taken meanwhile.")
CARD_REQUIRED = Problem("card_required", "The reservation needs a card", 422, "Pass cardDetails.")


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with stages() as built:
        yield built


def _submit(house: Stages, path: str = GENERAL_PATH, prefer: str | None = None) -> asyncio.Task[httpx.Response]:
    body = GENERAL if path == GENERAL_PATH else BOOKING_ENGINE
    headers = {} if prefer is None else {"Prefer": prefer}
    return asyncio.create_task(house.client.post(path, json=body, headers=headers))


@pytest.mark.parametrize(
    ("path", "prefer", "applied"),
    [(GENERAL_PATH, None, None), (GENERAL_PATH, "wait=5", "wait=5"), (BOOKING_ENGINE_PATH, "wait=5", "wait=5")],
)
async def test_confirmed_within_the_wait_is_201_with_the_record(
    house: Stages, path: str, prefer: str | None, applied: str | None
) -> None:
    posted = _submit(house, path, prefer)
    stored = await house.settle(await house.requested(), Status.CONFIRMED, pms_reservation_id="pms-9")
    answer = await posted
    assert answer.status_code == 201
    assert answer.json() == {"success": True, "data": json.loads(stored.record)}
    assert answer.json()["data"]["pmsReservationId"] == "pms-9"
    assert answer.headers.get("preference-applied") == applied
    assert answer.headers["cache-control"] == "no-store"
    assert (await house.client.get(answer.headers["location"])).json() == answer.json()


@pytest.mark.parametrize("problem", [SOLD_OUT, CARD_REQUIRED])
async def test_rejected_within_the_wait_is_the_problem(house: Stages, problem: Problem) -> None:
    posted = _submit(house)
    await house.settle(await house.requested(), Status.REJECTED, problem=problem.as_json())
    answer = await posted
    assert answer.status_code == problem.status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == refused(problem.as_json())


@pytest.mark.parametrize("status", [Status.FAILED, Status.IN_DOUBT])
async def test_failed_or_in_doubt_within_the_wait_is_202_and_says_so(house: Stages, status: Status) -> None:
    posted = _submit(house)
    await house.settle(await house.requested(), status)
    answer = await posted
    assert answer.status_code == 202
    assert answer.json()["data"]["status"] == status
    assert answer.json()["success"] is (status is Status.IN_DOUBT)


async def test_no_outcome_within_the_default_wait_is_202(house: Stages) -> None:
    posted = _submit(house)
    await house.requested()
    await house.clock.advance(9.9)
    assert not posted.done()
    await house.clock.advance(0.2)
    answer = await posted
    assert answer.status_code == 202
    assert answer.json()["data"]["status"] == "PENDING"
    assert "location" in answer.headers
    assert "preference-applied" not in answer.headers


async def test_no_outcome_within_the_wait_shows_the_stored_record_with_its_id(house: Stages) -> None:
    posted = _submit(house)
    stored = house.ingest(await house.requested(), Status.PENDING, revision=0)
    await house.clock.advance(10.1)
    answer = await posted
    assert answer.status_code == 202
    data = answer.json()["data"]
    assert (data["id"], data["status"]) == (stored.id, "PENDING")
    assert data | json.loads(stored.record) == data


@pytest.mark.parametrize(
    ("prefer", "applied"),
    [
        ("respond-async", "respond-async"),
        ("Respond-Async; foo=bar", "respond-async"),
        ("wait=0", "wait=0"),
        ("nonsense, respond-async, return=minimal", "respond-async"),
    ],
)
async def test_the_general_operation_answers_at_once_where_asked(house: Stages, prefer: str, applied: str) -> None:
    answer = await house.client.post(GENERAL_PATH, json=GENERAL, headers={"Prefer": prefer})
    assert answer.status_code == 202
    assert answer.headers["preference-applied"] == applied
    assert house.tail.seeks == 0


@pytest.mark.parametrize(
    "prefer", ["wait=-1", "wait=soon", "wait", "wait=1.5", "wait=00000000000000000000", "handling=strict", "=", ""]
)
async def test_a_preference_that_makes_no_sense_changes_nothing(house: Stages, prefer: str) -> None:
    answer = await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE, headers={"Prefer": prefer})
    assert answer.status_code == 202
    assert "preference-applied" not in answer.headers


@pytest.mark.parametrize(
    ("prefer", "seconds", "applied"),
    [
        ("wait=3", 3, "wait=3"),
        ('wait="3"', 3, "wait=3"),
        ("wait=3, wait=20", 3, "wait=3"),
        ("respond-async, wait=3", 3, "respond-async, wait=3"),
        ("wait=100000000000", 60, "wait=60"),
        ("wait=999999999", 60, "wait=60"),
        ('foo="a, wait=5", wait=3', 3, "wait=3"),
    ],
)
async def test_the_wait_is_what_was_asked_up_to_the_longest(
    house: Stages, prefer: str, seconds: int, applied: str | None
) -> None:
    posted = _submit(house, GENERAL_PATH, prefer)
    await house.requested()
    await house.clock.advance(seconds - 0.1)
    assert not posted.done()
    await house.clock.advance(0.2)
    assert (await posted).headers.get("preference-applied") == applied


async def test_two_prefer_lines_count_as_one(house: Stages) -> None:
    headers = [("Prefer", "handling=lenient"), ("Prefer", "respond-async")]
    answer = await house.client.post(GENERAL_PATH, json=GENERAL, headers=headers)
    assert answer.headers["preference-applied"] == "respond-async"


async def test_an_outcome_that_is_there_before_the_acknowledgement_is_not_missed(house: Stages) -> None:
    house.log.acknowledging.clear()
    posted = _submit(house)
    await house.log.attempted(1)
    house.log.acknowledging.set()
    await house.settle(await house.requested(), Status.CONFIRMED)
    assert (await posted).status_code == 201

"""The status of a submission, and one reservation by its id."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from forwarder.reservation.evidence import NOTHING_SENT, Target
from forwarder.reservation.outcome import InDoubt, Status
from forwarder.reservation.problems import Problem
from forwarder.store.submissions.port import Attempt
from tests.support.cases import for_each
from tests.support.stages.bodies import BOOKING_ENGINE
from tests.support.stages.http_stages import BOOKING_ENGINE_PATH, OTHER_ACCOUNT, OTHER_WORKSPACE, Stages, stages

SUBMISSIONS = "/api/v1/vrs/submissions"
RESERVATIONS = "/api/v1/vrs/reservations"
SOLD_OUT = Problem("room_unavailable", "The room is taken", 409, "The nights were taken meanwhile.")
ATTEMPTS = (
    Attempt(1, "create", "2027-01-01T00:00:00.100Z", 5012, "deferred", "pms_timeout", "No answer within 5 s."),
    Attempt(2, "find", "2027-01-01T00:00:10.000Z", 21, "absent"),
)


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with stages() as built:
        yield built


async def _accept(house: Stages) -> str:
    answer = await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE)
    request_id: str = answer.json()["data"]["requestId"]
    return request_id


async def _get(house: Stages, path: str, **headers: Any) -> Any:
    return await house.client.get(path, **headers)


async def test_before_it_is_taken_in_the_status_is_pending(house: Stages) -> None:
    request_id = await _accept(house)
    answer = await _get(house, f"{SUBMISSIONS}/{request_id}")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json() == {
        "success": True,
        "data": {
            "requestId": request_id,
            "status": "PENDING",
            "acceptedAt": None,
            "updatedAt": None,
            "reservationId": None,
            "attempts": [],
            "problem": None,
            "cancellation": None,
            "record": None,
        },
    }


async def test_once_taken_in_the_record_is_there(house: Stages) -> None:
    request_id = await _accept(house)
    stored = house.ingest(house.requests[0])
    assert (await _get(house, f"{SUBMISSIONS}/{request_id}")).json() == {
        "success": True,
        "data": {
            "requestId": request_id,
            "status": "PENDING",
            "acceptedAt": "2027-01-01T00:00:00.000Z",
            "updatedAt": "2027-01-01T00:00:00.000Z",
            "reservationId": 1,
            "attempts": [],
            "problem": None,
            "cancellation": None,
            "record": json.loads(stored.record),
        },
    }


async def test_every_attempt_is_shown(house: Stages) -> None:
    request_id = await _accept(house)
    house.reader.put("alpha-1", replace(house.ingest(house.requests[0]), attempts=ATTEMPTS))
    assert (await _get(house, f"{SUBMISSIONS}/{request_id}")).json()["data"]["attempts"] == [
        {
            "number": 1,
            "action": "create",
            "startedAt": "2027-01-01T00:00:00.100Z",
            "durationMs": 5012,
            "outcome": "deferred",
            "reason": "pms_timeout",
            "detail": "No answer within 5 s.",
        },
        {"number": 2, "action": "find", "startedAt": "2027-01-01T00:00:10.000Z", "durationMs": 21, "outcome": "absent"},
    ]


async def test_a_push_in_doubt_shows_what_is_known_of_it_while_it_is_pending(house: Stages) -> None:
    request_id = await _accept(house)
    in_doubt = InDoubt("pms_reference_missing", "", made=True, pms_reservation_id="4711", status=201)
    evidence = NOTHING_SENT.after(in_doubt, Target(reference="full"), "2027-01-01T00:00:05.000Z")
    evidence = evidence.absent("2027-01-01T00:02:05.000Z", 120.0)
    house.reader.put("alpha-1", replace(house.ingest(house.requests[0]), evidence=evidence))
    data = (await _get(house, f"{SUBMISSIONS}/{request_id}")).json()["data"]
    assert data["evidence"] == [
        "The PMS answered 201 with id 4711 at 2027-01-01T00:00:05.000Z.",
        "It was looked up once since then, last at 2027-01-01T00:02:05.000Z, and was not shown.",
    ]


async def test_a_rejection_shows_its_problem(house: Stages) -> None:
    request_id = await _accept(house)
    house.ingest(house.requests[0], Status.REJECTED, problem=SOLD_OUT.as_json())
    data = (await _get(house, f"{SUBMISSIONS}/{request_id}")).json()["data"]
    assert data["status"] == "REJECTED"
    assert data["problem"] == data["record"]["problem"] == SOLD_OUT.as_json()


@pytest.mark.parametrize("taken_in", [False, True])
@pytest.mark.parametrize("headers", [OTHER_ACCOUNT, OTHER_WORKSPACE])
async def test_others_learn_nothing_of_it(house: Stages, headers: dict[str, str], *, taken_in: bool) -> None:
    request_id = await _accept(house)
    if taken_in:
        house.ingest(house.requests[0])
    theirs = await _get(house, f"{SUBMISSIONS}/{request_id}", headers=headers)
    unknown = await _get(house, f"{SUBMISSIONS}/rsv_never", headers=headers)
    assert theirs.status_code == unknown.status_code == 404
    assert theirs.json() == unknown.json()
    assert theirs.json()["code"] == "submission_not_found"


@for_each("request_id", ["x", "rsv_", "rsv_" + "a" * 31, "RSV_" + "A" * 32, "rsv_é", "%00", "a" * 1000, "rsv_%0ax"])
async def test_what_was_never_issued_is_404(house: Stages, request_id: str) -> None:
    answer = await _get(house, f"{SUBMISSIONS}/{request_id}")
    assert answer.status_code == 404
    assert answer.json()["code"] == "submission_not_found"
    assert house.reader.reads == 0


async def test_what_only_looks_like_an_id_is_404(house: Stages) -> None:
    answer = await _get(house, f"{SUBMISSIONS}/rsv_{'a' * 32}")
    assert answer.status_code == 404
    assert answer.json()["code"] == "submission_not_found"


async def test_one_reservation_in_the_envelope_of_the_contract(house: Stages) -> None:
    await _accept(house)
    stored = house.ingest(house.requests[0], Status.CONFIRMED)
    answer = await _get(house, f"{RESERVATIONS}/1")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json() == {"success": True, "data": json.loads(stored.record)}


@pytest.mark.parametrize("headers", [OTHER_ACCOUNT, OTHER_WORKSPACE])
async def test_others_do_not_see_it(house: Stages, headers: dict[str, str]) -> None:
    await _accept(house)
    house.ingest(house.requests[0])
    theirs = await _get(house, f"{RESERVATIONS}/1", headers=headers)
    assert theirs.status_code == 404
    assert theirs.json() == (await _get(house, f"{RESERVATIONS}/2", headers=headers)).json()


@for_each("number", ["0", "-1", "1.0", "abc", "99999999999999999999", "9" * 5000, "%D9%A1", "1e3"])
async def test_what_is_no_id_is_404(house: Stages, number: str) -> None:
    answer = await _get(house, f"{RESERVATIONS}/{number}")
    assert answer.status_code == 404
    assert answer.json()["code"] == "reservation_not_found"
    assert house.reader.reads == 0


@pytest.mark.parametrize("path", [f"{SUBMISSIONS}/rsv_{'a' * 32}", f"{RESERVATIONS}/1", RESERVATIONS])
async def test_without_the_store_it_says_when_to_come_again(house: Stages, path: str) -> None:
    house.reader.away = True
    path = path.replace("a" * 32, house.ids.issue("alpha-1", house.clock.now()).removeprefix("rsv_"))
    answer = await _get(house, path)
    assert answer.status_code == 503
    assert answer.json()["code"] == "store_unavailable"
    assert int(answer.headers["retry-after"]) >= 1


async def test_without_the_directory_as_well(house: Stages) -> None:
    house.directory.away = True
    answer = await _get(house, RESERVATIONS)
    assert answer.status_code == 503
    assert answer.json()["code"] == "tenancy_unavailable"


@pytest.mark.parametrize("path", [SUBMISSIONS + "/x", RESERVATIONS, RESERVATIONS + "/1", "/api/vrs/reservations/"])
async def test_head_answers_as_get_without_the_body(house: Stages, path: str) -> None:
    head, get = await house.client.head(path), await house.client.get(path)
    assert head.status_code == get.status_code
    assert head.headers == get.headers
    assert head.content == b""

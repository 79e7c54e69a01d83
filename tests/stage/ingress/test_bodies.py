"""Bodies at the door: their media type, their size, whether they are JSON, and every fault in one answer."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from forwarder.reservation.request import MAX_BODY_BYTES
from tests.support.cases import for_each
from tests.support.stages.bodies import BOOKING_ENGINE, CARD, changed
from tests.support.stages.http_stages import BOOKING_ENGINE_PATH, Stages, stages

ASYNC = {"Prefer": "respond-async"}


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with stages() as built:
        yield built


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON;charset=UTF-8",
        'application/json; charset="utf-8"',
        "application/json; charset=UTF8",
    ],
)
async def test_json_is_taken(house: Stages, content_type: str) -> None:
    answer = await house.client.post(
        BOOKING_ENGINE_PATH, content=_json(BOOKING_ENGINE), headers={"Content-Type": content_type}
    )
    assert answer.status_code == 202


async def test_no_part_of_a_card_number_comes_back_where_names_are_cut(house: Stages) -> None:
    name = "x" * 50 + " 4111111111111111"  # longer than what is shown of a name
    body = _json(BOOKING_ENGINE)
    header = await house.client.post(BOOKING_ENGINE_PATH, content=body, headers={"Content-Type": f"text/{name}"})
    query = await house.client.post(BOOKING_ENGINE_PATH, content=body, params={name: "1"})
    unknown = await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE | {name: 1})
    assert (header.status_code, query.status_code, unknown.status_code) == (415, 400, 202)
    assert unknown.json()["warnings"][0]["code"] == "unknown_field"
    for answer in (header, query, unknown):
        assert "4111111" not in answer.text


@for_each(
    "headers",
    [
        {},
        {"Content-Type": ""},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/vnd.api+json"},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Content-Type": "application/jsonp"},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ],
)
async def test_anything_else_is_415(house: Stages, headers: dict[str, str]) -> None:
    answer = await house.client.post(BOOKING_ENGINE_PATH, content=_json(BOOKING_ENGINE), headers=headers)
    detail = _assert_problem(answer, 415, "unsupported_media_type")["detail"]
    sent = {name.lower(): value for name, value in headers.items()}
    assert f"Content-Type: {sent['content-type']}" in detail if "content-type" in sent else "no Content-Type" in detail
    assert not house.requests


@for_each(
    "body",
    [
        b"",
        b"{",
        b'{"a":1}}',
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        b"{'a':1}",
        b'{"totalPrice":NaN}',
        b'{"a":Infinity}',
        b"[" * 5000,
    ],
)
async def test_what_is_not_json_is_400(house: Stages, body: bytes) -> None:
    answer = await _post(house, body)
    _assert_problem(answer, 400, "malformed_json")
    assert not house.requests


@pytest.mark.parametrize("body", [b"[]", b"null", b"1", b'"text"'])
async def test_json_that_is_no_object_is_422(house: Stages, body: bytes) -> None:
    answer = await _post(house, body)
    assert _assert_problem(answer, 422, "validation_failed")["errors"] == [
        {"pointer": "", "code": "wrong_type", "detail": "must be a JSON object"}
    ]


async def test_every_fault_is_named_in_one_answer_and_none_quotes_the_value(house: Stages) -> None:
    body = changed(
        BOOKING_ENGINE | {"cardDetails": CARD | {"cardNumber": [4111111111111111]}}, "guest.address.country", "Spain"
    )
    body |= {
        "departureDate": "2027-06-01",
        "totalPrice": "10.12",
        "numberOfGuests": 0,
        "morChannel": "OTHER",
        "notes": 5,
    }
    answer = await house.client.post(BOOKING_ENGINE_PATH, json=body)
    problem = _assert_problem(answer, 422, "validation_failed")
    assert {error["pointer"] for error in problem["errors"]} == {
        "/cardDetails/cardNumber",
        "/guest/address/country",
        "/departureDate",
        "/totalPrice",
        "/numberOfGuests",
        "/morChannel",
        "/notes",
    }
    assert all(error["code"] and error["detail"] for error in problem["errors"])
    assert "4111" not in answer.text
    assert "OTHER" not in answer.text


async def test_a_body_up_to_the_limit_is_taken(house: Stages) -> None:
    body = _json(BOOKING_ENGINE)
    assert (await _post(house, body + b" " * (MAX_BODY_BYTES - len(body)))).status_code == 202


async def test_a_longer_body_is_413(house: Stages) -> None:
    answer = await _post(house, _json(BOOKING_ENGINE) + b" " * MAX_BODY_BYTES)
    _assert_problem(answer, 413, "body_too_large")
    assert answer.headers["connection"] == "close"
    assert not house.requests


async def test_a_longer_body_in_chunks_is_refused_before_it_ends(house: Stages) -> None:
    sent = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(1000):
            sent += 1
            yield b" " * 1024

    headers = {"Content-Type": "application/json"}
    answer = await house.client.post(BOOKING_ENGINE_PATH, content=chunks(), headers=headers)
    _assert_problem(answer, 413, "body_too_large")
    assert sent == MAX_BODY_BYTES // 1024 + 1


def _json(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode()


async def _post(house: Stages, body: bytes) -> Any:
    return await house.client.post(BOOKING_ENGINE_PATH, content=body, headers={"Content-Type": "application/json"})


def _assert_problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert (problem["status"], problem["code"], problem["type"]) == (status, code, f"/problems/{code}")
    assert problem["title"]
    assert problem["detail"]
    return problem

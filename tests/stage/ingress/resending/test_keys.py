"""The form of an Idempotency-Key: a quoted string of RFC 8941, or the same without its quotes."""

from collections.abc import AsyncIterator

import pytest

from forwarder.ingress.message import read_idempotency_key
from tests.support.cases import for_each
from tests.support.stages.bodies import BOOKING_ENGINE
from tests.support.stages.http_stages import (
    BOOKING_ENGINE_PATH,
    HEADERS,
    Stages,
    stages,
)


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with stages() as built:
        yield built


@for_each(
    "key",
    [
        "",
        '""',
        '"',
        '"open',
        'clo"sed',
        '"a" "b"',
        '"a";p=1',
        '"back\\slash"',
        "é",
        "tab\tinside",
        "x" * 256,
        f'"{"x" * 256}"',
    ],
)
async def test_a_malformed_key_is_400(house: Stages, key: str) -> None:
    headers = {name.encode(): value.encode("latin-1") for name, value in {**HEADERS, "Idempotency-Key": key}.items()}
    answer = await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["code"] == "invalid_idempotency_key"
    assert not house.requests


async def test_two_keys_are_400(house: Stages) -> None:
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    answer = await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE, headers=headers)
    assert answer.json()["code"] == "invalid_idempotency_key"
    assert "more than once, with different values" in answer.json()["detail"]


async def test_the_same_key_twice_is_one(house: Stages) -> None:
    once = await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE, headers=[("Idempotency-Key", "a")])
    headers = [
        ("Idempotency-Key", "a"),
        ("Idempotency-Key", "a"),
        ("Forward-Deadline", "90"),
        ("Forward-Deadline", "90"),
    ]
    answer = await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE, headers=headers)
    assert answer.status_code == 202
    assert answer.json() == once.json()


@for_each(
    ("header", "key"),
    [
        ("x", "x"),
        ("x" * 255, "x" * 255),
        (f'"{"x" * 255}"', "x" * 255),
        ('"a b"', "a b"),
        ("a b, c", "a b, c"),
        (r'"say \"hi\" \\"', 'say "hi" \\'),
        ("8e03978e-40d5-43e8-bc93-6894a57f9324", "8e03978e-40d5-43e8-bc93-6894a57f9324"),
    ],
)
def test_what_a_key_may_look_like(header: str, key: str) -> None:
    assert read_idempotency_key(header) == key

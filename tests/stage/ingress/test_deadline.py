"""The Forward-Deadline: for how many seconds a submission is worth forwarding, in the message for the worker."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from forwarder.topics.codec import decode_submission
from tests.support.stages.bodies import BOOKING_ENGINE, GENERAL
from tests.support.stages.http_stages import BOOKING_ENGINE_PATH, GENERAL_PATH, HEADERS, Stages, stages

both_operations = pytest.mark.parametrize(
    ("path", "body"), [(BOOKING_ENGINE_PATH, BOOKING_ENGINE), (GENERAL_PATH, GENERAL)]
)


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with stages() as built:
        yield built


async def _post(
    house: Stages, *deadlines: str, path: str = BOOKING_ENGINE_PATH, body: Any = BOOKING_ENGINE, key: str | None = None
) -> httpx.Response:
    """Submit with one Forward-Deadline line for each of `deadlines`."""
    headers = {**HEADERS, "Prefer": "respond-async"} | ({} if key is None else {"Idempotency-Key": key})
    lines = [*headers.items(), *(("Forward-Deadline", deadline) for deadline in deadlines)]
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in lines]
    return await house.client.post(path, json=body, headers=encoded)


def _assert_refused(house: Stages, answer: httpx.Response) -> None:
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["code"] == "invalid_forward_deadline"
    assert "from 1 to 604800" in problem["detail"]
    assert not house.log.attempts


@both_operations
@pytest.mark.parametrize(("deadline", "seconds"), [("1", 1), ("300", 300), (" 300\t", 300), ("604800", 604_800)])
async def test_the_message_carries_the_deadline(
    house: Stages, path: str, body: Any, deadline: str, seconds: int
) -> None:
    assert (await _post(house, deadline, path=path, body=body)).status_code == 202
    assert house.published()["deadlineSeconds"] == seconds
    submission = decode_submission(house.requests[-1])
    assert (submission.deadline_seconds, submission.accepted_at) == (seconds, house.clock.now())


@both_operations
async def test_without_the_header_the_message_names_no_deadline(house: Stages, path: str, body: Any) -> None:
    assert (await _post(house, path=path, body=body)).status_code == 202
    assert "deadlineSeconds" not in house.published()
    assert decode_submission(house.requests[-1]).deadline_seconds is None


@both_operations
@pytest.mark.parametrize(
    "deadline",
    [
        "",
        "0",
        "-1",
        "+60",
        "060",
        "60.0",
        "1e2",
        "0x3c",
        "6_0",
        "soon",
        "60s",
        "5 m",
        "60;q=1",
        '"60"',
        "60, 60",
        "\xb2",
        "604801",
        "9" * 5_000,
    ],
)
async def test_anything_else_is_400(house: Stages, path: str, body: Any, deadline: str) -> None:
    _assert_refused(house, await _post(house, deadline, path=path, body=body))


@both_operations
@pytest.mark.parametrize("deadlines", [("60", "300"), ("", "60"), ("60", "")])
async def test_two_different_ones_are_400(house: Stages, path: str, body: Any, deadlines: tuple[str, str]) -> None:
    _assert_refused(house, await _post(house, *deadlines, path=path, body=body))


async def test_a_key_is_the_same_submission_with_another_deadline(house: Stages) -> None:
    first = await _post(house, "60", key="order-42")
    for deadlines in (("300",), ()):
        assert (await _post(house, *deadlines, key="order-42")).json() == first.json()
    assert len(house.requests) == 1
    house.ingest(house.requests[0])
    async with stages() as elsewhere:
        elsewhere.reader.rows = house.reader.rows
        assert (await _post(elsewhere, "300", key="order-42")).json() == first.json()
        assert not elsewhere.requests


async def test_sent_again_after_the_log_failed_the_deadline_counts_from_when_it_was_accepted(house: Stages) -> None:
    house.log.away = True
    assert (await _post(house, "60", key="order-42")).status_code == 503
    house.log.away = False
    await house.clock.advance(3600)
    assert (await _post(house, "60", key="order-42")).status_code == 202
    submission = decode_submission(house.requests[-1])
    assert (submission.accepted_at, submission.deadline_seconds) == (house.clock.now(), 60)

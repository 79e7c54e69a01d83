"""Sent again after a 503, as callers are told to: accepted when it is, whatever became of the times before."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from forwarder.ingress.message import IngressSettings
from forwarder.process.clock import iso
from forwarder.topics.codec import decode_submission
from tests.support.stages.bodies import BOOKING_ENGINE
from tests.support.stages.http_stages import BOOKING_ENGINE_PATH, BULK_PATH, Stages, stages

FOUR_DAYS = 4 * 24 * 60 * 60
"""Longer than any account's deadline."""


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with stages() as built:
        yield built


async def _post(house: Stages, key: str, **changes: Any) -> httpx.Response:
    headers = {"Idempotency-Key": key}
    return await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE | changes, headers=headers)


async def _begun(house: Stages, key: str, **changes: Any) -> "asyncio.Task[httpx.Response]":
    """A submission that is being published, and not acknowledged before `house.log.acknowledging` of now is set."""
    task = asyncio.create_task(_post(house, key, **changes))
    await house.log.attempted(house.log.attempts + 1)
    return task


def _hang(house: Stages) -> asyncio.Event:
    """Publishes that begin from now on wait for the event."""
    house.log.acknowledging = asyncio.Event()
    return house.log.acknowledging


def _heal(house: Stages) -> None:
    house.log.away = False
    house.log.acknowledging = asyncio.Event()
    house.log.acknowledging.set()


def _item(key: str, **changes: Any) -> dict[str, Any]:
    return {"operation": "booking-engine", "reservation": BOOKING_ENGINE | changes, "idempotencyKey": key}


def _accepted_at(answer: httpx.Response) -> str:
    assert answer.status_code == 202
    moment: str = answer.json()["data"]["acceptedAt"]
    return moment


def _assert_accepted_now(house: Stages, answer: httpx.Response) -> None:
    assert _accepted_at(answer) == iso(house.clock.now())
    assert decode_submission(house.requests[-1]).accepted_at == house.clock.now()


async def test_after_the_log_was_away_for_days_it_is_accepted_now(house: Stages) -> None:
    house.log.away = True
    assert (await _post(house, "order-42")).status_code == 503
    _heal(house)
    await house.clock.advance(FOUR_DAYS)
    answer = await _post(house, "order-42")
    _assert_accepted_now(house, answer)
    await house.clock.advance(60)
    assert (await _post(house, "order-42")).json() == answer.json()
    assert len(house.requests) == 2  # a minute later the log may have lost it; the worker ingests the first


async def test_five_seconds_after_its_acknowledgement_it_is_published_again(house: Stages) -> None:
    """The log may have lost it since; until then it is answered from memory."""
    published = []
    for seconds in (0.0, 4.999, 0.001):
        await house.clock.advance(seconds)
        await _post(house, "order-42")
        published.append(len(house.requests))
    assert published == [1, 1, 2]


async def test_whoever_sends_it_over_and_over_while_the_log_hangs_does_not_keep_the_first_moment(house: Stages) -> None:
    """There is always one under way, as each begins before the last one failed."""
    events = [_hang(house)]
    tasks = [await _begun(house, "order-42")]
    for _ in range(5):
        await house.clock.advance(60)
        events.append(_hang(house))
        tasks.append(await _begun(house, "order-42"))
        house.log.away = True
        events.pop(0).set()
        assert (await tasks.pop(0)).status_code == 503
        house.log.away = False
    events.pop().set()
    answer = await tasks.pop()
    # That of the one before, which it joined while that was under way.
    assert house.clock.now().timestamp() - decode_submission(house.requests[-1]).accepted_at.timestamp() <= 60
    assert _accepted_at(answer) == iso(decode_submission(house.requests[-1]).accepted_at)


async def test_of_two_under_way_that_began_apart_the_first_acknowledged_is_what_both_are_told(house: Stages) -> None:
    began = house.clock.now()
    first = _hang(house)
    failing = await _begun(house, "order-42")
    await house.clock.advance(1)
    second = _hang(house)
    joined = await _begun(house, "order-42")
    house.log.away = True
    first.set()
    assert (await failing).status_code == 503
    house.log.away = False
    await house.clock.advance(5)
    third = _hang(house)
    anew = await _begun(house, "order-42")
    second.set()
    told = (await joined).json()
    assert told["data"]["acceptedAt"] == iso(began)
    third.set()
    assert (await anew).json() == told
    assert (await _post(house, "order-42")).json() == told
    assert len(house.requests) == 2  # the worker takes in the first


async def test_a_call_that_was_broken_off_leaves_no_moment_behind(house: Stages) -> None:
    _hang(house)
    task = await _begun(house, "order-42")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    _heal(house)
    await house.clock.advance(FOUR_DAYS)
    _assert_accepted_now(house, await _post(house, "order-42"))


async def test_what_was_refused_as_too_much_is_accepted_when_it_is() -> None:
    async with stages(IngressSettings(max_in_flight=1)) as house:
        hanging = _hang(house)
        other = await _begun(house, "another")
        assert (await _post(house, "order-42")).status_code == 503
        hanging.set()
        assert (await other).status_code == 202
        await house.clock.advance(FOUR_DAYS)
        _assert_accepted_now(house, await _post(house, "order-42"))


async def test_a_bulk_that_failed_is_accepted_when_it_is_sent_again(house: Stages) -> None:
    items = [_item(key) for key in ("one", "two", "one")]
    house.log.away = True
    assert (await house.client.post(BULK_PATH, json=items)).status_code == 503
    _heal(house)
    await house.clock.advance(FOUR_DAYS)
    answer = await house.client.post(BULK_PATH, json=items)
    now = house.clock.now()
    assert {item["acceptedAt"] for item in answer.json()["data"]["results"]} == {iso(now)}
    assert [decode_submission(message).accepted_at for message in house.requests] == [now, now]


async def test_another_process_s_failure_and_this_one_s_success_are_one_submission(house: Stages) -> None:
    """The first process tried and failed, the second was asked next; then the first again, before and after the worker."""
    house.log.away = True
    assert (await _post(house, "order-42")).status_code == 503
    _heal(house)
    await house.clock.advance(60)
    async with stages() as other:
        other.log.topics = house.log.topics
        accepted = await _post(other, "order-42")
        assert accepted.status_code == 202
    house.ingest(house.requests[0])
    again = await _post(house, "order-42")
    assert again.json() == accepted.json()
    assert len(house.requests) == 1


# --- what is forgotten ------------------------------------------------------------------------------------------------------


async def test_what_is_under_way_is_not_forgotten_for_others() -> None:
    """Its acknowledgement would be taken for that of another body, which was never published."""
    async with stages(IngressSettings(max_keys_remembered=1)) as house:
        first = _hang(house)
        published = await _begun(house, "order-42")
        _heal(house)
        assert (await _post(house, "another")).status_code == 202
        house.log.away = True
        refused = await _post(house, "order-42", notes="another body")
        house.log.away = False
        first.set()
        assert (await published).status_code == 202
        again = await _post(house, "order-42", notes="another body")
        assert (refused.status_code, again.status_code) == (422, 422)
        assert len(house.requests) == 2


async def test_once_they_ended_no_more_are_remembered_than_may_be() -> None:
    async with stages(IngressSettings(max_keys_remembered=1)) as house:
        hanging = _hang(house)
        tasks = [await _begun(house, key) for key in ("one", "two", "three")]
        hanging.set()
        assert [(await task).status_code for task in tasks] == [202] * 3
        assert (await _post(house, "four")).status_code == 202
        for key in ("one", "two", "three"):
            assert (await _post(house, key, notes="another body")).status_code == 202


async def test_a_key_that_comes_twice_in_a_bulk_is_known_however_few_are_remembered() -> None:
    async with stages(IngressSettings(max_keys_remembered=1)) as house:
        items = [_item("one"), _item("two"), _item("one", notes="another body")]
        results = (await house.client.post(BULK_PATH, json=items)).json()["data"]["results"]
        assert [item.get("problem", {}).get("status") for item in results] == [None, None, 422]
        assert len(house.requests) == 2


async def test_ten_minutes_after_a_503_its_key_may_have_another_body(house: Stages) -> None:
    """The log may have stored the first; then the worker ingests only that."""
    house.log.away = True
    assert (await _post(house, "order-42")).status_code == 503
    _heal(house)
    await house.clock.advance(600.0)
    assert (await _post(house, "order-42", notes="another body")).status_code == 422
    await house.clock.advance(0.001)
    assert (await _post(house, "order-42", notes="another body")).status_code == 202

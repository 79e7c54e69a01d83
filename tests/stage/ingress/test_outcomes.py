"""How outcomes are learnt: one tail for everybody who waits, at rest while nobody does, and nothing left behind by who leaves."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from forwarder.ingress.message import IngressSettings
from forwarder.observability.metrics import WAITING
from forwarder.reservation.outcome import Status
from forwarder.topics.port import Message
from tests.support.memory.clock import settle
from tests.support.stages.asgi_call import AsgiCall
from tests.support.stages.bodies import BOOKING_ENGINE, GENERAL
from tests.support.stages.http_stages import BOOKING_ENGINE_PATH, GENERAL_PATH, HEADERS, RESULTS, Stages, stages


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with stages() as built:
        yield built


def _submit(house: Stages, path: str = GENERAL_PATH, prefer: str | None = None) -> asyncio.Task[httpx.Response]:
    body = GENERAL if path == GENERAL_PATH else BOOKING_ENGINE
    headers = {} if prefer is None else {"Prefer": prefer}
    return asyncio.create_task(house.client.post(path, json=body, headers=headers))


async def test_many_waiters_share_one_tail_and_each_gets_its_own(house: Stages) -> None:
    posted = [_submit(house) for _ in range(20)]
    await house.requested(20)
    for message in reversed(house.requests):
        await house.settle(message, Status.CONFIRMED)
    answers = [answer.json()["data"]["requestId"] for answer in await asyncio.gather(*posted)]
    assert len(set(answers)) == 20
    assert house.tail.seeks == 1


async def test_the_tail_rests_while_nobody_waits(house: Stages) -> None:
    await settle()
    assert (house.tail.seeks, house.tail.receives) == (0, 0)
    await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE)
    assert (house.tail.seeks, house.tail.receives) == (0, 0)
    posted = _submit(house)
    await house.settle(await house.requested(2), Status.CONFIRMED)
    await posted
    await house.clock.advance(10)
    rested = house.tail.receives
    await house.clock.advance(100)
    assert house.tail.receives == rested
    again = _submit(house)
    await house.settle(await house.requested(3), Status.CONFIRMED)
    assert (await again).status_code == 201
    assert house.tail.seeks == 2


async def test_what_cannot_be_read_on_the_topic_is_passed_over(house: Stages) -> None:
    posted = _submit(house)
    message = await house.requested()
    subject = next(item for item in message.headers if item[0] == "ce_subject")
    for value in (
        b"not JSON",
        b"[]",
        b"{}",
        b'{"status":"ODD","reservation":{}}',
        b'{"status":"CONFIRMED","reservation":1}',
        b'{"status":[],"reservation":{"id":1}}',
        b'{"status":"CONFIRMED","reservation":{"id":NaN}}',
        b'{"status":"CONFIRMED","reservation":{"id":"7"}}',
        b'{"status":"CONFIRMED","reservation":{"id":true}}',
        b'{"status":"REJECTED","reservation":{"id":7,"problem":[1]}}',
        b'{"status":"REJECTED","reservation":{"id":7,"problem":{}}}',
        b'{"status":"REJECTED","reservation":{"id":7,"problem":{"status":"400"}}}',
        b'{"status":"REJECTED","reservation":{"id":7,"problem":{"status":1e400}}}',
        b'{"status":"REJECTED","reservation":{"id":7,"problem":{"status":7}}}',
        b'{"status":"CONFIRMED","reservation":{"id":7},"cancellation":{}}',
        b'{"status":"CONFIRMED","reservation":{"id":7},"cancellation":{"problem":null}}',
        b"[" * 100_000,
    ):
        for event_id in (b"rsv_1.1", b"rsv_1", b"", b"rsv_1." + b"9" * 5000):
            await house.log.publish(RESULTS, [Message(b"", value, (subject, ("ce_id", event_id)))])
    await house.log.publish(RESULTS, [Message(b"", b"no headers")])
    await house.settle(message, Status.CONFIRMED)
    assert (await posted).status_code == 201


async def test_a_log_that_goes_away_while_waiting_costs_the_outcome_only(house: Stages) -> None:
    posted = _submit(house)
    await house.requested()
    house.log.away = True
    await house.clock.advance(11)
    assert (await posted).status_code == 202
    house.log.away = False
    await house.clock.advance(11)
    again = _submit(house)
    await house.settle(await house.requested(2), Status.CONFIRMED)
    assert (await again).status_code == 201


async def test_more_waiters_than_there_is_room_for_are_answered_at_once() -> None:
    async with stages(max_waiting=1) as house:
        first = _submit(house)
        await house.requested()
        assert (await _submit(house)).status_code == 202
        await house.settle(house.requests[0], Status.CONFIRMED)
        assert (await first).status_code == 201


async def test_a_client_that_leaves_leaves_nothing_behind(house: Stages) -> None:
    waiting_before = _waiting()
    call = AsgiCall(
        house.app, GENERAL_PATH, HEADERS | {"Content-Type": "application/json"}, json.dumps(GENERAL).encode()
    )
    await house.requested()
    assert _waiting() == waiting_before + 1
    call.leave()
    await call.ended()
    assert _waiting() == waiting_before
    assert not house.outcomes._waiting  # noqa: SLF001
    assert len(house.requests) == 1


async def test_a_cancelled_call_leaves_nothing_behind(house: Stages) -> None:
    waiting_before = _waiting()
    call = AsgiCall(
        house.app, GENERAL_PATH, HEADERS | {"Content-Type": "application/json"}, json.dumps(GENERAL).encode()
    )
    await house.requested()
    call.cancel()
    await call.ended()
    assert _waiting() == waiting_before
    assert not house.outcomes._waiting  # noqa: SLF001


async def test_a_client_that_leaves_in_the_middle_of_its_body_submits_nothing(house: Stages) -> None:
    headers = HEADERS | {"Content-Type": "application/json"}
    call = AsgiCall(house.app, BOOKING_ENGINE_PATH, headers, b'{"propertyId":', complete=False)
    call.leave()
    await call.ended()
    assert call.status is None
    assert not house.requests


async def test_stopping_answers_everybody_who_waits() -> None:
    async with stages(IngressSettings(wait_seconds=1000)) as house:
        following = asyncio.create_task(house.outcomes.run())
        posted = _submit(house)
        await house.requested()
        following.cancel()
        answer = await posted
        assert answer.status_code == 202
        assert (await _submit(house)).status_code == 202


def _waiting() -> float:
    samples: list[Any] = [sample for metric in WAITING.collect() for sample in metric.samples]
    value: float = samples[0].value
    return value

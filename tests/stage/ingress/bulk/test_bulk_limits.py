"""A bulk and the rate limit of its key: each item counts as a call would, and all of them are let through or none."""

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest

from forwarder.tenancy.port import RateLimit
from tests.support.contracts.http_contract import HttpContract
from tests.support.stages.asgi_call import AsgiCall
from tests.support.stages.bodies import GENERAL
from tests.support.stages.http_stages import BULK_PATH, HEADERS, Stages, stages

CONTRACT = HttpContract()
ITEM = {"operation": "general", "reservation": GENERAL}


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    """Of which the caller's key may submit ten a minute."""
    async with stages() as built:
        keys = dict(built.directory.keys)
        keys["token-alpha"] = replace(keys["token-alpha"], limit=RateLimit(10, 60))
        built.directory.keys = keys
        built.client.event_hooks = {"response": [CONTRACT.holds]}
        yield built


async def _send(house: Stages, count: int, query: str = "") -> httpx.Response:
    return await house.client.post(BULK_PATH + query, json=[ITEM] * count)


def _left(answer: httpx.Response) -> str:
    assert answer.headers["ratelimit-policy"] == '"default";q=10;w=60'
    left: str = answer.headers["ratelimit"]
    return left


async def test_every_item_counts(house: Stages) -> None:
    assert _left(await _send(house, 4)) == '"default";r=6;t=6'
    assert _left(await _send(house, 3)) == '"default";r=3;t=6'
    refused = await _send(house, 4)
    assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (429, "rate_limited", "6")
    assert _left(refused) == '"default";r=3;t=6'
    assert len(house.requests) == 7
    await house.clock.advance(6)
    assert _left(await _send(house, 4)) == '"default";r=0;t=6'
    assert len(house.requests) == 11


async def test_items_that_are_refused_count_and_so_do_those_that_are_tried(house: Stages) -> None:
    answer = await house.client.post(BULK_PATH, json=[{}, {}, ITEM])
    assert _left(answer) == '"default";r=7;t=6'
    assert _left(await _send(house, 3, "?dryRun=true")) == '"default";r=4;t=6'


async def test_what_is_refused_as_a_whole_before_its_items_are_known_costs_as_much_as_one(house: Stages) -> None:
    answer = await house.client.post(BULK_PATH, content=b"[", headers={"Content-Type": "application/json"})
    assert (answer.status_code, _left(answer)) == (400, '"default";r=9;t=6')


async def test_a_bulk_beyond_the_whole_quota_waits_for_all_of_it(house: Stages) -> None:
    assert (await _send(house, 1)).status_code == 200
    assert (await _send(house, 25)).headers["retry-after"] == "6"
    await house.clock.advance(6)
    assert (await _send(house, 25)).status_code == 200
    assert _left(await _send(house, 1)) == '"default";r=0;t=96'


async def test_where_nothing_is_left_the_body_is_not_read(house: Stages) -> None:
    await _send(house, 10)
    call = AsgiCall(house.app, BULK_PATH, {**HEADERS, "Content-Type": "application/json"}, b"[", complete=False)
    await call.ended()
    assert call.status == 429
    assert (b"retry-after", b"6") in call.sent[0]["headers"]
    assert call.unread

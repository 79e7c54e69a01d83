"""The rate limit of a key over HTTP: who is refused, before what, and what every answer says is left."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import httpx
import pytest
import structlog

from forwarder.observability.metrics import registry
from forwarder.reservation.outcome import Status
from forwarder.tenancy.port import RateLimit
from tests.support.contracts.http_contract import HttpContract
from tests.support.stages.asgi_call import AsgiCall
from tests.support.stages.bodies import BOOKING_ENGINE, GENERAL
from tests.support.stages.http_stages import BOOKING_ENGINE_PATH, GENERAL_PATH, HEADERS, OTHER_ACCOUNT, Stages, stages

CONTRACT = HttpContract()
CANCEL_PATH = f"{GENERAL_PATH}/7/cancel"
FIELDS = ("ratelimit-policy", "ratelimit")


def limit(house: Stages, allowed: RateLimit | None) -> None:
    """From now on the first workspace's key has this limit."""
    keys = dict(house.directory.keys)
    keys["token-alpha"] = replace(keys["token-alpha"], limit=allowed)
    house.directory.keys = keys
    house.client.event_hooks = {"response": [CONTRACT.holds]}


async def post(house: Stages, path: str = BOOKING_ENGINE_PATH, **options: Any) -> httpx.Response:
    body = options.pop("json", BOOKING_ENGINE if path == BOOKING_ENGINE_PATH else GENERAL)
    options["headers"] = {"Prefer": "respond-async", **options.get("headers", {})}
    return await house.client.post(path, json=body, **options)


def shown(answer: httpx.Response) -> list[str | None]:
    return [answer.headers.get(name) for name in FIELDS]


def left(answer: httpx.Response) -> int:
    return int(answer.headers["ratelimit"].partition(";r=")[2].partition(";")[0])


async def test_every_call_says_what_is_left_and_the_last_is_refused_until_there_is_more() -> None:
    async with stages() as house:
        limit(house, RateLimit(2, 60))
        assert shown(await post(house)) == ['"default";q=2;w=60', '"default";r=1;t=30']
        await house.clock.advance(10)
        assert shown(await post(house, GENERAL_PATH)) == ['"default";q=2;w=60', '"default";r=0;t=20']
        refused = await post(house)
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
        assert (refused.headers["retry-after"], *shown(refused)) == ("20", '"default";q=2;w=60', '"default";r=0;t=20')
        assert len(house.requests) == 2
        await house.clock.advance(20)
        assert (await post(house, GENERAL_PATH)).status_code == 202
        assert len(house.requests) == 3


@pytest.mark.parametrize("path", [BOOKING_ENGINE_PATH, GENERAL_PATH, CANCEL_PATH])
async def test_who_is_refused_is_refused_before_the_body_is_read(path: str) -> None:
    async with stages() as house:
        limit(house, RateLimit(1, 60))
        await post(house)
        unread = AsgiCall(house.app, path, {**HEADERS, "Content-Type": "application/json"}, b"{", complete=False)
        await unread.ended()
        assert unread.status == 429
        assert unread.unread, "it was read all the same"


async def test_both_operations_and_cancellations_share_one_limit_and_so_do_the_accounts_of_a_key() -> None:
    async with stages() as house:
        limit(house, RateLimit(3, 60))
        answers = [
            await post(house),
            await post(house, GENERAL_PATH, headers=OTHER_ACCOUNT),
            await post(house, CANCEL_PATH, json={}),
            await post(house, CANCEL_PATH, json={}),
        ]
        assert [answer.status_code for answer in answers] == [202, 202, 404, 429]


async def test_what_is_refused_for_another_reason_counts_and_says_what_is_left() -> None:
    async with stages() as house:
        limit(house, RateLimit(4, 60))
        house.log.away = True
        answers = [
            await post(house),
            await post(house, json={}),
            await post(house, headers={"Content-Type": "text/plain"}),
            await post(house, headers={"Idempotency-Key": '"'}),
        ]
        assert [answer.status_code for answer in answers] == [503, 422, 415, 400]
        assert [left(answer) for answer in answers] == [3, 2, 1, 0]


async def test_a_repeat_under_a_key_counts_and_so_does_who_waits_for_the_outcome() -> None:
    async with stages() as house:
        limit(house, RateLimit(3, 60))
        keyed = {"Idempotency-Key": "order-1"}
        await post(house, headers=keyed)
        await house.settle(house.requests[-1], Status.CONFIRMED, pms_reservation_id="P1")
        again = await post(house, headers={**keyed, "Prefer": "wait=1"})
        assert (again.status_code, left(again)) == (201, 1)
        assert len(house.requests) == 1


@pytest.mark.parametrize(
    "changes", [{"Authorization": "Bearer none"}, {"workspaceId": ""}, {"integrationAccountId": "x"}]
)
async def test_whoever_is_not_let_in_costs_the_key_nothing_and_learns_nothing_of_it(changes: Mapping[str, str]) -> None:
    async with stages() as house:
        limit(house, RateLimit(1, 60))
        assert shown(await post(house, headers=changes)) == [None, None]
        assert (await post(house)).status_code == 202


async def test_reading_is_not_limited() -> None:
    async with stages() as house:
        limit(house, RateLimit(1, 60))
        location = (await post(house)).headers["location"]
        for path in (location, GENERAL_PATH):
            assert (await house.client.get(path)).status_code == 200
        assert shown(await house.client.get(location)) == [None, None]


async def test_a_key_without_a_limit_is_told_of_none() -> None:
    async with stages() as house:
        limit(house, None)
        answers = [await post(house) for _ in range(20)]
        assert {answer.status_code for answer in answers} == {202}
        assert shown(answers[0]) == [None, None]


async def test_one_keys_limit_is_no_other_keys() -> None:
    async with stages() as house:
        limit(house, RateLimit(1, 60))
        other = {"Authorization": "Bearer token-beta", "workspaceId": "beta", "integrationAccountId": "beta-1"}
        codes = [(await post(house, headers=headers)).status_code for headers in ({}, {}, other)]
        assert codes == [202, 429, 202]


async def test_a_refusal_is_counted_and_logged() -> None:
    labels = {"operation": "booking-engine", "answer": "rate_limited"}

    def counted() -> float:
        return registry().get_sample_value("forwarder_submissions_total", labels) or 0

    async with stages() as house:
        limit(house, RateLimit(1, 60))
        await post(house)
        before = counted()
        with structlog.testing.capture_logs() as logged:
            await post(house)
    assert counted() == before + 1
    [entry] = [entry for entry in logged if entry["event"] == "submission.refused"]
    assert (entry["code"], entry["account_id"], entry["key_id"]) == ("rate_limited", "alpha-1", "key-alpha")
    assert entry["log_level"] == "info"

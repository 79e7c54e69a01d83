"""How much the ingress takes on at a time: requests, bytes of bodies, callers who wait. No workspace takes another's share."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from forwarder.http.messages import Admission
from forwarder.ingress.message import IngressSettings
from forwarder.reservation.request import MAX_BODY_BYTES
from forwarder.tenancy.port import ALL_SCOPES, ApiKey
from tests.support.memory.clock import settle
from tests.support.stages.asgi_call import AsgiCall
from tests.support.stages.bodies import BOOKING_ENGINE, GENERAL
from tests.support.stages.http_stages import (
    BOOKING_ENGINE_PATH,
    BULK_PATH,
    GENERAL_PATH,
    HEADERS,
    OTHER_WORKSPACE,
    Stages,
    stages,
)

BODY = json.dumps(BOOKING_ENGINE).encode()
JSON = {**HEADERS, "Content-Type": "application/json"}
OTHER_KEY = {**JSON, "Authorization": "Bearer token-alpha-2"}


async def test_what_is_beyond_is_refused_until_there_is_a_place_again() -> None:
    async with stages(IngressSettings(retry_after_seconds=7), admission=Admission(max_requests=3)) as house:
        house.log.acknowledging.clear()
        under_way = [asyncio.create_task(_post(house)) for _ in range(2)]
        await house.log.attempted(2)
        refused = AsgiCall(house.app, BOOKING_ENGINE_PATH, JSON, BODY, complete=False)
        await refused.ended()
        _assert_overloaded(refused, retry_after=b"7")
        assert refused.unread, "it was read all the same"
        house.log.acknowledging.set()
        assert [answer.status_code for answer in await asyncio.gather(*under_way)] == [202, 202]
        assert (await _post(house)).status_code == 202
        _assert_nothing_held(house)


async def test_while_one_workspace_has_all_it_may_another_is_admitted() -> None:
    async with stages(admission=Admission(max_requests=30)) as house:
        house.log.acknowledging.clear()
        greedy = [asyncio.create_task(_post(house)) for _ in range(40)]
        await house.log.attempted(20)
        other = asyncio.create_task(_post(house, OTHER_WORKSPACE))
        await house.log.attempted(21)
        house.log.acknowledging.set()
        assert (await other).status_code == 202
        statuses = [answer.status_code for answer in await asyncio.gather(*greedy)]
        assert (statuses.count(202), statuses.count(503)) == (20, 20)
        _assert_nothing_held(house)


async def test_several_keys_of_a_workspace_have_one_share() -> None:
    async with stages(admission=Admission(max_requests=3)) as house:
        house.directory.keys = {
            **house.directory.keys,
            "token-alpha-2": ApiKey("key-alpha-2", "alpha", scopes=ALL_SCOPES),
        }
        house.log.acknowledging.clear()
        under_way = [asyncio.create_task(_post(house, headers)) for headers in (JSON, OTHER_KEY)]
        await house.log.attempted(2)
        assert (await _post(house, OTHER_KEY)).status_code == 503
        house.log.acknowledging.set()
        assert [answer.status_code for answer in await asyncio.gather(*under_way)] == [202, 202]


async def test_both_operations_share_the_places() -> None:
    async with stages(admission=Admission(max_requests=1)) as house:
        house.log.acknowledging.clear()
        waiting = asyncio.create_task(house.client.post(GENERAL_PATH, json=GENERAL))
        await house.log.attempted(1)
        assert (await _post(house)).status_code == 503
        house.log.acknowledging.set()
        await house.requested()
        await house.clock.advance(10)
        assert (await waiting).status_code == 202


async def test_a_caller_who_waits_has_given_its_place_and_its_body_back() -> None:
    async with stages(admission=Admission(max_requests=1)) as house:
        waiting = asyncio.create_task(house.client.post(GENERAL_PATH, json=GENERAL))
        await house.requested()
        _assert_nothing_held(house)
        assert (await _post(house)).status_code == 202
        await house.clock.advance(10)
        assert (await waiting).status_code == 202


async def test_a_workspace_whose_callers_wait_leaves_another_the_waiting() -> None:
    async with stages(max_waiting=3) as house:
        greedy = [asyncio.create_task(_post_general(house, f"A-{number}")) for number in range(4)]
        await house.requested(4)
        answered = [task for task in greedy if task.done()]
        assert len(answered) == 2, "what exceeds the share is accepted, and not waited for"
        other = asyncio.create_task(_post_general(house, "B", OTHER_WORKSPACE))
        await house.requested(5)
        assert not other.done(), "another workspace may wait"
        await house.clock.advance(10)
        assert [answer.status_code for answer in await asyncio.gather(*greedy, other)] == [202] * 5
        assert house.outcomes.places.free == 3


async def test_a_large_reservation_counts_as_several_waiters() -> None:
    async with stages(max_waiting=6) as house:
        large = [asyncio.create_task(_post_general(house, f"A-{number}", notes="n" * 9_000)) for number in range(3)]
        await house.requested(3)
        assert sum(task.done() for task in large) == 1
        await house.clock.advance(10)
        await asyncio.gather(*large)


async def test_bodies_count_by_what_was_received_and_not_by_what_was_declared() -> None:
    """Four connections that announce 8 MiB each, and send some bytes, keep nobody out."""
    async with stages(IngressSettings(body_seconds=5.0)) as house:
        announced = {**JSON, "Content-Length": str(8 * 1024 * 1024)}
        slow = [AsgiCall(house.app, BULK_PATH, announced, b"[" + b" " * 750, complete=False) for _ in range(4)]
        await settle()
        assert house.admission.bodies.held("alpha") == 4 * 751
        assert [(await _post(house, headers)).status_code for headers in (JSON, OTHER_WORKSPACE)] == [202, 202]
        for call in slow:
            call.leave()
            await call.ended()
        _assert_nothing_held(house)


@pytest.mark.parametrize("declared", [True, False])
async def test_bodies_that_are_big_together(declared: bool) -> None:
    admission = Admission(max_body_bytes=3 * MAX_BODY_BYTES)
    async with stages(admission=admission) as house:
        piece = b"[" + b" " * (MAX_BODY_BYTES - 1)
        held = [AsgiCall(house.app, BULK_PATH, JSON, piece, complete=False) for _ in range(2)]
        await settle()
        assert admission.bodies.held("alpha") == 2 * MAX_BODY_BYTES
        length = {"Content-Length": str(MAX_BODY_BYTES + 1)} if declared else {}
        beyond = AsgiCall(house.app, BULK_PATH, {**JSON, **length}, piece, b"]")
        await beyond.ended()
        _assert_overloaded(beyond, retry_after=b"1")
        assert dict(beyond.sent[0]["headers"])[b"connection"] == b"close"
        assert beyond.unread, "what there is no room for is not read"
        assert (await _post(house, OTHER_WORKSPACE)).status_code == 202
        for call in held:
            call.leave()
            await call.ended()
        _assert_nothing_held(house)


async def test_messages_on_their_way_to_the_log_are_shared_too() -> None:
    items = [
        {"operation": "booking-engine", "reservation": {**BOOKING_ENGINE, "roomId": str(each)}} for each in range(8)
    ]
    async with stages(IngressSettings(max_in_flight=30)) as house:
        house.log.acknowledging.clear()
        bulks = [asyncio.create_task(_post_bulk(house, items)) for _ in range(4)]
        await house.log.attempted(2)
        other = asyncio.create_task(_post(house, OTHER_WORKSPACE))
        await house.log.attempted(3)
        house.log.acknowledging.set()
        assert (await other).status_code == 202
        assert sorted(answer.status_code for answer in await asyncio.gather(*bulks)) == [200, 200, 503, 503]


async def test_strangers_have_a_share_for_each_address() -> None:
    async with stages(admission=Admission(max_requests=12)) as house:
        strangers = house.admission.strangers
        assert strangers.total == 3
        places = [house.admission.enter_unknown(f"2001:db8::{number}") for number in range(3)]
        assert [place is not None for place in places] == [True, True, False]
        assert house.admission.enter_unknown("2001:db8:0:1::1") is not None


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async with stages(IngressSettings(body_seconds=0.5), admission=Admission(max_requests=1)) as house:
        stalled = AsgiCall(house.app, BOOKING_ENGINE_PATH, JSON, BODY[:100], complete=False)
        await asyncio.wait_for(stalled.ended(), 5)
        headers = dict(stalled.sent[0]["headers"])
        assert (stalled.status, headers[b"connection"]) == (408, b"close")
        assert json.loads(stalled.sent[1]["body"])["code"] == "body_timed_out"
        assert (await _post(house)).status_code == 202


async def test_a_caller_who_leaves_gives_its_place_back() -> None:
    async with stages(admission=Admission(max_requests=1)) as house:
        leaving = AsgiCall(house.app, BOOKING_ENGINE_PATH, JSON, BODY[:100], complete=False)
        leaving.leave()
        await leaving.ended()
        assert (await _post(house)).status_code == 202


async def _post(house: Stages, headers: Mapping[str, str] = JSON) -> Any:
    sent = {**headers, "Content-Type": "application/json"}
    return await house.client.post(BOOKING_ENGINE_PATH, content=BODY, headers=sent)


async def _post_general(house: Stages, room: str, headers: Mapping[str, str] = HEADERS, **more: Any) -> Any:
    return await house.client.post(GENERAL_PATH, json={**GENERAL, "roomId": room, **more}, headers=headers)


async def _post_bulk(house: Stages, items: list[dict[str, Any]]) -> Any:
    return await house.client.post(BULK_PATH, json=items)


def _assert_nothing_held(house: Stages) -> None:
    admission = house.admission
    for shares in (admission.requests, admission.strangers, admission.bodies, admission.responses):
        assert shares.free == shares.total


def _assert_overloaded(call: AsgiCall, *, retry_after: bytes) -> None:
    headers = dict(call.sent[0]["headers"])
    assert (call.status, headers[b"retry-after"]) == (503, retry_after)
    assert json.loads(call.sent[1]["body"])["code"] == "overloaded"

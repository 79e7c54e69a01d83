"""How much the ingress takes on at a time: calls, and bytes of their bodies; what is beyond is sent away unread."""

import asyncio
import json
from typing import Any

import pytest
from starlette.types import Message, Scope

from forwarder.http.messages import HttpRequest
from forwarder.ingress.guard import Admission
from forwarder.ingress.parts import IngressSettings
from forwarder.reservation.request import MAX_BODY_BYTES
from tests.support.stages.asgi_call import AsgiCall
from tests.support.stages.bodies import BOOKING_ENGINE, GENERAL
from tests.support.stages.http_stages import BOOKING_ENGINE_PATH, GENERAL_PATH, HEADERS, Stages, stages

BODY = json.dumps(BOOKING_ENGINE).encode()
JSON = {**HEADERS, "Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("lengths", "admitted"),
    [
        ([600, 400], [True, True]),
        ([600, 401], [True, False]),
        ([1000, 1], [True, False]),
        ([1000, 0, 0], [True, True, True]),
        ([0, 0, 0, 0, 0], [True, True, True, True, False]),
    ],
)
def test_calls_and_the_bytes_of_their_bodies_are_counted(lengths: list[int], admitted: list[bool]) -> None:
    admission = Admission(max_requests=5, max_bytes=MAX_BODY_BYTES + 1000)
    assert admission.enter(_size(str(MAX_BODY_BYTES)))
    assert [admission.enter(_size(str(length))) for length in lengths] == admitted
    for length, took in zip(lengths, admitted, strict=True):
        if took:
            admission.leave(_size(str(length)))
    assert admission.enter(_size("1000"))


@pytest.mark.parametrize("length", [None, "", "-1", "1e3", str(MAX_BODY_BYTES), str(10 * MAX_BODY_BYTES)])
def test_a_body_of_unknown_length_counts_as_a_whole_one_and_none_as_more(length: str | None) -> None:
    admission = Admission(max_requests=9, max_bytes=2 * MAX_BODY_BYTES - 1)
    assert [admission.enter(_size(length)), admission.enter(_size(length))] == [True, False]
    assert admission.enter(_size(str(MAX_BODY_BYTES - 1)))


def test_one_body_has_a_place_whatever_the_bound_is() -> None:
    assert Admission(max_requests=1, max_bytes=0).enter(_size(None))


def _size(length: str | None) -> int:
    async def receive() -> Message:
        raise AssertionError("whether there is a place is decided without the body")

    headers = [] if length is None else [(b"content-length", length.encode())]
    scope: Scope = {"type": "http", "headers": headers}
    return HttpRequest(scope, receive).max_body_bytes(MAX_BODY_BYTES)


async def test_what_is_beyond_is_refused_until_there_is_a_place_again() -> None:
    async with stages(IngressSettings(max_requests=2, retry_after_seconds=7)) as house:
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


async def test_both_operations_share_the_places_and_whoever_waits_keeps_one() -> None:
    async with stages(IngressSettings(max_requests=1)) as house:
        waiting = asyncio.create_task(house.client.post(GENERAL_PATH, json=GENERAL))
        await house.requested()
        assert (await _post(house)).status_code == 503
        await house.clock.advance(10)
        assert (await waiting).status_code == 202
        assert (await _post(house)).status_code == 202


async def test_bodies_that_are_big_together() -> None:
    async with stages(IngressSettings(max_bytes=MAX_BODY_BYTES + len(BODY))) as house:
        house.log.acknowledging.clear()
        # Of a body that comes in chunks nobody knows the length.
        chunked = AsgiCall(house.app, BOOKING_ENGINE_PATH, JSON, BODY)
        await house.log.attempted(1)
        small = asyncio.create_task(_post(house))
        await house.log.attempted(2)
        assert (await _post(house)).status_code == 503
        house.log.acknowledging.set()
        await chunked.ended()
        assert (chunked.status, (await small).status_code) == (202, 202)


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async with stages(IngressSettings(max_requests=1, body_seconds=0.05)) as house:
        stalled = AsgiCall(house.app, BOOKING_ENGINE_PATH, JSON, BODY[:100], complete=False)
        await asyncio.wait_for(stalled.ended(), 5)
        headers = dict(stalled.sent[0]["headers"])
        assert (stalled.status, headers[b"connection"]) == (408, b"close")
        assert json.loads(stalled.sent[1]["body"])["code"] == "body_timed_out"
        assert (await _post(house)).status_code == 202


async def test_whoever_leaves_gives_its_place_back() -> None:
    async with stages(IngressSettings(max_requests=1)) as house:
        leaving = AsgiCall(house.app, BOOKING_ENGINE_PATH, JSON, BODY[:100], complete=False)
        leaving.leave()
        await leaving.ended()
        assert (await _post(house)).status_code == 202


async def _post(house: Stages) -> Any:
    return await house.client.post(BOOKING_ENGINE_PATH, content=BODY, headers={"Content-Type": "application/json"})


def _assert_overloaded(call: AsgiCall, *, retry_after: bytes) -> None:
    headers = dict(call.sent[0]["headers"])
    assert (call.status, headers[b"retry-after"]) == (503, retry_after)
    assert json.loads(call.sent[1]["body"])["code"] == "overloaded"

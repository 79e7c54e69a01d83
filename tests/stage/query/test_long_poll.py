"""Waiting for news of a submission: until it is settled, or its tag differs; without asking the store meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest

from forwarder.reservation.outcome import Status
from forwarder.reservation.record import ResultEvent
from forwarder.store.lists.port import StoredSubmission
from forwarder.store.submissions.port import Attempt
from forwarder.topics.codec import decode_submission, encode_result
from tests.support.memory.clock import settle
from tests.support.stages.asgi_call import AsgiCall
from tests.support.stages.contract_stages import accepted, contract_stages
from tests.support.stages.http_stages import HEADERS, RESULTS, Stages, stages


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with contract_stages() as built:
        yield built


async def _waiting(house: Stages, path: str, seconds: int = 20, **headers: str) -> asyncio.Task[httpx.Response]:
    """A poll that has come to its wait, or is answered."""
    asked = {"Prefer": f"wait={seconds}"} | {name.replace("_", "-"): value for name, value in headers.items()}
    task = asyncio.create_task(house.client.get(path, headers=asked))
    await settle()
    return task


@pytest.mark.parametrize("taken_in", [False, True])
@pytest.mark.parametrize(
    "status", [Status.CONFIRMED, Status.REJECTED, Status.FAILED, Status.IN_DOUBT, Status.CANCELLED]
)
async def test_it_is_answered_when_the_submission_is_settled(house: Stages, status: Status, *, taken_in: bool) -> None:
    path = await accepted(house)
    if taken_in:
        house.ingest(house.requests[-1])
    polled = await _waiting(house, path)
    await house.clock.advance(15)
    assert not polled.done()
    await house.settle(house.requests[-1], status)
    answer = await polled
    assert (answer.status_code, answer.json()["data"]["status"]) == (200, status)
    assert answer.headers["preference-applied"] == "wait=20"
    assert answer.headers["etag"] == (await house.client.get(path)).headers["etag"]


async def test_at_the_end_of_the_wait_it_is_answered_as_it_stands(house: Stages) -> None:
    polled = await _waiting(house, await accepted(house), 20)
    await house.clock.advance(19.9)
    assert not polled.done()
    house.ingest(house.requests[-1])
    await house.clock.advance(0.2)
    answer = await polled
    assert (answer.status_code, answer.json()["data"]["status"]) == (200, "PENDING")
    assert answer.json()["data"]["reservationId"] == 1
    assert answer.headers["preference-applied"] == "wait=20"


async def test_a_key_that_was_revoked_during_the_wait_reads_nothing(house: Stages) -> None:
    polled = await _waiting(house, await accepted(house))
    house.directory.keys = {}
    await house.clock.advance(5)
    await house.settle(house.requests[-1], Status.CONFIRMED)
    answer = await polled
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")


async def test_the_store_is_not_asked_while_nothing_happens(house: Stages) -> None:
    polled = await _waiting(house, await accepted(house), 60)
    reads = house.reader.reads
    await house.clock.advance(59)
    assert not polled.done()
    assert house.reader.reads == reads
    await house.clock.advance(2)
    assert (await polled).status_code == 200


async def test_what_is_settled_already_is_answered_at_once(house: Stages) -> None:
    path = await accepted(house)
    house.ingest(house.requests[-1], Status.CONFIRMED)
    answer = await (await _waiting(house, path))
    assert answer.json()["data"]["status"] == "CONFIRMED"
    assert answer.headers["preference-applied"] == "wait=20"
    assert house.tail.seeks == 0


async def test_what_is_settled_between_the_look_and_the_wait_is_not_missed(house: Stages) -> None:
    path = await accepted(house)
    polled = asyncio.create_task(house.client.get(path, headers={"Prefer": "wait=20"}))
    while not house.reader.reads:
        await asyncio.sleep(0)
    stored = house.ingest(
        house.requests[-1], Status.CONFIRMED, revision=1
    )  # and its event has been before the tail came
    assert stored.revision == 1
    assert (await polled).json()["data"]["status"] == "CONFIRMED"


async def test_with_the_tag_of_what_it_has_it_is_answered_when_that_differs(house: Stages) -> None:
    path = await accepted(house)
    await house.settle(house.requests[-1], Status.IN_DOUBT, revision=1)
    tag = (await house.client.get(path)).headers["etag"]
    polled = await _waiting(house, path, If_None_Match=tag)
    assert not polled.done()
    await house.settle(house.requests[-1], Status.CONFIRMED, revision=2)
    answer = await polled
    assert (answer.status_code, answer.json()["data"]["status"]) == (200, "CONFIRMED")
    assert answer.headers["etag"] != tag


async def test_with_another_tag_it_is_answered_at_once(house: Stages) -> None:
    answer = await (await _waiting(house, await accepted(house), If_None_Match='"old"'))
    assert (answer.status_code, answer.json()["data"]["status"]) == (200, "PENDING")


@pytest.mark.parametrize("changed", [False, True])
async def test_what_changed_without_an_event_is_seen_at_the_end_of_the_wait(house: Stages, *, changed: bool) -> None:
    path = await accepted(house)
    stored = house.ingest(house.requests[-1])
    tag = (await house.client.get(path)).headers["etag"]
    polled = await _waiting(house, path, If_None_Match=tag)
    if changed:
        attempt = Attempt(1, "create", "2027-01-01T00:00:00.100Z", 12, "deferred", "pms_timeout")
        house.reader.put("alpha-1", replace(stored, attempts=(attempt,)))
    await house.clock.advance(19)
    assert not polled.done()
    await house.clock.advance(2)
    answer = await polled
    assert answer.status_code == (200 if changed else 304)
    assert answer.headers["preference-applied"] == "wait=20"


async def test_an_event_that_comes_again_does_not_end_the_wait(house: Stages) -> None:
    """A failed submission was put back: PENDING again, with its FAILED told once more by a worker that crashed."""
    path = await accepted(house)
    message = house.requests[-1]
    failed = house.ingest(message, Status.FAILED, revision=1)
    pending = replace(failed, status=Status.PENDING)
    house.reader.put("alpha-1", pending)
    polled = await _waiting(house, path)
    for _ in range(3):
        await _tell(house, failed)
    assert not polled.done()
    await house.settle(message, Status.CONFIRMED, revision=2)
    assert (await polled).json()["data"]["status"] == "CONFIRMED"


async def _tell(house: Stages, stored: StoredSubmission) -> None:
    submission = decode_submission(house.requests[-1])
    data = {"requestId": stored.request_id, "status": stored.status.value, "reservation": {"id": stored.id}}
    event = ResultEvent(stored.request_id, stored.revision, stored.status, submission.key, stored.updated_at, data)
    await house.log.publish(RESULTS, [encode_result(event)])
    await settle()


async def test_the_wait_is_no_longer_than_the_longest(house: Stages) -> None:
    polled = await _waiting(house, await accepted(house), 100_000)
    await house.clock.advance(59.9)
    assert not polled.done()
    await house.clock.advance(0.2)
    assert (await polled).headers["preference-applied"] == "wait=60"


@pytest.mark.parametrize("prefer", ["wait=0", "respond-async", "wait=soon", "handling=lenient", ""])
async def test_without_a_wait_it_is_answered_at_once(house: Stages, prefer: str) -> None:
    answer = await house.client.get(await accepted(house), headers={"Prefer": prefer})
    assert answer.status_code == 200
    assert "preference-applied" not in answer.headers
    assert house.tail.seeks == 0


async def test_while_the_log_is_away_it_is_answered_with_what_the_store_says(house: Stages) -> None:
    path = await accepted(house)
    house.log.away = True
    polled = await _waiting(house, path, 60)
    await house.clock.advance(2.1)  # as long as a tail is given to come to its place
    answer = await polled
    assert (answer.status_code, answer.json()["data"]["status"]) == (200, "PENDING")
    assert "preference-applied" not in answer.headers


async def test_more_than_there_is_room_for_are_answered_at_once() -> None:
    async with stages(max_waiting=1) as house:
        path = await accepted(house)
        first = await _waiting(house, path)
        second = await (await _waiting(house, path))
        assert (second.status_code, second.json()["data"]["status"]) == (200, "PENDING")
        assert "preference-applied" not in second.headers
        await house.settle(house.requests[-1], Status.CONFIRMED)
        assert (await first).json()["data"]["status"] == "CONFIRMED"


async def test_without_the_store_it_says_when_to_come_again(house: Stages) -> None:
    path = await accepted(house)
    polled = await _waiting(house, path)
    house.reader.away = True
    await house.settle(house.requests[-1], Status.CONFIRMED)
    answer = await polled
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
    assert not house.outcomes._waiting  # noqa: SLF001


async def test_what_nobody_submitted_is_not_waited_for(house: Stages) -> None:
    answer = await (await _waiting(house, f"/api/v1/vrs/submissions/rsv_{'a' * 32}"))
    assert answer.status_code == 404


@pytest.mark.parametrize("how", ["leave", "cancel"])
async def test_a_client_that_leaves_gives_its_place_back(house: Stages, how: str) -> None:
    path = await accepted(house)
    call = AsgiCall(house.app, path, HEADERS | {"Prefer": "wait=20"}, b"", method="GET")
    await settle()
    assert len(house.outcomes._waiting) == 1  # noqa: SLF001
    reads = house.reader.reads
    getattr(call, how)()
    await call.ended()
    assert not house.outcomes._waiting  # noqa: SLF001
    assert call.status is None
    assert house.reader.reads == reads


async def test_stopping_answers_everybody_who_waits() -> None:
    async with stages() as house:
        following = asyncio.create_task(house.outcomes.run())
        polled = await _waiting(house, await accepted(house), 50)
        following.cancel()
        assert (await polled).json()["data"]["status"] == "PENDING"

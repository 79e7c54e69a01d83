"""Records and submissions read again: an ETag for all that is shown, and 304 to those who have it already."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from starlette.types import Message

from forwarder.http.messages import NotModified, conditional_response, entity_tag, matches
from forwarder.reservation.outcome import Cancellation, CancellationStatus, Status
from forwarder.store.submissions.port import Attempt
from tests.support.stages.contract_stages import accepted, contract_stages
from tests.support.stages.http_stages import NAMED, OTHER_ACCOUNT, Stages

RESERVATION = "/api/v1/vrs/reservations/1"


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with contract_stages() as built:
        yield built


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("which", ["submission", "reservation"])
async def test_what_the_caller_has_already_is_not_sent_again(house: Stages, which: str, method: str) -> None:
    status_path = await accepted(house)
    house.ingest(house.requests[-1], Status.CONFIRMED)
    path = status_path if which == "submission" else RESERVATION
    first = await house.client.request(method, path)
    assert first.status_code == 200
    assert first.headers["cache-control"] == "no-store"
    tag = first.headers["etag"]
    assert tag.startswith('"')
    for given in (tag, f"W/{tag}", f'"other", {tag}', "*", f' , "a,b" ,W/"x",{tag} ,'):
        again = await house.client.request(method, path, headers={"If-None-Match": given})
        assert (again.status_code, again.content) == (304, b"")
        assert dict(again.headers) == {"etag": tag, "cache-control": "no-store", "request-id": NAMED["Request-Id"]}
    for given in ('"other"', tag[:-2] + '"', tag.strip('"'), f"{tag} {tag}", "", "W/"):
        again = await house.client.request(method, path, headers={"If-None-Match": given})
        assert (again.status_code, again.headers["etag"], again.content) == (200, tag, first.content)


async def test_two_lines_of_tags_count_as_one(house: Stages) -> None:
    path = await accepted(house)
    tag = (await house.client.get(path)).headers["etag"]
    lines = [("If-None-Match", '"other"'), ("If-None-Match", tag)]
    assert (await house.client.get(path, headers=lines)).status_code == 304


async def test_everything_that_is_shown_changes_the_tag(house: Stages) -> None:
    path = await accepted(house)

    async def tag() -> str:
        return str((await house.client.get(path)).headers["etag"])

    tags = [await tag()]
    stored = house.ingest(house.requests[-1])
    tags.append(await tag())
    attempt = Attempt(1, "create", "2027-01-01T00:00:00.100Z", 12, "deferred", "pms_timeout")
    cancellation = Cancellation(CancellationStatus.REQUESTED, "2027-01-01T00:00:00.000Z", None, None)
    for changed in (
        replace(stored, attempts=(attempt,)),
        replace(stored, updated_at="2027-01-01T00:00:01.000Z"),
        replace(stored, cancellation=cancellation),
        replace(stored, status=Status.CONFIRMED),
    ):
        house.reader.put("alpha-1", changed)
        tags.append(await tag())
        assert await tag() == tags[-1]
    assert len(set(tags)) == 6


async def test_what_others_may_not_see_is_no_304_either(house: Stages) -> None:
    path = await accepted(house)
    house.ingest(house.requests[-1])
    for each in (path, RESERVATION):
        answer = await house.client.get(each, headers={**OTHER_ACCOUNT, "If-None-Match": "*"})
        assert answer.status_code == 404
        assert "etag" not in answer.headers


def test_a_long_list_of_tags_is_read_at_once() -> None:
    tag = entity_tag(b"{}")
    for given in ('"' * 60_000, '"a",' * 15_000 + "x", "," * 60_000 + "x", 'W/"a" ' * 10_000):
        assert not matches(given, tag)
    assert matches('"a",' * 15_000 + tag, tag)


async def test_304_has_no_headers_of_a_body() -> None:
    answer = conditional_response(b"{}", "*", (b"preference-applied", b"wait=1"))
    assert isinstance(answer, NotModified)
    sent: asyncio.Queue[Message] = asyncio.Queue()
    await answer({}, sent.get, sent.put)
    start = sent.get_nowait()
    assert {name for name, _ in start["headers"]} == {b"cache-control", b"etag", b"preference-applied"}

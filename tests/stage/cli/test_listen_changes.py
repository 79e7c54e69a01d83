"""`forwarder listen --api`: what it makes of what the API says, look by look."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from typer.testing import CliRunner

from forwarder.cli.program import program
from forwarder.notifier.posting import Event
from forwarder.operate.output import Failed, WrongUsage
from forwarder.operate.results import Api, ApiUnavailable, Changes, ReadRange
from tests.support.cases import for_each
from tests.support.memory.clock import ManualClock
from tests.support.network.raw_server import Caller, raw_server

END, BEGINNING = ReadRange(), ReadRange(beginning=True)


def submission(name: str, changed: int, status: str = "CONFIRMED", cancellation: str | None = None) -> dict[str, Any]:
    """A submission that changed so many seconds into the year 2027."""
    at = f"2027-01-01T00:00:{changed:02}.000Z"
    return {
        "requestId": name,
        "status": status,
        "updatedAt": at,
        "cancellation": cancellation and {"status": cancellation},
        "record": {"requestId": name, "status": status, "updatedAt": at},
    }


@dataclass(frozen=True, slots=True)
class Service(Api):
    """An API that has these submissions, and before each of them these troubles."""

    submissions: dict[str, dict[str, Any]] = field(default_factory=dict)
    troubles: list[Exception] = field(default_factory=list)
    asked: list[Mapping[str, str]] = field(default_factory=list)

    def get(self, path: str, account: str, query: Mapping[str, str]) -> Mapping[str, Any]:
        if self.troubles:
            raise self.troubles.pop()
        if "submissions/" in path:
            return {"data": self.submissions[path.rpartition("/")[2]]}
        self.asked.append(query)
        records = [one["record"] for one in self.submissions.values()]
        since = query.get("updatedSince", "")
        first, rest = records[:2], records[2:]
        page, following = (rest, "") if query.get("cursor") else (first, "3" if rest else "")
        data = [one for one in page if one["updatedAt"] >= since]
        return {"data": data, "meta": {"cursors": {"next": following}}}

    def has(self, *submissions: dict[str, Any]) -> None:
        self.submissions.update({one["requestId"]: one for one in submissions})


class Looking:
    """The events of one look after the other."""

    def __init__(self, service: Service, read_range: ReadRange) -> None:
        self.clock = _Skipping()
        self._events = Changes(service, ["one"], self.clock).events(read_range)

    async def look(self) -> Sequence[Event]:
        return await anext(self._events)

    async def kinds(self) -> Sequence[tuple[str, str]]:
        return [(each.type.split(".")[1], each.id.partition(".")[0]) for each in await self.look()]

    async def close(self) -> None:
        await self._events.aclose()


class _Skipping(ManualClock):
    """Nobody waits."""

    async def sleep(self, seconds: float) -> None:
        await self.advance(seconds)


@asynccontextmanager
async def looking(service: Service, read_range: ReadRange = END) -> AsyncIterator[Looking]:
    found = Looking(service, read_range)
    try:
        yield found
    finally:
        await found.close()


@pytest.fixture
def service() -> Service:
    return Service("http://forwarder.test", "demo", "fwd_test_x")


async def test_each_change_is_told_once_and_in_order(service: Service) -> None:
    service.has(submission("old", 1), submission("a", 1, "PENDING"))
    async with looking(service) as looks:
        assert await looks.kinds() == []
        service.has(submission("b", 9, "FAILED"), submission("a", 7), submission("c", 8, "IN_DOUBT"))
        (first, *_) = told = await looks.look()
        assert [each.id for each in told] == ["a.1798761607000", "c.1798761608000", "b.1798761609000"]
        assert json.loads(first.body) == {
            "type": "reservation.confirmed.v1",
            "timestamp": "2027-01-01T00:00:07.000Z",
            "data": {
                "requestId": "a",
                "workspaceId": "demo",
                "integrationAccountId": "one",
                "status": "CONFIRMED",
                "reservation": service.submissions["a"]["record"],
                "test": True,
            },
        }
        assert await looks.kinds() == []
        service.has(submission("b", 11, "PENDING"))
        assert await looks.kinds() == []
        service.has(submission("b", 12))
        assert await looks.kinds() == [("confirmed", "b")]


async def test_a_cancellation_is_told_by_what_came_of_it(service: Service) -> None:
    async with looking(service) as looks:
        await looks.look()
        service.has(submission("a", 1))
        assert await looks.kinds() == [("confirmed", "a")]
        service.has(submission("a", 2, "CONFIRMED", "REQUESTED"), submission("b", 2, "CONFIRMED", "REQUESTED"))
        assert await looks.kinds() == [("confirmed", "b")]
        service.has(submission("a", 3, "CONFIRMED", "REFUSED"), submission("b", 3, "CANCELLED", "DONE"))
        assert await looks.kinds() == [("cancellation_refused", "a"), ("cancelled", "b")]


async def test_what_was_not_told_before_its_cancellation_was_asked_for_is_told(service: Service) -> None:
    service.has(submission("a", 1, "CONFIRMED", "REQUESTED"), submission("b", 1, "PENDING"))
    async with looking(service, BEGINNING) as looks:
        assert await looks.kinds() == [("confirmed", "a")]
        service.has(submission("b", 3, "CONFIRMED", "REQUESTED"))
        assert await looks.kinds() == [("confirmed", "b")]
        assert await looks.kinds() == []


async def test_it_begins_where_it_is_told_and_looks_back_a_while(service: Service) -> None:
    service.has(submission("a", 1), submission("b", 5))
    async with looking(service, BEGINNING) as looks:
        assert await looks.kinds() == [("confirmed", "a"), ("confirmed", "b")]
    async with looking(service, ReadRange(since=ManualClock().now().replace(second=4))) as looks:
        assert await looks.kinds() == [("confirmed", "b")]
        assert await looks.kinds() == []
    since = [each.get("updatedSince") for each in service.asked]
    assert since == [None, "2026-12-31T23:50:04.000Z", "2026-12-31T23:50:00.000Z"]


async def test_an_outage_is_told_and_waited_for_and_a_refusal_ends_it(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    service.has(submission("a", 1))
    service.troubles.append(ApiUnavailable("503 store_unavailable: Ask again."))
    async with looking(service, BEGINNING) as looks:
        assert await looks.kinds() == [("confirmed", "a")]
        assert "store_unavailable" in capsys.readouterr().err
        service.troubles.append(Failed("401 unauthenticated: No."))
        with pytest.raises(Failed, match="unauthenticated"):
            await looks.look()


@for_each(
    ("answer", "kind", "said"),
    [
        (b"HTTP/1.1 503 -\r\nContent-Length: 0\r\n\r\n", ApiUnavailable, "503"),
        (b"HTTP/1.1 429 Slow\r\nContent-Length: 0\r\n\r\n", ApiUnavailable, "429 Slow"),
        (b'HTTP/1.1 403 -\r\nContent-Length: 28\r\n\r\n{"code":"no","detail":"Not."}', Failed, "403"),
        (b"HTTP/1.1 302 Found\r\nLocation: /y\r\nContent-Length: 0\r\n\r\n", Failed, "302 Found"),
        (b"HTTP/1.1 200 -\r\nContent-Length: 4\r\n\r\nHey.", Failed, "not a forwarder"),
        (b"HTTP/1.1 200 -\r\nContent-Length: 2\r\n\r\n[]", Failed, "not a forwarder"),
        (b"", ApiUnavailable, "no answer"),
    ],
)
async def test_what_passes_is_told_from_what_does_not(answer: bytes, kind: type[Exception], said: str) -> None:
    async def serve(caller: Caller) -> None:
        await caller.request()
        if answer:
            await caller.say(answer)

    async with raw_server(serve) as server:
        with pytest.raises(kind, match=said):
            await asyncio.to_thread(Api(server.url, "demo", "secret-token").get, "/x", "one", {})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--api", "bookings.example"], "full URL"),
        (["--api", "https://bookings.example"], "FORWARDER_TOKEN"),
        (["--account", "one"], "--api"),
    ],
)
def test_what_it_needs_is_said(arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORWARDER_TOKEN", raising=False)
    command = ["listen", "--forward-to", "http://localhost:9000/in", *arguments]
    with pytest.raises(WrongUsage, match=said):
        CliRunner().invoke(program(command), command, catch_exceptions=False)

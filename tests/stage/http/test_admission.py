"""What a process takes on over HTTP, whatever it serves: requests under way, and responses that clients are slow to read."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.requests import Request
from starlette.routing import Route

from forwarder.http.health import Health, health_routes
from forwarder.http.messages import LARGE_BYTES, Admission, Response, place_of
from forwarder.http.server import HttpApp, serve
from forwarder.process.clock import SystemClock
from forwarder.process.supervision import Stop, bind

MIB = 1024 * 1024
PAGE = b"x" * (8 * MIB)
"""More than the system's buffers take of a connection whose client does not read."""
SOME_SECONDS = 20


class Site:
    """A server whose `/page` is large, and whose `/held` is answered once `go_on` is set. Header `workspace`: who calls."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.go_on = asyncio.Event()
        routes = [Route("/page", self._page), Route("/held", self._held), *health_routes(Health())]
        self.app = HttpApp(routes, SystemClock(), admission=admission)
        self.port = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def _page(self, request: Request) -> Response:
        place = place_of(request.scope)
        assert place is not None
        assert place.claim(request.headers["workspace"])
        return Response(200, PAGE)

    async def _held(self, _request: Request) -> Response:
        await self.go_on.wait()
        return Response(200, b"{}")

    async def ask(self, path: str, workspace: str = "w") -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1024)
        self.writers.append(writer)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nworkspace: {workspace}\r\nConnection: close\r\n\r\n".encode())
        return reader

    async def answer(self, path: str, workspace: str = "w") -> tuple[int, bytes]:
        """Read whole."""
        answer = await (await self.ask(path, workspace)).read()
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), head + body


@asynccontextmanager
async def serving(admission: Admission) -> AsyncIterator[Site]:
    site, listening, stop = Site(admission), bind("127.0.0.1", 0), Stop()
    site.port = listening.getsockname()[1]
    task = asyncio.create_task(serve(site.app, listening, stop, grace_seconds=1))
    try:
        async with asyncio.timeout(SOME_SECONDS):
            yield site
    finally:
        site.go_on.set()
        for writer in site.writers:
            writer.close()
        stop.set()
        await task


async def test_slow_readers_hold_their_workspaces_share_and_no_more() -> None:
    """Sixty of them: what they are sent is bounded, others read whole pages, and health is answered."""
    admission = Admission(max_response_bytes=12 * len(PAGE))
    async with serving(admission) as site:
        slow = [await site.ask("/page", "hostile") for _ in range(60)]
        statuses = [int((await reader.readline()).split()[1]) for reader in slow]
        assert 0 < statuses.count(503) < 60
        assert admission.responses.held("hostile") <= admission.responses.largest
        assert admission.requests.held("hostile") == 0, "what is being read is no request under way any more"
        for _ in range(3):
            status, answer = await site.answer("/page", "other")
            assert (status, len(answer) > len(PAGE)) == (200, True)
        assert (await site.answer("/healthz"))[0] == 200
    assert admission.responses.free == admission.responses.total


async def test_a_page_that_is_refused_says_when_to_come_again() -> None:
    async with serving(Admission(max_response_bytes=MIB)) as site:
        status, answer = await site.answer("/page")
        assert (status, b"retry-after: 1" in answer, b'"code":"overloaded"' in answer) == (503, True, True)


async def test_what_was_read_whole_is_what_was_made() -> None:
    async with serving(Admission()) as site:
        status, answer = await site.answer("/page")
        assert (status, answer.endswith(PAGE)) == (200, True)
        assert b"content-length: %d" % len(PAGE) in answer


async def test_beyond_what_is_under_way_only_health_is_answered() -> None:
    async with serving(Admission(max_requests=12)) as site:
        held = [await site.ask("/held") for _ in range(2)]
        while site.admission.strangers.free > 1:
            await asyncio.sleep(0)
        status, answer = await site.answer("/held")
        assert (status, b"retry-after: 1" in answer) == (503, True)
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await site.answer(path))[0] == 200
        site.go_on.set()
        assert [(await reader.readline()).split()[1] for reader in held] == [b"200", b"200"]


@pytest.mark.parametrize(("size", "pieces"), [(LARGE_BYTES, 1), (LARGE_BYTES + 1, 2), (5 * LARGE_BYTES, 5)])
async def test_large_responses_are_sent_in_pieces(size: int, pieces: int) -> None:
    sent = []

    async def send(message: object) -> None:
        sent.append(message)

    async def receive() -> dict[str, object]:
        raise AssertionError("nothing is read")

    await Response(200, bytes(size))({"type": "http", "method": "GET"}, receive, send)
    assert len(sent) == 1 + pieces
    bodies = [each["body"] for each in sent[1:]]  # type: ignore[index]
    assert (b"".join(bodies), [each.get("more_body", False) for each in sent[1:]]) == (  # type: ignore[attr-defined]
        bytes(size),
        [True] * (pieces - 1) + [False],
    )

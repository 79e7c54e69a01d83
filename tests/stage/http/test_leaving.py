"""Clients that leave in the middle of anything: no error is logged for them, and the next one is served."""

import asyncio
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from forwarder.http.health import Health, health_routes
from forwarder.http.server import HttpApp, serve
from forwarder.process.supervision import Stop, bind
from tests.support.stages.bodies import GENERAL
from tests.support.stages.http_stages import BOOKING_ENGINE_PATH, BULK_PATH, GENERAL_PATH, HEADERS, Stages, stages

LINES = "".join(
    f"{name}: {value}\r\n" for name, value in {"Host": "x", **HEADERS, "Content-Type": "application/json"}.items()
)
BODY = json.dumps(GENERAL)


def _sent(status_path: str) -> Iterator[str]:
    """What clients have sent when they leave."""
    cancel = f"{GENERAL_PATH}/rsv_{'a' * 32}/cancel"
    for path in (GENERAL_PATH, BOOKING_ENGINE_PATH, BULK_PATH, cancel, "/api/v1/vrs/webhooks", "/nowhere"):
        yield f"POST {path} HTTP/1.1\r\n{LINES}Content-Length: 500\r\n\r\n{{"
        yield f"POST {path} HTTP/1.1\r\n{LINES}Transfer-Encoding: chunked\r\n\r\n5\r\n{{"
        yield f"POST {path} HTTP/1.1\r\n{LINES}Expect: 100-continue\r\nContent-Length: 500\r\n\r\n"
    for prefer in ("wait=5", "respond-async"):
        yield f"POST {GENERAL_PATH} HTTP/1.1\r\n{LINES}Prefer: {prefer}\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}"
    yield f"GET {status_path} HTTP/1.1\r\n{LINES}Prefer: wait=5\r\n\r\n"
    yield f"GET /problems HTTP/1.1\r\n{LINES}"
    yield f"GET /docs HTTP/1.1\r\n{LINES}\r\n" * 20
    yield f"GET /docs HTTP/1.1\r\n{LINES}\r\nPOST {GENERAL_PATH} HTTP/1.1\r\n{LINES}Content-Length: 9\r\n\r\n"


@pytest.mark.parametrize("reset", [False, True])
async def test_who_leaves_is_no_error(reset: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    house: Stages
    async with stages() as house:
        listening, stop = bind("127.0.0.1", 0), Stop()
        serving = asyncio.create_task(serve(HttpApp(house.routes, house.clock), listening, stop, grace_seconds=1))
        with structlog.testing.capture_logs() as logged:
            for head in _sent(f"/api/v1/vrs/submissions/{house.ids.derive('alpha-1', 'key')}"):
                _, writer = await asyncio.open_connection(*listening.getsockname()[:2])
                writer.write(head.encode())
                await writer.drain()
                if reset:
                    writer.transport.abort()
                else:
                    writer.close()
            reader, writer = await asyncio.open_connection(*listening.getsockname()[:2])
            writer.write(f"GET /problems HTTP/1.1\r\n{LINES}Connection: close\r\n\r\n".encode())
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
            writer.close()
            stop.set()
            await serving
    assert [line for line in logged if line["log_level"] not in {"debug", "info"}] == []
    assert [record.getMessage() for record in caplog.records] == []
    left = [line["event"] for line in logged if line["event"] != "request.completed"]
    assert set(left) <= {"submission.accepted", "submission.answered"}, left


async def test_a_server_that_is_leaving_serves_and_sends_elsewhere_until_it_closes() -> None:
    """So a rolling restart refuses nobody: who has a connection is told to open another, who comes meanwhile is served."""
    house: Stages
    async with stages() as house:
        listening, leaving, closing = bind("127.0.0.1", 0), Stop(), Stop()
        place = listening.getsockname()[:2]
        routes = [*house.routes, *health_routes(Health(), leaving=leaving)]
        app = HttpApp(routes, house.clock, leaving=leaving)
        serving = asyncio.create_task(serve(app, listening, closing, grace_seconds=1))

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str = "/problems") -> bytes:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length: "))
            await reader.readexactly(int(length.partition(b" ")[2]))
            return head

        kept = await asyncio.open_connection(*place)
        assert b"connection: close" not in await answer(*kept)
        leaving.set()
        assert b"connection: close" in await answer(*kept)
        assert await kept[0].read() == b""
        new = await asyncio.open_connection(*place)
        head = await answer(*new, "/readyz")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"connection: close" in head
        closing.set()
        await serving
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*place)
        for _, writer in (kept, new):
            writer.close()

"""Alive, ready, and the numbers."""

import asyncio
from collections.abc import Mapping

import httpx
import pytest

from forwarder.http import health
from forwarder.http.health import Check, Health, health_routes
from forwarder.http.server import HttpApp
from forwarder.process.loops import LOOPS, Where
from tests.support.cases import for_each
from tests.support.memory.clock import ManualClock, settle


async def _good() -> bool:
    return True


async def _bad() -> bool:
    return False


async def _broken() -> bool:
    raise OSError("no such host: secret.internal")


async def _endless() -> bool:
    await asyncio.Event().wait()
    return True


async def _get(path: str, checks: Mapping[str, Check], **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(HttpApp(health_routes(Health(checks)), ManualClock()))
    async with httpx.AsyncClient(transport=transport, base_url="http://forwarder.test") as client:
        return await client.get(path, headers=headers)


async def test_alive_whatever_the_checks_say() -> None:
    answer = await _get("/healthz", {"log": _bad})
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize("checks", [{}, {"log": _good, "store": _good}])
async def test_ready_where_every_check_says_so(checks: Mapping[str, Check]) -> None:
    answer = await _get("/readyz", checks)
    assert answer.status_code == 200
    assert answer.json() == {"status": "ready", "checks": {**dict.fromkeys(checks, True), "loops": True}, "failed": []}


@pytest.mark.parametrize("check", [_bad, _broken, _endless])
async def test_not_ready_names_what_is_not(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_CHECK_SECONDS", 0.01)
    answer = await _get("/readyz", {"log": _good, "store": check})
    assert answer.status_code == 503
    confirmed = {"log": True, "store": False, "loops": True}
    assert answer.json() == {"status": "not ready", "checks": confirmed, "failed": ["store"]}
    assert "secret" not in answer.text


@pytest.mark.parametrize(
    ("log", "store", "status", "code"),
    [
        (_good, _good, "ready", 200),
        (_good, _bad, "degraded", 200),
        (_bad, _good, "not ready", 503),
        (_bad, _bad, "not ready", 503),
    ],
)
async def test_what_only_some_of_the_work_needs_leaves_it_ready_and_degraded(
    log: Check, store: Check, status: str, code: int
) -> None:
    transport = httpx.ASGITransport(HttpApp(health_routes(Health({"log": log}, {"store": store})), ManualClock()))
    async with httpx.AsyncClient(transport=transport, base_url="http://forwarder.test") as client:
        answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (code, status)
    assert answer.json()["checks"] == {"log": log is _good, "store": store is _good, "loops": True}


async def test_requests_at_once_share_one_run_of_the_checks() -> None:
    runs, go = 0, asyncio.Event()

    async def check() -> bool:
        nonlocal runs
        runs += 1
        await go.wait()
        return True

    transport = httpx.ASGITransport(HttpApp(health_routes(Health({"store": check})), ManualClock()))
    async with httpx.AsyncClient(transport=transport, base_url="http://forwarder.test") as client:
        asked = [asyncio.create_task(client.get(path)) for path in ("/readyz", "/readyz", "/metrics")]
        await settle()
        go.set()
        assert [(await each).status_code for each in asked] == [200, 200, 200]
        assert runs == 1
        assert (await client.get("/readyz")).status_code == 200
    assert runs == 2


async def test_not_ready_while_a_loop_fails_over_and_over() -> None:
    loop = object()
    LOOPS.fails(loop, Where.INTAKE, "err_1")
    try:
        answer = await _get("/readyz", {"log": _good})
    finally:
        LOOPS.works(loop)
    assert answer.status_code == 503
    assert (answer.json()["failed"], answer.json()["failingLoops"]) == (["loops"], ["intake"])
    assert (await _get("/readyz", {"log": _good})).status_code == 200


async def test_the_numbers_are_prometheus() -> None:
    answer = await _get("/metrics", {})
    assert answer.headers["content-type"].startswith("text/plain")
    assert "# TYPE forwarder_submissions_total counter" in answer.text


TOKEN = "token-of-prometheus"


@for_each(
    "given",
    [
        None,
        TOKEN,
        f"Basic {TOKEN}",
        "Bearer ",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        "Bearer \xff",
        "Bearer a, b",
    ],
)
async def test_the_numbers_are_for_the_bearer_of_their_token_alone(given: str | None) -> None:
    headers = [] if given is None else [(b"Authorization", given.encode("latin-1"))]
    routes = health_routes(Health(), metrics_token=TOKEN)
    transport = httpx.ASGITransport(HttpApp(routes, ManualClock()))
    async with httpx.AsyncClient(transport=transport, base_url="http://forwarder.test") as client:
        refused = await client.get("/metrics", headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")
        assert (refused.headers["www-authenticate"], "forwarder_" in refused.text) == ("Bearer", False)
        let_in = await client.get("/metrics", headers={"Authorization": f"bearer {TOKEN}"})
        assert "# TYPE forwarder_submissions_total counter" in let_in.text
        assert (await client.get("/readyz")).status_code == 200, "probes have no token"


async def test_the_numbers_as_open_metrics_where_asked() -> None:
    answer = await _get("/metrics", {}, accept="application/openmetrics-text; version=1.0.0")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


@pytest.mark.parametrize("accept", ["text/plain;version=x", "application/openmetrics-text; version=1.x.0, */*"])
async def test_the_numbers_as_text_where_a_version_is_asked_for_that_is_none(accept: str) -> None:
    answer = await _get("/metrics", {}, accept=accept)
    assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (200, "text/plain")

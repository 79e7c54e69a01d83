"""An operation that is to go says so in each of its answers and in the contract; all others are served as they were."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from openapi_spec_validator import validate

from forwarder.assembly.roles import role as serving
from forwarder.http.connections import ConnectionLimits
from forwarder.http.deprecation import DEPRECATED, NOTICE, Deprecation, announcing
from forwarder.http.server import http_app
from forwarder.settings import Environment
from tests.support.stages.bodies import GENERAL
from tests.support.stages.http_stages import GENERAL_PATH, HEADERS, Stages, stages
from tools.contracts.compatibility import breaking_changes
from tools.contracts.openapi import document as contract
from tools.contracts.openapi.document import marked

SINCE = datetime(2029, 1, 1, tzinfo=UTC)
OLD_LIST = Deprecation(
    "GET",
    "/api/vrs/reservations",
    SINCE,
    datetime(2031, 1, 1, 12, tzinfo=UTC),
    "/api/v1/vrs/reservations",
)
OLD_SUBMIT = Deprecation("POST", GENERAL_PATH, SINCE)
TABLE = (OLD_LIST, OLD_SUBMIT)
ANNOUNCED = {
    "deprecation": "@1861920000",
    "sunset": "Wed, 01 Jan 2031 12:00:00 GMT",
    "link": '</docs>; rel="deprecation"; type="text/html", </api/v1/vrs/reservations>; rel="successor-version"',
}


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """The real application, in which two operations are to go."""
    house: Stages
    async with stages() as house:
        app = http_app(announcing(house.routes, TABLE), house.clock)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://forwarder.test", headers=HEADERS) as one:
            yield one


def announced(answer: httpx.Response) -> dict[str, str]:
    return {name: answer.headers[name] for name in ("deprecation", "sunset", "link") if name in answer.headers}


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_it_says_so_with_every_answer(client: httpx.AsyncClient, method: str) -> None:
    for answer in (
        await client.request(method, OLD_LIST.path),
        await client.request(method, OLD_LIST.path, params={"limit": "0"}),
        await client.request(method, OLD_LIST.path, headers={"Authorization": "Bearer nobody's"}),
    ):
        assert announced(answer) == ANNOUNCED, answer.status_code
        assert answer.headers["content-length"]


async def test_without_an_end_it_names_none(client: httpx.AsyncClient) -> None:
    answer = await client.post(GENERAL_PATH, json=GENERAL, headers={"Prefer": "respond-async"})
    assert answer.status_code == 202
    assert announced(answer) == {
        "deprecation": "@1861920000",
        # Beside what the first answer says to a caller without a key.
        "link": '</docs#submitBookingEngineReservation>; rel="help"; title="Idempotency-Key", '
        '</docs>; rel="deprecation"; type="text/html"',
    }


async def test_every_process_serves_its_routes_so(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Any] = []

    async def serve(app: Any, *_: Any, **__: Any) -> None:
        served.append(app)

    monkeypatch.setattr(serving, "serve", serve)
    monkeypatch.setattr(serving, "telling_of_itself", lambda *_: nullcontext())  # there is no store
    monkeypatch.setattr(serving, "announcing", partial(announcing, table=TABLE))
    house: Stages
    async with stages() as house:
        settings = SimpleNamespace(environment=Environment(), connections=ConnectionLimits(), tls=None)
        backend: Any = SimpleNamespace(
            clock=house.clock,
            settings=settings,
            access=house.access,
            admission=house.admission,
            engine=None,
            tracer=None,
        )
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            await serving.serve_role("query", house.routes, backend, listening, asyncio.Event())
        transport = httpx.ASGITransport(served[0])
        async with httpx.AsyncClient(transport=transport, base_url="http://forwarder.test", headers=HEADERS) as one:
            assert announced(await one.get(OLD_LIST.path)) == ANNOUNCED


async def test_others_say_nothing_of_the_kind(client: httpx.AsyncClient) -> None:
    """Not even another method of the same path, or the same operation under its other address."""
    for path in (GENERAL_PATH, "/api/v1/vrs/reservations/7", "/docs", "/nowhere"):
        assert announced(await client.get(path)) == {}, path


def test_the_contract_says_the_same() -> None:
    plain = contract.openapi()
    document = marked(contract.openapi(), TABLE)
    validate(document)
    listing = document["paths"][OLD_LIST.path]["get"]
    assert listing["deprecated"] is True
    assert listing["description"].startswith(
        "Deprecated since 2029-01-01. It answers until 2031-01-01. Use `/api/v1/vrs/reservations` instead."
    )
    assert all({"Deprecation", "Sunset", "Link"} <= set(one["headers"]) for one in listing["responses"].values())
    submitting = document["paths"][GENERAL_PATH]["post"]["responses"]["202"]["headers"]
    assert set(submitting) & {"Deprecation", "Sunset", "Link"} == {"Deprecation", "Link"}
    assert document["paths"][GENERAL_PATH]["get"] == plain["paths"][GENERAL_PATH]["get"]
    assert breaking_changes(plain, document) == []


def test_who_uses_nothing_old_pays_nothing() -> None:
    routes: list[object] = []
    assert announcing(routes, ()) is routes  # type: ignore[arg-type]  # whatever they are
    document = contract.openapi()
    assert marked(document, ()) is document


def test_what_is_to_go_must_be_there() -> None:
    with pytest.raises(KeyError):
        marked(contract.openapi(), [Deprecation("GET", "/nowhere", SINCE)])


@pytest.mark.parametrize(("notice", "enough"), [(NOTICE, True), (NOTICE - timedelta(days=1), False), (-NOTICE, False)])
def test_the_notice_is_as_long_as_promised(notice: timedelta, enough: bool) -> None:
    def made() -> Deprecation:
        return Deprecation("GET", "/docs", SINCE, SINCE + notice)

    if enough:
        assert made().sunset == SINCE + notice
    else:
        with pytest.raises(ValueError, match="365 days"):
            made()


def test_every_operation_that_is_to_go_is_marked_in_what_is_published() -> None:
    document = contract.openapi()
    found = {
        (method.upper(), path)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if operation.get("deprecated")
    }
    assert found == {(one.method, one.path) for one in DEPRECATED}

"""A revoked API key, on every backend: it opens no page once what its callers are known by is stale."""

from collections.abc import AsyncIterator

import httpx
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.http.server import HttpApp
from forwarder.query.routes import Queries, query_routes
from forwarder.reservation.submission import RequestIds
from forwarder.store.lists.reader import Reader
from forwarder.tenancy.access import Access
from forwarder.tenancy.port import Account
from forwarder.tenancy.sql.admin import TenancyAdmin
from forwarder.tenancy.sql.directory import CacheTimes, SqlDirectory
from forwarder.topics.outcomes import OutcomeListener
from tests.support.memory.clock import ManualClock
from tests.support.memory.log import MemoryLog

PAGES = "/api/v1/vrs/reservations"


@pytest.fixture
async def registry(engine: AsyncEngine) -> TenancyAdmin:
    """With the workspace "ws-1" and its account "acc-1"."""
    opened = TenancyAdmin(engine)
    await opened.add_workspace("ws-1")
    await opened.put_account(Account("acc-1", "ws-1", "generic", "https://pms.example.com", ""))
    return opened


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def query(engine: AsyncEngine, clock: ManualClock) -> AsyncIterator[httpx.AsyncClient]:
    """The query stage, with its caches as they are in a deployment."""
    outcomes = OutcomeListener(MemoryLog(clock).tail("reservations.results"), clock, max_waiting=1)
    directory = SqlDirectory(engine, clock)
    parts = Queries(Access(directory, clock), Reader(engine), RequestIds(b"0123456789abcdef"), outcomes, clock)
    transport = httpx.ASGITransport(HttpApp(query_routes(parts), clock))
    async with httpx.AsyncClient(transport=transport, base_url="http://forwarder.test") as client:
        yield client


async def page(query: httpx.AsyncClient, token: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}", "workspaceId": "ws-1", "integrationAccountId": "acc-1"}
    return await query.get(PAGES, headers=headers)


async def test_it_is_refused_a_page_once_the_caches_are_stale(
    registry: TenancyAdmin, query: httpx.AsyncClient, clock: ManualClock
) -> None:
    (revoked, token), (_, other) = await registry.add_key("ws-1"), await registry.add_key("ws-1")
    assert [(await page(query, each)).status_code for each in (token, other)] == [200, 200]
    await registry.revoke_key(revoked.id)
    await clock.advance(CacheTimes().known)
    refused = await page(query, token)
    assert refused.status_code == 401
    assert refused.json()["code"] == "unauthenticated"
    assert (await page(query, other)).status_code == 200


async def test_it_is_refused_at_a_process_that_has_not_seen_it(
    registry: TenancyAdmin, query: httpx.AsyncClient
) -> None:
    revoked, token = await registry.add_key("ws-1")
    await registry.revoke_key(revoked.id)
    assert (await page(query, token)).status_code == 401

"""The delivery log of a webhook page by page over HTTP, on every database: each delivery once, there and back."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import httpx
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.http.server import HttpApp
from forwarder.notifier.api import WebhookApi
from forwarder.notifier.webhooks import Webhooks
from forwarder.process.clock import SystemClock
from forwarder.store.deliveries import NewDelivery
from forwarder.store.delivery_queue import Deliveries
from forwarder.tenancy.access import Access, RateLimits
from forwarder.tenancy.port import ALL_SCOPES
from forwarder.tenancy.sql.admin import TenancyAdmin
from forwarder.tenancy.sql.directory import SqlDirectory
from forwarder.tenancy.sql.endpoints import Endpoints
from tests.support.memory.named_hosts import named_hosts
from tests.support.sealing import keyring_of
from tests.support.store.audited import audit_on

PATH = "/api/v1/vrs/webhooks"
COUNT = 7


@pytest.fixture
async def client(engine: AsyncEngine) -> AsyncIterator[httpx.AsyncClient]:
    """A caller of the API with two webhooks, to which in turn so many deliveries were made."""
    clock, log = SystemClock(), Deliveries(engine)
    registry = TenancyAdmin(engine)
    await registry.add_workspace("alpha")
    _, token = await registry.add_key("alpha", scopes=ALL_SCOPES)
    hooks = Webhooks(Endpoints(engine), log, keyring_of("a secret"), named_hosts(), clock, audit_on(engine, clock))
    api = WebhookApi(Access(SqlDirectory(engine, clock), clock), hooks, RateLimits(clock))
    app = HttpApp(api.routes(), clock)
    headers = {"Authorization": f"Bearer {token}", "workspaceId": "alpha"}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://forwarder.test", headers=headers
    ) as caller:
        for _ in range(3):
            assert (await caller.post(PATH, json={"url": "https://hooks.example"})).status_code == 201
        first, second, _ = await hooks.endpoints("alpha")
        for number in range(COUNT):
            for endpoint in (first, second):
                delivery = NewDelivery(endpoint.id, f"rsv_x.{number}", "reservation.confirmed.v1", "{}")
                await log.queue([delivery], now=datetime.now(UTC))
        yield caller


async def walk(client: httpx.AsyncClient, path: str, step: str, start: str = "") -> list[list[str]]:
    """The pages from `start` on, following the cursor `step`; of each the ids."""
    pages, cursor = [], start
    while True:
        page = (await client.get(path, params={"limit": 3, **({"cursor": cursor} if cursor else {})})).json()
        pages.append([str(each["id"]) for each in page["data"]])
        cursor = page["meta"]["cursors"][step]
        if not cursor:
            return pages


async def last_cursor(client: httpx.AsyncClient, path: str) -> str:
    """Where the last page begins."""
    cursor = ""
    while True:
        page = (await client.get(path, params={"limit": 3, **({"cursor": cursor} if cursor else {})})).json()
        if not page["meta"]["cursors"]["next"]:
            current: str = page["meta"]["cursors"]["current"]
            return current
        cursor = page["meta"]["cursors"]["next"]


async def test_deliveries_are_each_on_one_page_there_and_back(client: httpx.AsyncClient) -> None:
    hook = (await client.get(PATH)).json()["data"][0]["id"]
    path = f"{PATH}/{hook}/deliveries"
    onward = await walk(client, path, "next")
    numbers = [int(each) for page in onward for each in page]
    assert [len(page) for page in onward] == [3, 3, 1]
    assert numbers == sorted(numbers, reverse=True)
    assert len(set(numbers)) == COUNT
    assert (await walk(client, path, "previous", await last_cursor(client, path)))[::-1] == onward


async def test_webhooks_are_each_on_one_page_there_and_back(client: httpx.AsyncClient) -> None:
    for _ in range(2):
        assert (await client.post(PATH, json={"url": "https://hooks.example"})).status_code == 201
    onward = await walk(client, PATH, "next")
    assert [len(page) for page in onward] == [3, 2]
    assert len({each for page in onward for each in page}) == 5
    assert (await walk(client, PATH, "previous", await last_cursor(client, PATH)))[::-1] == onward


async def test_what_is_queued_meanwhile_moves_nothing(client: httpx.AsyncClient) -> None:
    hook = (await client.get(PATH)).json()["data"][0]["id"]
    path = f"{PATH}/{hook}/deliveries"
    first = (await client.get(path, params={"limit": 3})).json()
    assert (await client.post(f"{PATH}/{hook}/test")).status_code == 202
    rest = await walk(client, path, "next", first["meta"]["cursors"]["next"])
    seen = [*(str(each["id"]) for each in first["data"]), *(each for page in rest for each in page)]
    assert len(set(seen)) == len(seen) == COUNT

"""The conformance kit can fail: each of its checks finds out an adapter that breaks its promise, and lets a true one pass."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from forwarder.assembly.conformance import simulated_site
from forwarder.pms.conformance import CHECKS, Site, averify, examine
from tests.support.wrong_adapters import CAUGHT_BY, ClientOfItsOwn, ConnectsAtOnce, LeavesTasksBehind

pytestmark = pytest.mark.asyncio(loop_scope="module")

BY_NAME = {check.name: check for check in CHECKS}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site() -> AsyncIterator[Site]:
    async with simulated_site("generic") as simulated:
        yield simulated


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def nothing_stays() -> AsyncIterator[None]:
    """What wrong adapters leave behind is not for the next test."""
    yield
    for client in ClientOfItsOwn.clients:
        await client.aclose()
    for connection in ConnectsAtOnce.opened:
        connection.close()
    for task in LeavesTasksBehind.left:
        task.cancel()
    await asyncio.gather(*LeavesTasksBehind.left, return_exceptions=True)
    for left in (ClientOfItsOwn.clients, ConnectsAtOnce.opened, LeavesTasksBehind.left):
        left.clear()


async def test_every_check_has_something_to_find_out() -> None:
    assert {name for _, name, _ in CAUGHT_BY} == set(BY_NAME)


async def test_every_check_promises_something_in_a_sentence() -> None:
    assert all(check.promise.endswith(".") and len(check.promise.split()) > 5 for check in CHECKS)


@pytest.mark.parametrize(("adapter", "check", "said"), CAUGHT_BY, ids=[f"{a.__name__}-{c}" for a, c, _ in CAUGHT_BY])
async def test_a_wrong_adapter_is_found_out(site: Site, adapter: Any, check: str, said: str) -> None:
    (result,) = [result async for result in examine("wrong", adapter, site, [BY_NAME[check]])]
    assert result.verdict == "failed", result
    assert any(said in finding for finding in result.findings), result.findings


async def test_what_is_wrong_is_an_assertion_for_test_runners(site: Site) -> None:
    adapter, name, said = CAUGHT_BY[0]
    with pytest.raises(AssertionError, match=said):
        await averify(BY_NAME[name], adapter, site)

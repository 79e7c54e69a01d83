"""The conformance kit can fail: each of its checks finds out an adapter that breaks its promise, and lets a true one pass."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
import pytest_asyncio

from forwarder.pms.kinds.generic import GenericAdapter
from forwarder.reservation.outcome import Confirmed
from forwarder_pms_kit.conformance import CHECKS, Site, averify, behaviour, examine
from forwarder_pms_kit.conformance.course import HABIT_CHECKS
from forwarder_pms_kit.conformance.site import Stays
from forwarder_pms_kit.conformance.trial import trial
from forwarder_pms_kit.runs import simulated_site
from tests.support.pms.wrong_adapters import (
    CAUGHT_BY,
    GRACE_SECONDS,
    CancelsNothing,
    ClientOfItsOwn,
    ConnectsAtOnce,
    LeavesTasksBehind,
)

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
    habits = {check.name for check in HABIT_CHECKS}  # what they find out is in `test_habits.py`
    assert {name for _, name, _ in CAUGHT_BY} == set(BY_NAME) - habits


async def test_every_check_promises_something_in_a_sentence() -> None:
    assert all(check.promise.endswith(".") and len(check.promise.split()) > 5 for check in CHECKS)


@pytest.mark.parametrize(("adapter", "check", "said"), CAUGHT_BY, ids=[f"{a.__name__}-{c}" for a, c, _ in CAUGHT_BY])
async def test_a_wrong_adapter_is_found_out(
    site: Site, monkeypatch: pytest.MonkeyPatch, adapter: Any, check: str, said: str
) -> None:
    # A wrong one is waited for as long as this; how long a right one may take is in `test_pms_conformance.py`.
    monkeypatch.setattr(behaviour, "GRACE_SECONDS", GRACE_SECONDS)
    monkeypatch.setattr(behaviour, "_IDLE_SECONDS", 1.0)
    (result,) = [result async for result in examine("wrong", adapter, site, [BY_NAME[check]])]
    assert result.verdict == "failed", result
    assert any(said in finding for finding in result.findings), result.findings


async def test_what_is_wrong_is_an_assertion_for_test_runners(site: Site) -> None:
    adapter, name, said = CAUGHT_BY[0]
    with pytest.raises(AssertionError, match=said):
        await averify(BY_NAME[name], adapter, site)


async def test_a_pms_with_one_room_is_left_as_it_was(site: Site) -> None:
    in_one_room = replace(site, property_id="7", room_id="A", first_night=date(2028, 1, 1), tidy=True, stays=Stays())
    names = ("makes-reservations", "cancels", "looks-up-truly", "doubts-what-may-be-made", "can-be-cancelled")
    quick = [BY_NAME[name] for name in names]
    results = [result async for result in examine("generic", GenericAdapter, in_one_room, quick)]
    assert [result.verdict for result in results] == ["passed"] * len(quick)
    in_one_room.stays.restart()  # from the first night on, all are free again
    async with trial("generic", GenericAdapter, in_one_room) as tried:
        for _ in range(20):
            assert isinstance(await tried.create(in_one_room.booking()), Confirmed)
    with_nothing_tidied = replace(in_one_room, tidy=False, stays=Stays())
    async with trial("generic", GenericAdapter, with_nothing_tidied) as tried:
        assert isinstance(await tried.create(with_nothing_tidied.booking()), Confirmed)
        assert isinstance(await tried.create(with_nothing_tidied.booking()), Confirmed)


async def test_without_a_count_of_the_pms_its_look_up_is_asked(site: Site) -> None:
    checks = [BY_NAME[name] for name in ("makes-reservations", "cancels", "doubts-what-may-be-made", "creates-batches")]
    results = [result async for result in examine("generic", GenericAdapter, replace(site, held=None), checks)]
    assert [result.verdict for result in results] == ["passed"] * 3 + ["not applicable"]
    (found_out,) = [r async for r in examine("wrong", CancelsNothing, replace(site, held=None), [BY_NAME["cancels"]])]
    assert found_out.verdict == "failed"

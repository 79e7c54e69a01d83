"""Every kind of PMS keeps its word: the conformance kit's checks, on each account that the simulator can be asked as."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from forwarder.pms.registry import KINDS
from forwarder_pms_kit.conformance import CHECKS, Check, Site, averify
from forwarder_pms_kit.conformance.course import HABIT_CHECKS
from forwarder_pms_kit.runs import simulated_site
from tests.support.simulator.accounts import ACCOUNTS, SimulatedAccount

WAITING = {"keeps-its-time", "leaves-nothing-open"}
"""Checks that mostly wait, by their names: all accounts are put to them side by side."""

_OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in sorted(set(ACCOUNTS) - set(KINDS))]
"""With other settings than a kind's own: what these change has tests beside each kind."""

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[*sorted(set(ACCOUNTS) & set(KINDS)), *_OTHERS])
async def account(request: pytest.FixtureRequest) -> AsyncIterator[tuple[SimulatedAccount, Site]]:
    asked = ACCOUNTS[request.param]
    async with simulated_site(asked.speaks) as simulated:
        yield asked, asked.at(simulated)


@pytest.mark.parametrize("check", [check for check in CHECKS if str(check) in WAITING], ids=str)
async def test_they_keep_their_word(check: Check) -> None:
    async with AsyncExitStack() as stack:
        sites = [
            (asked.kind, asked.at(await stack.enter_async_context(simulated_site(asked.speaks))))
            for asked in ACCOUNTS.values()
        ]
        await asyncio.gather(*(averify(check, KINDS[kind], site, kind=kind) for kind, site in sites))


@pytest.mark.parametrize(
    "check", [check for check in CHECKS if str(check) not in WAITING and check not in HABIT_CHECKS], ids=str
)
async def test_it_keeps_its_word(account: tuple[SimulatedAccount, Site], check: Check) -> None:
    asked, site = account
    await averify(check, KINDS[asked.kind], site, kind=asked.kind)


async def test_every_kind_is_among_them() -> None:
    assert {account.kind for account in ACCOUNTS.values()} == set(KINDS)
    assert {str(check) for check in CHECKS} > WAITING

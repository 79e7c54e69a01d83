"""Every kind of PMS keeps its word: the conformance kit's checks, on each account that the simulator can be asked as."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from forwarder.assembly.conformance import simulated_site
from forwarder.pms.conformance import CHECKS, Check, Site, averify
from forwarder.pms.directory import KINDS
from tests.support.simulated_accounts import ACCOUNTS, SimulatedAccount

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=sorted(ACCOUNTS))
async def account(request: pytest.FixtureRequest) -> AsyncIterator[tuple[SimulatedAccount, Site]]:
    asked = ACCOUNTS[request.param]
    async with simulated_site(asked.speaks) as simulated:
        yield asked, asked.at(simulated)


@pytest.mark.parametrize("check", CHECKS, ids=str)
async def test_it_keeps_its_word(account: tuple[SimulatedAccount, Site], check: Check) -> None:
    asked, site = account
    await averify(check, KINDS[asked.kind], site, kind=asked.kind)


async def test_every_kind_is_among_them() -> None:
    assert {account.kind for account in ACCOUNTS.values()} == set(KINDS)

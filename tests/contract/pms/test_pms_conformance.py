"""Every kind of PMS keeps its word: the conformance kit's checks, on each account that the simulator can be asked as."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import product

import pytest
import pytest_asyncio

from forwarder.pms.registry import KINDS
from forwarder_pms_kit.conformance import CHECKS, Check, Site, averify
from forwarder_pms_kit.conformance.course import HABIT_CHECKS
from forwarder_pms_kit.runs import simulated_site
from tests.support.simulator.accounts import ACCOUNTS, REPRESENTATIVE, SimulatedAccount

WAITING = {"keeps-its-time", "leaves-nothing-open"}
"""Checks that mostly wait, by their names: all accounts are put to them side by side."""

OF_THE_CODE = {
    "can-be-cancelled",
    "cancels-truly",
    "follows-no-redirect",
    "hides-cards",
    "hides-the-credential",
    "makes-many-at-once",
    "opens-nothing-by-itself",
    "stops-when-told",
    "survives-wrong-settings",
    "takes-no-answer-of-another",
    "tells-nothing-of-the-guest",
}
"""Checks that depend on an adapter's code and hardly on its page: for a change, one account of each code is put to them."""

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=sorted(ACCOUNTS))
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


def _runs(account: str, check: Check) -> bool:
    """Whether a change is tested by it."""
    return account in REPRESENTATIVE or (account in KINDS and str(check) not in OF_THE_CODE)


CASES = [
    pytest.param(name, check, marks=() if _runs(name, check) else pytest.mark.slow, id=f"{name}-{check}")
    for name, check in product(sorted(ACCOUNTS), CHECKS)
    if str(check) not in WAITING and check not in HABIT_CHECKS
]


@pytest.mark.parametrize(("account", "check"), CASES, indirect=["account"])
async def test_it_keeps_its_word(account: tuple[SimulatedAccount, Site], check: Check) -> None:
    asked, site = account
    await averify(check, KINDS[asked.kind], site, kind=asked.kind)


async def test_every_kind_is_among_them() -> None:
    assert {account.kind for account in ACCOUNTS.values()} == set(KINDS)
    assert {str(check) for check in CHECKS} > WAITING | OF_THE_CODE

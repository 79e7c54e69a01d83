"""Connections to PostgreSQL that die every half second, and are slow to come back: what a worker holds stays its own meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from forwarder.store.engine import open_engine
from forwarder.store.migrate import migrate
from tests.fault.campaign.case import Case
from tests.fault.campaign.form import Form
from tests.fault.campaign.holding import Holding
from tests.fault.campaign.judge import Expected
from tests.fault.campaign.service import open_service
from tests.fault.conftest import NewCase
from tests.fault.relay import Relay, relay_to
from tests.support.deployment.site import Site, site_settings
from tools.servers.kafka.process import KafkaCluster
from tools.servers.postgres.databases import new_database
from tools.servers.postgres.process import PostgresServer
from tools.servers.real_servers import RealServers

_PATIENCE_SECONDS = 90.0
_DELAYS = (0.0, 0.0, 0.05, 0.3)
_PMS_MILLISECONDS = 150
_FEW = "24"
"""Rows that the worker may hold: most of what comes in has to be claimed."""


async def _cut_every_half_second(
    relay: Relay, form: Form, seconds: float, enough: Callable[[int], bool] = lambda _: True
) -> int:
    """How often anything was cut, for so long at least; on a busy machine for longer, until so many cuts are `enough`."""
    chance, cuts = form.random_for("cuts"), 0
    clock = asyncio.get_running_loop().time
    end = clock() + seconds
    latest = end + _PATIENCE_SECONDS
    while clock() < end or (not enough(cuts) and clock() < latest):
        await asyncio.sleep(chance.uniform(0.3, 0.6))  # the fault's own pace
        cuts += relay.cut() > 0
    return cuts


@pytest.mark.slow  # `tests/stage/pms/http/test_transport.py` shows it of each connection
async def test_what_is_pushed_is_never_given_back_as_not_sent(postgres: PostgresServer, form: Form) -> None:
    """One recorder, as a worker uses it: an intake, a sweep, and pushes that are under way for a while."""
    await asyncio.to_thread(postgres.start)
    delays = form.random_for("delays")
    async with new_database(postgres.url) as url:
        await migrate(url)
        async with relay_to(url, lambda: delays.choice(_DELAYS)) as (relay, through):
            engine = open_engine(through, pool_size=10)
            try:
                holding = Holding(engine, form.random_for("pushes"))

                def enough(cuts: int) -> bool:
                    outages, pushes = form.times(short=5, long=10), form.times(short=30, long=100)
                    return min(cuts, holding.outages) > outages and len(holding.pushed) > pushes

                async with holding.working():
                    cuts = await _cut_every_half_second(relay, form, form.times(short=2, long=120), enough)
            finally:
                await engine.dispose()
    assert enough(cuts), f"{cuts} cuts, {holding.outages} outages, {len(holding.pushed)} pushes"
    assert not holding.pushed_again, f"{len(holding.pushed_again)} of {len(holding.pushed)}, which was not doubtful"


@pytest_asyncio.fixture(loop_scope="session")
async def relay(postgres: PostgresServer, form: Form) -> AsyncIterator[tuple[Relay, str]]:
    """A way to a database of the test's own."""
    await asyncio.to_thread(postgres.start)
    delays = form.random_for("delays")
    async with (
        new_database(postgres.url) as url,
        relay_to(url, lambda: delays.choice(_DELAYS)) as through,
    ):
        yield through


@pytest_asyncio.fixture(loop_scope="session")
async def slow_case(
    relay: tuple[Relay, str], kafka: KafkaCluster, real_servers: RealServers, tmp_path: Path, new_case: NewCase
) -> AsyncIterator[Case]:
    """A case in a service that reaches its database through the relay, and holds little."""
    await asyncio.to_thread(kafka.start)
    settings = site_settings("distributed", tmp_path, kafka.bootstrap_servers, relay[1])
    settings["FORWARDER_MAX_HELD"] = _FEW
    async with open_service(Site("distributed", tmp_path, settings, real_servers.reaper), kafka) as service:
        case = new_case(service)
        case.accounts = dict.fromkeys(case.accounts, "booking-sync")  # that can only be searched
        yield case


@pytest.mark.slow
async def test_a_worker_whose_connections_die_and_are_slow_to_come_back(
    slow_case: Case, relay: tuple[Relay, str], form: Form
) -> None:
    case = slow_case
    async with case.load():
        for account in case.accounts:
            await case.order_faults(account, delay_ms=_PMS_MILLISECONDS, mode="none")
        for _ in range(await _cut_every_half_second(relay[0], form, form.times(short=20, long=300))):
            case.injected("connections to PostgreSQL cut, slow to come back")
    await case.verdict(Expected(all_accepted=True))

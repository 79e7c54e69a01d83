"""A backlog that no memory could hold: the worker takes what it may hold of it, and leaves the rest in the store."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from tests.fault.campaign.case import Case
from tests.fault.campaign.form import Form
from tests.fault.campaign.service import measured, open_service, put_accounts
from tests.fault.conftest import NewCase
from tests.support.deployment.deployment import PATIENCE_SECONDS, booking
from tests.support.deployment.site import Site, settings_of, site_settings
from tools.due_rows import put_due
from tools.servers.kafka.process import KafkaCluster
from tools.servers.postgres.databases import new_database
from tools.servers.postgres.process import PostgresServer
from tools.servers.process_memory import peak_megabytes
from tools.servers.real_servers import RealServers

_HELD = {"short": 500, "long": 8_000}
_DUE = {"short": 1_500, "long": 100_000}
"""Each of them is more than twice what the worker may hold."""
_PUSHED = {"short": 200, "long": 5_000}
_MOST_MEGABYTES = 300
_VERY_SLOW_MILLISECONDS = 1_500
_SLOW_MILLISECONDS = 100
_NOTES = "Late arrival, by the night train. " * 30


@pytest_asyncio.fixture(loop_scope="session")
async def case(
    kafka: KafkaCluster,
    postgres: PostgresServer,
    real_servers: RealServers,
    tmp_path: Path,
    new_case: NewCase,
    form: Form,
) -> AsyncIterator[Case]:
    """A case in a service with a database of its own, which is thrown away with the backlog in it."""
    await asyncio.gather(asyncio.to_thread(kafka.start), asyncio.to_thread(postgres.start))
    async with new_database(postgres.url) as database:
        settings = site_settings("distributed", tmp_path, kafka.bootstrap_servers, database)
        settings["FORWARDER_MAX_HELD"] = str(_HELD[form.length])
        site = Site("distributed", tmp_path, settings, real_servers.reaper)
        async with open_service(site, kafka, postgres) as service:
            yield new_case(service)


@pytest.mark.slow  # `test_memory_budget.py` shows what is held
async def test_far_more_due_than_may_be_held(case: Case, form: Form) -> None:
    """PMSs so slow that the worker holds as much as it may; and when they are quicker, it goes on with that in memory."""
    due, pushed = _DUE[form.length], _PUSHED[form.length]
    deployment, worker = case.deployment, case.deployment.processes["worker"]
    settings = settings_of(deployment.site).environment
    await put_accounts(deployment, case.accounts, case.rates)
    await _slow_down(case, _VERY_SLOW_MILLISECONDS)
    await case.wait(worker.stop)
    url = deployment.site.settings["FORWARDER_DATABASE_URL"]
    await put_due(
        url,
        list(case.accounts),
        due,
        partitions=settings.partitions,
        booking=booking(0, paymentProviderId=42, notes=_NOTES),
    )
    await case.wait(worker.start)
    most_held = await _held_until(case, lambda held: held >= 0.9 * settings.max_held)
    await _slow_down(case, _SLOW_MILLISECONDS)
    most_held = max(most_held, await _held_until(case, lambda _: case.service.bookings.made(case.accounts) >= pushed))
    megabytes = peak_megabytes(worker.pid)
    await case.wait(worker.stop)
    assert most_held <= settings.max_held
    assert megabytes < _MOST_MEGABYTES
    await _assert_each_made_once(case, due, pushed)
    case.note(f"{due:,} due, at most {most_held:,.0f} of them held, {megabytes:.0f} MB at the most")


async def _slow_down(case: Case, milliseconds: int) -> None:
    for account in case.accounts:
        await case.order_faults(account, delay_ms=milliseconds, mode="none")


async def _held_until(case: Case, enough: Callable[[float], bool]) -> float:
    """The most that the worker said it held, until it was `enough`."""
    most, held = 0.0, 0.0
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not enough(held):
            held = await measured(case.deployment, "worker", "forwarder_held_reservations")
            most = max(most, held)
            await asyncio.sleep(0.1)
    return most


async def _assert_each_made_once(case: Case, due: int, pushed: int) -> None:
    statuses = await case.service.rows("select status, count(*) from reservations group by status")
    assert statuses.keys() == {"CONFIRMED", "PENDING"}  # a few of them made, and not recorded yet
    assert sum(statuses.values()) == due
    made = [times for account in case.accounts for times in case.service.bookings.of(account).values()]
    assert set(made) == {1}
    assert len(made) >= max(pushed, statuses["CONFIRMED"])

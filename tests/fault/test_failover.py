"""While workers run, another database takes the place of theirs. Where it lacks the last seconds, as after a failover to an
asynchronous standby, they notice it before they push anything more, and go on once it is repaired. Where it has all, as after a
failover to a synchronous one, they go on by themselves."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from forwarder.reservation.outcome import Status
from forwarder.store.engine import open_engine
from forwarder.store.submissions.recorder import Recorder
from forwarder.topics.port import Log
from tests.fault.test_restore import PATIENCE_SECONDS, House, copied
from tests.support.backends import Backend


def name_of(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


def disconnected(*databases: str) -> list[str]:
    """Statements after which nobody is connected to `databases`, nor to the first one again."""
    named = ", ".join(f"'{each}'" for each in databases)
    return [
        f"ALTER DATABASE {databases[0]} WITH ALLOW_CONNECTIONS false",
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname IN ({named})",
    ]


async def execute(server_url: str, *statements: str) -> None:
    connection = await asyncpg.connect(urlunsplit(urlsplit(server_url)._replace(scheme="postgresql")))
    try:
        for each in statements:
            await connection.execute(each)
    finally:
        await connection.close()


async def fail_over(server_url: str, url: str, standby: str) -> None:
    """Everybody is disconnected from `url`, and finds `standby` there."""
    primary, other = name_of(url), name_of(standby)
    await execute(
        server_url,
        *disconnected(primary, other),
        f"ALTER DATABASE {primary} RENAME TO {primary}_gone",
        f"ALTER DATABASE {other} RENAME TO {primary}",
        # Each keeps a name under which its fixture drops it.
        f"ALTER DATABASE {primary}_gone RENAME TO {other}",
        f"ALTER DATABASE {other} WITH ALLOW_CONNECTIONS true",
    )


def test_a_failover_that_loses_the_last_seconds_is_noticed_before_anything_is_pushed(
    backend: Backend, log: Log, migrated_url: str, request: pytest.FixtureRequest
) -> None:
    if backend == "embedded":
        pytest.skip("the embedded store is a file of the process: nothing takes its place while it runs")
    asyncio.run(failed_over(House(log), migrated_url, request.getfixturevalue("postgres_url")))


def test_after_a_failover_that_loses_nothing_workers_go_on_by_themselves(
    backend: Backend, log: Log, migrated_url: str, request: pytest.FixtureRequest
) -> None:
    if backend == "embedded":
        pytest.skip("the embedded store is a file of the process: nothing takes its place while it runs")
    asyncio.run(failed_over_to_all(House(log), migrated_url, request.getfixturevalue("postgres_url")))


async def failed_over_to_all(house: House, url: str, server_url: str) -> None:
    async with house.log.admin() as admin:
        await admin.create(dict.fromkeys(house.topics.all(), 2))
    async with AsyncExitStack() as stack:
        engine = open_engine(url)
        stack.push_async_callback(engine.dispose)
        async with house.worker(engine) as worker:
            await house.until(engine, await house.submit(2), Status.CONFIRMED)
            house.pmss.down = True
            waiting = await house.submit(2)
            await house.until(engine, waiting, Status.PENDING)
            await house.until_put_off(engine, waiting)
            await execute(server_url, *disconnected(name_of(url)))
            standby = await stack.enter_async_context(copied("distributed", url, server_url))
            await fail_over(server_url, url, standby)
            house.pmss.down = False
            await house.until(engine, [*waiting, *await house.submit(1)], Status.CONFIRMED)
            assert worker.in_step
    assert house.pmss.made == Counter({each.request_id: 1 for each in house.submitted})


async def failed_over(house: House, url: str, server_url: str) -> None:
    async with house.log.admin() as admin:
        await admin.create(dict.fromkeys(house.topics.all(), 2))
    async with AsyncExitStack() as stack:
        engine = open_engine(url)
        stack.push_async_callback(engine.dispose)
        house.pmss.down = True
        waiting = await house.submit(2)
        async with house.worker(engine):
            await house.until(engine, waiting, Status.PENDING)
            await house.until_put_off(engine, waiting)
        await engine.dispose()
        standby = await stack.enter_async_context(copied("distributed", url, server_url))
        house.pmss.down = False
        async with house.worker(engine) as worker:
            await house.until(engine, waiting, Status.CONFIRMED)
            lately = await house.submit(2)
            await house.until(engine, lately, Status.CONFIRMED)
            made = Counter(house.pmss.made)
            await fail_over(server_url, url, standby)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while worker.in_step:
                    await asyncio.sleep(0.02)
            later = await house.submit(1)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while await Recorder(engine).heartbeats():
                    await asyncio.sleep(0.1)
            assert not worker.consuming()
            assert house.pmss.made == made, "nothing is pushed before it is repaired"
            async with house.recovery(engine) as recovery:
                await recovery.run()
            blind = [each for each in house.submitted if each.account_id == "blind" and each not in later]
            certain = [each for each in house.submitted if each not in blind]
            await house.until(engine, certain, Status.CONFIRMED)
            await house.until(engine, blind, Status.CONFIRMED, Status.IN_DOUBT)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not worker.consuming():
                    await asyncio.sleep(0.02)
    assert house.pmss.made == Counter({each.request_id: 1 for each in house.submitted})

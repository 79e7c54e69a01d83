"""Kafka and PostgreSQL killed with -9 under load, and a worker stopped past its lease: what was accepted is made exactly once.

The simulator is the judge. Each case submits under concurrency, hits in the middle, waits until all is quiet, and counts.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import asyncpg
import httpx
import pytest

from tests.support.deployment import PATIENCE_SECONDS, Deployment, Site, booking, deploy, site_settings
from tests.support.kafka_process import KafkaCluster
from tests.support.postgres_process import PostgresServer
from tests.support.real_servers import RealServers

COUNT = 800
CONCURRENCY = 16
Hit = Callable[[], Awaitable[None]]


@pytest.fixture
async def deployment(
    kafka_to_kill: KafkaCluster, postgres_server: PostgresServer, tmp_path: Path, real_servers: RealServers
) -> AsyncIterator[Deployment]:
    """A distributed forwarder on engines of its own."""
    settings = site_settings("distributed", tmp_path, kafka_to_kill.bootstrap_servers, postgres_server.url)
    async with deploy(Site("distributed", tmp_path, settings, real_servers.reaper)) as running:
        await running.add_account("generic")
        yield running


async def test_postgresql_killed_and_brought_back(deployment: Deployment, postgres_server: PostgresServer) -> None:
    async def hit() -> None:
        await asyncio.to_thread(postgres_server.kill)
        await asyncio.to_thread(postgres_server.start)

    assert await _under_load(deployment, hit) == COUNT, "the log alone is needed to accept"
    await _assert_made_exactly_once(deployment, postgres_server, COUNT)


async def test_kafka_killed_and_brought_back(
    deployment: Deployment, kafka_to_kill: KafkaCluster, postgres_server: PostgresServer
) -> None:
    async def hit() -> None:
        await asyncio.to_thread(kafka_to_kill.kill)
        await asyncio.to_thread(kafka_to_kill.start)

    accepted = await _under_load(deployment, hit)
    assert accepted > 0
    await _assert_made_exactly_once(deployment, postgres_server, accepted)


async def test_the_only_worker_stopped_past_its_lease(deployment: Deployment, postgres_server: PostgresServer) -> None:
    """Nobody takes its rows over meanwhile: it gives back what it could not push, and goes on."""
    worker = deployment.processes["worker"]

    async def hit() -> None:
        await asyncio.to_thread(worker.pause)
        await _until_none(postgres_server, "select id, 1 from workers where lease_until > now()")
        await asyncio.to_thread(worker.resume)

    assert await _under_load(deployment, hit) == COUNT
    await _assert_made_exactly_once(deployment, postgres_server, COUNT)


async def test_a_worker_stopped_until_another_has_its_rows(
    deployment: Deployment, postgres_server: PostgresServer
) -> None:
    """It wakes up with rows in memory that are another's by now, and neither pushes nor records them."""
    worker = deployment.processes["worker"]

    async def hit() -> None:
        await asyncio.to_thread(worker.pause)
        (stopped,) = await _rows(postgres_server, "select id, 1 from workers")
        await asyncio.to_thread(deployment.add("worker", role="second").start)
        await _until_none(postgres_server, f"select id, 1 from workers where id = '{stopped}'")
        await asyncio.to_thread(worker.resume)

    assert await _under_load(deployment, hit) == COUNT
    await _assert_made_exactly_once(deployment, postgres_server, COUNT)


async def _under_load(deployment: Deployment, hit: Hit) -> int:
    """Submit `COUNT` reservations, `hit` when some were made; how many were answered 202."""
    gate = asyncio.Semaphore(CONCURRENCY)

    async def submit(number: int) -> bool:
        async with gate:
            try:
                return (await deployment.submit("generic", booking(number))).status_code == httpx.codes.ACCEPTED
            except httpx.TransportError:
                return False

    submitting = [asyncio.create_task(submit(number)) for number in range(COUNT)]
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await deployment.made())["made"] < COUNT // 20:
            await asyncio.sleep(0.01)
    await hit()
    return sum(await asyncio.gather(*submitting))


async def _assert_made_exactly_once(deployment: Deployment, server: PostgresServer, accepted: int) -> None:
    """All that was accepted is confirmed, its event published, its booking made once. A submission that was refused with 503
    may have reached the log all the same; then it too is made once."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            by_status = await _rows(server, "select status, count(*) from reservations group by status")
            if by_status.keys() == {"CONFIRMED"} and by_status["CONFIRMED"] >= accepted:
                break
            await asyncio.sleep(0.1)
    await _until_none(server, "select 'outbox', count(*) from outbox having count(*) > 0")
    made = await deployment.made()
    assert (made["made"], made["duplicates"]["surplus"]) == (by_status["CONFIRMED"], 0)
    records = await deployment.records("generic")
    assert len({record["requestId"] for record in records}) == len(records) == made["made"]


async def _until_none(server: PostgresServer, query: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await _rows(server, query):
            await asyncio.sleep(0.1)


async def _rows(server: PostgresServer, query: str) -> dict[str, int]:
    connection = await asyncpg.connect(server.url.replace("+asyncpg", ""))
    try:
        return {str(name): int(count) for name, count in await connection.fetch(query)}
    finally:
        await connection.close()

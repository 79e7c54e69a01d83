"""The store's disk runs full under load: the log alone is needed to accept, and all goes on when there is room again."""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from tests.fault.conftest import NewCase
from tests.support.backends import missing
from tests.support.campaign.case import Case
from tests.support.campaign.judge import Expected
from tests.support.campaign.service import open_service
from tests.support.kafka_process import KafkaCluster
from tests.support.ladder import Unavailable
from tests.support.postgres_process import PostgresServer
from tests.support.real_servers import RealServers
from tests.support.site import Site, site_settings
from tests.support.small_disk import SmallDisk, small_disk

_MEGABYTES = 256


@pytest.fixture
def own_postgres(real_servers: RealServers) -> PostgresServer:
    try:
        return PostgresServer(real_servers.reaper)
    except Unavailable as reason:
        missing(reason)


@pytest.fixture
def disk(own_postgres: PostgresServer) -> Iterator[SmallDisk]:
    """What PostgreSQL keeps everything on."""
    with ExitStack() as stack:
        try:
            mounted = stack.enter_context(small_disk(own_postgres.home, _MEGABYTES))
        except Unavailable as reason:
            pytest.skip(str(reason))
        stack.callback(own_postgres.stop)
        yield mounted


@pytest_asyncio.fixture(loop_scope="session")
async def cramped(
    disk: SmallDisk,
    own_postgres: PostgresServer,
    kafka: KafkaCluster,
    real_servers: RealServers,
    tmp_path: Path,
    new_case: NewCase,
) -> AsyncIterator[Case]:
    """A case in a service whose PostgreSQL has a small disk."""
    kafka.start()
    own_postgres.start()
    settings = site_settings("distributed", tmp_path, kafka.bootstrap_servers, own_postgres.url)
    site = Site("distributed", tmp_path, settings, real_servers.reaper)
    async with open_service(site, kafka, own_postgres) as service:
        yield new_case(service)


async def test_postgresql_out_of_disk(cramped: Case, disk: SmallDisk, own_postgres: PostgresServer) -> None:
    async with cramped.load() as load:
        for _ in range(cramped.times(short=1, long=5)):
            await cramped.made_more(cramped.draw(50, 200))
            await cramped.hit("disk of PostgreSQL full", disk.fill)
            await load.sent_more(300)
            await cramped.wait(disk.free)
            await cramped.wait(
                own_postgres.start
            )  # where it gave up: what it does when its write-ahead log cannot go on
    await cramped.verdict(Expected(all_accepted=True))

"""A disk runs full under load: PostgreSQL's, while the log alone is needed to accept; and the log's, when nothing is accepted."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from tests.fault.campaign.case import Case
from tests.fault.campaign.judge import Expected
from tests.fault.campaign.service import open_service
from tests.fault.conftest import NewCase
from tests.support.backends import missing
from tests.support.deployment.deployment import PATIENCE_SECONDS, booking
from tests.support.deployment.site import Site, site_settings
from tests.support.deployment.small_disk import SmallDisk, small_disk
from tools.servers.kafka.process import KafkaBroker, KafkaCluster
from tools.servers.ladder import Unavailable
from tools.servers.postgres.databases import new_database
from tools.servers.postgres.process import PostgresServer
from tools.servers.real_servers import RealServers

_MEGABYTES = 256
_ANSWERED_WITHIN_SECONDS = 40.0
"""What the ingress gives the log, which is 10 s, and what a busy machine takes."""
_ROOMS_BEYOND = 1_000_000
"""The load's own rooms end far below."""


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
        mounted = _mounted(stack, own_postgres.home)
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


@pytest.mark.slow  # `test_embedded.py` fills the disk of a store too
async def test_postgresql_out_of_disk(cramped: Case, disk: SmallDisk, own_postgres: PostgresServer) -> None:
    async with cramped.load() as load:
        for _ in range(cramped.times(short=1, long=5)):
            await cramped.made_more(cramped.some(50, 200))
            await cramped.hit("disk of PostgreSQL full", disk.fill)
            await load.sent_more(150)
            await cramped.wait(disk.free)
            await cramped.wait(
                own_postgres.start
            )  # where it gave up: what it does when its write-ahead log cannot go on
    await cramped.verdict(Expected(all_accepted=True))


@pytest.fixture
def own_kafka(real_servers: RealServers) -> KafkaCluster:
    try:
        return KafkaCluster(real_servers.reaper)
    except Unavailable as reason:
        missing(reason)


@pytest.fixture
def log_disk(own_kafka: KafkaCluster) -> Iterator[SmallDisk]:
    """What Kafka keeps its topics on."""
    with ExitStack() as stack:
        mounted = _mounted(stack, own_kafka.brokers[0].data)
        stack.callback(own_kafka.kill)  # nobody wants its data
        yield mounted


@pytest_asyncio.fixture(loop_scope="session")
async def cramped_log(
    log_disk: SmallDisk,
    own_kafka: KafkaCluster,
    postgres: PostgresServer,
    real_servers: RealServers,
    tmp_path: Path,
    new_case: NewCase,
) -> AsyncIterator[Case]:
    """A case in a service whose Kafka has a small disk."""
    postgres.start()
    own_kafka.start()
    async with new_database(postgres.url) as database:
        settings = site_settings("distributed", tmp_path, own_kafka.bootstrap_servers, database)
        site = Site("distributed", tmp_path, settings, real_servers.reaper)
        async with open_service(site, own_kafka, postgres) as service:
            yield new_case(service)


@pytest.mark.slow  # `test_embedded.py` fills the disk of a log too
async def test_kafka_out_of_disk(cramped_log: Case, log_disk: SmallDisk, own_kafka: KafkaCluster) -> None:
    """A broker whose one log directory takes no more ends itself, at once. Nothing is accepted until it is back."""
    case = cramped_log
    account = next(iter(case.accounts))
    async with case.load():
        for turn in range(case.times(short=1, long=5)):
            await case.made_more(case.some(50, 200))
            await case.hit("disk of Kafka full", log_disk.fill)
            await _given_up(own_kafka.brokers[0])
            async with asyncio.timeout(_ANSWERED_WITHIN_SECONDS):
                answer = await case.deployment.submit(account, booking(_ROOMS_BEYOND + turn))
            assert answer.status_code == httpx.codes.SERVICE_UNAVAILABLE
            assert int(answer.headers["retry-after"]) >= 1
            await case.wait(log_disk.free)
            await case.wait(own_kafka.start)
    await case.verdict()


async def _given_up(broker: KafkaBroker) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while broker.running:
            await asyncio.sleep(0.1)


def _mounted(stack: ExitStack, path: Path) -> SmallDisk:
    try:
        return stack.enter_context(small_disk(path, _MEGABYTES))
    except Unavailable as reason:
        pytest.skip(str(reason))

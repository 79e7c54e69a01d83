"""Three brokers, every message on all of them and two of them needed: one of them dies, and the service goes on."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.fault.campaign.service import open_service
from tests.fault.conftest import NewCase
from tests.support.deployment.site import Site, site_settings
from tools.servers.kafka.process import KafkaCluster
from tools.servers.postgres.databases import new_database
from tools.servers.postgres.process import PostgresServer
from tools.servers.real_servers import RealServers


@pytest.mark.slow
async def test_a_broker_of_three_killed_and_brought_back(
    kafka_cluster: Callable[[int], KafkaCluster],
    postgres: PostgresServer,
    real_servers: RealServers,
    tmp_path: Path,
    new_case: NewCase,
) -> None:
    """Whichever dies is the leader of some partitions, and of the group, by the share of a third."""
    cluster = kafka_cluster(3)
    postgres.start()
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(new_database(postgres.url))
        settings = site_settings("distributed", tmp_path, cluster.bootstrap_servers, database)
        site = Site("distributed", tmp_path, settings, real_servers.reaper)
        case = new_case(await stack.enter_async_context(open_service(site, cluster, postgres)))
        victims = case.random.sample(range(3), 3)
        async with case.load():
            for turn in range(case.times(short=1, long=9)):
                broker = cluster.brokers[victims[turn % 3]]
                await case.made_more(case.some(50, 300))
                await case.hit("kill -9 of a broker of three", broker.kill)
                await case.made_more(100)
                await case.wait(broker.start)
        await case.verdict()

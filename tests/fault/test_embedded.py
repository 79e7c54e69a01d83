"""The embedded default under fire: one process, two files. It keeps the same promises, with nothing beside it to lean on."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import pytest_asyncio

from tests.fault.campaign.case import Case
from tests.fault.campaign.service import open_service
from tests.fault.conftest import NewCase
from tests.support.deployment.site import Site, site_settings
from tests.support.deployment.small_disk import SmallDisk, small_disk
from tools.servers.ladder import Unavailable
from tools.servers.real_servers import RealServers

_DISK_MEGABYTES = 96


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """What the data directory is on."""
    try:
        with small_disk(tmp_path / "data", _DISK_MEGABYTES) as mounted:
            yield mounted
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest_asyncio.fixture(loop_scope="session")
async def embedded(
    disk: SmallDisk, real_servers: RealServers, tmp_path: Path, new_case: NewCase
) -> AsyncIterator[Case]:
    """A case in a `forwarder up` of its own."""
    settings = site_settings("embedded", tmp_path, None, None)
    async with open_service(Site("embedded", tmp_path, settings, real_servers.reaper)) as service:
        yield new_case(service)


async def test_embedded_killed_delivered_again_and_out_of_disk(embedded: Case, disk: SmallDisk) -> None:
    up = embedded.deployment.processes["up"]
    async with embedded.load() as load:
        for _ in range(embedded.times(short=1, long=5)):
            await embedded.made_more(embedded.some(20, 200))
            await embedded.kill("up")
            await embedded.made_more(embedded.some(20, 200))
            await embedded.wait(up.stop)
            embedded.injected("offsets set back to the beginning")
            await asyncio.to_thread(_set_back, disk.path / "log.sqlite3")
            await embedded.wait(up.start)
            await embedded.made_more(embedded.some(20, 200))
            await embedded.hit("disk full", disk.fill)
            await load.refused_more(20)
            await embedded.wait(disk.free)
    await embedded.verdict()


def _set_back(log: Path) -> None:
    """The consumer group is past nothing. Nobody has the file open."""
    with closing(sqlite3.connect(log)) as connection, connection:
        connection.execute("delete from commits")

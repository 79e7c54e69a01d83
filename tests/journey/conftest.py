"""Fixtures of the journeys: a whole forwarder on each backend."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.backends import Backend
from tests.support.deployment.deployment import Deployment, Site, deploy, site_settings
from tools.servers.real_servers import RealServers


@pytest.fixture
def site(backend: Backend, tmp_path: Path, real_servers: RealServers, request: pytest.FixtureRequest) -> Site:
    """Where a deployment of this test's own may run."""
    distributed = backend == "distributed"
    kafka = request.getfixturevalue("kafka_bootstrap") if distributed else None
    database = request.getfixturevalue("migrated_postgres_url") if distributed else None
    if not distributed:
        (tmp_path / "data").mkdir()
        shutil.copy(request.getfixturevalue("migrated_file"), tmp_path / "data")
    return Site(backend, tmp_path, site_settings(backend, tmp_path, kafka, database), real_servers.reaper)


@pytest.fixture
async def deployment(site: Site) -> AsyncIterator[Deployment]:
    """A running forwarder with workspace `demo` and the accounts `generic`, `sync` and `websites`."""
    async with deploy(site) as running:
        await asyncio.gather(
            running.add_account("generic"),
            running.add_account("sync", kind="booking-sync", path="booking-sync/api/v3"),
            running.add_account("websites", kind="website-builder", path="website-builder"),
        )
        yield running

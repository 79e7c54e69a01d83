"""What the clients' guides are followed against."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from dotenv import dotenv_values

from tests.support.deployment.deployment import Deployment, Site, site_settings
from tools.servers.real_servers import RealServers


@pytest.fixture
async def running(tmp_path: Path, real_servers: RealServers) -> AsyncIterator[Mapping[str, str]]:
    """What `make run` leaves in `demo.env`, while it runs."""
    nowhere = {"FORWARDER_WEBHOOK_PRIVATE_ADDRESSES": "true"}  # the guide's endpoint, which no resolver knows
    settings = {**site_settings("embedded", tmp_path, None, None), **nowhere}
    deployment = Deployment(Site("embedded", tmp_path, settings, real_servers.reaper))
    deployment.add("up")
    try:
        await deployment.start()
        yield {**settings, **{name: value or "" for name, value in dotenv_values(_demo_env(tmp_path)).items()}}
    finally:
        await deployment.stop()
        await deployment.client.aclose()


def _demo_env(directory: Path) -> Path:
    (found,) = directory.rglob("demo.env")
    return found

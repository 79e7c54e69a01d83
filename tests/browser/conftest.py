"""A whole forwarder in one process, and the browser that looks at it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, async_playwright

from tests.support.browser import CHROMIUM
from tests.support.deployment.deployment import Deployment, Site, deploy, site_settings
from tools.servers.real_servers import RealServers


@pytest.fixture
async def deployment(tmp_path: Path, real_servers: RealServers) -> AsyncIterator[Deployment]:
    site = Site("embedded", tmp_path, site_settings("embedded", tmp_path, None, None), real_servers.reaper)
    async with deploy(site) as running:
        await running.add_account("generic")
        yield running


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        await launched.close()

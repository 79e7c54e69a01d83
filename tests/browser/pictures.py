"""The pictures of docs/operations/console.md, taken anew: `python -m tests.browser.pictures docs/assets/console`.

A whole forwarder, on a Kafka and a PostgreSQL of its own, takes 500 submissions a second. Then one PMS goes down, one answers
nonsense after it has booked, a third is down for longer than its submissions are tried, and a webhook's endpoint fails. Every
page is looked at while that goes on. Takes some minutes, and Chromium.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from playwright.async_api import Browser, StorageState, ViewportSize, async_playwright

from tests.support.browser import CHROMIUM, PATIENCE_MS
from tests.support.deployment.deployment import Deployment, booking, deploy
from tests.support.deployment.site import Site, site_settings
from tests.support.network.receiver import receiver
from tools.servers.kafka.process import KafkaCluster
from tools.servers.postgres.process import PostgresServer
from tools.servers.reaper import Reaper

_DOWN, _BLIND, _GIVEN_UP = "hotel-lisboa", "seaside-split", "apartments-rome"
_DOUBTFUL = "beach-house"
"""It has one reservation, whose PMS breaks the connection after booking it."""
_RATES: Final[Mapping[str, int]] = {"casa-azul": 250, "villa-porto": 160, _DOWN: 75, _GIVEN_UP: 10, _BLIND: 5}
"""Submissions a second of each account: 500."""
_WELL_SECONDS: Final = 75.0
_UNWELL_SECONDS: Final = 60.0
_WIDE, _NARROW = ViewportSize(width=1280, height=844), ViewportSize(width=390, height=844)


@dataclass(frozen=True, slots=True)
class Picture:
    """`path` as the browser is sent to; `whole`: of all that is on the page, not only of what a window shows; `part`: only the
    part of the page with this heading."""

    name: str
    path: str
    whole: bool = False
    part: str = ""
    narrow: bool = False
    dark: bool = False


def main() -> None:
    parser = argparse.ArgumentParser(description="Take the pictures of the console.")
    parser.add_argument("into", type=Path)
    with Reaper() as reaper, TemporaryDirectory() as directory:
        asyncio.run(_take_all(parser.parse_args().into, Path(directory), reaper))


async def _take_all(into: Path, directory: Path, reaper: Reaper) -> None:
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(_deployment(directory, reaper))
        failing = await stack.enter_async_context(receiver(status=500))
        hook = await running.command("webhook", "add", failing.url, "--workspace", "demo", "--description", "the CRM")
        well = await stack.enter_async_context(receiver())
        types = [f"--type=reservation.{each}.v1" for each in ("failed", "in_doubt")]
        await running.command("webhook", "add", well.url, "--workspace", "demo", *types, "--description", "the desk")
        await stack.enter_async_context(_load(running))
        await asyncio.sleep(_WELL_SECONDS)
        await _trouble(running)
        await asyncio.sleep(_UNWELL_SECONDS)
        browser = await stack.enter_async_context(_browser())
        session = await _signed_in(browser, running)
        for picture in await _pictures(running, hook["id"]):
            await _take(picture, browser, session, into, running.url("console"))


@asynccontextmanager
async def _deployment(directory: Path, reaper: Reaper) -> AsyncIterator[Deployment]:
    kafka, postgres = KafkaCluster(reaper), PostgresServer(reaper)
    await asyncio.gather(asyncio.to_thread(kafka.start), asyncio.to_thread(postgres.start))
    try:
        settings = site_settings("distributed", directory, kafka.bootstrap_servers, postgres.url)
        own = {"FORWARDER_TOPIC_PREFIX": "", "FORWARDER_PARTITIONS": "16", "FORWARDER_LOG_LEVEL": "info"}
        plain = {"FORWARDER_ALLOW_PLAINTEXT_PMS": "true", "FORWARDER_WEBHOOK_PRIVATE_ADDRESSES": "true"}
        async with deploy(Site("distributed", directory, {**settings, **own, **plain}, reaper)) as running:
            running.add("notifier")
            running.add("housekeeping")
            running.add("console")
            await running.start()
            for account in (*_RATES, _DOUBTFUL):
                if account != _BLIND:
                    await running.add_account(account)
            url = f"{running.url('simulate')}/{_BLIND}/cloudbeds/api/v1.3"
            blind = ("--id", _BLIND, "--kind", "cloudbeds", "--base-url", url, "--credential", "secret")
            await running.command("account", "add", "--workspace", "demo", *blind)
            yield running
    finally:
        await asyncio.to_thread(postgres.stop)
        await asyncio.to_thread(kafka.kill)


@asynccontextmanager
async def _load(running: Deployment) -> AsyncIterator[None]:
    """Submissions at the rates, for as long as the block lasts."""
    url = f"{running.url('ingress')}/api/v1/vrs/reservations/booking-engine"
    generators = []
    for account, rate in _RATES.items():
        headers = [f"-H{name}: {text}" for name, text in running.headers(account).items()]
        command = ["-m", "bench.load", url, "-n", "1000000", "-c", "16", "--rate", str(rate), "--run", account]
        generators.append(
            await asyncio.create_subprocess_exec(
                sys.executable, *command, *headers, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
            )
        )
    try:
        yield
    finally:
        for each in generators:
            each.kill()
            await each.wait()


async def _trouble(running: Deployment) -> None:
    fault = {"mode": "reset_after_booking", "count": 1}
    (await running.client.put(f"{running.url('simulate')}/{_DOUBTFUL}/faults", json=fault)).raise_for_status()
    await running.submit(_DOUBTFUL, booking(1))
    await running.command("account", "set", _GIVEN_UP, "--deadline", "3")
    for account, mode in ((_DOWN, "down"), (_GIVEN_UP, "down"), (_BLIND, "garbage_after_booking")):
        url = f"{running.url('simulate')}/{account}/faults"
        (await running.client.put(url, json={"mode": mode})).raise_for_status()


@asynccontextmanager
async def _browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        await launched.close()


async def _pictures(running: Deployment, hook: str) -> list[Picture]:
    (pending,) = await running.listed(
        "submissions", "list", "--account", _DOWN, "--reason", "pms_unavailable", "--limit", "1"
    )
    (resolved,) = await running.listed("submissions", "list", "--account", _DOUBTFUL)
    (doubtful,) = await running.listed("submissions", "list", "--status", "in_doubt", "--limit", "1")
    await running.command("submissions", "settle", doubtful["requestId"], "--confirmed", "as its extranet shows it")
    return [
        Picture("overview", "", whole=True),
        Picture("overview-dark", "", whole=True, dark=True),
        Picture("overview-narrow", "", whole=True, narrow=True),
        Picture("submissions", "/submissions"),
        Picture("submission", f"/submissions/{pending['requestId']}", whole=True),
        Picture("submission-narrow", f"/submissions/{pending['requestId']}", whole=True, narrow=True, dark=True),
        Picture("doubt-resolved", f"/submissions/{resolved['requestId']}", part="History"),
        Picture("in-doubt", "/in-doubt"),
        Picture("dead-letters", "/dead-letters"),
        Picture("dead-letters-narrow", "/dead-letters", narrow=True),
        Picture("replay", f"/dead-letters/replay?account={_GIVEN_UP}&class=unavailable"),
        Picture("accounts", "/accounts"),
        Picture("account", f"/accounts/{_DOWN}", whole=True),
        Picture("account-dark", f"/accounts/{_DOWN}", whole=True, dark=True),
        Picture("account-narrow", f"/accounts/{_DOWN}", whole=True, narrow=True),
        Picture("topics", "/topics"),
        Picture("messages", "/topics/reservations.results"),
        Picture("webhooks", "/webhooks"),
        Picture("webhook", f"/webhooks/{hook}?tried=yes"),
        Picture("audit", "/audit"),
    ]


async def _signed_in(browser: Browser, running: Deployment) -> StorageState:
    """The session of an operator."""
    context = await browser.new_context(base_url=running.url("console"))
    context.set_default_timeout(PATIENCE_MS)
    page = await context.new_page()
    await page.goto("/console/audit")
    await page.locator("input[name=key]").fill(running.token)
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/console/audit")
    return await context.storage_state()


async def _take(picture: Picture, browser: Browser, session: StorageState, into: Path, url: str) -> None:
    context = await browser.new_context(
        base_url=url,
        viewport=_NARROW if picture.narrow else _WIDE,
        color_scheme="dark" if picture.dark else "light",
        storage_state=session,
    )
    context.set_default_timeout(PATIENCE_MS)
    page = await context.new_page()
    await page.goto(f"/console{picture.path}")
    await page.locator("[data-go-on]").wait_for(state="detached")
    if picture.part:
        part = page.locator("section", has=page.get_by_role("heading", name=picture.part))
        await part.last.screenshot(path=into / f"{picture.name}.png")
    else:
        await page.screenshot(path=into / f"{picture.name}.png", full_page=picture.whole)
    await context.close()


if __name__ == "__main__":
    main()

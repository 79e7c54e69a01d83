"""`make test-containers`: the composition up, booked through, each container killed, one image replaced by another and the engine
restarted while reservations come in; nothing is lost, and nothing is booked twice.

Minutes long, and wants an engine: no part of `make test`.
"""

import asyncio
import json
import os
import shlex
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.containers.containers import (
    RESTART_ENGINE,
    CannotRun,
    Containers,
    image_of_this_tree,
    require_engine,
    until,
)
from tests.support.deployment.deployment import booking

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]

EACH = ("proxy", "query", "notifier", "ingress", "worker", "housekeeping", "postgres", "kafka")
ACCOUNTS = {"generic": "generic", "booking-sync": "booking-sync/api/v3"}
"""Of kinds that the image's own simulator has, with their paths: one that is sent again with its key, one that has no keys and is
looked up."""
PAUSE_SECONDS = 0.25


class Load:
    """Reservations, one after the other, as a booking engine does it: what was not accepted is sent again with its key."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.accepted: dict[int, str] = {}
        self.refused = 0
        self.stop = asyncio.Event()
        self.stopped = asyncio.Event()

    async def run(self) -> None:
        number = 0
        while not self.stop.is_set():
            number += 1
            await self.book(number)
            await asyncio.sleep(PAUSE_SECONDS)
        self.stopped.set()

    async def outcomes(self) -> list[str]:
        """Of all that were accepted, once no more come in."""
        self.stop.set()
        await self.stopped.wait()
        return await asyncio.gather(*map(self.outcome, self.accepted))

    async def book(self, number: int) -> str:
        """Until it is accepted; its request id."""
        while True:
            try:
                sent = await self.client.post(
                    "/api/v1/vrs/reservations/booking-engine",
                    json=booking(number),
                    headers={"integrationAccountId": _account(number), "Idempotency-Key": f'"{number}"'},
                )
            except httpx.TransportError:
                sent = None
            if sent is not None and sent.is_success:
                self.accepted[number] = str(sent.json()["data"]["requestId"])
                return self.accepted[number]
            assert sent is None or sent.status_code in {429, 500, 502, 503, 504}, sent.text
            self.refused += 1
            await asyncio.sleep(PAUSE_SECONDS)

    async def another(self) -> None:
        """Return once one more was accepted, and its outcome is known."""
        count = len(self.accepted)
        await until(lambda _: len(self.accepted) > count, asyncio.sleep, 0)
        newest = max(self.accepted)
        assert await self.outcome(newest) == "CONFIRMED"

    async def outcome(self, number: int) -> str:
        async def ask() -> str:
            try:
                shown = await self.client.get(
                    f"/api/v1/vrs/submissions/{self.accepted[number]}",
                    headers={"integrationAccountId": _account(number), "Prefer": "wait=20"},
                )
            except httpx.TransportError:
                return "PENDING"
            return str(shown.json()["data"]["status"]) if shown.is_success else "PENDING"

        return str(await until(lambda status: status not in {"PENDING", "IN_DOUBT"}, ask))


def _account(number: int) -> str:
    return list(ACCOUNTS)[number % len(ACCOUNTS)]


@pytest.fixture(scope="module")
def image() -> str:
    try:
        require_engine()
    except CannotRun as why:
        pytest.skip(str(why))
    return image_of_this_tree()


@pytest.fixture
def next_image(image: str) -> Iterator[str]:
    """Another image of the same version."""
    name = f"{image.partition(':')[0]}:next"
    build = ["docker", "build", "--quiet", "--label", "release=next", "--tag", name, "-"]
    subprocess.run(build, input=f"FROM {image}\n", text=True, check=True, capture_output=True)
    yield name
    subprocess.run(["docker", "image", "rm", "--force", name], check=False, capture_output=True)


@asynccontextmanager
async def up(directory: Path, image: str) -> AsyncIterator[Containers]:
    containers = Containers(directory, image)
    containers.prepare()
    try:
        await containers.compose("up", "--wait")
        yield containers
    finally:
        await containers.down()


@asynccontextmanager
async def under_load(containers: Containers) -> AsyncIterator[Load]:
    """As an operator sets it up; every reservation that was accepted has its outcome in the end."""
    await containers.operate("workspace", "add", "demo")
    for kind, path in ACCOUNTS.items():
        where = ("--kind", kind, "--id", kind, "--base-url", f"http://simulator:8085/{path}", "--credential", "secret")
        await containers.operate("account", "add", "--workspace", "demo", *where)
    key = await containers.operate("key", "add", "--workspace", "demo")
    headers = {"Authorization": f"Bearer {key['token']}", "workspaceId": "demo"}
    async with httpx.AsyncClient(
        base_url=containers.url, headers=headers, timeout=30, verify=containers.trusted()
    ) as client:
        load = Load(client)
        task = asyncio.create_task(load.run())
        try:
            yield load
        finally:
            load.stop.set()
            await task


def test_the_image_is_small_and_tells_what_is_in_it(image: str) -> None:
    def said(*command: str) -> str:
        return subprocess.run(["docker", *command], check=True, capture_output=True, text=True).stdout

    layers = said("history", "--no-trunc", "--human=false", "--format", "{{.Size}}\t{{.CreatedBy}}", image).splitlines()
    ours = sum(int(line.split("\t")[0]) for line in layers if "/opt/forwarder" in line or "useradd" in line)
    listed = json.loads(said("run", "--rm", image, "cat", "/opt/forwarder/sbom.cdx.json"))
    installed = said("run", "--rm", image, "sh", "-c", "ls -d /opt/forwarder/lib/python3*/site-packages/*.dist-info")
    root = said(
        "run", "--rm", "--read-only", "--network=none", image, "sh", "-c", "id -u; touch /x 2>&1; ls /opt/forwarder/bin"
    )

    print(f"\nimage: {ours / 1e6:.0f} MB on top of its base, {len(listed['components'])} components listed")
    assert ours < 200e6
    names = {
        each["name"].lower().replace("_", "-") for each in [*listed["components"], listed["metadata"]["component"]]
    }
    there = {Path(each).name.partition("-")[0].lower().replace("_", "-") for each in installed.split()}
    assert there == names
    assert root.splitlines()[0] == "10001"
    assert "Read-only file system" in root
    assert "pip" not in root.split()


async def test_containers_die_and_are_replaced_and_nothing_is_lost_or_booked_twice(
    tmp_path: Path, image: str, next_image: str
) -> None:
    began = time.monotonic()

    def told(what: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {what}")

    async with up(tmp_path, image) as containers:
        told("up, healthy")
        async with under_load(containers) as load:
            await load.another()
            told("booked through the proxy: CONFIRMED")
            for service in EACH:
                before = (await containers.state(service))["RestartCount"]
                await containers.kill(service)
                await containers.healthy(service, restarts=before + 1)
                await load.another()
                told(
                    f"{service} killed, back, CONFIRMED again; {len(load.accepted)} accepted, {load.refused} sent again"
                )
            old = (await containers.state("worker"))["Image"]
            containers.image = next_image
            await containers.compose("up", "--wait")
            assert (await containers.state("worker"))["Image"] != old
            await load.another()
            told(f"another image; {len(load.accepted)} accepted, {load.refused} sent again")
            restart = os.environ.get(RESTART_ENGINE)
            if restart:
                await asyncio.to_thread(subprocess.run, shlex.split(restart), check=True)
                for service in EACH:
                    await containers.healthy(service)
                await load.another()
                told(f"engine restarted; {len(load.accepted)} accepted, {load.refused} sent again")
            else:
                told(f"engine not restarted: {RESTART_ENGINE} names no command")
            outcomes = await load.outcomes()

        async with httpx.AsyncClient() as client:
            made = (await client.get(f"{containers.pms}/stats")).json()
        twice = made["duplicates"]["surplus"]
        told(f"{len(outcomes)} accepted, {outcomes.count('CONFIRMED')} confirmed, {made['made']} made, {twice} twice")
        assert set(outcomes) == {"CONFIRMED"}
        assert (made["made"], twice) == (len(outcomes), 0)

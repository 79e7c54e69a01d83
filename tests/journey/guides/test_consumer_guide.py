"""docs/guides/consume-results.md, followed to the letter: its programs for Node receive real events, and its commands work."""

import asyncio
import json
import os
import re
import secrets
import sys
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from standardwebhooks import Webhook

from forwarder.webhooks.port import new_secret, signed_headers
from tests.support.backends import missing
from tests.support.contracts.node_program import installed
from tests.support.deployment.deployment import PATIENCE_SECONDS, Deployment, Site, booking, deploy
from tests.support.deployment.guide import files_of
from tools.servers.ladder import Unavailable
from tools.servers.server_process import LOCALHOST, free_ports

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "guides" / "consume-results.md"
LOCK = ROOT / "tests" / "support" / "contracts" / "results_consumer" / "package-lock.json"
EVENT = b'{"type":"reservation.confirmed.v1","timestamp":"2027-01-01T00:00:00.000Z","data":{"requestId":"rsv_x"}}'


@pytest.fixture(scope="module")
def consumer() -> Path:
    """The reader's directory after `npm install`."""
    try:
        return installed("results-consumer", {**files_of(GUIDE), "package-lock.json": LOCK.read_text()})
    except Unavailable as reason:
        missing(reason)


class Running:
    """A program of the guide, and what it prints."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self) -> str:
        assert self._process.stdout is not None
        read = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE_SECONDS)
        assert read, "the program ended"
        return read.decode().rstrip("\n")

    async def lines_until(self, wanted: str) -> list[str]:
        """What it prints up to the line that has `wanted` in it."""
        seen = [await self.line()]
        while wanted not in seen[-1]:
            seen.append(await self.line())
        return seen


@asynccontextmanager
async def node(consumer: Path, program: str, **environment: str) -> AsyncIterator[Running]:
    process = await asyncio.create_subprocess_exec(
        *("node", program), cwd=consumer, env={**os.environ, **environment}, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield Running(process)
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def receiver(consumer: Path, secret: str, port: int) -> AsyncIterator[Running]:
    """webhook.mjs, listening."""
    async with node(consumer, "webhook.mjs", WEBHOOK_SECRET=secret, PORT=str(port)) as running:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    _, writer = await asyncio.open_connection(LOCALHOST, port)
                except OSError:
                    await asyncio.sleep(0.02)
                else:
                    writer.close()
                    break
        yield running


def test_what_the_reader_installs_is_what_is_locked_here() -> None:
    lock = json.loads(LOCK.read_text())
    assert lock["packages"][""]["dependencies"] == json.loads(files_of(GUIDE)["package.json"])["dependencies"]
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]


def test_its_programs_are_as_short_as_it_says() -> None:
    lines = [line for name, text in files_of(GUIDE).items() if name.endswith(".mjs") for line in text.splitlines()]
    assert len([line for line in lines if line.strip()]) < 36


def signed(secret: str, body: bytes, *, at: float | None = None, event_id: str = "rsv_x.1") -> dict[str, str]:
    return signed_headers([secret], message_id=event_id, timestamp=int(at or time.time()), body=body)


@pytest.mark.slow
async def test_a_delivery_is_taken_where_its_signature_is_right_and_nowhere_else(consumer: Path) -> None:
    (port,) = free_ports(1)
    secret, another = new_secret(), new_secret()
    by_the_library = {
        "webhook-id": "rsv_x.2",
        "webhook-timestamp": str(int(time.time())),
        "webhook-signature": Webhook(secret).sign("rsv_x.2", datetime.now(UTC), EVENT.decode()),
    }
    renamed = {**signed(secret, EVENT), "webhook-id": "rsv_x.9"}
    unsigned = {name: value for name, value in signed(secret, EVENT).items() if name != "webhook-signature"}
    both = signed_headers([another, secret], message_id="rsv_x.3", timestamp=int(time.time()), body=EVENT)
    refused: list[tuple[bytes, Mapping[str, str]]] = [
        (EVENT.replace(b"confirmed", b"rejected!"), signed(secret, EVENT)),
        (EVENT + b" ", signed(secret, EVENT)),
        (EVENT, signed(another, EVENT)),
        (EVENT, signed(secret, EVENT, at=time.time() - timedelta(minutes=6).total_seconds())),
        (EVENT, renamed),
        (EVENT, unsigned),
        (EVENT, {**signed(secret, EVENT), "webhook-signature": "v1," + b64encode(secrets.token_bytes(32)).decode()}),
    ]
    async with receiver(consumer, secret, port) as running, httpx.AsyncClient() as client:
        url = f"http://{LOCALHOST}:{port}/in"
        for body, headers in refused:
            assert (await client.post(url, content=body, headers=dict(headers))).status_code == 400
        for headers in (signed(secret, EVENT), by_the_library, signed(secret, EVENT), both):
            assert (await client.post(url, content=EVENT, headers=headers)).status_code == 204
        simulated = EVENT.replace(b'"data":{', b'"data":{"test":true,')
        of_test_mode = signed(secret, simulated, event_id="rsv_t.1")
        assert (await client.post(url, content=simulated, headers=of_test_mode)).status_code == 204
        # Of what was refused or of test mode nothing was printed, and what came again was printed once: three events, three lines.
        last = signed(secret, EVENT.replace(b"rsv_x", b"rsv_z"), event_id="rsv_z.1")
        assert (await client.post(url, content=EVENT.replace(b"rsv_x", b"rsv_z"), headers=last)).status_code == 204
        printed = await running.lines_until("rsv_z")
    assert len(printed) == 4
    assert {line.split()[0] for line in printed} == {"reservation.confirmed.v1"}


@pytest.fixture
async def deployment(site: Site) -> AsyncIterator[Deployment]:
    """A forwarder that may post to this machine."""
    settings = {**site.settings, "FORWARDER_WEBHOOK_PRIVATE_ADDRESSES": "true"}
    async with deploy(Site(site.backend, site.directory, settings, site.reaper)) as running:
        running.add("notifier")
        await asyncio.gather(running.start(), running.add_account("generic"))
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["distributed"], indirect=True)  # the embedded log has no Kafka to consume from
async def test_real_events_arrive_both_ways_and_the_guides_commands_work(
    consumer: Path, deployment: Deployment
) -> None:
    (port,) = free_ports(1)
    commands = _commands()
    settings = deployment.site.settings
    kafka = {
        "KAFKA": settings["FORWARDER_KAFKA_BOOTSTRAP_SERVERS"],
        "TOPIC": f"{settings['FORWARDER_TOPIC_PREFIX']}reservations.results",
        "GROUP": f"{settings['FORWARDER_TOPIC_PREFIX']}bookings",
    }
    local = {"https://bookings.example/in": f"http://{LOCALHOST}:{port}/in"}
    added = await _typed(deployment, commands["webhook add"], local)
    hook, secret = {"whk_…": re.findall(r"whk_\w+", added)[0]}, added.split()[-1]
    async with node(consumer, "topic.mjs", **kafka) as topic, receiver(consumer, secret, port) as webhook:
        request_id = (await deployment.submit("generic", booking(1))).json()["data"]["requestId"]
        settled = await deployment.settled("generic", request_id)
        pms_id = settled["record"]["pmsReservationId"]
        expected = f"reservation.confirmed.v1 {request_id} {pms_id}"
        assert (await webhook.line(), await topic.line()) == (expected, expected)
        await _typed(deployment, commands["webhook test"], hook)
        assert (await webhook.line()).startswith("webhook.test.v1")
    tail, tail_json = commands["results tail"].splitlines()
    names = ("deliveries", "rotate", "enable", "recover")
    log, *_, lines, event = await asyncio.gather(
        *(_typed(deployment, commands[f"webhook {name}"], hook) for name in names),
        _typed(deployment, tail, {}),
        _typed(deployment, tail_json, {}),
    )
    assert [line.split()[2] for line in log.splitlines()[1:]] == ["webhook.test.v1", "reservation.confirmed.v1"]
    assert (request_id in lines, json.loads(event)["subject"]) == (True, request_id)
    assert commands.keys() == {f"webhook {name}" for name in (*names, "add", "test")} | {
        "results tail",
        "listen --forward-to",  # tests/journey/test_results_tail.py runs it
    }


def _commands() -> dict[str, str]:
    """The guide's commands of the forwarder, by noun and verb; those of the same one, a line each."""
    found: dict[str, str] = {}
    for line in re.findall(r"^forwarder (.+)$", GUIDE.read_text(), re.MULTILINE):
        name = " ".join(line.split()[:2])
        found[name] = f"{found[name]}\n{line}" if name in found else line
    return found


async def _typed(deployment: Deployment, line: str, instead: Mapping[str, str]) -> str:
    """What the command prints. `instead`: what the reader puts in the place of the guide's examples."""
    for example, value in instead.items():
        assert example in line
        line = line.replace(example, value)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "forwarder", *line.split()),
        env={**os.environ, **deployment.environment, "FORWARDER_LOG_LEVEL": "error"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
    assert process.returncode == 0, f"{line}: {error.decode()}"
    return out.decode()

"""The two flows that are measured, each started on the same Kafka and PostgreSQL and given the same PMS.

Both are a `Flow`: where to post, in which database the outcomes appear, and the process that does the work.
"""

import json
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from bench.baseline import settings as baseline
from bench.processes import FORWARDER, Role, Running, local_url, output_of, port_of, running
from tests.support.databases import new_database
from tests.support.reaper import Reaper

WORKSPACE, ACCOUNT = "bench", "bench-generic"
PARTITIONS = 16  # as many as `forwarder topics create` makes
_CREATE_PATH = "/api/v1/vrs/reservations/booking-engine"


@dataclass(frozen=True, slots=True)
class Ground:
    """What both flows stand on. `concurrency` is how many pushes may be in flight."""

    kafka: str
    postgres: str
    reaper: Reaper
    logs: Path
    concurrency: int
    ingress_processes: int
    pms: str


@dataclass(frozen=True, slots=True)
class Pms:
    """A PMS that is up: where the flows push to, and where its counts are."""

    base_url: str
    counts_url: str


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow that is up. `list_url` reads it back by pages, where it can."""

    name: str
    post_url: str
    headers: tuple[str, ...]
    database_url: str
    pms: Pms
    worker: Running
    list_url: str | None = None


def _plain(url: str) -> str:
    """As asyncpg takes it, and as a user writes it."""
    return urlunsplit(urlsplit(url)._replace(scheme="postgresql"))


@asynccontextmanager
async def _pms(ground: Ground, flow: str) -> AsyncIterator[Pms]:
    url = local_url()
    at = ("--host", "127.0.0.1", "--port", port_of(url))
    if ground.pms == "simulator":
        role = Role(f"{flow}-simulator", [FORWARDER, "simulate", *at], {}, f"{url}/healthz")
    else:
        role = Role(f"{flow}-pms", [sys.executable, "-m", "bench.pms", *at], {}, f"{url}/healthz")
    async with running(role, ground.logs, ground.reaper):
        yield Pms(f"{url}/generic", url)


@asynccontextmanager
async def forwarder(ground: Ground) -> AsyncIterator[Flow]:
    """Ours: ingress, worker and query as a user starts them."""
    async with AsyncExitStack() as stack:
        database_url = _plain(await stack.enter_async_context(new_database(ground.postgres)))
        pms = await stack.enter_async_context(_pms(ground, "forwarder"))
        public = {"FORWARDER_KAFKA_BOOTSTRAP_SERVERS": ground.kafka, "FORWARDER_DATABASE_URL": database_url}
        secret = {**public, "FORWARDER_SECRET_KEY": secrets.token_urlsafe(32)}
        token = await _set_up(ground, secret, pms)

        async def start(name: str, environment: dict[str, str], *more: str) -> tuple[Running, str]:
            url = local_url()
            arguments = [FORWARDER, name, "--host", "127.0.0.1", "--port", port_of(url), *more]
            role = Role(name, arguments, environment, f"{url}/readyz")
            return await stack.enter_async_context(running(role, ground.logs, ground.reaper)), url

        _, ingress_url = await start("ingress", public, "--processes", str(ground.ingress_processes))
        worker, _ = await start("worker", secret)
        _, query_url = await start("query", public)
        headers = (f"authorization: Bearer {token}", f"workspaceId: {WORKSPACE}", f"integrationAccountId: {ACCOUNT}")
        list_url = f"{query_url}/api/v1/vrs/reservations"
        yield Flow("forwarder", ingress_url + _CREATE_PATH, headers, database_url, pms, worker, list_url)


async def _set_up(ground: Ground, environment: dict[str, str], pms: Pms) -> str:
    """Tables, topics, workspace and account; the token of a new key."""
    account = ("--workspace", WORKSPACE, "--id", ACCOUNT, "--kind", "generic", "--base-url", pms.base_url)
    budget = ("--credential", "secret", "--concurrency", str(ground.concurrency))
    await output_of([FORWARDER, "migrate"], environment)
    await output_of([FORWARDER, "topics", "create"], environment)
    await output_of([FORWARDER, "workspace", "add", WORKSPACE], environment)
    await output_of([FORWARDER, "account", "add", *account, *budget], environment)
    key = await output_of([FORWARDER, "key", "add", "--workspace", WORKSPACE, "--json"], environment)
    token: str = json.loads(key)["token"]
    return token


@asynccontextmanager
async def naive(ground: Ground) -> AsyncIterator[Flow]:
    """The baseline: one ingress and one consumer."""
    async with AsyncExitStack() as stack:
        database_url = _plain(await stack.enter_async_context(new_database(ground.postgres)))
        pms = await stack.enter_async_context(_pms(ground, "baseline"))
        await _create_topics(ground.kafka)
        environment = {
            "BASELINE_KAFKA": ground.kafka,
            "BASELINE_DATABASE_URL": database_url,
            "BASELINE_PMS_URL": pms.base_url,
        }
        worker = Role("baseline-consumer", [sys.executable, "-m", "bench.baseline.consumer"], environment)
        consumer = await stack.enter_async_context(running(worker, ground.logs, ground.reaper))
        url = local_url()
        serve = (
            "uvicorn",
            "--factory",
            "bench.baseline.ingress:application",
            "--no-access-log",
            "--port",
            port_of(url),
        )
        workers = ("--workers", str(ground.ingress_processes))
        ingress = Role("baseline-ingress", [sys.executable, "-m", *serve, *workers], environment, f"{url}/readyz")
        await stack.enter_async_context(running(ingress, ground.logs, ground.reaper))
        yield Flow("baseline", url + _CREATE_PATH, (), database_url, pms, consumer)


async def _create_topics(kafka: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        existing = await admin.list_topics()
        names = [name for name in (baseline.REQUESTS, baseline.RESULTS) if name not in existing]
        await admin.create_topics([NewTopic(name, num_partitions=PARTITIONS, replication_factor=1) for name in names])
    finally:
        await admin.close()

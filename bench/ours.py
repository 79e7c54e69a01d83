"""The forwarder as a user starts it: ingress, worker and query, each a role of its own; or all of it in one process."""

import json
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.flows import ACCOUNT, RESERVATIONS, WORKSPACE, Flow, Ground, lean_pms, plain, topics_under
from bench.processes import FORWARDER, Role, Running, local_url, output_of, port_of, running
from bench.scenarios import Scenario
from forwarder.tenancy.sealing import Secret
from tools.servers.postgres.databases import new_database


def forwarder(ground: Ground, scenario: Scenario) -> AbstractAsyncContextManager[Flow]:
    """Up, with tables, topics, a workspace, an account and a key of its own."""
    return _embedded(ground, scenario) if scenario.embedded else _distributed(ground, scenario)


@asynccontextmanager
async def _embedded(ground: Ground, scenario: Scenario) -> AsyncIterator[Flow]:
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(dir=ground.logs)))
        pms, pms_url = await stack.enter_async_context(lean_pms(ground, scenario, "forwarder"))
        settings = {"FORWARDER_DATA_DIR": str(directory), "FORWARDER_SECRET_KEY": secrets.token_urlsafe(32)}
        token = await _set_up(settings, f"{pms_url}/generic", scenario.in_flight)
        url = local_url()
        command = [FORWARDER, "up", "--no-demo", "--host", "127.0.0.1", "--port", port_of(url)]
        up = await stack.enter_async_context(
            running(Role("up", command, settings, f"{url}/readyz"), ground.logs, ground.reaper)
        )
        yield Flow(
            name="forwarder",
            post_url=f"{url}{RESERVATIONS}/booking-engine",
            database_url=f"sqlite:///{directory / 'store.sqlite3'}",
            pms_url=pms_url,
            processes={"up": up, "PMS": pms},
            headers=_headers(token),
            list_url=f"{url}{RESERVATIONS}",
        )


@dataclass(frozen=True, slots=True)
class Site:
    """Where roles can be started: tables, topics, a workspace, an account at `pms_url` and a key. `public` is the environment of
    those that open no secrets, `secret` of those that do."""

    database_url: str
    pms: Running
    pms_url: str
    public: Mapping[str, str]
    secret: Mapping[str, str]
    token: str


@asynccontextmanager
async def open_site(ground: Ground, scenario: Scenario) -> AsyncIterator[Site]:
    """A new one on Kafka and PostgreSQL, its PMS up."""
    async with AsyncExitStack() as stack:
        prefix = f"bench-{secrets.token_hex(4)}."
        await stack.enter_async_context(topics_under(ground.kafka, prefix))
        database_url = plain(await stack.enter_async_context(new_database(ground.postgres)))
        pms, pms_url = await stack.enter_async_context(lean_pms(ground, scenario, "forwarder"))
        public = {
            "FORWARDER_KAFKA_BOOTSTRAP_SERVERS": ground.kafka,
            "FORWARDER_DATABASE_URL": database_url,
            "FORWARDER_TOPIC_PREFIX": prefix,
        }
        secret_key = secrets.token_urlsafe(32)
        secret = {**public, "FORWARDER_SECRET_KEY": secret_key}
        public["FORWARDER_SEALING_VERIFY_KEY"] = Secret.from_text(secret_key).verify_key.hex()
        token = await _set_up(secret, f"{pms_url}/generic", scenario.in_flight)
        yield Site(database_url, pms, pms_url, public, secret, token)


@asynccontextmanager
async def _distributed(ground: Ground, scenario: Scenario) -> AsyncIterator[Flow]:
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(open_site(ground, scenario))
        roles = Roles(ground, stack)
        ingress_url = await roles.start("ingress", site.public, scenario.ingress_processes)
        if scenario.delivers:
            await roles.start("worker", site.secret, scenario.worker_processes)
        query_url = await roles.start("query", site.public, 1)
        yield Flow(
            name="forwarder",
            post_url=f"{ingress_url}{RESERVATIONS}/{'bulk' if scenario.bulk else 'booking-engine'}",
            database_url=site.database_url,
            pms_url=site.pms_url,
            processes={**roles.up, "PMS": site.pms},
            headers=_headers(site.token),
            list_url=f"{query_url}{RESERVATIONS}" if scenario.delivers else None,
        )


def _headers(token: str) -> tuple[str, ...]:
    return (f"authorization: Bearer {token}", f"workspaceId: {WORKSPACE}", f"integrationAccountId: {ACCOUNT}")


class Roles:
    """Those of the forwarder that are up, by name."""

    def __init__(self, ground: Ground, stack: AsyncExitStack) -> None:
        self._ground = ground
        self._stack = stack
        self.up: dict[str, Running] = {}

    async def start(self, name: str, environment: Mapping[str, str], processes: int) -> str:
        """Its URL, once it is ready."""
        url = local_url()
        at = ("--host", "127.0.0.1", "--port", port_of(url), "--processes", str(processes))
        role = Role(name, [FORWARDER, name, *at], environment, f"{url}/readyz", processes)
        self.up[name] = await self._stack.enter_async_context(running(role, self._ground.logs, self._ground.reaper))
        return url


async def _set_up(environment: Mapping[str, str], pms_url: str, in_flight: int) -> str:
    """Tables, topics, workspace and account; the token of a new key."""
    account = ("--workspace", WORKSPACE, "--id", ACCOUNT, "--kind", "generic", "--base-url", pms_url)
    budget = ("--credential", "secret", "--concurrency", str(in_flight))
    await output_of([FORWARDER, "migrate"], environment)
    await output_of([FORWARDER, "topics", "create"], environment)
    await output_of([FORWARDER, "workspace", "add", WORKSPACE], environment)
    await output_of([FORWARDER, "account", "add", *account, *budget], environment)
    key = await output_of([FORWARDER, "key", "add", "--workspace", WORKSPACE, "--json"], environment)
    token: str = json.loads(key)["token"]
    return token

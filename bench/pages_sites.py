"""The measured sites: a database with so many rows, a query process on it, and how to ask and to meter both."""

import json
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from bench.cpu import Meter
from bench.flows import ACCOUNT, WORKSPACE, topics_under
from bench.pages_rows import fill
from bench.processes import FORWARDER, Role, local_url, output_of, port_of, running
from tools.servers.postgres.databases import new_database
from tools.servers.real_servers import RealServers

_SESSIONS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@dataclass(frozen=True, slots=True)
class Site:
    """A query process that is up on `rows` rows. `headers` are those of a caller."""

    rows: int
    url: str
    database_url: str
    headers: tuple[str, ...]
    pid: int

    async def meter(self) -> Meter:
        """What the query process and its sessions in PostgreSQL use from now on, as `query` and `PostgreSQL`. Sessions that are
        opened later, or are on another machine, are not in it."""
        connection = await asyncpg.connect(self.database_url)
        try:
            sessions = [row["pid"] for row in await connection.fetch(_SESSIONS) if _is_here(row["pid"])]
        finally:
            await connection.close()
        return Meter({"query": [self.pid], "PostgreSQL": sessions})


def _is_here(pid: int) -> bool:
    """Whether the process that PostgreSQL calls so is one of this machine: from within a container it would be another."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"postgres:")
    except OSError:
        return False


@asynccontextmanager
async def open_site(servers: RealServers, logs: Path, rows: int, kept: str | None) -> AsyncIterator[Site]:
    """A site of `rows` rows. Its database is dropped at the end, unless it is to be `kept` under that name and the number of rows:
    then it is filled where it is not there yet."""
    async with AsyncExitStack() as stack:
        database_url = (
            (await stack.enter_async_context(new_database(servers.postgres.address()))).replace("+asyncpg", "", 1)
            if kept is None
            else await _kept_database(servers.postgres.address(), f"{kept}_{rows}")
        )
        prefix = f"pages-{secrets.token_hex(4)}."
        await stack.enter_async_context(topics_under(servers.kafka.address(), prefix))
        environment = {
            "FORWARDER_DATABASE_URL": database_url,
            "FORWARDER_KAFKA_BOOTSTRAP_SERVERS": servers.kafka.address(),
            "FORWARDER_TOPIC_PREFIX": prefix,
            "FORWARDER_SECRET_KEY": "a secret of pages that are public, whoever reads them"
            if kept
            else secrets.token_urlsafe(32),
        }
        await prepare(database_url, environment, rows)
        key = json.loads(await output_of([FORWARDER, "key", "add", "--workspace", WORKSPACE, "--json"], environment))
        url = local_url()
        command = [FORWARDER, "query", "--host", "127.0.0.1", "--port", port_of(url)]
        role = Role(f"query-{rows}", command, environment, f"{url}/readyz")
        query = await stack.enter_async_context(running(role, logs, servers.reaper))
        caller = (f"authorization: Bearer {key['token']}", f"workspaceId: {WORKSPACE}")
        yield Site(rows, url, database_url, (*caller, f"integrationAccountId: {ACCOUNT}"), query.pid)


@asynccontextmanager
async def open_naive(servers: RealServers, logs: Path, beside: Site) -> AsyncIterator[Site]:
    """The naive list, on the rows of another site."""
    url = local_url()
    serve = ("uvicorn", "--factory", "bench.baseline.pages:application", "--no-access-log", "--port", port_of(url))
    environment = {"BASELINE_DATABASE_URL": beside.database_url}
    role = Role("baseline-list", [sys.executable, "-m", *serve], environment, f"{url}/readyz")
    async with running(role, logs, servers.reaper) as process:
        yield replace(beside, url=url, pid=process.pid)


async def prepare(database_url: str, environment: dict[str, str], rows: int, *, whole: bool = False) -> None:
    """Topics, tables, an account, and the rows, each where it is missing. `whole`: see `fill`."""
    await output_of([FORWARDER, "migrate"], environment)
    await output_of([FORWARDER, "topics", "create"], environment)
    connection = await asyncpg.connect(database_url)
    try:
        known = await connection.fetchval("SELECT count(*) FROM integration_accounts WHERE id = $1", ACCOUNT)
        filled = await connection.fetchval("SELECT count(*) FROM (SELECT FROM reservations LIMIT 1) AS one")
    finally:
        await connection.close()
    if not known:
        account = ("--workspace", WORKSPACE, "--id", ACCOUNT, "--kind", "generic", "--base-url", "http://127.0.0.1:9")
        await output_of([FORWARDER, "workspace", "add", WORKSPACE], environment)
        await output_of([FORWARDER, "account", "add", *account, "--credential", "secret"], environment)
    if not filled:
        await fill(database_url, rows, whole=whole)


async def _kept_database(server_url: str, name: str) -> str:
    connection = await asyncpg.connect(server_url.replace("+asyncpg", "", 1))
    try:
        if not await connection.fetchval("SELECT count(*) FROM pg_database WHERE datname = $1", name):
            await connection.execute(f'CREATE DATABASE "{name}"')
    finally:
        await connection.close()
    return urlunsplit(urlsplit(server_url)._replace(scheme="postgresql", path=f"/{name}"))

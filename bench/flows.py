"""What the measured flows are: started on the same Kafka and PostgreSQL, given a PMS each, and measured from outside."""

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from aiokafka.admin import AIOKafkaAdminClient

from bench.go_tools import GoTools
from bench.processes import Role, Running, local_url, port_of, running
from bench.scenarios import Scenario
from tools.servers.reaper import Reaper

WORKSPACE: Final = "bench"
ACCOUNT: Final = "bench-generic"
PARTITIONS: Final = 16  # as many as `forwarder topics create` makes
RESERVATIONS: Final = "/api/v1/vrs/reservations"
CONFIRMED: Final = "select count(*) from reservations where status = 'CONFIRMED'"


@dataclass(frozen=True, slots=True)
class Ground:
    """What the flows stand on. `logs` is the directory of the processes' logs. `go`: where it is there, the PMS is that in Go."""

    kafka: str
    postgres: str
    reaper: Reaper
    logs: Path
    go: GoTools | None = None


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow that is up. `processes` are those it is made of, and its PMS, by what they do. `database_url` as users write it, of
    PostgreSQL or SQLite. `list_url` reads it back by pages, where it can. `confirmed`: the statement that counts what is."""

    name: str
    post_url: str
    database_url: str
    pms_url: str
    processes: Mapping[str, Running]
    headers: tuple[str, ...] = ()
    list_url: str | None = None
    confirmed: str = CONFIRMED

    @property
    def own(self) -> list[str]:
        """Those of `processes` that are not its PMS."""
        return [name for name in self.processes if name != "PMS"]


def plain(url: str) -> str:
    """A database's URL as asyncpg takes it, and as a user writes it."""
    return urlunsplit(urlsplit(url)._replace(scheme="postgresql"))


@asynccontextmanager
async def lean_pms(ground: Ground, scenario: Scenario, flow: str) -> AsyncIterator[tuple[Running, str]]:
    """The PMS of a flow, and its URL: that in Go where there is one, but it notes no times."""
    url = local_url()
    if ground.go is not None and not scenario.timed:
        role = Role(
            f"{flow}-pms", ground.go.pms_command(port_of(url), scenario.pms_ms, scenario.pms_errors), {}, f"{url}/count"
        )
    else:
        command = [sys.executable, "-m", "bench.pms", "--host", "127.0.0.1", "--port", port_of(url)]
        manners = ["--delay", str(scenario.pms_ms / 1000), "--errors", str(scenario.pms_errors)]
        role = Role(f"{flow}-pms", [*command, *manners], {}, f"{url}/healthz")
    async with running(role, ground.logs, ground.reaper) as process:
        yield process, url


@asynccontextmanager
async def topics_under(kafka: str, prefix: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """An admin client. In the end every topic whose name begins with `prefix` is deleted."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        yield admin
        await admin.delete_topics([name for name in await admin.list_topics() if name.startswith(prefix)])
    finally:
        await admin.close()

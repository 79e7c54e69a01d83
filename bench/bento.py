"""Bento with the same work, as two configurations describe it: a door that validates and publishes, and a stage that writes rows,
pushes and records. A comparison's tool like goref: its binary is built elsewhere, its configurations are at hand or not.
"""

import re
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import asyncpg
from aiokafka.admin import NewTopic

from bench.flows import PARTITIONS, Flow, Ground, lean_pms, plain, topics_under
from bench.processes import Role, local_url, port_of, running
from bench.scenarios import Scenario
from tools.servers.ladder import Unavailable
from tools.servers.postgres.databases import new_database

_PREFIX = "bento."  # of the topics that the configurations name
_DSN = re.compile(r"dsn: postgres://\S+")
_CONFIRMED = "select count(*) from bento_reservations where status = 'CONFIRMED'"


@asynccontextmanager
async def bento_same(ground: Ground, scenario: Scenario) -> AsyncIterator[Flow]:
    """Up, with one process of each stage. Raises `Unavailable` where its binary or its configurations are not at hand."""
    if ground.go is None or ground.go.bento is None:
        raise Unavailable("no binary of Bento was named (--bento FILE)")
    sources = ground.go.sources / "bento"
    async with AsyncExitStack() as stack:
        configurations = Path(stack.enter_context(TemporaryDirectory(dir=ground.logs)))
        admin = await stack.enter_async_context(topics_under(ground.kafka, _PREFIX))
        await admin.create_topics(
            [NewTopic(f"{_PREFIX}{name}", PARTITIONS, 1) for name in ("same.requests", "results")]
        )
        database_url = plain(await stack.enter_async_context(new_database(ground.postgres)))
        connection = await asyncpg.connect(database_url)
        await connection.execute((sources / "peers.sql").read_text())
        await connection.close()
        parts = urlsplit(database_url)
        dsn = parts._replace(
            query="&".join(filter(None, (parts.query, "sslmode=disable&binary_parameters=yes")))
        ).geturl()
        pms, pms_url = await stack.enter_async_context(lean_pms(ground, scenario, "bento-same"))
        url, token = local_url(), secrets.token_urlsafe(16)
        environment = {
            "KPORT": ground.kafka.rsplit(":", 1)[1],
            "JPORT": port_of(pms_url),
            "BENTO_PORT": port_of(url),
            "PMS_IN_FLIGHT": str(scenario.in_flight),
            "BENTO_TOKEN": token,
            "BENTO_SCHEMA": str(sources / "bento-same-schema.json"),
            "GOGC": "400",
        }
        processes = {"PMS": pms}
        for name, stage in (("ingress", "stage1"), ("worker", "stage2"))[: 2 if scenario.delivers else 1]:
            written = configurations / f"{stage}.yaml"
            written.write_text(_DSN.sub(f"dsn: {dsn}", (sources / f"bento-same-{stage}.yaml").read_text()))
            at = local_url()
            ports = {"BENTO_ADMIN1": port_of(at), "BENTO_ADMIN2": port_of(at)}
            role = Role(
                f"bento-{name}", [str(ground.go.bento), "run", str(written)], environment | ports, f"{at}/ready"
            )
            processes[name] = await stack.enter_async_context(running(role, ground.logs, ground.reaper))
        yield Flow(
            name="bento-same",
            post_url=f"{url}/post",
            database_url=database_url,
            pms_url=pms_url,
            processes=processes,
            headers=(f"authorization: Bearer {token}",),
            confirmed=_CONFIRMED,
        )

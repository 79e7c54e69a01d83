"""goref's processes: the flow written by hand in Go, on topics and a database of their own. `same` does the forwarder's work in
rough outline (a row before offsets are committed, outcome and event in one transaction), `bare` none of it but a row in the end."""

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import asyncpg
from aiokafka.admin import NewTopic

from bench.flows import PARTITIONS, Flow, Ground, lean_pms, plain, topics_under
from bench.processes import Role, local_url, running
from bench.scenarios import Scenario
from tools.servers.ladder import Unavailable
from tools.servers.postgres.databases import new_database

_METHOD_NOT_ALLOWED = 405
_CONFIRMED = {
    "same": "select count(*) from goref_reservations where status = 'CONFIRMED'",
    "bare": "select count(*) from goref_results",
}


@asynccontextmanager
async def _goref(work: str, ground: Ground, scenario: Scenario) -> AsyncIterator[Flow]:
    """Up, with one worker. Raises `Unavailable` where it was not built."""
    if ground.go is None:
        raise Unavailable("goref was not built")
    async with AsyncExitStack() as stack:
        prefix, name = f"bench-{secrets.token_hex(4)}.", f"goref-{work}"
        admin = await stack.enter_async_context(topics_under(ground.kafka, prefix))
        database_url = plain(await stack.enter_async_context(new_database(ground.postgres)))
        connection = await asyncpg.connect(database_url)
        await connection.execute(ground.go.tables)
        await connection.close()
        topics = {"TOPIC": f"{prefix}requests", "RESULTS": f"{prefix}results"}
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics.values()])
        pms, pms_url = await stack.enter_async_context(lean_pms(ground, scenario, name))
        url, token = local_url(), secrets.token_urlsafe(16)
        environment = {
            **topics,
            "WORK": work,
            "KAFKA": ground.kafka,
            "GROUP": prefix,
            "DATABASE_URL": f"{database_url}{'&' if '?' in database_url else '?'}pool_max_conns=6",
            "PMS": f"{pms_url}/reservations",
            "PMS_IN_FLIGHT": str(scenario.in_flight),
            "LISTEN": url.removeprefix("http://"),
            "TOKEN": token,
            "GOGC": "400",
        }
        goref = str(ground.go.goref)
        roles = {
            "ingress": Role(
                f"{name}-ingress", [goref, "ingress"], environment, f"{url}/post", ready_status=_METHOD_NOT_ALLOWED
            )
        }
        if scenario.delivers:
            roles["worker"] = Role(f"{name}-worker", [goref, "worker"], environment)
        up = {
            each: await stack.enter_async_context(running(role, ground.logs, ground.reaper))
            for each, role in roles.items()
        }
        yield Flow(
            name=name,
            post_url=f"{url}/post",
            database_url=database_url,
            pms_url=pms_url,
            processes={**up, "PMS": pms},
            headers=(f"authorization: Bearer {token}",),
            confirmed=_CONFIRMED[work],
        )


goref_same = partial(_goref, "same")
goref_bare = partial(_goref, "bare")

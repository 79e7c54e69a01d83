"""The baseline's processes: its ingress and its one consumer, on topics and a database of their own."""

import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from aiokafka.admin import NewTopic

from bench.baseline.settings import Settings
from bench.flows import PARTITIONS, RESERVATIONS, Flow, Ground, lean_pms, plain, topics_under
from bench.processes import Role, local_url, port_of, running
from bench.scenarios import Scenario
from tools.servers.postgres.databases import new_database


@asynccontextmanager
async def naive(ground: Ground, scenario: Scenario) -> AsyncIterator[Flow]:
    """Up, with one consumer."""
    async with AsyncExitStack() as stack:
        prefix = f"bench-{secrets.token_hex(4)}."
        admin = await stack.enter_async_context(topics_under(ground.kafka, prefix))
        database_url = plain(await stack.enter_async_context(new_database(ground.postgres)))
        pms, pms_url = await stack.enter_async_context(lean_pms(ground, scenario, "baseline"))
        settings = Settings(
            kafka=ground.kafka,
            database_url=database_url,
            pms_url=f"{pms_url}/generic",
            topic_prefix=prefix,
            in_flight=scenario.in_flight,
        )
        topics = [NewTopic(name, PARTITIONS, 1) for name in (settings.requests, settings.results)]
        await admin.create_topics(topics)
        roles = [_ingress(settings, scenario), *([_consumer(settings)] if scenario.delivers else [])]
        up = [await stack.enter_async_context(running(role, ground.logs, ground.reaper)) for role in roles]
        yield Flow(
            name="baseline",
            post_url=f"{_url(roles[0])}{RESERVATIONS}/booking-engine",
            database_url=database_url,
            pms_url=pms_url,
            processes={**dict(zip(("ingress", "worker"), up, strict=False)), "PMS": pms},
        )


def _ingress(settings: Settings, scenario: Scenario) -> Role:
    url = local_url()
    serve = ("uvicorn", "--factory", "bench.baseline.ingress:application", "--no-access-log", "--port", port_of(url))
    arguments = [sys.executable, "-m", *serve, "--workers", str(scenario.ingress_processes)]
    return Role("baseline-ingress", arguments, _environment(settings), f"{url}/readyz", scenario.ingress_processes)


def _url(role: Role) -> str:
    return (role.ready_url or "").removesuffix("/readyz")


def _consumer(settings: Settings) -> Role:
    arguments = [sys.executable, "-m", "bench.baseline.consumer"]
    return Role("baseline-consumer", arguments, _environment(settings))


def _environment(settings: Settings) -> dict[str, str]:
    return {f"BASELINE_{name.upper()}": str(value) for name, value in settings.model_dump().items()}

"""docker-compose.yml does what it promises: our services' own commands, in their own environment, against real servers.

No container engine is needed: Kafka and PostgreSQL are the suite's, every one of our services is a process of this machine, and
nginx stands in front of them with the configuration of the file's proxy. Only addresses are rewritten.
"""

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.backends import missing
from tests.support.deployment.compose_file import Service, read_compose, service
from tests.support.deployment.proxy_config import local_config, nginx, nginx_command
from tools.servers.ladder import Unavailable
from tools.servers.real_servers import RealServers
from tools.servers.server_process import Command, ServerProcess, free_ports

ROLES = ("ingress", "worker", "query", "notifier", "simulator")
HEALTHY_WITHIN_SECONDS = 30.0
BOOKING: dict[str, Any] = {
    "morChannel": "SELF",
    "propertyId": 123,
    "roomId": "7",
    "arrivalDate": "2031-05-01",
    "departureDate": "2031-05-04",
    "guest": {
        "name": "Ana Sousa",
        "firstName": "Ana",
        "lastName": "Sousa",
        "email": "ana@example.com",
        "address": {
            "line1": "Rua Augusta 1",
            "line2": "",
            "postalCode": "1100-048",
            "city": "Lisboa",
            "state": "Lisboa",
            "country": "PT",
        },
    },
    "numberOfGuests": 2,
    "totalPrice": 300,
    "currency": "EUR",
}


def test_only_who_opens_what_is_sealed_holds_the_secret() -> None:
    holders = {
        name
        for name, told in read_compose()["services"].items()
        if "FORWARDER_SECRET_KEY" in told.get("environment", {})
    }

    assert holders == {"migrate", "worker"}


def test_the_proxy_alone_is_reached_from_outside() -> None:
    published = {name: told["ports"] for name, told in read_compose()["services"].items() if "ports" in told}

    assert published == {"proxy": ["8080:8080"]}


@pytest.mark.parametrize("name", ["kafka", "postgres", *ROLES, "proxy"])
def test_what_keeps_running_is_watched_and_started_again(name: str) -> None:
    told = read_compose()["services"][name]

    assert told["restart"] == "unless-stopped"
    assert told["healthcheck"]["test"][0] == "CMD"


@pytest.mark.parametrize("name", ["ingress", "worker", "query", "notifier"])
def test_no_role_starts_before_the_tables_and_topics_are_there(name: str) -> None:
    assert read_compose()["services"][name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}


@dataclass(frozen=True, slots=True)
class Composition:
    """The services, up. `worker` is where the operator's commands run, as the file's first lines say."""

    services: Mapping[str, Service]
    url: str

    async def operate(self, *command: str) -> Any:
        """What `docker compose exec worker forwarder …` prints, as JSON."""
        return json.loads(await run(self.services["worker"], ("forwarder", *command, "--json")))


@pytest.fixture
async def composition(
    real_servers: RealServers, kafka_bootstrap: str, postgres_database_url: str
) -> AsyncIterator[Composition]:
    """Everything that the file starts, in its order, each healthy by its own check."""
    program = nginx()
    if program is None:
        missing(Unavailable("nginx is not installed"))
    directory = real_servers.reaper.directory()
    ports = dict(zip((*ROLES, "proxy"), map(str, free_ports(len(ROLES) + 1)), strict=True))
    services = local_services(ports, kafka_bootstrap, postgres_database_url)
    async with AsyncExitStack() as stack:

        async def start(command: Command) -> ServerProcess:
            process = ServerProcess(command, real_servers.reaper)
            stack.push_async_callback(asyncio.to_thread, process.stop)
            await asyncio.to_thread(process.start)
            return process

        await run(services["migrate"], services["migrate"].command)
        for name in ROLES:
            log = directory / f"{name}.log"
            process = await start(Command(name, services[name].as_process(services[name].command), log, ready=""))
            await healthy(services[name], process, log)
        upstreams = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        await start(nginx_command(program, local_config(directory, upstreams, upstreams["proxy"])))
        yield Composition(services, f"http://{upstreams['proxy']}")


def local_services(ports: Mapping[str, str], kafka: str, database_url: str) -> dict[str, Service]:
    """Our services with this machine's addresses, on topics that are nobody else's."""
    told = {name: service(name) for name in ("migrate", *ROLES)}
    database = told["worker"].environment["FORWARDER_DATABASE_URL"]
    engines = {"kafka:9092": kafka, database: database_url, "0.0.0.0": "127.0.0.1"}
    engines["simulator:8085"] = f"127.0.0.1:{ports['simulator']}"
    prefix = {"FORWARDER_TOPIC_PREFIX": f"compose-{uuid.uuid4().hex[:8]}."}
    return {
        name: each.rewritten({each.port: ports[name], **engines} if name in ports else engines).with_environment(prefix)
        for name, each in told.items()
    }


async def run(where: Service, command: tuple[str, ...]) -> str:
    """What `command` prints when it is run in a service's environment."""
    process = await asyncio.create_subprocess_exec(
        *where.as_process(command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await process.communicate()
    assert process.returncode == 0, f"{command}: exit {process.returncode}\n{error.decode()}{out.decode()}"
    return out.decode()


async def healthy(role: Service, process: ServerProcess, log: Path) -> None:
    """Return when the service's own health check passes; it is asked again and again, as the engine would."""
    deadline = time.monotonic() + HEALTHY_WITHIN_SECONDS
    while True:
        check = await asyncio.create_subprocess_exec(*role.as_process(role.health), stderr=asyncio.subprocess.DEVNULL)
        if await check.wait() == 0:
            return
        if not process.running or time.monotonic() > deadline:
            pytest.fail(f"{role.name} is not healthy: {await asyncio.to_thread(log.read_text)}")


@pytest.mark.slow
async def test_a_reservation_goes_its_whole_way(composition: Composition) -> None:
    simulator = f"http://127.0.0.1:{composition.services['simulator'].port}/generic"
    await run(composition.services["worker"], ("forwarder", "workspace", "add", "demo"))
    key = await composition.operate("key", "add", "--workspace", "demo", "--scope", "submit,read,webhooks")
    account = await composition.operate(
        *("account", "add", "--workspace", "demo", "--kind", "generic", "--id", "demo-generic"),
        *("--base-url", simulator, "--credential", "secret"),
    )
    headers = {
        "Authorization": f"Bearer {key['token']}",
        "workspaceId": "demo",
        "integrationAccountId": account["id"],
    }

    async with httpx.AsyncClient(base_url=composition.url, headers=headers, timeout=30) as client:
        accepted = await client.post(
            "/api/v1/vrs/reservations/booking-engine", json=BOOKING, headers={"Prefer": "wait=20"}
        )
        listed = await client.get("/api/vrs/reservations/")
        hooks = await client.get("/api/v1/vrs/webhooks")
        test_key = await composition.operate("key", "add", "--workspace", "demo", "--test")
        sold_out = {**BOOKING, "guest": {**BOOKING["guest"], "lastName": "Test-Sold-Out"}}
        refused = await client.post(
            "/api/v1/vrs/reservations/booking-engine",
            json=sold_out,
            headers={"Prefer": "wait=20", "Authorization": f"Bearer {test_key['token']}"},
        )

    assert accepted.status_code == httpx.codes.CREATED, accepted.text
    [record] = listed.json()["data"]
    assert record["status"] == "CONFIRMED"
    assert record == accepted.json()["data"]
    assert (hooks.status_code, hooks.json()["data"]) == (httpx.codes.OK, [])
    assert (refused.status_code, refused.json()["code"]) == (httpx.codes.CONFLICT, "room_unavailable")

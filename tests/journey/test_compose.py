"""docker-compose.yml does what it promises: our services' own commands, in their own environment, against real servers.

No container engine is needed: Kafka and PostgreSQL are the suite's, every one of our services is a process of this machine, and
nginx stands in front of them with the configuration of the file's proxy. Only addresses are rewritten. With an engine:
tests/containers.
"""

import asyncio
import json
import re
import shutil
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

import asyncpg
import httpx
import pytest
import yaml

from tests.support.backends import missing
from tests.support.cases import for_each
from tests.support.deployment.shipped.compose_file import (
    COMPOSE_FILE,
    DEMO_FILE,
    IN_FILES,
    Service,
    read_compose,
    service,
)
from tests.support.deployment.shipped.proxy_config import local_config, nginx, nginx_command
from tools.servers.certificates import Authority
from tools.servers.ladder import Unavailable
from tools.servers.real_servers import RealServers
from tools.servers.server_process import Command, ServerProcess, free_ports

STAGES = ("ingress", "worker", "query", "notifier")
ROLES = (*STAGES, "housekeeping", "simulator")
USERS = (*STAGES, "operator")
HEALTHY_WITHIN_SECONDS = 90.0
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


OURS = ("migrate", "users", *STAGES, "housekeeping", "operator", "console")


@for_each(
    ("secret", "holders"),
    [
        # Operators start the last two, and nothing else does: they ask PMSs.
        ("secret_key", {"migrate", "worker", "operator", "console"}),
        ("notifier_key", {"notifier"}),
        ("tls_key", {"proxy"}),
        ("postgres_password", {"postgres", "migrate", "users"}),
        *((f"{stage}_password", {stage, "users"}) for stage in STAGES if stage != "worker"),
        ("operator_password", {"operator", "console", "users"}),
        ("worker_password", {"worker", "housekeeping", "users"}),
    ],
)
def test_a_secret_is_with_who_needs_it_alone(secret: str, holders: set[str]) -> None:
    services = read_compose()["services"]

    assert {name for name, told in services.items() if secret in told.get("secrets", ())} == holders


def test_no_secret_is_in_the_file_nor_in_an_environment() -> None:
    """Each comes from a file, and where the files are has no default: without them nothing starts."""
    told = yaml.safe_load(COMPOSE_FILE.read_text())
    files = [each["file"] for each in told["secrets"].values()]
    wanted = {name for each in told["services"].values() for name in each.get("secrets", ())}

    assert wanted == set(told["secrets"])
    assert files[0].startswith("${FORWARDER_SECRETS:?")
    assert all(re.match(r"\$\{FORWARDER_SECRETS(:\?[^}]+)?\}/", file) for file in files)
    for name, each in told["services"].items():
        for variable, value in each.get("environment", {}).items():
            if re.search("PASSWORD|KEY|SECRET", variable):
                assert value.startswith("/run/secrets"), (name, variable)
            if variable == "FORWARDER_DATABASE_URL":
                assert ":" not in value.removeprefix("postgresql://").partition("@")[0], name


@for_each("name", [*OURS, "proxy"])
def test_what_we_run_may_do_nothing_but_its_work(name: str) -> None:
    told = read_compose()["services"][name]

    assert told["read_only"] is True
    assert told["user"] == "10001:10001"
    assert told["cap_drop"] == ["ALL"]
    assert "cap_add" not in told
    assert told["security_opt"] == ["no-new-privileges:true"]


def test_the_proxy_alone_is_reached_from_other_machines_and_reaches_the_stages_alone() -> None:
    told = read_compose()
    published = {name: each["ports"] for name, each in told["services"].items() if "ports" in each}
    on_front = {name for name, each in told["services"].items() if "front" in each["networks"]}

    assert published.pop("console") == ["127.0.0.1:8084:8084"]
    assert published.pop("prometheus") == ["127.0.0.1:9090:9090"]
    assert published == {"proxy": ["8443:8443"]}
    assert told["services"]["proxy"]["networks"] == ["front"]
    assert on_front == {"proxy", "ingress", "query", "notifier"}
    assert told["networks"]["engines"] == {"internal": True}
    assert {name for name, each in told["services"].items() if "engines" not in each["networks"]} == {"proxy"}


def test_prometheus_scrapes_every_role_where_it_listens() -> None:
    commands = {name: each.get("command", []) for name, each in read_compose()["services"].items()}
    listening = {
        (name, int(command[command.index("--port") + 1]))
        for name, command in commands.items()
        if "--port" in command and name != "console"
    }
    (job,) = yaml.safe_load((COMPOSE_FILE.parent / "deploy" / "monitoring" / "prometheus.yml").read_text())[
        "scrape_configs"
    ]
    assert "forwarder" in job["job_name"]
    assert {(*each["names"], each["port"]) for each in job["dns_sd_configs"]} == listening


def test_simulated_pmss_are_in_the_demo_alone_and_for_this_machine() -> None:
    ours, demo = read_compose(), read_compose(DEMO_FILE)

    assert "simulator" not in ours["services"]
    assert not any("FORWARDER_SIMULATOR_URL" in each.get("environment", {}) for each in ours["services"].values())
    assert demo["services"]["simulator"]["ports"] == ["127.0.0.1:8085:8085"]


@for_each("name", ["kafka", "postgres", *STAGES, "housekeeping", "proxy"])
def test_what_keeps_running_is_watched_and_started_again(name: str) -> None:
    told = read_compose()["services"][name]

    assert told["restart"] == "unless-stopped"
    assert told["healthcheck"]["test"][0] == "CMD"


@for_each("name", ["ingress", "worker", "query", "notifier", "housekeeping"])
def test_no_role_starts_before_tables_topics_and_its_user_are_there(name: str) -> None:
    services = read_compose()["services"]
    done = {"condition": "service_completed_successfully"}

    assert services[name]["depends_on"]["users"] == services["users"]["depends_on"]["migrate"] == done


@dataclass(frozen=True, slots=True)
class Composition:
    """The services, up. `operator` is where the operator's commands run, as the file's first lines say."""

    services: Mapping[str, Service]
    url: str
    authority: Authority

    async def operate(self, *command: str) -> Any:
        """What `docker compose run operator …` prints, as JSON."""
        return json.loads(await run(self.services["operator"], ("forwarder", *command, "--json")))


@pytest.fixture
async def composition(
    real_servers: RealServers, kafka_bootstrap: str, postgres_database_url: str
) -> AsyncIterator[Composition]:
    """Everything that the file starts, in its order, each healthy by its own check."""
    program = nginx()
    if program is None:
        missing(Unavailable("nginx is not installed"))
    if shutil.which("psql") is None:
        missing(Unavailable("psql is not installed"))
    directory = real_servers.reaper.directory()
    try:
        authority = Authority(directory / "certificates")
    except Unavailable as reason:
        missing(reason)
    ports = dict(zip((*ROLES, "proxy", "within"), map(str, free_ports(len(ROLES) + 2)), strict=True))
    owner = urlsplit(postgres_database_url)
    for name, content in {**IN_FILES, "postgres_password": owner.password or "unasked"}.items():
        (directory / name).write_text(content)
    services = local_services(ports, kafka_bootstrap, owner, directory)
    async with AsyncExitStack() as stack:

        async def start(command: Command) -> ServerProcess:
            process = ServerProcess(command, real_servers.reaper)
            stack.push_async_callback(asyncio.to_thread, process.stop)
            await asyncio.to_thread(process.start)
            return process

        stack.push_async_callback(users_gone, postgres_database_url)
        for name in ("migrate", "users"):
            await run(services[name], services[name].command)
        for name in ROLES:
            log = directory / f"{name}.log"
            process = await start(Command(name, services[name].as_process(services[name].command), log, ready=""))
            await healthy(services[name], process, log)
        upstreams = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        shown = authority.issue("proxy", "IP:127.0.0.1")
        config = local_config(directory, upstreams, upstreams["proxy"], upstreams["within"], shown)
        await start(nginx_command(program, config))
        yield Composition(services, f"https://{upstreams['proxy']}", authority)


def local_services(ports: Mapping[str, str], kafka: str, owner: SplitResult, secrets: Path) -> dict[str, Service]:
    """Our services with this machine's addresses and files, on topics that are nobody else's. Users are named after the database,
    so they are nobody else's either."""
    told = {name: service(name, demo=True) for name in ("migrate", *ROLES, "operator")}
    script = read_compose()["services"]["users"]
    told["users"] = Service(
        "users", ("sh", str(COMPOSE_FILE.parent / "deploy/compose/users")), script["environment"], ()
    )
    server, database = owner.netloc.rpartition("@")[2], owner.path.removeprefix("/")
    here = {"kafka:9092": kafka, "0.0.0.0": "127.0.0.1", "/run/secrets": str(secrets)}
    here |= {
        f"//forwarder_{stage}_1@postgres:5432/forwarder": f"//{database}_{stage}_1@{server}/{database}"
        for stage in USERS
    }
    here["//forwarder@postgres:5432/forwarder"] = f"//{owner.username}@{server}/{database}"
    here["simulator:8085"] = f"127.0.0.1:{ports['simulator']}"
    prefix = {"FORWARDER_TOPIC_PREFIX": f"compose-{uuid.uuid4().hex[:8]}."}
    local = {
        name: each.rewritten({each.port: ports[name], **here} if name in ports else here).with_environment(prefix)
        for name, each in told.items()
    }
    reached = {"PGHOST": owner.hostname or "", "PGPORT": str(owner.port), "PGUSER": owner.username or ""}
    return {**local, "users": local["users"].with_environment({**reached, "PGDATABASE": database})}


async def users_gone(database_url: str) -> None:
    """Users and roles are the server's, and would outlive the database."""
    parts = urlsplit(database_url)
    database = parts.path.removeprefix("/")
    connection = await asyncpg.connect(urlunsplit(parts._replace(scheme="postgresql")))
    try:
        for name in [f"{database}_{user}{suffix}" for user in USERS for suffix in ("_1", "")]:
            if await connection.fetchval("SELECT true FROM pg_roles WHERE rolname = $1", name):
                await connection.execute(f'DROP OWNED BY "{name}"')
                await connection.execute(f'DROP ROLE "{name}"')
    finally:
        await connection.close()


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
    await run(composition.services["operator"], ("forwarder", "workspace", "add", "demo"))
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

    trusted = ssl.create_default_context(cafile=composition.authority.file)
    async with httpx.AsyncClient(base_url=composition.url, headers=headers, timeout=30, verify=trusted) as client:
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
    probed = await composition.operate("account", "probe", "demo-generic", "--property", "123")
    assert [step["ended"] for step in probed["steps"]] == ["ok", "ok", "ok"]
    (made,) = json.loads(
        await run(
            composition.services["operator"], ("forwarder", "submissions", "list", "--status", "confirmed", "--json")
        )
    )
    seen = await composition.operate("submissions", "look-up", made["requestId"])
    assert made["pmsReservationId"] in json.dumps(seen)

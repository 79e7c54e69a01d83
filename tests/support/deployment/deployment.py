"""A whole forwarder as a user runs it: our own commands as processes, on either backend, with the simulator as the judge.

Embedded: `forwarder up` and a simulator of its own. Distributed: ingress, worker, query and simulator, on Kafka and PostgreSQL.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import httpx

from forwarder.assembly.backend import migrate_backend, open_backend
from forwarder.operate.tenants.accounts import Accounts
from forwarder.reservation.outcome import Status
from forwarder.tenancy.port import ALL_SCOPES, Account
from tests.support.deployment import warm
from tests.support.deployment.site import Site, settings_of, site_settings
from tools.servers.server_process import LOCALHOST, Command, Process, ServerProcess, execute, free_ports

__all__ = ["PATIENCE_SECONDS", "Deployment", "Site", "booking", "deploy", "site_settings"]

READY = "process.listening"
PATIENCE_SECONDS = 90.0


class Deployment:
    """The running processes, by role, and the calls that users and operators make. `token` is of workspace `demo`. `own`: settings
    that only the process of a command has."""

    def __init__(self, site: Site, own: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self.site = site
        self.own = own or {}
        self.processes: dict[str, ServerProcess] = {}
        self.ports: dict[str, int] = {}
        self.token = ""
        self.client = httpx.AsyncClient(timeout=30.0, limits=httpx.Limits(max_connections=64))

    @property
    def environment(self) -> dict[str, str]:
        return {"FORWARDER_LOG_FORMAT": "json", "FORWARDER_LOG_LEVEL": "debug", **self.site.settings}

    @property
    def roles(self) -> Sequence[str]:
        """What may be killed, beside the judge."""
        return [role for role in self.processes if role != "simulate"]

    def url(self, role: str) -> str:
        """Where a role listens; in the embedded default one process has them all."""
        port = self.ports.get(role) or self.ports["up"]
        return f"http://{LOCALHOST}:{port}"

    def log(self, role: str) -> Path:
        return self.site.directory / f"{role}.log"

    def add(self, command: str, *options: str, role: str | None = None, launcher: Sequence[str] = ()) -> ServerProcess:
        """A process that runs `forwarder command` on a free port, under a name of its own where `role` gives one; not started.

        With a `launcher`, arguments of Python's, it is that which runs; else it is forked from a warm process.
        """
        role = role or command
        (self.ports[role],) = free_ports(1)
        arguments = [command, "--port", str(self.ports[role]), *options]
        run = execute if launcher else _fork
        if launcher:
            arguments = [sys.executable, *launcher, *arguments]
        environment = {**self.environment, **self.own.get(command, {})}
        runs = Command(role, arguments, self.log(role), READY, environment=environment)
        self.processes[role] = ServerProcess(runs, self.site.reaper, run)
        return self.processes[role]

    async def start(self) -> None:
        """Start every process that does not run, and return when all are ready."""
        idle = {role: process for role, process in self.processes.items() if not process.running}
        for role in idle:
            self._begin_new_log(role)
        await asyncio.gather(*(asyncio.to_thread(process.start) for process in idle.values()))

    async def drop(self, role: str) -> None:
        """Stop a process that `add` made, and forget it."""
        await asyncio.to_thread(self.processes[role].stop)
        del self.processes[role], self.ports[role]

    async def stop(self) -> None:
        """Stop every process in the order of the flow."""
        for process in self.processes.values():
            await asyncio.to_thread(process.stop)

    def _begin_new_log(self, role: str) -> None:
        """Put aside what the process wrote so far: a start is watched in its log, which is read whole again and again."""
        log = self.log(role)
        if log.exists():
            log.rename(log.with_name(f"{role}.until-{time.monotonic_ns()}.log"))

    async def command(self, *arguments: str) -> Any:
        """What a `forwarder` command prints with `--json`. Raises `subprocess.CalledProcessError`."""
        done = await Typed(self, *arguments, "--json").done()
        if done.code:
            raise subprocess.CalledProcessError(done.code, arguments, done.out, done.err)
        return json.loads(done.out)

    async def listed(self, *arguments: str) -> list[Any]:
        """The same, of a command that prints a list, as an array or an object a line."""
        done = await Typed(self, *arguments, "--json").done()
        if done.code:
            raise subprocess.CalledProcessError(done.code, arguments, done.out, done.err)
        return (
            json.loads(done.out) if done.out.startswith("[") else [json.loads(line) for line in done.out.splitlines()]
        )

    async def add_account(
        self, account_id: str, *, kind: str = "generic", path: str = "generic", duplicate_window_seconds: int = 0
    ) -> None:
        """An integration account whose PMS is simulated under its own name. Without a duplicate window: most tests send one body
        again and again, and mean another reservation each time."""
        url = f"{self.url('simulate')}/{account_id}/{path}"
        account = Account(account_id, "demo", kind, url, "", duplicate_window_seconds=duplicate_window_seconds)
        async with open_backend(settings_of(self.site)) as backend:
            await Accounts(backend.tenancy, backend.sealer).add(account, "secret")

    def headers(self, account: str, **more: str) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self.token}",
            "workspaceId": "demo",
            "integrationAccountId": account,
            "Content-Type": "application/json",
            **more,
        }

    async def submit(
        self, account: str, body: Mapping[str, Any], *, operation: str = "booking-engine", **headers: str
    ) -> httpx.Response:
        path = "/api/v1/vrs/reservations" + ("/booking-engine" if operation == "booking-engine" else "")
        return await self.client.post(
            self.url("ingress") + path, content=json.dumps(body), headers=self.headers(account, **headers)
        )

    async def cancel(self, account: str, request_id: str, **headers: str) -> httpx.Response:
        path = f"/api/v1/vrs/reservations/{request_id}/cancel"
        return await self.client.post(self.url("ingress") + path, headers=self.headers(account, **headers))

    async def submission(self, account: str, request_id: str) -> dict[str, Any]:
        answer = await self.client.get(
            f"{self.url('query')}/api/v1/vrs/submissions/{request_id}", headers=self.headers(account)
        )
        assert answer.status_code == 200, answer.text
        data: dict[str, Any] = answer.json()["data"]
        return data

    async def settled(self, account: str, request_id: str) -> dict[str, Any]:
        """The submission once it is no longer pending."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (data := await self.submission(account, request_id))["status"] == "PENDING":
                await _a_moment()
        return data

    async def records(self, account: str, limit: int = 200) -> list[dict[str, Any]]:
        """Every record of the account, whatever its status, by following `next` from the first page."""
        found: list[dict[str, Any]] = []
        cursor = ""
        while True:
            parameters = {"limit": str(limit), "status": ",".join(Status), "cursor": cursor}
            answer = await self.client.get(
                f"{self.url('query')}/api/vrs/reservations", params=parameters, headers=self.headers(account)
            )
            assert answer.status_code == 200, answer.text
            found += answer.json()["data"]
            cursor = answer.json()["meta"]["cursors"]["next"]
            if not cursor:
                return found

    async def all_settled(self, account: str, count: int) -> list[dict[str, Any]]:
        """The account's records once there are `count` and none is pending."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                records = await self.records(account)
                if len(records) >= count and all(record["status"] != "PENDING" for record in records):
                    return records
                await _a_moment()

    async def made(self) -> dict[str, Any]:
        """What the simulated PMSs made, by their own count."""
        stats: dict[str, Any] = (await self.client.get(f"{self.url('simulate')}/stats")).json()
        return stats


@dataclass(frozen=True, slots=True)
class Said:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


class Typed:
    """A `forwarder` command that an operator typed beside the deployment; it runs from now on."""

    def __init__(self, deployment: Deployment, *arguments: str) -> None:
        self._out, self._err = TemporaryFile(), TemporaryFile()  # noqa: SIM115  # closed once it has ended
        environment = {**os.environ, **deployment.environment}
        self._process = warm.start(arguments, environment, self._out, self._err)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def done(self) -> Said:
        """Once it has ended."""
        code = await asyncio.to_thread(self._process.wait, PATIENCE_SECONDS)
        said = Said(code, _read_and_close(self._out), _read_and_close(self._err))
        assert "Traceback" not in said.err, said.err
        return said


def _read_and_close(file: IO[bytes]) -> str:
    with file:
        file.seek(0)
        return file.read().decode()


def _fork(command: Command, log: IO[bytes]) -> Process:
    return warm.start(command.arguments, {**os.environ, **command.environment}, log, log)


async def _a_moment() -> None:
    # What is waited for happens in another process, which can only be asked.
    await asyncio.sleep(0.05)


@asynccontextmanager
async def deploy(
    site: Site, *simulator_options: str, own: Mapping[str, Mapping[str, str]] | None = None
) -> AsyncIterator[Deployment]:
    """A deployment with workspace `demo`, a key, and no accounts yet; stopped at the end."""
    deployment = Deployment(site, own)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(deployment.client.aclose)
        stack.push_async_callback(deployment.stop)
        deployment.add("simulate", *simulator_options)
        if site.backend == "embedded":
            deployment.add("up", "--no-demo")
            await deployment.start()
            await _move_in(deployment)
        else:
            for role in ("ingress", "worker", "query"):
                deployment.add(role)
            await asyncio.to_thread(migrate_backend, settings_of(site))
            await _move_in(deployment)
            await deployment.start()
        yield deployment


async def _move_in(deployment: Deployment) -> None:
    """What an operator does first, done by this process: each command would take more than a second."""
    async with open_backend(settings_of(deployment.site)) as backend:
        await backend.create_topics()
        await backend.tenancy.add_workspace("demo")
        _, deployment.token = await backend.tenancy.add_key("demo", scopes=ALL_SCOPES)


def booking(number: int, **more: Any) -> dict[str, Any]:
    """A booking-engine request that every kind takes; each number has its own property, which is its room."""
    return {
        "morChannel": "SELF",
        "propertyId": 1000 + number,
        "roomId": str(1000 + number),
        "arrivalDate": "2031-03-01",
        "departureDate": "2031-03-05",
        "guest": {
            "name": "Maria Gonzalez",
            "firstName": "Maria",
            "lastName": "Gonzalez",
            "email": f"guest{number}@example.com",
            "phone": 34600123456,
            "address": {
                "line1": "Calle de Alcala 1",
                "line2": "",
                "postalCode": "28014",
                "city": "Madrid",
                "state": "Madrid",
                "country": "ES",
            },
        },
        "numberOfGuests": 2,
        "totalPrice": 480.5,
        "currency": "EUR",
        "transactionId": f"tx-{number}",
        **more,
    }

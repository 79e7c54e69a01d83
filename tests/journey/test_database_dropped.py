"""The database is dropped under a running deployment: no process ends, status and readiness say what is wrong, and everything works
again once it is restored. Where it is created anew instead, nothing is done under keys that are not its own."""

import asyncio
from collections.abc import AsyncIterator, Collection
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from forwarder.assembly.backend import open_backend
from forwarder.tenancy.port import ALL_SCOPES
from tests.support.backends import only
from tests.support.deployment.deployment import PATIENCE_SECONDS, Deployment, Site, Typed, booking, deploy
from tests.support.deployment.site import settings_of

ROLES = ("ingress", "worker", "query", "notifier", "housekeeping", "console")
DROP = "drop database {name} with (force)"


@pytest.fixture
async def running(site: Site) -> AsyncIterator[Deployment]:
    async with deploy(site) as deployment:
        for role in ("notifier", "housekeeping", "console"):
            deployment.add(role)
        await deployment.start()
        await deployment.add_account("acme")
        yield deployment


@pytest.mark.slow  # `tests/fault/outages/test_postgresql.py` takes the database away too; below it comes back with less
@only("distributed")
async def test_the_database_is_dropped_and_comes_back(running: Deployment, site: Site) -> None:
    before = await _submit(running, 1)
    assert (await running.settled("acme", before))["status"] == "CONFIRMED"
    await _execute(site, "create database {name}_backup template {name}")
    started = {role: process.pid for role, process in running.processes.items()}

    await _execute(site, DROP)
    await _until_failing(running, ROLES, "store")
    assert "! the store is away: " in await _status(running)
    waiting = await _submit(running, 2)  # accepted without the store, for a caller that the ingress knows

    await _execute(site, "create database {name} template {name}_backup")
    await _until_failing(running, ROLES, None)
    for request_id in (before, waiting, await _submit(running, 3)):
        assert (await running.settled("acme", request_id))["status"] == "CONFIRMED"
    made = await running.made()
    assert (made["made"], made["duplicates"]["surplus"]) == (3, 0)
    assert {role: process.pid for role, process in running.processes.items()} == started
    assert all(process.running for process in running.processes.values())


@only("distributed")
async def test_without_a_backup_it_works_again_after_a_restart(running: Deployment, site: Site) -> None:
    assert (await running.settled("acme", await _submit(running, 1)))["status"] == "CONFIRMED"
    await _execute(site, DROP)
    await _until_failing(running, ROLES, "store")
    await _execute(site, "create database {name} encoding 'UTF8' template template0")
    await _until_said(running, "! the tables are at nothing, this version needs ")
    await running.command("migrate")
    # It is empty, and has other keys.
    await _until_failing(running, ROLES, "keys_in_step_with_store")
    await _until_said(running, "! the database was recreated and not restored: ")
    assert (await running.client.get(f"{running.url('ingress')}/readyz")).status_code == 503
    await _until_failing(running, ["worker"], "store_in_step_with_topics")
    async with open_backend(settings_of(site)) as backend:
        await backend.tenancy.add_workspace("demo")
        _, running.token = await backend.tenancy.add_key("demo", scopes=ALL_SCOPES)
    await running.add_account("acme")
    for role in ROLES:  # one after the other: meanwhile earlier ones have the new keys, and later ones the old
        await asyncio.to_thread(running.processes[role].stop)
        await running.start()
    await _until_failing(running, ROLES, None)
    assert (await running.settled("acme", await _submit(running, 2)))["status"] == "CONFIRMED"


async def _submit(running: Deployment, number: int) -> str:
    answer = await running.submit("acme", booking(number))
    assert answer.status_code == 202, answer.text
    request_id: str = answer.json()["data"]["requestId"]
    return request_id


async def _execute(site: Site, statement: str) -> None:
    """As the owner of the server; a database that is copied must have no other users at that moment."""
    parts = urlsplit(site.settings["FORWARDER_DATABASE_URL"])
    name = parts.path.removeprefix("/")
    connection = await asyncpg.connect(urlunsplit(parts._replace(scheme="postgresql", path="/postgres")))
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                await connection.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1", name
                )
                try:
                    await connection.execute(statement.format(name=name))
                except asyncpg.ObjectInUseError:
                    continue
                return
    finally:
        await connection.close()


async def _until_failing(running: Deployment, roles: Collection[str], check: str | None) -> None:
    """Returns once each fails this check; none at all for None."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        for role in roles:
            while True:
                failed = (await running.client.get(f"{running.url(role)}/readyz")).json()["failed"]
                if not failed if check is None else check in failed:
                    break
                await asyncio.sleep(0.2)  # it can only be asked


async def _status(running: Deployment) -> str:
    return (await Typed(running, "status").done()).out


async def _until_said(running: Deployment, line: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while line not in await _status(running):
            await asyncio.sleep(0.2)  # it can only be asked

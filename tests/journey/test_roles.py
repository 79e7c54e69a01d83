"""Every stage as a database user of its own, a member of its stage's role: all of it works, and what the role lacks is refused."""

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from forwarder.store import tables as store_tables
from forwarder.store.lists.reader import LISTED, SUBMISSION
from forwarder.store.migrate import ROLES
from forwarder.tenancy.sql import database
from tests.support.backends import only
from tests.support.deployment.deployment import Deployment, Site, Typed, booking, deploy
from tests.support.network.receiver import receiver

STAGES = ("ingress", "worker", "query", "notifier", "operator")
CARD = {
    "cardNumber": "4111111111111111",
    "cardHolderName": "M",
    "expiryMonth": "12",
    "expiryYear": "2031",
    "cvv": "123",
}

FORBIDDEN: Mapping[str, tuple[str, ...]] = {
    "ingress": (
        "SELECT card FROM reservations",
        "SELECT * FROM reservations",
        "UPDATE reservations SET status = 'CONFIRMED'",
        "INSERT INTO duplicates VALUES ('a', 'b', 'c', now(), 'd')",
        "SELECT data FROM outbox",
        "SELECT content FROM grants",
        "SELECT secret FROM webhook_endpoints",
        "SELECT secret FROM webhook_secrets",
        "UPDATE api_keys SET scopes = 'operate'",
        "UPDATE deployment_secrets SET value = ''",
        "UPDATE secrets SET state = 'active'",
        "UPDATE integration_accounts SET base_url = 'https://attacker.example'",
        "SELECT credential FROM integration_accounts",
        "SELECT client_key FROM integration_accounts",
        "SELECT * FROM integration_accounts",
        "SELECT natural_key FROM reservations",
    ),
    "query": (
        "SELECT card FROM reservations",
        "SELECT credential FROM integration_accounts",
        "SELECT client_key FROM integration_accounts",
        "SELECT transaction_key FROM reservations",
        "UPDATE reservations SET status = 'CONFIRMED'",
        "DELETE FROM reservations",
        "INSERT INTO workspaces VALUES ('mine')",
        "UPDATE api_keys SET workspace_id = 'other'",
        "SELECT number FROM audit",
        "INSERT INTO audit_head VALUES (1, 1, '')",
    ),
    "notifier": (
        "SELECT card FROM reservations",
        "SELECT record FROM reservations",
        "SELECT request FROM reservations",
        "SELECT data FROM outbox",
        "SELECT content FROM grants",
        "SELECT credential FROM integration_accounts",
        "SELECT base_url FROM integration_accounts",
        "SELECT reservation_days FROM workspaces",
        "UPDATE workspaces SET id = 'other'",
        "UPDATE integration_accounts SET base_url = 'https://attacker.example'",
    ),
    "worker": (
        "SELECT token_hash FROM api_keys",
        "SELECT secret FROM webhook_endpoints",
        "SELECT secret FROM webhook_secrets",
        "SELECT body FROM webhook_deliveries",
        "UPDATE deployment_secrets SET value = ''",
        "UPDATE integration_accounts SET base_url = 'https://attacker.example'",
        "INSERT INTO secrets (id) VALUES ('x')",
    ),
    "operator": ("UPDATE alembic_version SET version_num = '0000'", "DROP TABLE reservations"),
}
FORBIDDEN_TO_ALL = (
    "UPDATE audit SET action = 'nothing'",
    "DELETE FROM audit",
    "TRUNCATE reservations",
    "CREATE TABLE mine (id int)",
    "ALTER TABLE audit DISABLE TRIGGER ALL",
)


@pytest.fixture
async def users(site: Site) -> AsyncIterator[Mapping[str, str]]:
    """The URL of a user for each stage, made as the documentation says."""
    owner = site.settings["FORWARDER_DATABASE_URL"]
    made = await Deployment(site).command("migrate", "--roles")
    assert len(made["roles"]) == len(STAGES)
    assert await Deployment(site).command("migrate", "--roles") == made, "again it is the same"
    stages = dict(zip(ROLES, made["roles"], strict=True))
    suffix = secrets.token_hex(4)
    async with connected(owner) as connection:
        for stage, role in stages.items():
            await connection.execute(f"CREATE ROLE {stage}_{suffix} LOGIN PASSWORD 'of-{stage}' IN ROLE \"{role}\"")
    yield {stage: _as_user(owner, f"{stage}_{suffix}", f"of-{stage}") for stage in stages}
    async with connected(owner) as connection:
        for role in (*(f"{stage}_{suffix}" for stage in stages), *stages.values()):
            await connection.execute(f'DROP OWNED BY "{role}"')
            await connection.execute(f'DROP ROLE "{role}"')


def _as_user(url: str, user: str, password: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(
        parts._replace(scheme="postgresql", netloc=f"{user}:{password}@{parts.netloc.rpartition('@')[2]}")
    )


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(urlunsplit(urlsplit(url)._replace(scheme="postgresql")))
    try:
        yield connection
    finally:
        await connection.close()


@only("distributed")
async def test_each_stage_does_its_work_as_its_role_and_nothing_else(site: Site, users: Mapping[str, str]) -> None:
    own = {stage: {"FORWARDER_DATABASE_URL": url} for stage, url in users.items()}
    own["notifier"] = own["notifier"] | {"FORWARDER_WEBHOOK_PRIVATE_ADDRESSES": "true"}
    async with deploy(site, own=own) as running:
        running.add("notifier")
        await running.start()
        await running.add_account("generic", duplicate_window_seconds=300)
        await _journey(running)
        await _operated(running, users["operator"])
        await _cannot_scan(running, users["query"])
        for stage, url in users.items():
            await _refused(stage, url)
        await running.stop()
        for role in running.roles:
            assert "permission denied" not in _logs(running, role), role


async def _journey(running: Deployment) -> None:
    """What callers do, so that each stage passes all that it does in the database."""
    async with receiver() as customer:
        hooks = f"{running.url('notifier')}/api/v1/vrs/webhooks"
        headers = running.headers("generic")
        body = {"url": customer.url, "integrationAccountIds": ["generic"], "headers": {"X-Key": "a"}}
        added = await running.client.post(hooks, json=body, headers=headers)
        assert added.status_code == 201, added.text
        key = {"Idempotency-Key": "one"}
        sent = await asyncio.gather(
            running.submit("generic", booking(1, cardDetails=CARD), **key),
            *(running.submit("generic", booking(number)) for number in (2, 3)),
        )
        assert [each.status_code for each in sent] == [202] * 3, [each.text for each in sent]
        ids = [each.json()["data"]["requestId"] for each in sent]
        for each in ids:
            assert (await running.settled("generic", each))["status"] == "CONFIRMED"
        again = await running.submit("generic", booking(1, cardDetails=CARD), **key)
        assert again.json()["data"]["requestId"] == ids[0]
        repeated = await running.submit("generic", booking(2))
        told = repeated.headers.get("duplicate-of") or repeated.json()["data"]["requestId"]
        assert told == ids[1]
        cancelled = await running.cancel("generic", ids[2], Prefer="wait=30")
        assert cancelled.status_code == 200, cancelled.text
        bulk = [{"operation": "booking-engine", "reservation": booking(number)} for number in range(10, 20)]
        answer = await running.client.post(
            running.url("ingress") + "/api/v1/vrs/reservations/bulk", content=json.dumps(bulk), headers=headers
        )
        assert answer.json()["success"], answer.text
        await running.all_settled("generic", 13)
        await customer.has_answered(*(f"{each}.1" for each in ids))
        listed = await running.client.get(f"{hooks}/{added.json()['data']['id']}/deliveries", headers=headers)
        assert listed.status_code == 200
        for _ in range(3):
            rotated = await running.client.post(f"{hooks}/{added.json()['data']['id']}/rotate", headers=headers)
            assert rotated.status_code == 200, rotated.text
        removed = await running.client.delete(f"{hooks}/{added.json()['data']['id']}", headers=headers)
        assert removed.status_code == 200


async def _operated(running: Deployment, url: str) -> None:
    """What operators type, as their role."""
    owner = running.site
    settings = {**owner.settings, "FORWARDER_DATABASE_URL": url}
    running.site = Site(owner.backend, owner.directory, settings, owner.reaper)
    made = await running.command("key", "add", "--workspace", "demo", "--scope", "read")
    await running.command("key", "change", made["id"], "--expires", "90d")
    await running.command("key", "revoke", made["id"])
    await running.command("account", "pause", "generic")
    await running.command("account", "resume", "generic")
    assert await running.listed("submissions", "list")
    await running.command("retention", "set", "demo", "--deliveries", "0")
    assert (await running.command("guests", "erase", "--email", "guest1@example.com", "--yes"))["erased"] == 1
    assert (await running.command("audit", "list"))[0]["action"] == "guests.erase"
    scanned = await running.command("scan", "--pan")
    assert (scanned["complete"], scanned["hits"]) == (True, 0), scanned["found"]
    refused = await Typed(running, "migrate", "--roles").done()
    assert (refused.code, "CREATEROLE" in refused.err) == (1, True), refused.err
    running.site = owner


async def _cannot_scan(running: Deployment, url: str) -> None:
    """Who may not read everything is told so, rather than that nothing was found."""
    owner = running.site
    running.site = Site(owner.backend, owner.directory, {**owner.settings, "FORWARDER_DATABASE_URL": url}, owner.reaper)
    refused = await Typed(running, "scan", "--pan").done()
    assert (refused.code, "may not read the table" in refused.err) == (1, True), refused.err
    running.site = owner


async def _refused(stage: str, url: str) -> None:
    async with connected(url) as connection:
        for statement in (*FORBIDDEN[stage], *FORBIDDEN_TO_ALL):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)


def _logs(running: Deployment, role: str) -> str:
    return "".join(each.read_text() for each in Path(running.site.directory).glob(f"{role}*.log"))


def test_who_answers_callers_may_read_what_the_reader_reads() -> None:
    """A column that is read and not granted is found here, before real servers find it."""
    read = {column.name for column in SUBMISSION + LISTED} - {"size"}
    for stage in ("ingress", "query"):
        (granted,) = ROLES[stage]["reservations"]
        assert read <= set(re.findall(r"\w+", granted))


def test_every_table_is_somebodys() -> None:
    """A new table is granted, or its stage finds out in production."""
    tables = {*store_tables.metadata.tables, *database.metadata.tables, "alembic_version"}
    assert {table for granted in ROLES.values() for table in granted} == tables
    assert set(ROLES["operator"]) == tables

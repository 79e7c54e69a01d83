"""The audit trail on every backend: nothing is changed without an entry, and entries cannot be changed."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from sqlalchemy import event, insert, select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.notifier.webhooks import Webhooks
from forwarder.operate.submissions.settle import NotInDoubt, Repair
from forwarder.oversight.audit import Actor, Audit, acting_as
from forwarder.store.audit import AuditEntry, AuditFilter, AuditResult
from forwarder.store.delivery_queue import Deliveries
from forwarder.store.deployment import AuditTrail
from forwarder.store.submissions.repairs import Repairs
from forwarder.store.tables import audit as table
from forwarder.store.tables import audit_head
from forwarder.tenancy.port import Account, NotKnown, RateLimit, Scope, TenancyUnavailable, UnknownAccount
from forwarder.tenancy.sql.admin import TenancyAdmin
from forwarder.tenancy.sql.database import api_keys
from forwarder.tenancy.sql.endpoints import Endpoints
from tests.support.memory.clock import ManualClock
from tests.support.memory.webhooks import public_targets
from tests.support.sealing import keyring_of

ANNA = Actor("operator", "anna", "host-1")
EVERY = AuditFilter()


@pytest.fixture
def trail(engine: AsyncEngine) -> AuditTrail:
    return AuditTrail(engine)


@pytest.fixture
def audit(trail: AuditTrail) -> Audit:
    return Audit(trail, ManualClock())


@pytest.fixture
def tenancy(engine: AsyncEngine, audit: Audit) -> TenancyAdmin:
    return TenancyAdmin(engine, audit.operation)


async def entries(trail: AuditTrail) -> Sequence[AuditEntry]:
    return [*reversed(await trail.entries(EVERY, before=None, limit=1000))]


async def test_each_change_of_a_tenant_says_who_did_it_from_where_and_to_what(
    tenancy: TenancyAdmin, trail: AuditTrail
) -> None:
    with acting_as(ANNA):
        await tenancy.add_workspace("ws-1")
        key, token = await tenancy.add_key("ws-1")
        account = Account("acc-1", "ws-1", "generic", "https://pms.example.com", "c2VhbGVk")
        await tenancy.put_account(account)
        await tenancy.change_account(account, replace(account, credential="b3RoZXI", concurrency=2))
        await tenancy.pause("acc-1", paused=True)
    with acting_as(Actor("key", key.id, "192.0.2.7")):
        await tenancy.revoke_key(key.id)
        with pytest.raises(NotKnown):
            await tenancy.revoke_key("maria@example.com")
    found = await entries(trail)
    assert [(each.actor, each.origin, each.action, each.workspace_id, each.target, each.result) for each in found] == [
        ("anna", "host-1", "workspace.add", "ws-1", None, "done"),
        ("anna", "host-1", "key.add", "ws-1", key.id, "done"),
        ("anna", "host-1", "account.add", "ws-1", "acc-1", "done"),
        ("anna", "host-1", "account.change", "ws-1", "acc-1", "done"),
        ("anna", "host-1", "account.pause", "ws-1", "acc-1", "done"),
        (key.id, "192.0.2.7", "key.revoke", "ws-1", key.id, "done"),
        (key.id, "192.0.2.7", "key.revoke", None, None, "refused"),
    ]
    changed = '{"credential":"changed","concurrency":{"from":64,"to":2}}'
    assert found[3].details == f'{{"kind":"generic","changed":{changed}}}'
    assert found[-1].reason == "NotKnown"
    kept = repr(found)
    assert not any(secret in kept for secret in (token, "c2VhbGVk", "b3RoZXI", "maria"))


async def test_a_change_of_terms_says_what_they_were(
    engine: AsyncEngine, tenancy: TenancyAdmin, audit: Audit, trail: AuditTrail
) -> None:
    await tenancy.add_workspace("ws-1", RateLimit(50, 60))
    key, _ = await tenancy.add_key("ws-1", name="Ours", scopes=frozenset[Scope]({"read"}))
    await tenancy.limit_workspace("ws-1", RateLimit(100, 60))
    changed = await tenancy.change_key(key.id, name="Theirs", scopes=frozenset[Scope]({"read", "submit"}))
    await tenancy.set_policy("ws-1", reservation_days=30)
    await tenancy.set_policy("ws-1", reservation_days=None)
    hooks = Webhooks(
        Endpoints(engine), Deliveries(engine), keyring_of("secret"), public_targets(), ManualClock(), audit
    )
    hook, _ = await hooks.add("ws-1", "https://a.example/secret", types=["reservation.failed.v1"])
    await hooks.change(hook.id, workspace_id="ws-1", url="https://b.example/hush", headers={"X-Key": "hidden"})
    with pytest.raises(UnknownAccount):
        await hooks.change(hook.id, workspace_id="ws-1", account_ids=["Maria Gonzalez"])
    assert (changed.key.name, key.id) == ("Theirs", changed.key.id)
    assert [json.loads(each.details) for each in (await entries(trail))[2:]] == [
        {"rate": "100/60s", "was": {"rate": "50/60s"}},
        {"name": "Theirs", "scopes": "submit read", "was": {"name": "Ours", "scopes": "read"}},
        {"reservation_days": 30, "was": {"reservation_days": None}},
        {"reservation_days": None, "was": {"reservation_days": 30}},
        {"url": "https://a.example:443", "types": ["reservation.failed.v1"]},
        {
            "changed": ["url", "headers"],
            "url": "https://b.example:443",
            "headers": ["X-Key"],
            "was": {"url": "https://a.example:443", "headers": None},
        },
        {"changed": ["account_ids"]},
    ]


async def test_what_cannot_be_audited_is_not_done(
    engine: AsyncEngine, tenancy: TenancyAdmin, trail: AuditTrail
) -> None:
    await tenancy.add_workspace("ws-1")
    key, _ = await tenancy.add_key("ws-1")

    def fail(_c: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("INSERT INTO audit "):
            raise OSError("no room")

    event.listen(engine.sync_engine, "before_cursor_execute", fail)
    with pytest.raises(TenancyUnavailable):
        await tenancy.revoke_key(key.id)
    event.remove(engine.sync_engine, "before_cursor_execute", fail)
    async with engine.connect() as connection:
        assert (await connection.execute(select(api_keys.c.revoked_at))).scalar_one() is None
    assert [each.action for each in await entries(trail)] == ["workspace.add", "key.add"]


async def test_what_changes_nothing_is_not_audited_as_done(
    engine: AsyncEngine, audit: Audit, trail: AuditTrail
) -> None:
    with pytest.raises(NotInDoubt):
        await Repair(Repairs(engine), ManualClock(), audit).reject("rsv_unknown", "Maria Gonzalez says no")
    (entry,) = await entries(trail)
    assert (entry.action, entry.target, entry.result) == ("submission.settle", "rsv_unknown", "refused")
    assert "Maria" not in repr(entry)


async def test_what_goes_to_the_log_is_audited_before(audit: Audit, trail: AuditTrail) -> None:
    async with audit.request("submission.cancel", target="rsv_1"):
        assert [each.result for each in await entries(trail)] == ["requested"]
    with pytest.raises(ZeroDivisionError):
        async with audit.request("submission.cancel", target="rsv_2"):
            raise ZeroDivisionError
    assert [(each.target, each.result) for each in await entries(trail)] == [
        ("rsv_1", "requested"),
        ("rsv_2", "requested"),
        ("rsv_2", "refused"),
    ]


async def test_concurrent_appends_are_numbered_without_a_gap(tenancy: TenancyAdmin, trail: AuditTrail) -> None:
    await asyncio.gather(*(tenancy.add_workspace(f"ws-{number}") for number in range(20)))
    assert [each.number for each in await entries(trail)] == [*range(1, 21)]
    assert await trail.last() == 20


async def test_entries_are_listed_newest_first_by_pages_and_filters(trail: AuditTrail) -> None:
    clock = ManualClock()
    for number in range(6):
        actor, action = ("anna", "key.add") if number % 2 else ("ben", "keyring.open")
        await trail.append(
            AuditEntry(clock.now(), "operator", actor, "h", action, f"ws-{number % 3}", None, AuditResult.DONE)
        )
        await clock.advance(60)
    newest = await trail.entries(EVERY, before=None, limit=4)
    assert [each.number for each in newest] == [6, 5, 4, 3]
    assert [each.number for each in await trail.entries(EVERY, before=3, limit=4)] == [2, 1]
    wanted = {
        AuditFilter(actor="ben"): [5, 3, 1],
        AuditFilter(action="key"): [6, 4, 2],
        AuditFilter(action="keyring.open"): [5, 3, 1],
        AuditFilter(workspace_id="ws-1"): [5, 2],
        AuditFilter(since=newest[1].at): [6, 5],
    }
    for filters, numbers in wanted.items():
        assert [each.number for each in await trail.entries(filters, before=None, limit=9)] == numbers


async def test_a_process_that_still_chains_entries_can_go_on(engine: AsyncEngine, trail: AuditTrail) -> None:
    """As the version before does, during a rolling upgrade: it reads the head's hash, and writes hashes."""
    await _five(trail)
    async with engine.begin() as connection:
        head = (await connection.execute(update(audit_head).values(number=6).returning(audit_head.c.hash))).scalar_one()
        old = select(table).where(table.c.number == 5)
        row = {**(await connection.execute(old)).mappings().one(), "number": 6, "previous_hash": head, "hash": "f" * 64}
        await connection.execute(insert(table).values(row))
        await connection.execute(update(audit_head).values(hash="f" * 64))
    await _five(trail)
    assert [each.number for each in await entries(trail)] == [*range(1, 12)]


@pytest.mark.parametrize(
    "statement", ["UPDATE audit SET actor = 'nobody'", "DELETE FROM audit WHERE number = 1", "TRUNCATE audit"]
)
async def test_the_database_refuses_to_change_or_delete_entries(
    engine: AsyncEngine, trail: AuditTrail, statement: str
) -> None:
    await _five(trail)
    if engine.dialect.name == "sqlite" and statement.startswith("TRUNCATE"):
        pytest.skip("SQLite has no TRUNCATE")
    with pytest.raises(DBAPIError, match="append-only"):
        async with engine.begin() as connection:
            await connection.execute(text(statement))
    assert len(await entries(trail)) == 5


async def _five(trail: AuditTrail) -> None:
    for number in range(5):
        await trail.append(
            AuditEntry(ManualClock().now(), "operator", "anna", "h", f"key.{number}", None, None, AuditResult.DONE)
        )

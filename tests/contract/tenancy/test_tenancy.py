"""What tenancy does, on every backend: workspaces, keys, accounts, and what all processes of a deployment share."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.reservation.problems import Problem
from forwarder.store.engine import open_engine
from forwarder.tenancy.access import Access, Caller
from forwarder.tenancy.port import (
    ALL_SCOPES,
    Account,
    AlreadyExists,
    ChangedMeanwhile,
    InUse,
    NotKnown,
    RateLimit,
    TenancyUnavailable,
    read_networks,
)
from forwarder.tenancy.sql.admin import TenancyAdmin
from forwarder.tenancy.sql.database import shared_key
from forwarder.tenancy.sql.directory import CacheTimes, SqlDirectory, SqlKeyUses
from forwarder.tenancy.sql.secrets import SqlSecrets
from tests.support.memory.clock import ManualClock
from tests.support.store.stored import NOBODY_LISTENS

ACCOUNT = Account(
    "acc-1", "ws-1", "generic", "https://pms.example.com", "c2VhbGVk", 8, 2.5, 3600, skipped_checks=("past-arrival",)
)
PLAIN = Account("acc-2", "ws-1", "booking-sync", "https://pms.example.com", "c2VhbGVk")


@pytest.fixture
async def registry(engine: AsyncEngine) -> TenancyAdmin:
    """A registry with the workspace "ws-1"."""
    opened = TenancyAdmin(engine)
    await opened.add_workspace("ws-1")
    return opened


async def test_a_workspace_is_removed_with_its_keys_unless_something_belongs_to_it(registry: TenancyAdmin) -> None:
    await registry.add_workspace("ws-2")
    await registry.put_account(ACCOUNT)
    key, _ = await registry.add_key("ws-2")
    (first, second) = await registry.workspaces()
    assert (first.id, first.accounts, first.keys, second.id, second.accounts, second.keys) == (
        "ws-1",
        1,
        0,
        "ws-2",
        0,
        1,
    )
    with pytest.raises(InUse, match="1 accounts"):
        await registry.remove_workspace("ws-1")
    await registry.remove_workspace("ws-2")
    assert [each.id for each in await registry.workspaces()] == ["ws-1"]
    assert await registry.workspaces("ws-2") == []
    assert key.id not in [each.key.id for each in await registry.keys()]
    with pytest.raises(NotKnown):
        await registry.remove_workspace("ws-2")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def directory(engine: AsyncEngine, clock: ManualClock) -> SqlDirectory:
    return SqlDirectory(engine, clock, CacheTimes(known=5, absent=1), for_pushes=True)


@pytest.fixture
async def away() -> AsyncIterator[AsyncEngine]:
    """An engine on a database that cannot be reached."""
    opened = open_engine(NOBODY_LISTENS)
    yield opened
    await opened.dispose()


# --- the registry ---------------------------------------------------------------------------------------------------------


async def test_a_workspace_is_added_once(registry: TenancyAdmin) -> None:
    with pytest.raises(AlreadyExists, match="ws-1"):
        await registry.add_workspace("ws-1")


async def test_callers_keys_have_the_limit_of_their_workspace(
    registry: TenancyAdmin, directory: SqlDirectory, clock: ManualClock
) -> None:
    await registry.add_workspace("ws-2", RateLimit(5, 60))
    _, token = await registry.add_key("ws-2", limit=RateLimit(2, 1))
    key = await directory.key(token)
    assert key is not None
    assert (key.limit, key.shared_limit) == (RateLimit(2, 1), RateLimit(5, 60))
    await registry.limit_workspace("ws-2", None)
    await clock.advance(5)
    assert await directory.key(token) == replace(key, shared_limit=None)
    assert [each.limit for each in await registry.workspaces()] == [None, None]
    with pytest.raises(NotKnown, match="ws-3"):
        await registry.limit_workspace("ws-3", None)


async def test_a_key_is_known_by_its_token_until_it_is_revoked(
    registry: TenancyAdmin, directory: SqlDirectory, clock: ManualClock
) -> None:
    key, token = await registry.add_key("ws-1")
    assert token.startswith("fwd_live_")
    assert key.id.startswith("key_")
    assert await directory.key(token) == key
    assert await directory.key(token + "x") is None
    await registry.revoke_key(key.id)
    await clock.advance(5)
    assert await directory.key(token) is None
    await registry.revoke_key(key.id)


async def test_a_key_has_a_limit_of_its_own_until_that_is_taken_back(
    registry: TenancyAdmin, directory: SqlDirectory, clock: ManualClock
) -> None:
    limited, token = await registry.add_key("ws-1", limit=RateLimit(100, 60))
    assert await directory.key(token) == limited
    assert limited.limit == RateLimit(100, 60)
    for changed in (RateLimit(5, 1), None):
        await registry.change_key(limited.id, limit=changed)
        await clock.advance(5)
        assert await directory.key(token) == replace(limited, limit=changed)


async def test_a_key_has_its_terms_until_they_are_changed(
    registry: TenancyAdmin, directory: SqlDirectory, clock: ManualClock
) -> None:
    until = datetime(2061, 1, 1, tzinfo=UTC)
    networks = read_networks(["203.0.113.0/24", "2001:db8::1"])
    key, token = await registry.add_key("ws-1", scopes=frozenset({"read"}), expires_at=until, networks=networks)
    assert (key.scopes, key.expires_at, key.networks) == (frozenset({"read"}), until, networks)
    assert await directory.key(token) == key
    changed = await registry.change_key(key.id, scopes=ALL_SCOPES, expires_at=None)
    assert changed.key == replace(key, scopes=ALL_SCOPES, expires_at=None)
    await clock.advance(5)
    assert await directory.key(token) == changed.key


async def test_when_a_key_was_used_is_kept_to_the_minute(
    registry: TenancyAdmin, engine: AsyncEngine, clock: ManualClock
) -> None:
    (used, _), (unused, _) = await registry.add_key("ws-1"), await registry.add_key("ws-1")
    store, first = SqlKeyUses(engine), clock.now()
    for seconds, kept in ((0, first), (59, first), (60, first + timedelta(seconds=60))):
        await store.used({used.id}, first + timedelta(seconds=seconds))
        known = {one.key.id: one.used_at for one in await registry.keys()}
        assert known == {used.id: kept, unused.id: None}


async def test_tokens_that_are_tried_never_reach_the_database(
    registry: TenancyAdmin, directory: SqlDirectory, engine: AsyncEngine, clock: ManualClock
) -> None:
    await registry.put_account(ACCOUNT)
    _, token = await registry.add_key("ws-1")
    right = {b"authorization": f"Bearer {token}".encode(), b"workspaceid": b"ws-1", b"integrationaccountid": b"acc-1"}
    access = Access(directory, clock)
    await access.caller(right, "192.0.2.1")
    statements: list[str] = []

    def carried_out(*said: Any) -> None:
        statements.append(said[2])

    event.listen(engine.sync_engine, "before_cursor_execute", carried_out)
    for number in range(200):
        tried = f"fwd_live_{number:055d}" if number % 2 else f"{token[:12]}{number:03d}{token[15:]}"
        assert isinstance(
            await access.caller(right | {b"authorization": f"Bearer {tried}".encode()}, "192.0.2.1"), Problem
        )
    event.remove(engine.sync_engine, "before_cursor_execute", carried_out)
    assert statements == []
    other, its_token = await registry.add_key("ws-1")
    let_in = await access.caller(right | {b"authorization": f"Bearer {its_token}".encode()}, "192.0.2.1")
    assert isinstance(let_in, Caller), "though its address is throttled and its key was never seen here"
    assert let_in.key_id == other.id


async def test_keys_are_listed_as_they_were_made_revoked_ones_too(registry: TenancyAdmin) -> None:
    await registry.add_workspace("ws-2")
    before = datetime.now(UTC) - timedelta(seconds=2)  # SQLite counts whole seconds
    plain, _ = await registry.add_key("ws-1")
    test, _ = await registry.add_key("ws-2", test=True, limit=RateLimit(1, 2))
    await registry.revoke_key(plain.id)
    known = {one.key.id: one for one in await registry.keys()}
    assert {one.key.id: one.key for one in known.values()} == {plain.id: plain, test.id: test}
    assert [one.key for one in await registry.keys("ws-2")] == [test]
    assert known[test.id].revoked_at is None
    for moment in (known[plain.id].created_at, known[plain.id].revoked_at):
        assert moment is not None
        assert before <= moment <= datetime.now(UTC) + timedelta(seconds=2)


async def test_a_token_is_kept_nowhere(registry: TenancyAdmin, directory: SqlDirectory, engine: AsyncEngine) -> None:
    _, token = await registry.add_key("ws-1")
    await directory.key(token)
    async with engine.connect() as connection:
        kept = (await connection.execute(text("SELECT * FROM api_keys"))).all()
    for part in (token, token.removeprefix("fwd_live_")):
        assert part not in f"{kept}{directory._keys._known}"  # noqa: SLF001


async def test_every_token_is_another(registry: TenancyAdmin) -> None:
    made = [await registry.add_key("ws-1") for _ in range(3)]
    assert len({token for _, token in made}) == len({key.id for key, _ in made}) == 3


async def test_what_is_not_known_is_named(registry: TenancyAdmin) -> None:
    with pytest.raises(NotKnown, match="ws-9"):
        await registry.add_key("ws-9")
    with pytest.raises(NotKnown, match="key_9"):
        await registry.revoke_key("key_9")
    with pytest.raises(NotKnown, match="key_9"):
        await registry.change_key("key_9", limit=None)
    with pytest.raises(NotKnown, match="ws-9"):
        await registry.put_account(replace(ACCOUNT, workspace_id="ws-9"))
    with pytest.raises(NotKnown, match="acc-9"):
        await registry.pause("acc-9", paused=True)


async def test_accounts_come_out_as_they_went_in(registry: TenancyAdmin, directory: SqlDirectory) -> None:
    await registry.add_workspace("ws-2")
    for account in (PLAIN, ACCOUNT, replace(PLAIN, id="acc-3", workspace_id="ws-2")):
        await registry.put_account(account)
    assert await registry.accounts("ws-1") == [ACCOUNT, PLAIN]
    assert [account.id for account in await registry.accounts()] == ["acc-1", "acc-2", "acc-3"]
    assert await registry.accounts("ws-9") == []
    assert await directory.account("acc-1") == ACCOUNT
    assert await directory.account("acc-9") is None
    assert await directory.account("acc\0-1") is None


async def test_callers_are_served_without_what_opens_their_pms(
    registry: TenancyAdmin, engine: AsyncEngine, clock: ManualClock
) -> None:
    whole = replace(ACCOUNT, authorities="PEM", client_certificate="PEM", client_key="c2VhbGVkIHRvbw")
    await registry.put_account(whole)
    assert await SqlDirectory(engine, clock).account("acc-1") == replace(ACCOUNT, credential="")
    assert await SqlDirectory(engine, clock, for_pushes=True).account("acc-1") == whole


async def test_an_account_is_written_over_only_when_asked_to_and_only_in_its_workspace(
    registry: TenancyAdmin,
) -> None:
    await registry.add_workspace("ws-2")
    await registry.put_account(ACCOUNT)
    changed = replace(ACCOUNT, base_url="https://new.example.com", rate_per_second=None)
    with pytest.raises(AlreadyExists, match="acc-1"):
        await registry.put_account(changed)
    await registry.change_account(ACCOUNT, changed)
    with pytest.raises(NotKnown, match="acc-1"):
        await registry.change_account(ACCOUNT, replace(ACCOUNT, workspace_id="ws-2"))
    assert await registry.accounts() == [changed]


async def test_two_operators_who_change_an_account_at_once_do_not_undo_each_other(registry: TenancyAdmin) -> None:
    await registry.put_account(ACCOUNT)
    await registry.pause("acc-1", paused=True)
    await registry.change_account(ACCOUNT, replace(ACCOUNT, concurrency=3))
    (present,) = await registry.accounts()
    assert present == replace(ACCOUNT, paused=True, concurrency=3)
    await registry.change_account(present, replace(present, credential="b3RoZXI"))
    for other in (
        replace(present, credential="bW9yZQ"),
        replace(present, concurrency=5, base_url="https://new.example.com"),
    ):
        with pytest.raises(ChangedMeanwhile, match="acc-1"):
            await registry.change_account(present, other)
    assert await registry.accounts() == [replace(present, credential="b3RoZXI")]


async def test_a_pause_is_seen_within_the_age_of_an_answer(
    registry: TenancyAdmin, directory: SqlDirectory, clock: ManualClock
) -> None:
    await registry.put_account(ACCOUNT)
    assert await directory.account("acc-1") == ACCOUNT
    await registry.pause("acc-1", paused=True)
    assert await directory.account("acc-1") == ACCOUNT
    await clock.advance(5)
    assert await directory.account("acc-1") == replace(ACCOUNT, paused=True)
    await registry.pause("acc-1", paused=False)
    await clock.advance(5)
    assert await directory.account("acc-1") == ACCOUNT


async def test_a_new_key_opens_the_way_to_its_workspaces_accounts(
    registry: TenancyAdmin, directory: SqlDirectory, clock: ManualClock
) -> None:
    await registry.put_account(ACCOUNT)
    key, token = await registry.add_key("ws-1")
    headers = {b"authorization": f"Bearer {token}".encode(), b"workspaceid": b"ws-1", b"integrationaccountid": b"acc-1"}
    caller = await Access(directory, clock).caller(headers, "")
    assert isinstance(caller, Caller)
    assert caller == Caller("ws-1", ACCOUNT, key.id)


# --- what a deployment shares ---------------------------------------------------------------------------------------------


async def test_the_key_of_request_ids_is_the_same_for_all(engine: AsyncEngine, migrated_url: str) -> None:
    keys = await asyncio.gather(*(shared_key(engine, "request-id-key") for _ in range(8)))
    other = open_engine(migrated_url)
    try:
        assert {*keys, await shared_key(other, "request-id-key")} == {keys[0]}
    finally:
        await other.dispose()
    assert len(keys[0]) == 32


# --- outages --------------------------------------------------------------------------------------------------------------


async def test_a_database_that_is_away_is_an_outage(away: AsyncEngine, clock: ManualClock) -> None:
    with pytest.raises(TenancyUnavailable):
        await SqlDirectory(away, clock).key("fwd_live_x")
    with pytest.raises(TenancyUnavailable):
        await TenancyAdmin(away).accounts()
    with pytest.raises(TenancyUnavailable):
        await SqlSecrets(away).known()


async def test_known_answers_outlast_their_database(
    registry: TenancyAdmin, directory: SqlDirectory, clock: ManualClock, away: AsyncEngine
) -> None:
    await registry.put_account(ACCOUNT)
    key, token = await registry.add_key("ws-1")
    await directory.key(token)
    await directory.account("acc-1")
    directory._engine = away  # noqa: SLF001
    await clock.advance(3600)
    assert await directory.key(token) == key
    assert await directory.account("acc-1") == ACCOUNT
    with pytest.raises(TenancyUnavailable):
        await directory.account("acc-2")


async def test_a_mistake_of_ours_is_no_outage(engine: AsyncEngine, registry: TenancyAdmin) -> None:
    with pytest.raises(SQLAlchemyError):
        await registry.put_account(replace(ACCOUNT, kind=None))  # type: ignore[arg-type]


async def test_another_workspaces_account_is_as_unknown_as_one_that_does_not_exist(
    registry: TenancyAdmin, engine: AsyncEngine
) -> None:
    """Also to those who measure how long the refusal takes, or ask while the database is away."""
    await registry.add_workspace("ws-2")
    await registry.put_account(Account("theirs", "ws-2", "generic", "https://pms.example.com", ""))
    _, token = await registry.add_key("ws-1")
    clock = ManualClock()
    directory = SqlDirectory(engine, clock)
    access = Access(directory, clock)
    assert await directory.account("theirs", "ws-2") is not None

    async def code(account_id: str) -> str:
        named = {"authorization": f"Bearer {token}", "workspaceid": "ws-1", "integrationaccountid": account_id}
        try:
            refused = await access.caller({name.encode(): each.encode() for name, each in named.items()}, "192.0.2.1")
        except TenancyUnavailable:
            return "away"
        assert isinstance(refused, Problem)
        return refused.code

    assert [await code(each) for each in ("theirs", "nobodys")] == ["account_not_found"] * 2
    await clock.advance(2)
    async with engine.begin() as connection:
        await connection.execute(text("ALTER TABLE integration_accounts RENAME TO moved"))
    assert [await code(each) for each in ("theirs", "nobodys")] == ["away"] * 2

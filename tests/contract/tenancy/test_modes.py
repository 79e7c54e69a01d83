"""Keys and accounts of test mode, on every backend."""

from dataclasses import replace

from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.tenancy.port import Account
from forwarder.tenancy.sql.admin import TenancyAdmin
from forwarder.tenancy.sql.directory import CacheTimes, SqlDirectory
from tests.support.memory.clock import ManualClock

ACCOUNT = Account("acc-1", "ws-1", "generic", "https://pms.example.com", "c2VhbGVk")


def shadow(account: Account) -> Account:
    return Account(f"test~{account.id}", account.workspace_id, account.kind, "http://sim.test", "")


async def test_a_test_key_is_told_by_its_token_until_it_is_revoked(engine: AsyncEngine) -> None:
    registry, clock = TenancyAdmin(engine), ManualClock()
    directory = SqlDirectory(engine, clock, CacheTimes(known=5))
    await registry.add_workspace("ws-1")
    key, token = await registry.add_key("ws-1", test=True)
    assert token.startswith("fwd_test_")
    assert key.test
    assert await directory.key(token) == key
    forged = token.replace("fwd_test_", "fwd_live_")
    assert await directory.key(forged) is None
    assert await directory.key(token) == key
    await registry.revoke_key(key.id)
    await clock.advance(5)
    assert await directory.key(token) is None


async def test_a_live_key_cannot_be_had_as_a_test_key(engine: AsyncEngine) -> None:
    registry, directory = TenancyAdmin(engine), SqlDirectory(engine, ManualClock())
    await registry.add_workspace("ws-1")
    key, token = await registry.add_key("ws-1")
    assert not key.test
    assert await directory.key(token.replace("fwd_live_", "fwd_test_")) is None
    assert await directory.key(token) == key


async def test_a_shadow_is_there_where_its_account_is(engine: AsyncEngine) -> None:
    registry, clock = TenancyAdmin(engine), ManualClock()
    directory = SqlDirectory(engine, clock, CacheTimes(known=5, absent=1), shadow=shadow, for_pushes=True)
    await registry.add_workspace("ws-1")
    assert await directory.account("test~acc-1") is None
    await registry.put_account(ACCOUNT)
    await clock.advance(5)
    assert await directory.account("test~acc-1") == shadow(ACCOUNT)
    assert await directory.account("acc-1") == ACCOUNT
    assert await registry.accounts() == [ACCOUNT]


async def test_no_row_takes_the_place_of_a_shadow(engine: AsyncEngine) -> None:
    registry, directory = TenancyAdmin(engine), SqlDirectory(engine, ManualClock(), shadow=shadow)
    await registry.add_workspace("ws-1")
    await registry.put_account(replace(ACCOUNT, id="test~acc-1"))
    assert await directory.account("test~acc-1") is None


async def test_a_directory_that_makes_no_shadows_has_none(engine: AsyncEngine) -> None:
    registry, directory = TenancyAdmin(engine), SqlDirectory(engine, ManualClock())
    await registry.add_workspace("ws-1")
    await registry.put_account(ACCOUNT)
    assert await directory.account("test~acc-1") is None

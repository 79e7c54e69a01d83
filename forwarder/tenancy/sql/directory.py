"""Look-ups of keys and accounts in the database, cached for a few seconds."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlalchemy import Row, Select, bindparam, select
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.process.clock import Clock
from forwarder.reservation.mode import cast_by, is_test
from forwarder.tenancy.access import Caller, caller_valid_until, is_test_token, token_hash
from forwarder.tenancy.cache import CacheTimes, LookupCache
from forwarder.tenancy.port import Account, ApiKey, RateLimit
from forwarder.tenancy.sql.database import transaction
from forwarder.tenancy.sql.tables import api_keys, integration_accounts

ACCOUNT = tuple(integration_accounts.c[name] for name in Account.__dataclass_fields__)
"""What an `Account` is made of, in its order."""

_KEY = select(api_keys.c.id, api_keys.c.workspace_id, api_keys.c.limit_requests, api_keys.c.limit_seconds).where(
    api_keys.c.token_hash == bindparam("wanted"), api_keys.c.revoked_at.is_(None)
)
_ACCOUNT = select(*ACCOUNT).where(integration_accounts.c.id == bindparam("wanted"))


def no_shadow(_account: Account) -> None:
    """For deployments without a test mode."""


class SqlDirectory:
    """`CachingDirectory` on PostgreSQL or SQLite. Tokens are cached by their hash. `shadow`: makes an account's shadow, which is no
    row."""

    def __init__(
        self,
        engine: AsyncEngine,
        clock: Clock,
        times: CacheTimes | None = None,
        shadow: Callable[[Account], Account | None] = no_shadow,
    ) -> None:
        self._engine = engine
        self._shadow = shadow
        self._keys = LookupCache(self._find_key, clock, times or CacheTimes())
        self._test_keys = LookupCache(self._find_test_key, clock, times or CacheTimes())
        self._accounts = LookupCache(self._find_account, clock, times or CacheTimes())

    async def key(self, token: str) -> ApiKey | None:
        return await self._keys_like(token).get(token_hash(token))

    async def account(self, account_id: str) -> Account | None:
        # PostgreSQL takes no text with this character, so there is no such account; asked, it would raise an error.
        return None if "\0" in account_id else await self._accounts.get(account_id)

    def valid_until(self, token: str, caller: Caller) -> float:
        key = self._keys_like(token).cached(token_hash(token))
        return caller_valid_until(caller, key, self._accounts.cached(caller.account.id))

    def _keys_like(self, token: str) -> LookupCache[ApiKey]:
        return self._test_keys if is_test_token(token) else self._keys

    async def _find_key(self, hashed: str) -> ApiKey | None:
        row = await self._find(_KEY, hashed)
        return None if row is None else ApiKey(row.id, row.workspace_id, limit=limit_of(row))

    async def _find_test_key(self, hashed: str) -> ApiKey | None:
        key = await self._find_key(hashed)
        return None if key is None else replace(key, test=True)

    async def _find_account(self, account_id: str) -> Account | None:
        row = await self._find(_ACCOUNT, cast_by(account_id))
        account = None if row is None else account_of(row)
        return self._shadow(account) if account is not None and is_test(account_id) else account

    async def _find(self, statement: Select[Any], wanted: str) -> Row[Any] | None:
        async with transaction(self._engine, writes=False) as connection:
            answer = await connection.execute(statement, {"wanted": wanted})
            found: Row[Any] | None = answer.one_or_none()
            return found


def limit_of(row: Row[Any]) -> RateLimit | None:
    """A key's own limit, in a row with the columns of it."""
    return None if row.limit_requests is None else RateLimit(row.limit_requests, row.limit_seconds)


def account_of(row: Row[Any]) -> Account:
    """The account in a row of the columns `ACCOUNT`."""
    return Account(*tuple(row))

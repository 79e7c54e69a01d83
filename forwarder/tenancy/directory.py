"""Who is asking, and which PMS is meant: from the database, remembered for a few seconds."""

from typing import Any

from sqlalchemy import Row, Select, bindparam, select
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.runtime.clock import Clock
from forwarder.tenancy.answers import Ages, Answers
from forwarder.tenancy.database import transaction
from forwarder.tenancy.port import Account, ApiKey
from forwarder.tenancy.tables import api_keys, integration_accounts
from forwarder.tenancy.tokens import token_hash

ACCOUNT = tuple(integration_accounts.c[name] for name in Account.__dataclass_fields__)
"""What an `Account` is made of, in its order."""

_KEY = select(api_keys.c.id, api_keys.c.workspace_id).where(
    api_keys.c.token_hash == bindparam("wanted"), api_keys.c.revoked_at.is_(None)
)
_ACCOUNT = select(*ACCOUNT).where(integration_accounts.c.id == bindparam("wanted"))


class SqlDirectory:
    """`Directory` on PostgreSQL or SQLite. Tokens are remembered by their hash."""

    def __init__(self, engine: AsyncEngine, clock: Clock, ages: Ages | None = None) -> None:
        self._engine = engine
        self._keys = Answers(self._find_key, clock, ages or Ages())
        self._accounts = Answers(self._find_account, clock, ages or Ages())

    async def key(self, token: str) -> ApiKey | None:
        return await self._keys.get(token_hash(token))

    async def account(self, account_id: str) -> Account | None:
        # PostgreSQL has no text with this character, and so no such account; asked, it would call it an error.
        return None if "\0" in account_id else await self._accounts.get(account_id)

    async def _find_key(self, hashed: str) -> ApiKey | None:
        row = await self._find(_KEY, hashed)
        return None if row is None else ApiKey(row.id, row.workspace_id)

    async def _find_account(self, account_id: str) -> Account | None:
        row = await self._find(_ACCOUNT, account_id)
        return None if row is None else account_of(row)

    async def _find(self, statement: Select[Any], wanted: str) -> Row[Any] | None:
        async with transaction(self._engine, writes=False) as connection:
            answer = await connection.execute(statement, {"wanted": wanted})
            found: Row[Any] | None = answer.one_or_none()
            return found


def account_of(row: Row[Any]) -> Account:
    """The account in a row of the columns `ACCOUNT`."""
    return Account(*tuple(row))

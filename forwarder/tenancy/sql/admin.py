"""`TenancyAdmin` in SQL: workspaces, keys and accounts."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from sqlalchemy import delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from forwarder.process.enlistment import tell
from forwarder.tenancy.access import new_key_id, new_token, token_hash
from forwarder.tenancy.port import Account, AlreadyExists, ApiKey, KnownKey, NotKnown, RateLimit
from forwarder.tenancy.sql.database import insert_into, transaction
from forwarder.tenancy.sql.directory import ACCOUNT, account_of, limit_of
from forwarder.tenancy.sql.tables import api_keys, grants, integration_accounts, workspaces


class SqlTenancyAdmin:
    """`TenancyAdmin` on PostgreSQL or SQLite."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def add_workspace(self, workspace_id: str) -> None:
        new = insert_into(self._engine, workspaces).values(id=workspace_id)
        async with transaction(self._engine, writes=True) as connection:
            added = await connection.execute(new.on_conflict_do_nothing().returning(workspaces.c.id))
            if added.one_or_none() is None:
                raise AlreadyExists(f"There is a workspace {workspace_id!r} already.")

    async def add_key(
        self, workspace_id: str, *, test: bool = False, limit: RateLimit | None = None
    ) -> tuple[ApiKey, str]:
        key, token = ApiKey(new_key_id(), workspace_id, test, limit), new_token(test=test)
        new = insert_into(self._engine, api_keys).values(
            id=key.id, workspace_id=workspace_id, token_hash=token_hash(token), test=test, **_limit(limit)
        )
        async with transaction(self._engine, writes=True) as connection:
            await _require_workspace(connection, workspace_id)
            await connection.execute(new)
            tell(target=key.id)
        return key, token

    async def set_limit(self, key_id: str, limit: RateLimit | None) -> None:
        changed = update(api_keys).where(api_keys.c.id == key_id).values(_limit(limit))
        async with transaction(self._engine, writes=True) as connection:
            workspace = await connection.scalar(changed.returning(api_keys.c.workspace_id))
            if workspace is None:
                raise NotKnown(f"There is no key {key_id!r}.")
            tell(workspace=workspace)

    async def revoke_key(self, key_id: str) -> None:
        revoked_at = func.coalesce(api_keys.c.revoked_at, func.current_timestamp())
        revoked = update(api_keys).where(api_keys.c.id == key_id).values(revoked_at=revoked_at)
        async with transaction(self._engine, writes=True) as connection:
            workspace = await connection.scalar(revoked.returning(api_keys.c.workspace_id))
            if workspace is None:
                raise NotKnown(f"There is no key {key_id!r}.")
            tell(workspace=workspace)

    async def keys(self, workspace_id: str | None = None) -> Sequence[KnownKey]:
        wanted = select(api_keys).order_by(api_keys.c.created_at, api_keys.c.id)
        if workspace_id is not None:
            wanted = wanted.where(api_keys.c.workspace_id == workspace_id)
        async with transaction(self._engine, writes=False) as connection:
            return [
                KnownKey(
                    ApiKey(row.id, row.workspace_id, row.test, limit_of(row)),
                    _in_utc(row.created_at),
                    None if row.revoked_at is None else _in_utc(row.revoked_at),
                )
                for row in await connection.execute(wanted)
            ]

    async def put_account(self, account: Account, *, replace: bool = False) -> None:
        new = insert_into(self._engine, integration_accounts).values(asdict(account))
        if replace:
            own = integration_accounts.c.workspace_id == account.workspace_id
            put = new.on_conflict_do_update(index_elements=["id"], set_=asdict(account), where=own)
        else:
            put = new.on_conflict_do_nothing()
        async with transaction(self._engine, writes=True) as connection:
            await _require_workspace(connection, account.workspace_id)
            if (await connection.execute(put.returning(integration_accounts.c.id))).one_or_none() is None:
                raise AlreadyExists(f"There is an account {account.id!r} already.")

    async def accounts(self, workspace_id: str | None = None) -> Sequence[Account]:
        wanted = select(*ACCOUNT).order_by(integration_accounts.c.id)
        if workspace_id is not None:
            wanted = wanted.where(integration_accounts.c.workspace_id == workspace_id)
        async with transaction(self._engine, writes=False) as connection:
            return [account_of(row) for row in await connection.execute(wanted)]

    async def kinds(self) -> Sequence[str]:
        wanted = select(integration_accounts.c.kind).distinct().order_by(integration_accounts.c.kind)
        async with transaction(self._engine, writes=False) as connection:
            return list(await connection.scalars(wanted))

    async def pause(self, account_id: str, *, paused: bool) -> None:
        changed = update(integration_accounts).where(integration_accounts.c.id == account_id).values(paused=paused)
        async with transaction(self._engine, writes=True) as connection:
            workspace = await connection.scalar(changed.returning(integration_accounts.c.workspace_id))
            if workspace is None:
                raise NotKnown(f"There is no account {account_id!r}.")
            tell(workspace=workspace)

    async def forget_grants(self, account_id: str, *, but: str) -> None:
        forgotten = delete(grants).where(grants.c.account_id == account_id, grants.c.credential != but)
        async with transaction(self._engine, writes=True) as connection:
            await connection.execute(forgotten)


def _limit(limit: RateLimit | None) -> dict[str, int | None]:
    """Its columns."""
    if limit is None:
        return {"limit_requests": None, "limit_seconds": None}
    return {"limit_requests": limit.requests, "limit_seconds": limit.seconds}


def _in_utc(moment: datetime) -> datetime:
    """What SQLite keeps without saying that it is."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


async def _require_workspace(connection: AsyncConnection, workspace_id: str) -> None:
    found = await connection.execute(select(workspaces.c.id).where(workspaces.c.id == workspace_id))
    if found.one_or_none() is None:
        raise NotKnown(f"There is no workspace {workspace_id!r}.")

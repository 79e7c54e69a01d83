"""`RetentionPolicies` in SQL: columns of the workspaces."""

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.tenancy.port import NotKnown
from forwarder.tenancy.retention import RetentionPolicy
from forwarder.tenancy.sql.database import transaction
from forwarder.tenancy.sql.tables import integration_accounts, webhook_endpoints, workspaces

_DAYS = (workspaces.c.reservation_days, workspaces.c.delivery_days, workspaces.c.dead_letter_days)


class SqlRetentionPolicies:
    """On PostgreSQL or SQLite."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def policies(self, workspace_id: str | None = None) -> Sequence[RetentionPolicy]:
        wanted = select(workspaces.c.id, *_DAYS).order_by(workspaces.c.id)
        if workspace_id is not None:
            wanted = wanted.where(workspaces.c.id == workspace_id)
        async with transaction(self._engine, writes=False) as connection:
            found = [RetentionPolicy(*row) for row in await connection.execute(wanted)]
        if workspace_id is not None and not found:
            raise NotKnown(f"There is no workspace {workspace_id!r}.")
        return found

    async def set_policy(self, policy: RetentionPolicy) -> None:
        days = {name: value for name, value in asdict(policy).items() if name != "workspace_id"}
        changed = update(workspaces).where(workspaces.c.id == policy.workspace_id).values(days)
        async with transaction(self._engine, writes=True) as connection:
            if (await connection.execute(changed)).rowcount == 0:
                raise NotKnown(f"There is no workspace {policy.workspace_id!r}.")

    async def account_workspaces(self) -> dict[str, str]:
        wanted = select(integration_accounts.c.id, integration_accounts.c.workspace_id)
        async with transaction(self._engine, writes=False) as connection:
            return {row.id: row.workspace_id for row in await connection.execute(wanted)}

    async def endpoint_workspaces(self) -> dict[str, str]:
        wanted = select(webhook_endpoints.c.id, webhook_endpoints.c.workspace_id)
        async with transaction(self._engine, writes=False) as connection:
            return {row.id: row.workspace_id for row in await connection.execute(wanted)}

"""Webhook endpoints in SQL, on PostgreSQL or SQLite."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import RowMapping, Select, Update, delete, func, insert, null, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.tenancy.port import NotKnown
from forwarder.tenancy.sql.database import transaction
from forwarder.tenancy.sql.tables import webhook_endpoints as table
from forwarder.tenancy.sql.tables import workspaces
from forwarder.tenancy.webhooks import MAX_ENDPOINTS, Disabled, Endpoint, TooManyEndpoints

_row = table.c
_ENDPOINT = tuple(table.c[field.name] for field in fields(Endpoint))
"""What an `Endpoint` is made of, in its order."""


class SqlEndpoints:
    """`EndpointAdmin`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def any_enabled(self) -> bool:
        return bool(await self._all(select(*_ENDPOINT).where(_row.enabled).limit(1)))

    async def enabled_of(self, workspace_ids: Collection[str]) -> Sequence[Endpoint]:
        wanted = select(*_ENDPOINT).where(_row.workspace_id.in_(workspace_ids), _row.enabled)
        return await self._all(wanted) if workspace_ids else ()

    async def endpoint(self, endpoint_id: str) -> Endpoint | None:
        # PostgreSQL takes no text with this character, so there is no such endpoint; asked, it would raise an error.
        if "\0" in endpoint_id:
            return None
        found = await self._all(select(*_ENDPOINT).where(_row.id == endpoint_id))
        return found[0] if found else None

    async def disable(self, endpoint_id: str, reason: Disabled, *, now: datetime) -> bool:
        values = {"enabled": False, "disabled_reason": reason.value, "disabled_at": now}
        disabled = update(table).where(_row.id == endpoint_id, _row.enabled).values(values)
        async with transaction(self._engine, writes=True) as connection:
            return (await connection.execute(disabled)).rowcount == 1

    async def add(self, endpoint: Endpoint) -> None:
        workspace = select(workspaces.c.id).where(workspaces.c.id == endpoint.workspace_id)
        count = select(func.count()).where(_row.workspace_id == endpoint.workspace_id)
        async with transaction(self._engine, writes=True) as connection:
            # Of two at once, the second waits here for the first, and then counts it.
            if (await connection.execute(workspace.with_for_update())).one_or_none() is None:
                raise NotKnown(f"There is no workspace {endpoint.workspace_id!r}.")
            if (await connection.execute(count)).scalar_one() >= MAX_ENDPOINTS:
                raise TooManyEndpoints(f"A workspace has at most {MAX_ENDPOINTS} endpoints.")
            await connection.execute(insert(table).values(asdict(endpoint)))

    async def of(self, workspace_id: str | None) -> Sequence[Endpoint]:
        wanted = select(*_ENDPOINT).order_by(_row.created_at, _row.id)
        return await self._all(wanted if workspace_id is None else wanted.where(_row.workspace_id == workspace_id))

    async def change(
        self, endpoint_id: str, *, url: str, types: Sequence[str] | None, description: str
    ) -> Endpoint | None:
        kinds = null() if types is None else list(types)
        values = {"url": url, "types": kinds, "description": description}
        return await self._changed(update(table).where(_row.id == endpoint_id).values(values))

    async def enable(self, endpoint_id: str) -> Endpoint | None:
        values = {"enabled": True, "disabled_reason": null(), "disabled_at": null()}
        return await self._changed(update(table).where(_row.id == endpoint_id).values(values))

    async def rotate(self, endpoint_id: str, secret: str, *, previous_until: datetime | None) -> Endpoint | None:
        values = {
            "previous_secret": null() if previous_until is None else _row.secret,
            "previous_until": previous_until,
            "secret": secret,
        }
        return await self._changed(update(table).where(_row.id == endpoint_id).values(values))

    async def remove(self, endpoint_id: str) -> bool:
        async with transaction(self._engine, writes=True) as connection:
            return (await connection.execute(delete(table).where(_row.id == endpoint_id))).rowcount == 1

    async def _all(self, wanted: Select[Any]) -> Sequence[Endpoint]:
        async with transaction(self._engine, writes=False) as connection:
            return [_endpoint_of(row) for row in (await connection.execute(wanted)).mappings()]

    async def _changed(self, statement: Update) -> Endpoint | None:
        async with transaction(self._engine, writes=True) as connection:
            row = (await connection.execute(statement.returning(*_ENDPOINT))).mappings().one_or_none()
        return None if row is None else _endpoint_of(row)


def _endpoint_of(row: RowMapping) -> Endpoint:
    """The endpoint in a row of the columns `_ENDPOINT`. SQLite stores times without their zone, which is UTC."""
    kept = dict(row)
    for name in ("disabled_at", "previous_until", "created_at"):
        if isinstance(kept[name], datetime) and kept[name].tzinfo is None:
            kept[name] = kept[name].replace(tzinfo=UTC)
    kept["types"] = None if kept["types"] is None else tuple(kept["types"])
    return Endpoint(**kept)

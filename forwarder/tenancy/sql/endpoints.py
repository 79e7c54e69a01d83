"""Webhook endpoints in SQL, on PostgreSQL or SQLite."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

from sqlalchemy import RowMapping, Select, delete, func, insert, null, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from forwarder.tenancy import port
from forwarder.tenancy.port import Disabled, Endpoint, PreviousSecret
from forwarder.tenancy.sql.database import in_utc, integration_accounts, transaction, webhook_secrets, workspaces, write
from forwarder.tenancy.sql.database import webhook_endpoints as table

_row, _earlier = table.c, webhook_secrets.c
_PREVIOUS = (_row.previous_secret, _row.previous_until)
_ENDPOINT = (*(_row[field.name] for field in fields(Endpoint) if field.name != "previous"), *_PREVIOUS)
"""Secrets before the previous one are in a separate table: releases before 0.2 know only that one, and clear it to end all."""


class Endpoints:
    """Never cached: changes take effect at once. They return the changed endpoint or None. Raises `TenancyUnavailable`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def any_enabled(self) -> bool:
        return bool(await self._all(select(*_ENDPOINT).where(_row.enabled).limit(1)))

    async def enabled_of(self, workspace_ids: Collection[str]) -> Sequence[Endpoint]:
        wanted = select(*_ENDPOINT).where(_row.workspace_id.in_(workspace_ids), _row.enabled)
        return await self._all(wanted) if workspace_ids else ()

    async def endpoint(self, endpoint_id: str) -> Endpoint | None:
        # PostgreSQL texts cannot contain this character, so there is no such endpoint; a query would raise an error.
        found = () if "\0" in endpoint_id else await self._all(select(*_ENDPOINT).where(_row.id == endpoint_id))
        return found[0] if found else None

    async def disable(self, endpoint_id: str, reason: Disabled, *, now: datetime, url: str | None = None) -> bool:
        """Stop posting to it. False where it was disabled already, is unknown, or has another address than `url`, if given."""
        values = {"enabled": False, "disabled_reason": reason.value, "disabled_at": now}
        disabled = update(table).where(_row.id == endpoint_id, _row.enabled).values(values)
        return await write(self._engine, disabled if url is None else disabled.where(_row.url == url)) == 1

    async def add(self, endpoint: Endpoint) -> None:
        """Raises `NotKnown` (no such workspace), `TooManyEndpoints`, `UnknownAccount`."""
        workspace = select(workspaces.c.id).where(workspaces.c.id == endpoint.workspace_id)
        count = select(func.count()).where(_row.workspace_id == endpoint.workspace_id)
        async with transaction(self._engine, writes=True) as connection:
            # If two add at once, the second waits here for the first, and then counts it.
            if (await connection.execute(workspace.with_for_update())).one_or_none() is None:
                raise port.NotKnown(f"There is no workspace {endpoint.workspace_id!r}.")
            if (await connection.execute(count)).scalar_one() >= port.MAX_ENDPOINTS:
                raise port.TooManyEndpoints(f"A workspace has at most {port.MAX_ENDPOINTS} endpoints.")
            await _require_accounts(connection, endpoint)
            values = {name: value for name, value in asdict(endpoint).items() if name != "previous"}
            await connection.execute(insert(table).values(values))

    async def of(self, workspace_id: str | None) -> Sequence[Endpoint]:
        wanted = select(*_ENDPOINT).order_by(_row.created_at, _row.id)
        return await self._all(wanted if workspace_id is None else wanted.where(_row.workspace_id == workspace_id))

    async def change(self, was: Endpoint, endpoint: Endpoint) -> Endpoint | None:
        """Stores the `terms` of `endpoint`; None also if they are no longer those of `was`. Raises `UnknownAccount`."""
        locked = select(*_ENDPOINT).where(_row.id == endpoint.id).with_for_update()
        async with transaction(self._engine, writes=True) as connection:
            await _require_accounts(connection, endpoint)
            present = await _endpoints_of(connection, (await connection.execute(locked)).mappings().all())
            if [each.terms for each in present] != [was.terms]:
                return None
            return await _changed(connection, endpoint.id, endpoint.terms)

    async def enable(self, endpoint_id: str) -> Endpoint | None:
        async with transaction(self._engine, writes=True) as connection:
            values = {"enabled": True, "disabled_reason": null(), "disabled_at": null()}
            return await _changed(connection, endpoint_id, values)

    async def rotate(self, endpoint_id: str, secret: str, *, previous_until: datetime | None) -> Endpoint | None:
        """Signs with `secret`, which is sealed. The replaced one also signs until `previous_until`, None ends all earlier ones."""
        earlier = _earlier.endpoint_id == endpoint_id
        longest = select(_earlier.secret).where(earlier).order_by(_earlier.until.desc(), _earlier.secret)
        async with transaction(self._engine, writes=True) as connection:
            present = select(_row.secret, *_PREVIOUS).where(_row.id == endpoint_id).with_for_update()
            if (was := (await connection.execute(present)).one_or_none()) is None:
                return None
            kept: Sequence[str] = ()
            if previous_until is not None and was.previous_secret is not None:
                values = {"endpoint_id": endpoint_id, "secret": was.previous_secret, "until": was.previous_until}
                await connection.execute(insert(webhook_secrets).values(values))
                kept = (await connection.execute(longest.limit(port.MAX_PREVIOUS_SECRETS - 1))).scalars().all()
            await connection.execute(delete(webhook_secrets).where(earlier, _earlier.secret.not_in(kept)))
            previous = None if previous_until is None else was.secret
            values = {"secret": secret, "previous_secret": previous, "previous_until": previous_until}
            return await _changed(connection, endpoint_id, values)

    async def remove(self, endpoint_id: str) -> bool:
        return await write(self._engine, delete(table).where(_row.id == endpoint_id)) == 1

    async def _all(self, wanted: Select[Any]) -> Sequence[Endpoint]:
        async with transaction(self._engine, writes=False) as connection:
            return await _endpoints_of(connection, (await connection.execute(wanted)).mappings().all())


async def _require_accounts(connection: AsyncConnection, endpoint: Endpoint) -> None:
    if not endpoint.account_ids:
        return
    account = integration_accounts.c
    own = select(account.id).where(account.workspace_id == endpoint.workspace_id, account.id.in_(endpoint.account_ids))
    if unknown := set(endpoint.account_ids).difference(await connection.scalars(own)):
        raise port.UnknownAccount(f"names {min(unknown)!r}, which is not an integration account of the workspace")


async def _changed(connection: AsyncConnection, endpoint_id: str, values: Mapping[str, Any]) -> Endpoint | None:
    changed = update(table).where(_row.id == endpoint_id).values(values).returning(*_ENDPOINT)
    found = await _endpoints_of(connection, (await connection.execute(changed)).mappings().all())
    return found[0] if found else None


async def _endpoints_of(connection: AsyncConnection, rows: Sequence[RowMapping]) -> Sequence[Endpoint]:
    previous: dict[str, list[PreviousSecret]] = {
        row["id"]: [PreviousSecret(row["previous_secret"], in_utc(row["previous_until"]))]
        for row in rows
        if row["previous_secret"] is not None
    }
    if previous:
        for each in await connection.execute(select(webhook_secrets).where(_earlier.endpoint_id.in_(previous))):
            previous[each.endpoint_id].append(PreviousSecret(each.secret, in_utc(each.until)))
    endpoints = []
    for row in rows:
        kept = {name: value for name, value in row.items() if not name.startswith("previous_")}
        for name in ("disabled_at", "created_at"):
            kept[name] = in_utc(kept[name])
        for name in ("types", "account_ids", "property_ids", "header_names"):
            kept[name] = None if kept[name] is None else tuple(kept[name])
        longest_first = sorted(previous.get(row["id"], ()), key=lambda each: each.until, reverse=True)
        endpoints.append(Endpoint(**kept, previous=tuple(longest_first)))
    return endpoints

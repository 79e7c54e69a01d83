"""Operators' changes to workspaces, keys and accounts, and how long each workspace keeps its guests' data."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import asdict, fields, replace
from datetime import datetime
from typing import Any, Final, Unpack

from sqlalchemy import ColumnElement, Row, ScalarSelect, Select, Table, and_, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from forwarder.process.clock import iso
from forwarder.process.enlistment import tell
from forwarder.tenancy.limits import shared_by
from forwarder.tenancy.port import (
    Account,
    AlreadyExists,
    ApiKey,
    ChangedMeanwhile,
    InUse,
    KeyTerms,
    KnownKey,
    NotKnown,
    RateLimit,
    RetentionPolicy,
    Workspace,
    new_key_id,
    new_token,
    token_hash,
    write_networks,
    write_scopes,
)
from forwarder.tenancy.sql import database
from forwarder.tenancy.sql.database import in_utc, insert_into, read, shared_key, transaction
from forwarder.tenancy.sql.directory import ACCOUNT, account_of, key_of, limit_of

_KNOWN_KEYS = select(database.api_keys, database.key_uses.c.used_at).outerjoin(
    database.key_uses, database.key_uses.c.key_id == database.api_keys.c.id
)


def _count(table: Table, *conditions: ColumnElement[bool]) -> ScalarSelect[int]:
    theirs = select(func.count()).where(table.c.workspace_id == database.workspaces.c.id, *conditions)
    return theirs.correlate(database.workspaces).scalar_subquery()


_WORKSPACES = select(
    database.workspaces.c.id,
    database.workspaces.c.created_at,
    database.workspaces.c.limit_requests,
    database.workspaces.c.limit_seconds,
    _count(database.integration_accounts).label("accounts"),
    _count(database.api_keys, database.api_keys.c.revoked_at.is_(None)).label("live_keys"),
    _count(database.webhook_endpoints).label("webhooks"),
)


Audited = Callable[..., AbstractAsyncContextManager[object]]
"""Audits an operation while its change is made. Called with the action, and with `workspace`, `target` and details by name."""

_DAYS = (
    database.workspaces.c.reservation_days,
    database.workspaces.c.delivery_days,
    database.workspaces.c.dead_letter_days,
)


class TenancyAdmin:
    """Operators' changes to workspaces, keys and accounts, each audited by `audited`, if that is given. Raises `AlreadyExists`,
    `NotKnown`, `TenancyUnavailable`."""

    def __init__(self, engine: AsyncEngine, audited: Audited = lambda _action, **_about: nullcontext()) -> None:
        self._engine, self._audited = engine, audited

    @asynccontextmanager
    async def _changing(self, action: str, **about: Any) -> AsyncIterator[AsyncConnection]:
        async with self._audited(action, **about), transaction(self._engine, writes=True) as connection:
            yield connection

    async def add_workspace(self, workspace_id: str, limit: RateLimit | None = None) -> None:
        terms = KeyTerms() if limit is None else KeyTerms(limit=limit)
        new = insert_into(self._engine, database.workspaces).values(id=workspace_id, **_columns(terms))
        async with self._changing("workspace.add", workspace=workspace_id, **_texts(terms)) as connection:
            added = await connection.execute(new.on_conflict_do_nothing().returning(database.workspaces.c.id))
            if added.one_or_none() is None:
                raise AlreadyExists(f"There is a workspace {workspace_id!r} already.")

    async def limit_workspace(self, workspace_id: str, limit: RateLimit | None) -> None:
        terms = KeyTerms(limit=limit)
        of_it = update(database.workspaces).where(database.workspaces.c.id == workspace_id).values(_columns(terms))
        before = select(database.workspaces).where(database.workspaces.c.id == workspace_id).with_for_update()
        async with self._changing("workspace.change", workspace=workspace_id, **_texts(terms)) as connection:
            was = (await connection.execute(before)).one_or_none()
            if was is None:
                raise NotKnown(f"There is no workspace {workspace_id!r}.")
            await connection.execute(of_it)
            tell(details={"was": _texts(KeyTerms(limit=limit_of(was)))})

    async def workspaces(self, workspace_id: str | None = None) -> Sequence[Workspace]:
        """All workspaces, or one, ordered by id."""
        wanted = _of(workspace_id, _WORKSPACES.order_by(database.workspaces.c.id), database.workspaces.c.id)
        return [
            Workspace(row.id, in_utc(row.created_at), row.accounts, row.live_keys, row.webhooks, limit_of(row))
            for row in await read(self._engine, wanted)
        ]

    async def remove_workspace(self, workspace_id: str) -> None:
        """Removes a workspace without accounts and webhooks, and its keys. Raises `InUse`."""
        theirs = select(database.api_keys.c.id).where(database.api_keys.c.workspace_id == workspace_id)
        async with self._changing("workspace.remove", workspace=workspace_id) as connection:
            row = (await connection.execute(_WORKSPACES.where(database.workspaces.c.id == workspace_id))).one_or_none()
            if row is None:
                raise NotKnown(f"There is no workspace {workspace_id!r}.")
            if row.accounts or row.webhooks:
                raise InUse(
                    f"Workspace {workspace_id!r} has {row.accounts} accounts and {row.webhooks} webhooks, whose data "
                    "would have no owner."
                )
            await connection.execute(delete(database.key_uses).where(database.key_uses.c.key_id.in_(theirs)))
            shared = database.key_usage.c.key_id == shared_by(workspace_id)
            await connection.execute(delete(database.key_usage).where(shared | database.key_usage.c.key_id.in_(theirs)))
            await connection.execute(delete(database.api_keys).where(database.api_keys.c.workspace_id == workspace_id))
            await connection.execute(delete(database.workspaces).where(database.workspaces.c.id == workspace_id))

    async def add_key(self, workspace_id: str, *, test: bool = False, **terms: Unpack[KeyTerms]) -> tuple[ApiKey, str]:
        """A new key and its token, which is shown only here and stored nowhere."""
        key = ApiKey(new_key_id(), workspace_id, test, **terms)
        token = new_token(await shared_key(self._engine, "token-key"), test=test)
        whole = {**terms, "scopes": key.scopes, "networks": key.networks}
        new = insert_into(self._engine, database.api_keys).values(
            id=key.id, workspace_id=workspace_id, token_hash=token_hash(token), test=test, **_columns(whole)
        )
        about = {"test": test, **_texts({"scopes": key.scopes, **terms})}
        async with self._changing("key.add", workspace=workspace_id, **about) as connection:
            await _require_workspace(connection, workspace_id)
            await connection.execute(new)
            tell(target=key.id)
        return key, token

    async def change_key(self, key_id: str, **terms: Unpack[KeyTerms]) -> KnownKey:
        """Changes the given terms; returns the changed key."""
        values, known = _columns(terms), _KNOWN_KEYS.where(database.api_keys.c.id == key_id)
        async with self._changing("key.change", target=key_id, **_texts(terms)) as connection:
            row = (await connection.execute(known.with_for_update(of=database.api_keys))).one_or_none()
            if row is None:
                raise NotKnown(f"There is no key {key_id!r}.")
            was = _known(row).key
            before = _texts({name: getattr(was, name) for name in terms})
            tell(workspace=was.workspace_id, details={"was": before})
            if values:
                await connection.execute(
                    update(database.api_keys).where(database.api_keys.c.id == key_id).values(values)
                )
                row = (await connection.execute(known)).one()
        return _known(row)

    async def revoke_key(self, key_id: str) -> None:
        revoked_at = func.coalesce(database.api_keys.c.revoked_at, func.current_timestamp())
        revoked = update(database.api_keys).where(database.api_keys.c.id == key_id).values(revoked_at=revoked_at)
        async with self._changing("key.revoke", target=key_id) as connection:
            workspace = await connection.scalar(revoked.returning(database.api_keys.c.workspace_id))
            if workspace is None:
                raise NotKnown(f"There is no key {key_id!r}.")
            tell(workspace=workspace)

    async def keys(self, workspace_id: str | None = None) -> Sequence[KnownKey]:
        every = _KNOWN_KEYS.order_by(database.api_keys.c.created_at, database.api_keys.c.id)
        wanted = _of(workspace_id, every, database.api_keys.c.workspace_id)
        return [_known(row) for row in await read(self._engine, wanted)]

    async def keys_ending(self, *, after: datetime, before: datetime) -> int:
        """How many keys that were not revoked expire between these times."""
        ending = (
            database.api_keys.c.revoked_at.is_(None),
            database.api_keys.c.expires_at > after,
            database.api_keys.c.expires_at <= before,
        )
        (row,) = await read(self._engine, select(func.count(database.api_keys.c.id)).where(*ending))
        return int(row[0])

    async def put_account(self, account: Account) -> None:
        new = insert_into(self._engine, database.integration_accounts).values(asdict(account)).on_conflict_do_nothing()
        async with self._changing("account.add", **_about(account), base_url=account.base_url) as connection:
            await _require_workspace(connection, account.workspace_id)
            if (await connection.execute(new.returning(database.integration_accounts.c.id))).one_or_none() is None:
                raise AlreadyExists(f"There is an account {account.id!r} already.")

    async def change_account(self, was: Account, account: Account) -> None:
        """Writes what differs between `was`, as it was read, and `account`; leaves what others changed since then. Raises
        `ChangedMeanwhile` if that is one of these fields, or the address or credential, which belong together."""
        changed = {each.name for each in fields(Account) if getattr(was, each.name) != getattr(account, each.name)}
        own = and_(
            database.integration_accounts.c.id == account.id,
            database.integration_accounts.c.workspace_id == account.workspace_id,
        )
        async with self._changing("account.change", **_about(account), changed=_changed(was, account)) as connection:
            row = (await connection.execute(select(*ACCOUNT).where(own).with_for_update())).one_or_none()
            if row is None:
                raise NotKnown(f"There is no account {account.id!r}.")
            present = account_of(row)
            if any(getattr(present, name) != getattr(was, name) for name in changed | {"base_url", "credential"}):
                raise ChangedMeanwhile(
                    f"Another operator changed account {account.id!r} at the same moment, so this change was not made. Check the "
                    "account, and repeat the change if it is still needed."
                )
            if changed:
                values = {name: getattr(account, name) for name in changed}
                await connection.execute(update(database.integration_accounts).where(own).values(values))

    async def accounts(self, workspace_id: str | None = None) -> Sequence[Account]:
        every = select(*ACCOUNT).order_by(database.integration_accounts.c.id)
        wanted = _of(workspace_id, every, database.integration_accounts.c.workspace_id)
        return [account_of(row) for row in await read(self._engine, wanted)]

    async def kinds(self) -> Sequence[str]:
        wanted = select(database.integration_accounts.c.kind).distinct().order_by(database.integration_accounts.c.kind)
        return [row.kind for row in await read(self._engine, wanted)]

    async def pause(self, account_id: str, *, paused: bool) -> None:
        changed = (
            update(database.integration_accounts)
            .where(database.integration_accounts.c.id == account_id)
            .values(paused=paused)
        )
        async with self._changing("account.pause" if paused else "account.resume", target=account_id) as connection:
            workspace = await connection.scalar(changed.returning(database.integration_accounts.c.workspace_id))
            if workspace is None:
                raise NotKnown(f"There is no account {account_id!r}.")
            tell(workspace=workspace)

    async def forget_grants(self, account_id: str, *, but: str) -> None:
        """Forget the grants of every credential of the account but the one with the digest `but`."""
        forgotten = delete(database.grants).where(
            database.grants.c.account_id == account_id, database.grants.c.credential != but
        )
        async with self._changing("account.forget_grants", target=account_id) as connection:
            await connection.execute(forgotten)

    # --- how long each workspace keeps its guests' data ---

    async def policies(self, workspace_id: str | None = None) -> Sequence[RetentionPolicy]:
        """The policies of one workspace or all, ordered by id. Raises `NotKnown` if there is no such workspace."""
        wanted = _of(
            workspace_id,
            select(database.workspaces.c.id, *_DAYS).order_by(database.workspaces.c.id),
            database.workspaces.c.id,
        )
        found = [RetentionPolicy(*row) for row in await read(self._engine, wanted)]
        if workspace_id is not None and not found:
            raise NotKnown(f"There is no workspace {workspace_id!r}.")
        return found

    async def set_policy(self, workspace_id: str, **days: int | None) -> RetentionPolicy:
        """Sets these fields of the policy; returns it whole. Raises `NotKnown` if there is no such workspace."""
        of_it = update(database.workspaces).where(database.workspaces.c.id == workspace_id).values(days)
        before = (
            select(database.workspaces.c.id, *_DAYS).where(database.workspaces.c.id == workspace_id).with_for_update()
        )
        async with self._changing("retention.set", workspace=workspace_id, **days) as connection:
            was = (await connection.execute(before)).one_or_none()
            if was is None:
                raise NotKnown(f"There is no workspace {workspace_id!r}.")
            tell(details={"was": {name: was._mapping[name] for name in days}})
            row = (await connection.execute(of_it.returning(database.workspaces.c.id, *_DAYS))).one()
        return RetentionPolicy(*row)

    async def account_workspaces(self) -> dict[str, str]:
        wanted = select(database.integration_accounts.c.id, database.integration_accounts.c.workspace_id)
        return {row.id: row.workspace_id for row in await read(self._engine, wanted)}

    async def endpoint_workspaces(self) -> dict[str, str]:
        wanted = select(database.webhook_endpoints.c.id, database.webhook_endpoints.c.workspace_id)
        return {row.id: row.workspace_id for row in await read(self._engine, wanted)}


def _of(workspace_id: str | None, every: Select[Any], column: ColumnElement[str]) -> Select[Any]:
    return every if workspace_id is None else every.where(column == workspace_id)


def _about(account: Account) -> dict[str, str]:
    return {"workspace": account.workspace_id, "target": account.id, "kind": account.kind}


def _known(row: Row[Any]) -> KnownKey:
    moments = (None if each is None else in_utc(each) for each in (row.revoked_at, row.used_at))
    return KnownKey(replace(key_of(row), name=row.name), in_utc(row.created_at), *moments)


_WRITTEN: Final[Mapping[str, Callable[[Any], str]]] = {
    "limit": str,
    "scopes": write_scopes,
    "expires_at": iso,
    "networks": write_networks,
    "name": str,
}
_AUDITED_AS: Final = {"limit": "rate", "expires_at": "expires", "networks": "from"}


def _texts(terms: Mapping[str, Any]) -> dict[str, str | None]:
    return {
        _AUDITED_AS.get(name, name): None if value is None else _WRITTEN[name](value) for name, value in terms.items()
    }


def _columns(terms: Mapping[str, Any]) -> dict[str, Any]:
    columns = {name: value for name, value in terms.items() if name != "limit"}
    for name in columns.keys() & {"scopes", "networks"}:
        columns[name] = _WRITTEN[name](columns[name])
    if "limit" in terms:
        limit: RateLimit | None = terms["limit"]
        columns["limit_requests"] = None if limit is None else limit.requests
        columns["limit_seconds"] = None if limit is None else limit.seconds
    return columns


_SHOWN: Final = frozenset(
    "kind base_url concurrency rate_per_second deadline_seconds duplicate_window_seconds similar skipped_checks settles_seconds "
    "same_pms_before".split()
)
"""The fields of an account whose values are no secret."""


def _changed(before: Account, after: Account) -> dict[str, Any]:
    """The changed fields: their old and new values; of the others, which may be secret or long, and of options, only that they
    changed."""
    changed: dict[str, Any] = {}
    for each in fields(Account):
        old, new = getattr(before, each.name), getattr(after, each.name)
        if old == new:
            continue
        if each.name == "options":
            changed |= {f"options.{name}": "changed" for name in {*old, *new} if old.get(name) != new.get(name)}
        else:
            changed[each.name] = {"from": old, "to": new} if each.name in _SHOWN else "changed"
    return changed


async def _require_workspace(connection: AsyncConnection, workspace_id: str) -> None:
    found = await connection.execute(select(database.workspaces.c.id).where(database.workspaces.c.id == workspace_id))
    if found.one_or_none() is None:
        raise NotKnown(f"There is no workspace {workspace_id!r}.")

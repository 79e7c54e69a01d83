"""Operators' changes to workspaces, keys and accounts, and how long each workspace keeps its guests' data."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import asdict, fields, replace
from datetime import datetime
from secrets import token_hex
from typing import Any, Final, Unpack

from sqlalchemy import ColumnElement, Result, Row, ScalarSelect, Select, Table, and_, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from forwarder.process.clock import iso
from forwarder.process.enlistment import tell
from forwarder.tenancy import port
from forwarder.tenancy.port import Account, ApiKey, KeyTerms, KnownKey, NotKnown, RateLimit
from forwarder.tenancy.sql import database
from forwarder.tenancy.sql.database import in_utc, insert_into, read, shared_key, transaction
from forwarder.tenancy.sql.directory import ACCOUNT, account_of, key_of, limit_of

_workspace, _key, _account = database.workspaces.c, database.api_keys.c, database.integration_accounts.c
_uses = database.key_uses
_KNOWN_KEYS = select(database.api_keys, _uses.c.used_at).outerjoin(_uses, _uses.c.key_id == _key.id)


def _count(table: Table, *conditions: ColumnElement[bool]) -> ScalarSelect[int]:
    theirs = select(func.count()).where(table.c.workspace_id == _workspace.id, *conditions)
    return theirs.correlate(database.workspaces).scalar_subquery()


_WORKSPACES = select(
    *(_workspace.id, _workspace.created_at, _workspace.limit_requests, _workspace.limit_seconds),
    _count(database.integration_accounts).label("accounts"),
    _count(database.api_keys, _key.revoked_at.is_(None)).label("live_keys"),
    _count(database.webhook_endpoints).label("webhooks"),
)
_POLICIES = select(_workspace.id, _workspace.reservation_days, _workspace.delivery_days, _workspace.dead_letter_days)
Audited = Callable[..., AbstractAsyncContextManager[object]]


class TenancyAdmin:
    """Changes. `audited`, if given, audits each while it is made: it is called with the action, and with `workspace`, `target` and
    details by name. Raises `AlreadyExists`, `NotKnown`, `TenancyUnavailable`."""

    def __init__(self, engine: AsyncEngine, audited: Audited = lambda _action, **_about: nullcontext()) -> None:
        self._engine, self._audited = engine, audited

    @asynccontextmanager
    async def _changing(self, action: str, **about: Any) -> AsyncIterator[AsyncConnection]:
        async with self._audited(action, **about), transaction(self._engine, writes=True) as connection:
            yield connection

    async def add_workspace(self, workspace_id: str, limit: RateLimit | None = None) -> None:
        terms = KeyTerms() if limit is None else KeyTerms(limit=limit)
        values = {"id": workspace_id, **_columns(terms)}
        new = insert_into(self._engine, database.workspaces).values(values).on_conflict_do_nothing()
        async with self._changing("workspace.add", workspace=workspace_id, **_texts(terms)) as connection:
            if (await connection.execute(new.returning(_workspace.id))).one_or_none() is None:
                raise port.AlreadyExists(f"There is a workspace {workspace_id!r} already.")

    async def limit_workspace(self, workspace_id: str, limit: RateLimit | None) -> None:
        terms = KeyTerms(limit=limit)
        of_it = update(database.workspaces).where(_workspace.id == workspace_id).values(_columns(terms))
        before = select(database.workspaces).where(_workspace.id == workspace_id).with_for_update()
        async with self._changing("workspace.change", workspace=workspace_id, **_texts(terms)) as connection:
            was = _found(await connection.execute(before), "workspace", workspace_id)
            await connection.execute(of_it)
            tell(details={"was": _texts(KeyTerms(limit=limit_of(was)))})

    async def workspaces(self, workspace_id: str | None = None) -> Sequence[port.Workspace]:
        """All workspaces, or one, ordered by id."""
        wanted = _of(workspace_id, _WORKSPACES.order_by(_workspace.id), _workspace.id)
        return [
            port.Workspace(row.id, in_utc(row.created_at), row.accounts, row.live_keys, row.webhooks, limit_of(row))
            for row in await read(self._engine, wanted)
        ]

    async def remove_workspace(self, workspace_id: str) -> None:
        """Removes a workspace without accounts and webhooks, and its keys. Raises `InUse`."""
        theirs, usage = select(_key.id).where(_key.workspace_id == workspace_id), database.key_usage
        async with self._changing("workspace.remove", workspace=workspace_id) as connection:
            found = await connection.execute(_WORKSPACES.where(_workspace.id == workspace_id))
            row = _found(found, "workspace", workspace_id)
            if row.accounts or row.webhooks:
                has = f"Workspace {workspace_id!r} has {row.accounts} accounts and {row.webhooks} webhooks"
                raise port.InUse(f"{has}, whose data would have no owner.")
            await connection.execute(delete(_uses).where(_uses.c.key_id.in_(theirs)))
            shared = usage.c.key_id == f"workspace:{workspace_id}"
            await connection.execute(delete(usage).where(shared | usage.c.key_id.in_(theirs)))
            await connection.execute(delete(database.api_keys).where(_key.workspace_id == workspace_id))
            await connection.execute(delete(database.workspaces).where(_workspace.id == workspace_id))

    async def add_key(self, workspace_id: str, *, test: bool = False, **terms: Unpack[KeyTerms]) -> tuple[ApiKey, str]:
        """A new key and its token, which is shown only here and stored nowhere."""
        key = ApiKey(f"key_{token_hex(6)}", workspace_id, test, **terms)
        token = port.new_token(await shared_key(self._engine, "token-key"), test=test)
        whole = {**terms, "scopes": key.scopes, "networks": key.networks}
        new = insert_into(self._engine, database.api_keys).values(
            id=key.id, workspace_id=workspace_id, token_hash=port.token_hash(token), test=test, **_columns(whole)
        )
        about = {"test": test, **_texts({"scopes": key.scopes, **terms})}
        async with self._changing("key.add", workspace=workspace_id, **about) as connection:
            await _require_workspace(connection, workspace_id)
            await connection.execute(new)
            tell(target=key.id)
        return key, token

    async def change_key(self, key_id: str, **terms: Unpack[KeyTerms]) -> KnownKey:
        """Changes the given terms; returns the changed key."""
        values, known = _columns(terms), _KNOWN_KEYS.where(_key.id == key_id)
        async with self._changing("key.change", target=key_id, **_texts(terms)) as connection:
            row = _found(await connection.execute(known.with_for_update(of=database.api_keys)), "key", key_id)
            was = _known(row).key
            tell(workspace=was.workspace_id, details={"was": _texts({name: getattr(was, name) for name in terms})})
            if values:
                await connection.execute(update(database.api_keys).where(_key.id == key_id).values(values))
                row = (await connection.execute(known)).one()
        return _known(row)

    async def revoke_key(self, key_id: str) -> None:
        revoked_at = func.coalesce(_key.revoked_at, func.current_timestamp())
        revoked = update(database.api_keys).where(_key.id == key_id).values(revoked_at=revoked_at)
        async with self._changing("key.revoke", target=key_id) as connection:
            row = _found(await connection.execute(revoked.returning(_key.workspace_id)), "key", key_id)
            tell(workspace=row.workspace_id)

    async def keys(self, workspace_id: str | None = None) -> Sequence[KnownKey]:
        wanted = _of(workspace_id, _KNOWN_KEYS.order_by(_key.created_at, _key.id), _key.workspace_id)
        return [_known(row) for row in await read(self._engine, wanted)]

    async def keys_ending(self, *, after: datetime, before: datetime) -> int:
        """How many keys that were not revoked expire between these times."""
        ending = (_key.revoked_at.is_(None), _key.expires_at > after, _key.expires_at <= before)
        (row,) = await read(self._engine, select(func.count(_key.id)).where(*ending))
        return int(row[0])

    async def put_account(self, account: Account) -> None:
        new = insert_into(self._engine, database.integration_accounts).values(asdict(account)).on_conflict_do_nothing()
        async with self._changing("account.add", **_about(account), base_url=account.base_url) as connection:
            await _require_workspace(connection, account.workspace_id)
            if (await connection.execute(new.returning(_account.id))).one_or_none() is None:
                raise port.AlreadyExists(f"There is an account {account.id!r} already.")

    async def change_account(self, was: Account, account: Account) -> None:
        """Writes what differs between `was`, as it was read, and `account`; leaves what others changed since then. Raises
        `ChangedMeanwhile` if that is one of these fields, or the address or credential, which belong together."""
        own = and_(_account.id == account.id, _account.workspace_id == account.workspace_id)
        async with self._changing("account.change", **_about(account), changed=_changed(was, account)) as connection:
            row = await connection.execute(select(*ACCOUNT).where(own).with_for_update())
            present = account_of(_found(row, "account", account.id))
            values = {name: each for name, each in asdict(account).items() if each != getattr(was, name)}
            if any(getattr(present, name) != getattr(was, name) for name in {*values, "base_url", "credential"}):
                raise port.ChangedMeanwhile(
                    f"Another operator changed account {account.id!r} at the same moment, so this change was not made. Check the "
                    "account, and repeat the change if it is still needed."
                )
            if values:
                await connection.execute(update(database.integration_accounts).where(own).values(values))

    async def accounts(self, workspace_id: str | None = None) -> Sequence[Account]:
        wanted = _of(workspace_id, select(*ACCOUNT).order_by(_account.id), _account.workspace_id)
        return [account_of(row) for row in await read(self._engine, wanted)]

    async def kinds(self) -> Sequence[str]:
        return [row.kind for row in await read(self._engine, select(_account.kind).distinct().order_by(_account.kind))]

    async def pause(self, account_id: str, *, paused: bool) -> None:
        changed = update(database.integration_accounts).where(_account.id == account_id).values(paused=paused)
        async with self._changing("account.pause" if paused else "account.resume", target=account_id) as connection:
            row = _found(await connection.execute(changed.returning(_account.workspace_id)), "account", account_id)
            tell(workspace=row.workspace_id)

    async def forget_grants(self, account_id: str, *, but: str) -> None:
        """Forget the grants of every credential of the account but the one with the digest `but`."""
        grant = database.grants.c
        others = delete(database.grants).where(grant.account_id == account_id, grant.credential != but)
        async with self._changing("account.forget_grants", target=account_id) as connection:
            await connection.execute(others)

    async def policies(self, workspace_id: str | None = None) -> Sequence[port.RetentionPolicy]:
        """The policies of one workspace or all, ordered by id. Raises `NotKnown`."""
        wanted = _of(workspace_id, _POLICIES.order_by(_workspace.id), _workspace.id)
        found = [port.RetentionPolicy(*row) for row in await read(self._engine, wanted)]
        if workspace_id is not None and not found:
            raise NotKnown(f"There is no workspace {workspace_id!r}.")
        return found

    async def set_policy(self, workspace_id: str, **days: int | None) -> port.RetentionPolicy:
        """Sets these fields of the policy; returns it whole."""
        of_it = update(database.workspaces).where(_workspace.id == workspace_id).values(days)
        policy = _POLICIES.where(_workspace.id == workspace_id)
        async with self._changing("retention.set", workspace=workspace_id, **days) as connection:
            was = _found(await connection.execute(policy.with_for_update()), "workspace", workspace_id)
            tell(details={"was": {name: was._mapping[name] for name in days}})
            await connection.execute(of_it)
            return port.RetentionPolicy(*(await connection.execute(policy)).one())

    async def account_workspaces(self) -> dict[str, str]:
        wanted = select(_account.id, _account.workspace_id)
        return {row.id: row.workspace_id for row in await read(self._engine, wanted)}

    async def endpoint_workspaces(self) -> dict[str, str]:
        wanted = select(database.webhook_endpoints.c.id, database.webhook_endpoints.c.workspace_id)
        return {row.id: row.workspace_id for row in await read(self._engine, wanted)}


def _found(result: Result[Any], what: str, identifier: str) -> Row[Any]:
    """The one row of `result`. Raises `NotKnown`."""
    if (row := result.one_or_none()) is None:
        raise NotKnown(f"There is no {what} {identifier!r}.")
    return row


def _of(workspace_id: str | None, every: Select[Any], column: ColumnElement[str]) -> Select[Any]:
    return every if workspace_id is None else every.where(column == workspace_id)


def _about(account: Account) -> dict[str, str]:
    return {"workspace": account.workspace_id, "target": account.id, "kind": account.kind}


def _known(row: Row[Any]) -> KnownKey:
    key, moments = replace(key_of(row), name=row.name), (row.created_at, row.revoked_at, row.used_at)
    return KnownKey(key, *map(in_utc, moments))


_WRITTEN: Final[Mapping[str, Callable[[Any], str]]] = {
    "scopes": port.write_scopes,
    "expires_at": iso,
    "networks": lambda networks: " ".join(map(str, networks)),
}


def _texts(terms: Mapping[str, Any]) -> dict[str, str | None]:
    names = {"limit": "rate", "expires_at": "expires", "networks": "from"}
    return {names.get(key, key): None if each is None else _WRITTEN.get(key, str)(each) for key, each in terms.items()}


def _columns(terms: Mapping[str, Any]) -> dict[str, Any]:
    columns = {name: value for name, value in terms.items() if name != "limit"}
    for name in columns.keys() & {"scopes", "networks"}:
        columns[name] = _WRITTEN[name](columns[name])
    if "limit" in terms:
        limit: RateLimit | None = terms["limit"]
        columns |= {"limit_requests": limit and limit.requests, "limit_seconds": limit and limit.seconds}
    return columns


_SHOWN: Final = frozenset(
    "kind base_url concurrency rate_per_second deadline_seconds duplicate_window_seconds similar skipped_checks settles_seconds "
    "same_pms_before".split()
)
"""The fields of an account whose values are no secret."""


def _changed(before: Account, after: Account) -> dict[str, Any]:
    """The changed fields with old and new values; of options, and of what may be secret or long, only that they changed."""
    changed: dict[str, Any] = {}
    for each in fields(Account):
        old, new = getattr(before, each.name), getattr(after, each.name)
        if old != new and each.name == "options":
            changed |= {f"options.{name}": "changed" for name in {*old, *new} if old.get(name) != new.get(name)}
        elif old != new:
            changed[each.name] = {"from": old, "to": new} if each.name in _SHOWN else "changed"
    return changed


async def _require_workspace(connection: AsyncConnection, workspace_id: str) -> None:
    found = await connection.execute(select(_workspace.id).where(_workspace.id == workspace_id))
    _found(found, "workspace", workspace_id)

"""Audited changes of workspaces, keys and accounts by operators."""

from dataclasses import fields
from typing import Any, Final, Unpack

from forwarder.oversight.audit import Audit
from forwarder.process.clock import iso
from forwarder.store.engine import Engine
from forwarder.tenancy.api_keys import write_networks, write_scopes
from forwarder.tenancy.port import Account, ApiKey, KeyTerms, KnownKey, RateLimit
from forwarder.tenancy.sql.admin import TenancyAdmin


class AuditedTenancy(TenancyAdmin):
    """Audits the changes that are made through it."""

    def __init__(self, engine: Engine, audit: Audit) -> None:
        super().__init__(engine)
        self._audit = audit

    async def add_workspace(self, workspace_id: str, limit: RateLimit | None = None) -> None:
        given = {} if limit is None else {"rate": str(limit)}
        async with self._audit.operation("workspace.add", workspace=workspace_id, **given):
            await super().add_workspace(workspace_id, limit)

    async def limit_workspace(self, workspace_id: str, limit: RateLimit | None) -> None:
        rate = None if limit is None else str(limit)
        async with self._audit.operation("workspace.change", workspace=workspace_id, rate=rate):
            await super().limit_workspace(workspace_id, limit)

    async def remove_workspace(self, workspace_id: str) -> None:
        async with self._audit.operation("workspace.remove", workspace=workspace_id):
            await super().remove_workspace(workspace_id)

    async def add_key(self, workspace_id: str, *, test: bool = False, **terms: Unpack[KeyTerms]) -> tuple[ApiKey, str]:
        async with self._audit.operation("key.add", workspace=workspace_id, test=test, **_written(terms)):
            return await super().add_key(workspace_id, test=test, **terms)

    async def change_key(self, key_id: str, **terms: Unpack[KeyTerms]) -> KnownKey:
        async with self._audit.operation("key.change", target=key_id, **_written(terms)):
            return await super().change_key(key_id, **terms)

    async def revoke_key(self, key_id: str) -> None:
        async with self._audit.operation("key.revoke", target=key_id):
            await super().revoke_key(key_id)

    async def put_account(self, account: Account, *, replace: bool = False) -> None:
        action, whose = "account.change" if replace else "account.add", account.workspace_id
        known = [each for each in await self.accounts(whose) if each.id == account.id] if replace else []
        changed = {"changed": _changed(known[0], account)} if known else {}
        async with self._audit.operation(action, workspace=whose, target=account.id, kind=account.kind, **changed):
            await super().put_account(account, replace=replace)

    async def pause(self, account_id: str, *, paused: bool) -> None:
        async with self._audit.operation("account.pause" if paused else "account.resume", target=account_id):
            await super().pause(account_id, paused=paused)

    async def forget_grants(self, account_id: str, *, but: str) -> None:
        async with self._audit.operation("account.forget_grants", target=account_id):
            await super().forget_grants(account_id, but=but)


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


def _written(terms: KeyTerms) -> dict[str, str | None]:
    written: dict[str, str | None] = {}
    if "limit" in terms:
        written["rate"] = None if terms["limit"] is None else str(terms["limit"])
    if "scopes" in terms:
        written["scopes"] = write_scopes(terms["scopes"])
    if "expires_at" in terms:
        written["expires"] = None if terms["expires_at"] is None else iso(terms["expires_at"])
    if "networks" in terms:
        written["from"] = write_networks(terms["networks"])
    if "name" in terms:
        written["name"] = terms["name"]
    return written

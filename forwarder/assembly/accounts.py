"""Integration accounts as operators add and change them: checked for their kind of PMS, sealed, kept."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from forwarder.assembly.backend import Backend
from forwarder.pms.auth.shared_grants import credential_digest
from forwarder.pms.options import check_options
from forwarder.tenancy.port import Account, NotKnown
from forwarder.tenancy.sql.grants import forget_grants


async def add_account(backend: Backend, account: Account, credential: str) -> None:
    """Add `account`, whose credential is the given one, which is sealed. Raises `UnknownKind`, `BadOptions`, `AlreadyExists`,
    `NotKnown`."""
    check_options(account.kind, account.options)
    sealed = (await backend.sealer()).seal_text(credential)
    await backend.registry.put_account(replace(account, credential=sealed))


async def change_account(
    backend: Backend,
    account_id: str,
    *,
    credential: str | None,
    options: Mapping[str, Any],
    all_options: bool,
) -> Account:
    """The account with another credential, where one is given, and other options: `options` in the place of all, or of those alone
    that it names, None for none. What came of an old credential is forgotten. Raises `BadOptions`, `NotKnown`."""
    account = next((known for known in await backend.registry.accounts() if known.id == account_id), None)
    if account is None:
        raise NotKnown(f"There is no account {account_id!r}.")
    wanted = dict(options) if all_options else {**account.options, **options}
    changed = replace(account, options={name: value for name, value in wanted.items() if value is not None})
    check_options(changed.kind, changed.options)
    if credential is not None:
        changed = replace(changed, credential=(await backend.sealer()).seal_text(credential))
    await backend.registry.put_account(changed, replace=True)
    if credential is not None:
        await forget_grants(backend.engine, account_id, but=credential_digest(credential))
    return changed
